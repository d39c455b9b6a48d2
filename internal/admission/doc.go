// Package admission has the rules for how often tasks of a template are submitted, throttles
// and debounces, and the keys by which these and limits of callables tell tasks apart.
//
// What may not enter: the decision about a submission, which the database makes (the function
// admit), and quotas, which count the tasks of a namespace.
package admission
