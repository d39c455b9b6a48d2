// Package corpus has tests only: templates that were written for another engine, run here
// with handlers that do the same as theirs. The templates are beside the project, in
// ../shared/corpus; without them the tests are skipped. Each test names its behaviours by
// their rows; rows_test.go lists all of them, with the test of each.
package corpus
