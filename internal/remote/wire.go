package remote

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/span"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/events"
)

// Protocol is the version of the messages. A session of another version is refused.
const Protocol = 1

// Open asks for a session.
type Open struct {
	Protocol  int        `json:"protocol"`
	Name      string     `json:"name"`              // of the process, for operators
	Client    string     `json:"client,omitempty"`  // such as tasker-python/1.0.0
	Callables []Callable `json:"callables"`         // at least one
	Permits   int        `json:"permits,omitempty"` // steps that it holds at once; default 1
	// Namespaces are those whose steps it gets; default: all that its client may act in.
	Namespaces []string `json:"namespaces,omitempty"`
	// Publishers are the names of its publishers of domain events: its reports have what they
	// have made (Report.Made).
	Publishers []string `json:"publishers,omitempty"`
	// Subscribes are patterns of names, such as payment.*, of the fast domain events that it gets.
	Subscribes []string `json:"subscribes,omitempty"`
	// Held are the steps that the process still runs, or whose ends were not confirmed, from a
	// session with this daemon or another.
	Held []Held `json:"held,omitempty"`
	// Principal is whose share of the sessions it uses; "": nobody's.
	Principal string `json:"-"`
}

// Held is a step that a process runs.
type Held struct {
	Fence    string `json:"fence"`
	TaskUUID string `json:"task_uuid"`
}

// Kept is a step that stays with its process, under another fence.
type Kept struct {
	Fence    string `json:"fence"`     // as presented
	NewFence string `json:"new_fence"` // for all further requests
}

// Callable is a handler that a session offers.
type Callable struct {
	Callable string   `json:"callable"`
	Methods  []string `json:"methods,omitempty"` // besides none and "call"; * for any, with a resolver
	// Resolver is the name of a resolver of the process. With it the callable may end with *, for
	// all that begin so; steps that name another resolver are not its own.
	Resolver string `json:"resolver,omitempty"`
}

// Opened is a session.
type Opened struct {
	SessionID      uuid.UUID `json:"session_id"`
	Protocol       int       `json:"protocol"`
	WorkerID       string    `json:"worker_id"`
	ReclaimGraceMS int64     `json:"reclaim_grace_ms"` // between two requests, before the session is lost
	MaxWaitMS      int64     `json:"max_wait_ms"`      // of a poll
	// Kept are those of the presented steps that the process goes on with; the others are not
	// its own any more.
	Kept []Kept `json:"kept,omitempty"`
	// Unnamed are the offered callables that no template in its namespaces names: they may be
	// misspelled, or their templates are not registered yet.
	Unnamed []string `json:"unnamed,omitempty"`
}

// Polled answers a poll.
type Polled struct {
	Answer    int64       `json:"answer"`
	Steps     []Step      `json:"steps"`
	Cancelled []Cancelled `json:"cancelled"`
	// Events are fast domain events that the session subscribes to. They are told once.
	Events []events.Event `json:"events,omitempty"`
	// Draining says that the worker stops: the session gets no more steps and should report
	// or return those it holds, and open a session elsewhere.
	Draining bool `json:"draining"`

	last bool // of its poll
}

// Step is a step to run.
type Step struct {
	Fence               string                     `json:"fence"` // names this execution in all requests
	TaskUUID            uuid.UUID                  `json:"task_uuid"`
	StepUUID            uuid.UUID                  `json:"step_uuid"`
	CorrelationID       uuid.UUID                  `json:"correlation_id"`
	ParentCorrelationID *uuid.UUID                 `json:"parent_correlation_id,omitempty"`
	Namespace           string                     `json:"namespace"`
	TaskName            string                     `json:"task_name"`
	TaskVersion         string                     `json:"task_version"`
	StepName            string                     `json:"step_name"`
	Callable            string                     `json:"callable"`
	Method              string                     `json:"method,omitempty"`
	Resolver            string                     `json:"resolver,omitempty"` // as the template names it
	Offered             string                     `json:"offered,omitempty"`  // the offered callable, where it is another spelling of it
	Attempt             int                        `json:"attempt"`
	MaxAttempts         int                        `json:"max_attempts"`
	Priority            int                        `json:"priority"`
	RequestedAt         time.Time                  `json:"requested_at"`
	TimeLeftMS          int64                      `json:"time_left_ms,omitempty"` // of the step's time limit
	Context             json.RawMessage            `json:"context"`
	Initialization      map[string]any             `json:"initialization,omitempty"`
	DependencyResults   map[string]json.RawMessage `json:"dependency_results"`
	BatchSteps          []string                   `json:"batch_steps,omitempty"` // worker steps whose batches it joins
	Batch               *Batch                     `json:"batch,omitempty"`
	Items               []json.RawMessage          `json:"items,omitempty"` // of a batch without cursors
	Checkpoint          *Checkpoint                `json:"checkpoint,omitempty"`
	Publishes           []Publishes                `json:"publishes,omitempty"`   // declared events whose publishers the session has
	Traceparent         string                     `json:"traceparent,omitempty"` // of W3C trace context; absent: the task has no trace
	Tracestate          string                     `json:"tracestate,omitempty"`  // what the sender of the trace added
}

