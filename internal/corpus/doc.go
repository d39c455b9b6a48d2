// Package corpus has tests only: templates that were written for another engine,
// run here with handlers that do what theirs do. The templates stand beside the
// project, in ../shared/corpus; where they are not, the tests are skipped. Each
// test names the behaviours that it is about by their rows; rows_test.go lists
// all of them, with the test of each.
package corpus
