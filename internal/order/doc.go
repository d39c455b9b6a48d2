// Package order says in which order the steps that wait in one line are claimed. It is
// arithmetic: a policy gives a step a lane when the step is put in line, and claims read
// lanes from the smallest to the largest.
//
// What may not enter: statements (store), the state of queues, clocks.
package order
