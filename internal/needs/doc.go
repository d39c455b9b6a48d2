// Package needs says which tools of other projects tests use, how each is found, and what a
// test does without one.
//
// A test that uses a broker, another language or a program of the system begins with [Tool].
// Without the tool it is left out, and scripts/test names at the end of the run what was left out.
// Where CI=true or TASKER_TEST_ALL is set, it fails: there a script of the table has installed
// every tool. A test that repeats others or takes long begins with [All], and runs only there.
//
// The table is the only place that knows where a tool is looked for. PostgreSQL is no part of
// it, because every machine has or fetches it (internal/pgcluster), and neither is Go.
//
// Only tests, test kits and the runner of the tests import this package. What may not enter:
// the product, and how a tool is started.
package needs
