// Package operators is a random run of everything that operators, senders of
// events and clients do to tasks at the same time, over the API of several
// orchestrators, and the check of what is left when they stop.
//
// The same seed makes the same choices in the same order for each operator; what
// they meet is up to the machine. Every task ends by itself once it is left
// alone, but for those that are steps of others and wait for an event that never
// comes: they end with the step that they are. So what has not ended after a while
// is stuck, or goes on although its step was called off.
//
// Reading order: templates.go (what runs), run.go (who acts), acts.go (what they
// do), settle.go (what must hold). The suite runs it in one process, the chaos
// module on daemons.
package operators
