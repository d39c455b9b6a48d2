// Package enginestep holds the rules of the steps that the engine runs itself: what a sleep, a
// wait for an event, an approval or a task of a step waits for when it begins, which values of
// the task its settings refer to, and how it ends.
//
// Like workflow, everything here is pure. What may not enter: what carries the waits out, which
// is with orchestration and store.
package enginestep
