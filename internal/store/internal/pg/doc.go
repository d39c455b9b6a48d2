// Package pg is what every flow of the store shares: the pool of connections, how a flow
// runs (Call, Repeatable, Transaction and their errors), how its signals are sent, and the
// numbers that the columns of the schema hold. Statements are written in package stmt and
// compiled with the constants of this one.
//
// A flow that runs once is Call; one that does no harm when it runs twice is Repeatable, or
// Read where it has a result (ReadAll, ReadOne, ReadMap and Execute for one statement). One
// that needs several round trips in one transaction is Transaction, or Change where it has a
// result, or Recorded where an operator changes one thing; Transact has all statements of a
// transaction in one round trip.
//
// What may not enter: statements of a single flow, and the types of tasks and steps.
package pg
