// Package limitrule says what a limit of a callable may be: its key, its bounds, and what happens
// to steps beyond them. Requests, templates and task types declare limits in this form, and
// the store keeps them. Keys of throttles and debounces (package admission) are the same.
//
// What may not enter: SQL, which limits exist, how claims follow them (package store).
package limitrule