// Publishes is a declared domain event with a publisher of the session.
type Publishes struct {
	Name         string `json:"name"`
	Condition    string `json:"condition"`     // success, failure, retryable_failure, permanent_failure or always
	DeliveryMode string `json:"delivery_mode"` // durable, fast or broadcast
	Publisher    string `json:"publisher"`
}

// Batch is the part of the work that a step does.
type Batch struct {
	ID              string          `json:"batch_id"`
	Start           json.RawMessage `json:"start_cursor,omitempty"`
	End             json.RawMessage `json:"end_cursor,omitempty"` // exclusive
	Size            int64           `json:"batch_size"`
	NoOp            bool            `json:"is_no_op"` // there is nothing to do
	CursorField     string          `json:"cursor_field,omitempty"`
	FailureStrategy string          `json:"failure_strategy,omitempty"`
}

// Cancelled says that the end of a step changes nothing any more. The session should stop
// it and report it with the outcome returned, which frees its permit.
type Cancelled struct {
	Fence  string `json:"fence"`
	Reason string `json:"reason"` // lease_lost, timeout or shutdown
}

// Checkpoint is the progress of a step.
type Checkpoint struct {
	Cursor      json.RawMessage `json:"cursor"`
	Items       int64           `json:"items_processed"`
	Accumulated json.RawMessage `json:"accumulated_results,omitempty"`
	Timestamp   *time.Time      `json:"timestamp,omitempty"` // when it was saved; not of requests
}

// Present answers a request that only shows that the process lives.
type Present struct{}

// Progress shows how far a step is that goes on.
type Progress struct {
	Fence    string  `json:"fence"`
	Fraction float64 `json:"fraction" doc:"From 0 to 1"`
	Message  string  `json:"message,omitempty" doc:"At most 500 bytes are kept"`
}

// Lines are what handlers of a session have logged, to be kept with their attempts.
type Lines struct {
	Lines []Line `json:"lines" doc:"At most 1000"`
}

// Line is one line of a handler.
type Line struct {
	Fence  string          `json:"fence"`
	At     time.Time       `json:"at" format:"date-time"`
	Level  string          `json:"level" doc:"debug, info, warn or error"`
	Text   string          `json:"text"`
	Fields json.RawMessage `json:"fields,omitempty" doc:"An object"`
}

// Noted answers progress, and lines.
type Noted struct{}

// Save saves a checkpoint of a step that goes on.
type Save struct {
	Fence string `json:"fence"`
	Checkpoint
	Isolated []Isolated `json:"isolated,omitempty"` // so far; an item that was sent before counts once
}

// Reports end steps.
type Reports struct {
	Reports []Report `json:"reports"`
}

// The outcomes of a Report.
const (
	Success  = "success"
	Failure  = "failure"
	Yield    = "yield"    // run again from the checkpoint, in the same attempt
	Returned = "returned" // it did not run: no attempt is used
)

// Report ends one step.
type Report struct {
	Fence   string          `json:"fence"`
	Outcome string          `json:"outcome"`
	Result  json.RawMessage `json:"result,omitempty"` // of a success
	// ResultBytes, in base64, are a result that is no JSON, of the media type ContentType
	// (default application/octet-stream): worker.Bytes, instead of Result.
	ResultBytes *string     `json:"result_bytes,omitempty" format:"byte"`
	ContentType string      `json:"content_type,omitempty" maxLength:"255"`
	Next        *Next       `json:"next,omitempty"`       // of a success: the task that continues this one
	Error       *Fault      `json:"error,omitempty"`      // of a failure
	Checkpoint  *Checkpoint `json:"checkpoint,omitempty"` // of a yield
	Isolated    []Isolated  `json:"isolated,omitempty"`   // since the last checkpoint
	Events      []Event     `json:"events,omitempty"`     // of a success: published with it
	// Metadata, an object beside the result of a success, is stored as metadata.custom.
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Made are declared events as the publishers of the process have made them, of a success or a failure.
	Made []Made `json:"made,omitempty"`
}

// Made is a declared event as a publisher has made it.
type Made struct {
	Name     string          `json:"name"`
	Payload  json.RawMessage `json:"payload,omitempty"`  // absent: the default
	Metadata json.RawMessage `json:"metadata,omitempty"` // an object, added to that of the event
	// Skip says why it is not published: vetoed, or publisher_error. Absent: it is.
	Skip string `json:"skip,omitempty" enum:"vetoed,publisher_error"`
}

