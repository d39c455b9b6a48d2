// Package admission has the rules of operators for how often tasks of a template are
// submitted: throttles and debounces.
//
// What may not enter: the decision about a submission, which the database makes (the function
// admit), and quotas, which count the tasks of a namespace.
package admission
