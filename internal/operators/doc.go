// Package operators makes random concurrent actions of operators, senders of events and
// clients on tasks, over the API of several orchestrators, and checks the result when they
// stop.
//
// The same seed makes the same choices in the same order for each operator; their effects
// depend on timing. Every task ends by itself once it is left alone, except tasks that are
// steps of others and wait for an event that never comes: they end with their step. So a
// task that has not ended after a while is stuck, or continues although its step was
// cancelled.
//
// Reading order: templates.go (the workflows), run.go (the operators), acts.go (the
// actions), settle.go (the checks). The suite runs it in one process, the chaos module on
// daemons.
package operators
