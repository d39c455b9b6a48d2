package pgtest

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// TestingM is the part of *testing.M that is used.
type TestingM interface {
	// Run runs the tests and returns the exit code.
	Run() int
}

// Main runs a package's tests with the shared server and exits. Call it from TestMain. It is
// not required: New starts the server as well; but here a missing PostgreSQL is reported
// once, not by every test.
func Main(m TestingM) { os.Exit(With(m).Run()) }

// With returns m with the shared server started before its tests, for another wrapper such
// as goleak.VerifyTestMain(pgtest.With(m)).
func With(m TestingM) TestingM { return withServer{m} }

type withServer struct{ TestingM }

// Run implements TestingM.
func (w withServer) Run() int {
	if _, err := acquire(context.Background()); err != nil {
		fmt.Fprintf(os.Stderr, "these tests need PostgreSQL: %v\n", err)
		return 1
	}
	code := w.TestingM.Run()
	// An abandoned connection is closed in the background, which takes time on a busy
	// machine: only then check for leaked goroutines.
	for end := time.Now().Add(20 * time.Second); goleak.Find() != nil && time.Now().Before(end); {
	}
	return code
}

// FullSize reports whether tests use the sizes in the documentation, instead of the smallest
// that show the same: `make test-long`.
func FullSize() bool { return os.Getenv("TASKER_TEST_FULL") != "" }
