package worker

import (
	"errors"
	"time"

	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/worker/internal/failure"
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
	// ErrAbsent: the input field or the step's result does not exist.
	ErrAbsent = errors.New("absent")
	// ErrUnknownStep: this step does not depend on a step of that name, directly or not.
	ErrUnknownStep = errors.New("not a step this one depends on")
)

// The values of error_type that the engine sets. A handler's error sets its own with a
// method ErrorType() string.
const (
	TypeRetryable        = failure.TypeRetryable       // the handler returned Retryable
	TypePermanent        = failure.TypePermanent       // the handler returned Permanent
	TypeUnexpected       = failure.TypeUnexpected      // the handler returned another error
	TypeInvalidInput     = "InvalidInput"              // the input does not fit a typed handler
	TypePanic            = failure.TypePanic           // the handler panicked
	TypeTimeout          = failure.TypeTimeout         // the step's time limit has passed
	TypeHandlerNotFound  = "HandlerNotFound"           // no handler in this worker; another one may have it
	TypeMethodNotFound   = "MethodNotFound"            // the handler has no such method
	TypeResolution       = "ResolutionError"           // a resolver failed
	TypePlanUnreadable   = failure.TypePlanUnreadable  // the step's plan cannot be used by this worker
	TypeResultNotEncoded = "ResultNotEncodable"        // the result has no JSON form
	TypeResultNotStored  = failure.TypeResultNotStored // the result cannot be stored: its size or its content
	TypeInvalidOutcome   = "InvalidOutcome"            // the result asks for steps that a step of its type cannot create
	// TypeNotIsolated: an item of a batch cannot be isolated, see StepContext.Isolate.
	TypeNotIsolated = "ItemNotIsolated"
	// TypeItemsNotRead: the handler of a batch with items has not read them, see
	// StepContext.BatchItems.
	TypeItemsNotRead = "ItemsNotRead"
	// TypeCheckpointNotStored: a checkpoint cannot be stored, see CheckpointError.
	TypeCheckpointNotStored = failure.TypeCheckpointNotStored

	// TypeNextTaskRefused: a next task (Continue) cannot be created.
	TypeNextTaskRefused = failure.TypeNextTaskRefused

	// Types for handlers that work in a transaction.
	TypeTransaction   = failure.TypeTransaction   // it was not begun or committed, or was lost; it is rolled back
	TypeSerialization = failure.TypeSerialization // rolled back by the server because of a conflict (SQLSTATE 40001, 40P01)
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
	return failure.Retryable(err, after)
}

// Permanent marks err as a failure that another attempt cannot fix. A nil err stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return failure.Permanent(err)
}

// WithCode gives err a code from the handler's vocabulary, stored as error_code. It does
// not change whether err is retryable. A nil err stays nil.
func WithCode(err error, code string) error {
	if err == nil {
		return nil
	}
	return failure.WithCode(err, code)
}

// WithDetails gives err facts that are stored as JSON under context. Details without a
// JSON form, or too large, are dropped. A nil err stays nil.
func WithDetails(err error, details map[string]any) error {
	if err == nil {
		return nil
	}
	return failure.WithDetails(err, details)
}

func typed(kind, format string, args ...any) error { return failure.New(kind, format, args...) }
