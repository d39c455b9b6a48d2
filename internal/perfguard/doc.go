// Package perfguard keeps optimized operations from getting slower again.
//
// A Case is one operation with a budget. Benchmark measures its time, for comparison with
// benchstat; Allocations checks its budget in every test run. Budgets are for counts, never
// for times: a count is the same on a busy machine. Other counts, such as the statements of
// a database flow, are compared with Within.
//
// What may not enter: measuring time, and knowledge of the operations; the cases are in the
// tests of their packages.
package perfguard
