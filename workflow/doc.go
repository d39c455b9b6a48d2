// Package workflow holds the rules: what a template says, the states of a task and its steps,
// and what happens next.
//
// Everything here is pure. There is no database, no clock, no goroutine and no randomness;
// durations and seeds come in as values, and decisions go out as values (see Effects) for
// store to write in one transaction. That is why the rules can be tested by properties and
// by a simulator that runs through millions of random histories.
//
// Read it in this order: template.go (what a template says), plan.go (the template compiled
// into numbered steps), progress.go (the recorded state of a running task),
// advance.go (the function that decides). The externally visible states are in states.go.
// What a step that the engine runs itself waits for is in internal/enginestep.
//
// What may not enter: SQL, time.Now, logging, configuration, files and their syntax, which
// workflow/template reads.
package workflow
