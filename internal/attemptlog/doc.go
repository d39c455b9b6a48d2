// Package attemptlog is what handlers log: the lines of an attempt, how they are kept in memory
// within bounds until they are written, and the form in which the database has them.
//
// A [Memory] has the bounds of a process, a [Log] the lines of one attempt. Of an attempt the
// first and the last lines are kept, by bytes; those between are dropped and counted, for lines
// have numbers. A handler never waits for its log.
//
// What may not enter: statements, routes, and the handlers themselves.
package attemptlog
