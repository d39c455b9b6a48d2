// Package admission has the rules for how often tasks of a template are submitted: throttles
// and debounces. Requests and templates declare them in this form, and the store keeps them.
//
// What may not enter: the decision about a submission, which the database makes (the function
// admit), and quotas, which count the tasks of a namespace.
package admission
