// Package perfguard keeps what has been made cheap from becoming dear again.
//
// A Case is one operation with a budget. Benchmark measures it for people, who
// compare times with benchstat; Allocations holds it to its budget in every
// test run. Only counts are held to budgets, never times: a count is the same
// on a busy machine. What else can be counted, such as the statements of a
// database flow, is compared with Within.
//
// What may not enter: anything that measures time, and any knowledge of what
// is measured; the cases stand in the tests of the packages they are about.
package perfguard
