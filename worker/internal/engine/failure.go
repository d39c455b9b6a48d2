package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tasker-go/tasker/internal/jsonscan"
)

// The values of error_type that the engine sets. A handler's error sets its own with a
// method ErrorType() string. docs/use/handlers.md lists them for operators.
const (
	TypeRetryable        = "RetryableError"     // the handler returned Retryable
	TypePermanent        = "PermanentError"     // the handler returned Permanent
	TypeUnexpected       = "UnexpectedError"    // the handler returned another error
	TypeInvalidInput     = "InvalidInput"       // the input does not fit a typed handler
	TypePanic            = "PanicError"         // the handler panicked
	TypeTimeout          = "Timeout"            // the step's time limit has passed
	TypeHandlerNotFound  = "HandlerNotFound"    // no handler in this worker; another one may have it
	TypeMethodNotFound   = "MethodNotFound"     // the handler has no such method
	TypeResolution       = "ResolutionError"    // a resolver failed
	TypeInputsTooLarge   = "InputsTooLarge"     // more than worker.inputs.max_bytes
	TypeStepUnreadable   = "StepUnreadable"     // the database rejects claims of the step, or cannot read its inputs
	TypePlanUnreadable   = "PlanUnreadable"     // the step's plan cannot be used by this worker
	TypeResultNotEncoded = "ResultNotEncodable" // the result has no JSON form
	TypeResultNotStored  = "ResultNotStorable"  // the result cannot be stored: its size or its content
	TypeResultMismatch   = "ResultMismatch"     // the result does not fit the result_schema of the step
	TypeInvalidOutcome   = "InvalidOutcome"     // the result asks for steps that a step of its type cannot create
	TypeNotIsolated      = "ItemNotIsolated"    // an item of a batch cannot be isolated
	TypeNotPublished     = "EventNotPublished"  // an event of the handler's own cannot be published
	TypeItemsNotRead     = "ItemsNotRead"       // the handler of a batch with items has not read them
	TypeNextTaskRefused  = "NextTaskRefused"    // the next task cannot be created
	// TypeCheckpointNotStored: a checkpoint is too large or cannot be stored.
	TypeCheckpointNotStored = "CheckpointNotStorable"

	// Types for handlers that work in a transaction.
	TypeTransaction   = "TransactionFailed"    // it was not begun or committed, or was lost; it is rolled back
	TypeSerialization = "SerializationFailure" // rolled back by the server because of a conflict (SQLSTATE 40001, 40P01)
)

// Retryable marks err, which is not nil, as a failure after which the step may run again,
// not before the delay after.
func Retryable(err error, after time.Duration) error {
	return &verdict{wrapped{err}, true, after}
}

// Permanent marks err, which is not nil, as a failure that another attempt cannot fix.
func Permanent(err error) error { return &verdict{wrapped: wrapped{err}} }

// WithCode gives err, which is not nil, a code.
func WithCode(err error, code string) error { return &coded{wrapped{err}, code} }

// WithDetails gives err, which is not nil, details.
func WithDetails(err error, details map[string]any) error { return &detailed{wrapped{err}, details} }

// WithType gives err, which is not nil, an error_type.
func WithType(err error, kind string) error { return &typed{wrapped{err}, kind} }

// Errorf makes an error with an error_type from a format and its arguments.
func Errorf(kind, format string, args ...any) error {
	return &typed{wrapped{fmt.Errorf(format, args...)}, kind}
}

// Marked reports whether Retryable or Permanent has marked err, and whether the outermost
// mark was Permanent.
func Marked(err error) (marked, permanent bool) {
	var mark *verdict
	if !errors.As(err, &mark) {
		return false, false
	}
	return true, !mark.retryable
}

// TypeOf returns the error_type that Errorf or WithType gave err, or "".
func TypeOf(err error) string {
	var t *typed
	if errors.As(err, &t) {
		return t.kind
	}
	return ""
}

// wrapped is an error around another one.
type wrapped struct{ error }

func (w wrapped) Unwrap() error { return w.error }

type verdict struct {
	wrapped
	retryable bool
	after     time.Duration
}

type coded struct {
	wrapped
	code string
}

type detailed struct {
	wrapped
	details map[string]any
}

type typed struct {
	wrapped
	kind string
}

func (e *typed) ErrorType() string { return e.kind }

// Bounds of the stored failure, in bytes.
const (
	maxMessage = 8 << 10
	maxType    = 255
	maxCode    = 255
	maxDetails = 64 << 10
)

// NoDelay as Failure.After: the handler requested no delay.
const NoDelay = time.Duration(-1)

// Failure is an error as it is reported and stored.
type Failure struct {
	Message   string          `json:"message"`
	Type      string          `json:"error_type"`
	Code      string          `json:"error_code,omitempty"`
	Retryable bool            `json:"retryable"`
	Context   json.RawMessage `json:"context,omitempty"`

	After time.Duration `json:"-"` // the least time to the next attempt, or NoDelay
}

// FailureOf reads the marks of an error; of each kind the outermost counts.
func FailureOf(err error) Failure {
	f := Failure{Message: Text(err.Error(), maxMessage), Type: TypeUnexpected, Retryable: true, After: NoDelay}
	var mark *verdict
	if errors.As(err, &mark) {
		f.Retryable = mark.retryable
		if f.Type = TypePermanent; mark.retryable {
			f.Type = TypeRetryable
		}
		if mark.retryable && mark.after > 0 {
			f.After = mark.after
		}
	}
	var kind interface{ ErrorType() string }
	if errors.As(err, &kind) && kind.ErrorType() != "" {
		f.Type = Text(kind.ErrorType(), maxType)
	}
	var code *coded
	if errors.As(err, &code) {
		f.Code = Text(code.code, maxCode)
	}
	var more *detailed
	if errors.As(err, &more) {
		f.Context = encodeDetails(more.details)
	}
	return f
}

// encodeDetails encodes the details of an error, or the reason why it cannot.
func encodeDetails(details map[string]any) json.RawMessage {
	doc, err := Encode(details, maxDetails)
	if err != nil {
		doc, _ = json.Marshal(map[string]string{"omitted": Text(err.Error(), maxType)})
	}
	return doc
}

// encode returns the stored form.
func (f *Failure) encode() json.RawMessage {
	doc, err := json.Marshal(f)
	if err != nil { // it holds only texts and checked JSON
		return json.RawMessage(`{"message":"the failure has no JSON form","error_type":"` + TypeUnexpected + `","retryable":true}`)
	}
	return doc
}

// Encode returns the JSON of a value, or a readable error if it cannot be stored in at most
// limit bytes (0: any number).
func Encode(value any, limit int) (json.RawMessage, error) {
	doc, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("it has no JSON form: %w", err)
	}
	return doc, CheckStorable(doc, limit)
}

// CheckStorable returns a readable error if a document cannot be stored in at most limit
// bytes (0: any number).
func CheckStorable(doc json.RawMessage, limit int) error {
	if limit > 0 && len(doc) > limit {
		return fmt.Errorf("it has %d bytes, more than %d", len(doc), limit)
	}
	return jsonscan.CheckStorable(doc)
}

// Text clips s to n bytes and replaces characters that the database cannot store in text.
func Text(s string, n int) string {
	const replacement = "\uFFFD"
	s = strings.ToValidUTF8(strings.ReplaceAll(Clip(s, n), "\x00", replacement), replacement)
	return Clip(s, n) // a replacement is longer than the original
}

// Clip cuts s to at most n bytes at a character boundary.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
