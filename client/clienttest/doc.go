// Package clienttest is an orchestrator for the tests of programs that use
// [client.Client]: no PostgreSQL, no workers, no engine. A test says how the tasks of a
// template end, and reads afterwards which were created.
//
// Its tasks end when they are created, with one step of the template's name. It answers
// creations, single and in batches, reads, lists and cancels tasks; other routes are 404.
// It checks requests less thoroughly than an orchestrator: that a program works with real
// ones is for a test with a real one.
package clienttest
