// Package workflow holds the rules: what a template says, what states a task
// and its steps can be in, and what happens next.
//
// Everything here is pure. There is no database, no clock, no goroutine and no
// randomness; durations and seeds come in as values, and what should happen
// goes out as values (see Effects) for store to make true in one transaction.
// That is why the rules can be tested by properties and by a simulator that
// runs through millions of random histories.
//
// Read it in this order: template.go (what an author writes), plan.go (the
// template compiled into numbered steps), progress.go (what is remembered of a
// running task), advance.go (the function that decides). The vocabulary of
// states that the outside sees is in states.go.
//
// What may not enter: SQL, time.Now, logging, configuration files. The one place
// that touches a disk is load.go, which finds and reads template files; no rule
// depends on it.
package workflow
