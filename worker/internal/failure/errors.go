package failure

import (
	"errors"
	"fmt"
	"time"
)

// The values of error_type that the engine sets itself; package worker documents them.
const (
	TypeRetryable           = "RetryableError"
	TypePermanent           = "PermanentError"
	TypeUnexpected          = "UnexpectedError"
	TypePanic               = "PanicError"
	TypeTimeout             = "Timeout"
	TypePlanUnreadable      = "PlanUnreadable"
	TypeResultNotStored     = "ResultNotStorable"
	TypeCheckpointNotStored = "CheckpointNotStorable"
	TypeNextTaskRefused     = "NextTaskRefused"
	TypeTransaction         = "TransactionFailed"
	TypeSerialization       = "SerializationFailure"
)

// Retryable marks err, which is not nil, as a failure after which the step may run again,
// not before the delay after.
func Retryable(err error, after time.Duration) error {
	return &verdict{err: err, retryable: true, after: after}
}

// Permanent marks err, which is not nil, as a failure that another attempt cannot fix.
func Permanent(err error) error { return &verdict{err: err} }

// WithCode gives err, which is not nil, a code.
func WithCode(err error, code string) error { return &coded{err, code} }

// WithDetails gives err, which is not nil, details.
func WithDetails(err error, details map[string]any) error { return &detailed{err, details} }

// WithType gives err, which is not nil, an error_type.
func WithType(err error, kind string) error { return &typed{kind, err} }

// New makes an error with an error_type from a format and its arguments.
func New(kind, format string, args ...any) error { return &typed{kind, fmt.Errorf(format, args...)} }

// Marked reports whether Retryable or Permanent has marked err, and whether the outermost
// mark was Permanent.
func Marked(err error) (marked, permanent bool) {
	var mark *verdict
	if !errors.As(err, &mark) {
		return false, false
	}
	return true, !mark.retryable
}

// TypeOf returns the error_type that New or WithType gave err, or "".
func TypeOf(err error) string {
	var t *typed
	if errors.As(err, &t) {
		return t.kind
	}
	return ""
}

type verdict struct {
	err       error
	retryable bool
	after     time.Duration
}

func (e *verdict) Error() string { return e.err.Error() }
func (e *verdict) Unwrap() error { return e.err }

type coded struct {
	err  error
	code string
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

type detailed struct {
	err     error
	details map[string]any
}

func (e *detailed) Error() string { return e.err.Error() }
func (e *detailed) Unwrap() error { return e.err }

type typed struct {
	kind string
	err  error
}

func (e *typed) Error() string     { return e.err.Error() }
func (e *typed) Unwrap() error     { return e.err }
func (e *typed) ErrorType() string { return e.kind }
