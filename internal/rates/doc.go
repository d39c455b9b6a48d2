// Package rates counts what happened in each minute: the attempts of steps by callable, plan, step and
// outcome, with histograms of how long they waited and ran, and the ends of tasks by plan and state.
//
// A [Counter] gathers them in the memory of a process, after the commits that record them in the ledger;
// the process writes what it has with its heartbeats. What a killed process had not written is missing
// from the rates, never from the ledger. Minutes are those of the database's clock, which comes with each
// attempt.
//
// What may not enter: SQL (store), and what a single task is about.
package rates
