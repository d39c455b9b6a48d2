// Package pg is what every flow of the store shares: the pool of connections, how a flow
// runs (Call, Repeatable, Transaction and their errors), how its signals are sent, and the
// numbers that the columns of the schema hold. Statements are written in package stmt and
// compiled with the constants of this one.
//
// A flow that reads or writes once is Call; one that does no harm when it runs twice is
// Repeatable (ReadAll, ReadOne and Execute for a single statement); one that needs several
// round trips in one transaction is Transaction, and Transact has all its statements in one
// round trip.
//
// What may not enter: statements of a single flow, and the types of tasks and steps.
package pg
