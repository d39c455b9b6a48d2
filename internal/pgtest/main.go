package pgtest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
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
func With(m TestingM) TestingM { return withServer{m, acquire, func() error { return nil }} }

// Apart is With on a server that no other package uses, unless URLEnv names one. It is for
// tests of replication slots: making one waits for the transactions of all databases of a
// server.
func Apart(m TestingM) TestingM { return withServer{m, acquireApart, stopJoined} }

// Waiting returns m, whose tests mostly wait for processes, with twice as many of them at once
// as Go's default, unless -parallel says how many.
func Waiting(m TestingM) TestingM {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
			panic(err)
		}
	}
	return m
}

type withServer struct {
	TestingM
	acquire func(context.Context) (*server, error)
	stop    func() error
}

// Run implements TestingM.
func (w withServer) Run() (code int) {
	if _, err := w.acquire(context.Background()); err != nil {
		fmt.Fprintf(os.Stderr, "these tests need PostgreSQL: %v\n", err)
		return 1
	}
	defer func() {
		if err := w.stop(); err != nil {
			fmt.Fprintf(os.Stderr, "stop the server of these tests: %v\n", err)
			code = max(code, 1)
		}
	}()
	code = w.TestingM.Run()
	// An abandoned connection is closed in the background, which takes time on a busy
	// machine: only then check for leaked goroutines.
	for end := time.Now().Add(20 * time.Second); goleak.Find() != nil && time.Now().Before(end); {
	}
	return code
}

// FullSize reports whether tests use the sizes in the documentation, instead of the smallest
// that show the same: `make test-long`.
func FullSize() bool { return os.Getenv("TASKER_TEST_FULL") != "" }