// Event is a domain event that the template does not declare, as of
// worker.StepContext.Publish.
type Event struct {
	Name    string          `json:"name"`
	Payload json.RawMessage `json:"payload"` // absent: null
}

// Next is a task that is created with the end of a step, as by worker.Continue. Empty fields
// are those of the step's task.
type Next struct {
	Namespace           string          `json:"namespace,omitempty"`
	Name                string          `json:"name,omitempty"`
	Version             string          `json:"version,omitempty"`
	Context             json.RawMessage `json:"context,omitempty"`
	IdempotencyKey      string          `json:"idempotency_key,omitempty"`
	Priority            *int            `json:"priority,omitempty"`
	Tags                []string        `json:"tags,omitempty"`
	Initiator           string          `json:"initiator,omitempty"`
	SourceSystem        string          `json:"source_system,omitempty"`
	Reason              string          `json:"reason,omitempty"`
	CorrelationID       *string         `json:"correlation_id,omitempty"`
	ParentCorrelationID *string         `json:"parent_correlation_id,omitempty"`
	DelaySeconds        float64         `json:"delay_seconds,omitempty"` // 0 to a year
	StartAt             string          `json:"start_at,omitempty"`      // in place of the delay, RFC 3339
	Deadline            string          `json:"deadline,omitempty"`      // RFC 3339
	DependsOn           []string        `json:"depends_on,omitempty"`    // UUIDs of tasks
	OnDependencyFailure string          `json:"on_dependency_failure,omitempty"`
	MaxAttempts         *int            `json:"max_attempts,omitempty"`
	RetryDelays         []string        `json:"retry_delays,omitempty"` // such as 10s
}

// maxDelay bounds the delay of a next task.
const maxDelay = 366 * 24 * time.Hour

// request is the next task for the engine, which checks the rest. The error is a permanent
// failure: what the process has given is none.
func (n *Next) request(now time.Time) (worker.NextTask, error) {
	r := worker.NextTask{Namespace: n.Namespace, Name: n.Name, Version: n.Version, Context: n.Context,
		IdempotencyKey: n.IdempotencyKey, Priority: n.Priority, Tags: n.Tags, Initiator: n.Initiator,
		SourceSystem: n.SourceSystem, Reason: n.Reason}
	var delay *float64
	if n.DelaySeconds != 0 {
		delay = &n.DelaySeconds
	}
	start, begins := moment("start_at", n.StartAt)
	end, ends := moment("deadline", n.Deadline)
	var within, correlation, parent error
	r.DeadlineIn, within = submission.DeadlineIn(end, now)
	r.CorrelationID, correlation = submission.OptionalUUID("correlation_id", n.CorrelationID)
	r.ParentCorrelationID, parent = submission.OptionalUUID("parent_correlation_id", n.ParentCorrelationID)
	err := errors.Join(begins, r.Start(start, delay, now), r.Retries(n.MaxAttempts, n.RetryDelays),
		r.Dependencies(n.DependsOn, n.OnDependencyFailure), ends, within, correlation, parent)
	if err != nil {
		return r, worker.Permanent(&fault{"the next task was refused: " + err.Error(), nextTaskRefused})
	}
	return r, nil
}

// nextTaskRefused is the error_type of a next task that cannot be created, as in Go.
const nextTaskRefused = "NextTaskRefused"

// moment reads a time; nil: it is absent.
func moment(field, text string) (*time.Time, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // none is a choice
	}
	at, err := span.Moment(text)
	if err != nil {
		return nil, fmt.Errorf("invalid %s: %w", field, err)
	}
	return &at, nil
}

// Isolated is an item of a batch that could not be processed.
type Isolated struct {
	Item  json.RawMessage `json:"item"`
	Error Fault           `json:"error"`
}

// Fault is a failure as a process reports it.
type Fault struct {
	Message      string          `json:"message"`
	ErrorType    string          `json:"error_type,omitempty"`
	ErrorCode    string          `json:"error_code,omitempty"`
	Retryable    *bool           `json:"retryable,omitempty"` // default true
	RetryAfterMS int64           `json:"retry_after_ms,omitempty"`
	Context      json.RawMessage `json:"context,omitempty"` // an object
}

// Reported answers Reports. Those that it does not name were recorded.
type Reported struct {
	Rejected []Rejection `json:"rejected"`
	// Unrecorded are the fences of reports that were taken and could not be recorded in time;
	// they may be sent again, to ask.
	Unrecorded []string `json:"unrecorded,omitempty"`
}

// Rejection says why a report changes nothing: status 409 for a step that the session does
// not hold any more, 400 for a report without meaning, which the session may correct.
type Rejection struct {
	Fence  string `json:"fence"`
	Status int    `json:"status"`
	Error  string `json:"error"`
}

