package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker/internal/engine"
)

// Errors that callers and handlers branch on.
var (
	// ErrLeaseLost is the cause of a handler's context when the claim of its step is
	// lost: the handler's result changes nothing.
	ErrLeaseLost = engine.ErrLeaseLost
	// ErrTimeout is the cause of a handler's context when the time limit of its step has
	// passed.
	ErrTimeout = engine.ErrTimeout
	// ErrShutdown is the cause of a handler's context when the worker stops and the grace
	// period is over. A handler that returns because of it has not failed: its step runs
	// again elsewhere.
	ErrShutdown = engine.ErrShutdown
	// ErrUnavailable: the database did not answer in time; the same call may succeed later.
	ErrUnavailable = store.ErrUnavailable
	// ErrWorkerIDInUse says that another worker runs under the WorkerID, which is Exclusive.
	ErrWorkerIDInUse = engine.ErrWorkerIDInUse
	// ErrAbsent: the input field or the step's result does not exist.
	ErrAbsent = errors.New("absent")
	// ErrUnknownStep: this step does not depend on a step of that name, directly or not.
	ErrUnknownStep = errors.New("not a step this one depends on")
)

// Retryable marks err as a failure after which the step may run again. A positive delay
// is the least time to the next attempt and overrides the step's backoff; otherwise the
// backoff decides. A nil err stays nil.
//
// Unmarked errors are retryable as well; the outermost mark of a chain counts.
func Retryable(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return engine.Retryable(err, after)
}

// Permanent marks err as a failure that another attempt cannot fix. A nil err stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return engine.Permanent(err)
}

// HandBack is what a handler returns that has done nothing: the step goes back to where it
// was claimed, without using an attempt, and any worker may claim it. It is for handlers
// that pass steps on, and have found that they cannot; a handler that always returns it
// makes its step go round. While the database is unavailable the worker tries again; when
// the time limit of the step is over before, the step fails.
func HandBack(why error) error { return &handBackError{why} }

// handBackError is the end of an execution that did nothing.
type handBackError struct{ why error }

func (e *handBackError) Error() string { return fmt.Sprintf("hand back the step: %v", e.why) }
func (e *handBackError) Unwrap() error { return e.why }

// Lost is what a handler returns that passed its step on to a process that is lost: seen was the last
// sign of it. The step runs again without using an attempt, unless it is blamed for the loss or may not
// be executed twice, or it has been lost maxLosses times. Where that cannot be recorded it fails with
// why. It is for handlers that pass steps on.
func Lost(why error, seen time.Time, maxLosses int) error { return &lostError{why, seen, maxLosses} }

// lostError is the end of an execution in another process that is lost.
type lostError struct {
	why       error
	seen      time.Time
	maxLosses int
}

func (e *lostError) Error() string { return e.why.Error() }
func (e *lostError) Unwrap() error { return e.why }

// WithCode gives err a code from the handler's vocabulary, stored as error_code. It does
// not change whether err is retryable. A nil err stays nil.
func WithCode(err error, code string) error {
	if err == nil {
		return nil
	}
	return engine.WithCode(err, code)
}

// WithDetails gives err facts that are stored as JSON under context. Details without a
// JSON form, or too large, are dropped. A nil err stays nil.
func WithDetails(err error, details map[string]any) error {
	if err == nil {
		return nil
	}
	return engine.WithDetails(err, details)
}