// fault is an error with the type that a process gave it.
type fault struct{ message, kind string }

func (f *fault) Error() string { return f.message }

// ErrorType returns the error_type of the failure.
func (f *fault) ErrorType() string { return f.kind }

// err turns a reported failure into what a handler returns.
func (f *Fault) err() error {
	var err error = &fault{message: f.Message, kind: f.ErrorType}
	if f.ErrorType == "" {
		err = errors.New(f.Message)
	}
	if f.ErrorCode != "" {
		err = worker.WithCode(err, f.ErrorCode)
	}
	if details, none := f.details(); none == nil && len(details) > 0 {
		err = worker.WithDetails(err, details)
	}
	if f.Retryable != nil && !*f.Retryable {
		return worker.Permanent(err)
	}
	return worker.Retryable(err, time.Duration(f.RetryAfterMS)*time.Millisecond)
}

// details decodes the context; none is an empty object.
func (f *Fault) details() (map[string]any, error) { return object(f.Context) }

// object decodes an object with all digits of its numbers; an absent document has no members.
func object(doc json.RawMessage) (members map[string]any, err error) {
	if doc != nil {
		err = jsonscan.Unmarshal(doc, &members)
	}
	return members, err
}

// wrap makes the bytes of a report its result.
func (r *Report) wrap() error {
	switch {
	case r.ResultBytes == nil && r.ContentType != "":
		return errors.New("content_type is that of result_bytes, which are absent")
	case r.ResultBytes == nil:
		return nil
	case r.Result != nil:
		return errors.New("want result or result_bytes, not both")
	}
	data, err := base64.StdEncoding.DecodeString(*r.ResultBytes)
	if err != nil {
		return fmt.Errorf("invalid result_bytes: want base64: %w", err)
	}
	r.Result, err = worker.Bytes{ContentType: r.ContentType, Data: data}.MarshalJSON()
	return err
}

// maxMade bounds the declared events of a report: those of a step.
const maxMade = 100

// maxFence bounds a fence: two numbers with a point between them.
const maxFence = 41

// check says what is wrong with a report.
func (r *Report) check() error {
	switch {
	case len(r.Fence) > maxFence:
		return fmt.Errorf("invalid fence: want at most %d bytes", maxFence)
	case r.Metadata != nil && r.Outcome != Success:
		return errors.New("metadata is that of a success only")
	case len(r.Made) > 0 && r.Outcome != Success && r.Outcome != Failure:
		return errors.New("made has events of a success or a failure only")
	case len(r.Made) > maxMade:
		return fmt.Errorf("invalid made: want at most %d events", maxMade)
	case len(r.Events) > 0 && r.Outcome != Success:
		return errors.New("events are published with a success only")
	}
	if err := cmp.Or(isObject("metadata", r.Metadata), r.checkMade()); err != nil {
		return err
	}
	switch r.Outcome {
	case Success:
		if r.Next != nil && !(r.Next.DelaySeconds >= 0 && r.Next.DelaySeconds <= maxDelay.Seconds()) {
			return fmt.Errorf("invalid next.delay_seconds %v: want 0 to %v", r.Next.DelaySeconds, maxDelay.Seconds())
		}
		return nil
	case Returned:
		return nil
	case Failure:
		if r.Error == nil || r.Error.Message == "" {
			return errors.New("error.message is required for a failure")
		}
		if r.Error.RetryAfterMS < 0 {
			return fmt.Errorf("invalid error.retry_after_ms %d: want at least 0", r.Error.RetryAfterMS)
		}
		if _, err := r.Error.details(); err != nil {
			return fmt.Errorf("invalid error.context: want an object: %w", err)
		}
		return nil
	case Yield:
		if r.Checkpoint == nil {
			return errors.New("checkpoint is required for a yield")
		}
		return nil
	}
	return fmt.Errorf("invalid outcome %.32q: want success, failure, yield or returned", r.Outcome)
}

func (r *Report) checkMade() error {
	for i := range r.Made {
		m := &r.Made[i]
		if m.Skip != "" && m.Skip != worker.SkipVetoed && m.Skip != skipFailed {
			return fmt.Errorf("invalid made.skip %.32q: want %s or %s", m.Skip, worker.SkipVetoed, skipFailed)
		}
		if err := isObject("made.metadata", m.Metadata); err != nil {
			return err
		}
	}
	return nil
}

// skipFailed is the Made.Skip of an event whose publisher has failed.
const skipFailed = "publisher_error"

// isObject says that a document is none; an absent one is.
func isObject(name string, doc json.RawMessage) error {
	if members, err := object(doc); doc != nil && (err != nil || members == nil) {
		return fmt.Errorf("invalid %s: want an object", name)
	}
	return nil
}
