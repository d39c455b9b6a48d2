package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/places"
	"github.com/tasker-go/tasker/internal/schema"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/internal/taskmaster"
	"github.com/tasker-go/tasker/internal/wire"
)

// The codes of failures.
const (
	codeBadRequest   = "BAD_REQUEST"
	codeInvalidUUID  = "INVALID_UUID"
	codeJSON         = "JSON_ERROR"
	codeUnprocessed  = "UNPROCESSABLE_ENTITY"
	codeMediaType    = "UNSUPPORTED_MEDIA_TYPE"
	codeTooLarge     = "PAYLOAD_TOO_LARGE"
	codeNotFound     = "NOT_FOUND"
	codeConflict     = "CONFLICT"
	codeUnauthorized = "UNAUTHORIZED"
	codeCredentials  = "AUTHENTICATION_FAILED"
	codeForbidden    = "FORBIDDEN"
	codeTimeout      = "TIMEOUT"
	codeDatabase     = "DATABASE_ERROR"
	codeInternal     = "INTERNAL_ERROR"
	codeUnavailable  = "SERVICE_UNAVAILABLE"
	codeBackpressure = "BACKPRESSURE"
	codeQuota        = "QUOTA_EXCEEDED"
	codeThrottled    = "THROTTLED"
	codeShare        = "SHARE_EXCEEDED"
	codeBreakerOpen  = "CIRCUIT_BREAKER_OPEN"
	databaseRetry    = 5 * time.Second // Retry-After while the database is unavailable
	shutdownRetry    = 2 * time.Second // and while the daemon stops
	busyRetry        = 2 * time.Second // and while another transaction must end first
	problemMediaType = "application/problem+json"
)

// shape is how a failure looks on the wire.
type shape int

const (
	shapeEnvelope shape = iota // {"error":{"code","message"}}: Tasker's /v1
	shapeProblem               // RFC 9457: our own routes
	shapeFlat                  // {"error","message","timestamp","request_id"}: Tasker's worker
)

// failure is the answer to a failed request. It is an error.
type failure struct {
	status     int
	code       string
	message    string
	retryAfter time.Duration
	taskUUID   string
	location   string // the conflicting resource
	refused    *auth.Failure
	cause      error // nil: the failure itself
	shape      shape
	requestID  string
	showID     bool
	at         time.Time
}

// Error implements error.
func (f *failure) Error() string { return f.message }

// Unwrap returns what a circuit breaker judges.
func (f *failure) Unwrap() error { return f.cause }

func (f *failure) setHeaders(h http.Header) {
	h.Set("Content-Type", "application/json")
	if f.shape == shapeProblem {
		h.Set("Content-Type", problemMediaType)
	}
	if f.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(f.retrySeconds(), 10))
	}
	if f.location != "" {
		h.Set("Location", f.location)
	}
	if f.refused != nil {
		h.Set("X-Auth-Failure-Reason", string(f.refused.Reason))
		h.Set("X-Auth-Failure-Severity", f.refused.Severity())
	}
	if f.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
}

func (f *failure) retrySeconds() int64 { return int64((f.retryAfter + time.Second - 1) / time.Second) }

// problem is a failure as of RFC 9457.
type problem struct {
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail"`
	Instance string `json:"instance"`
	Code     string `json:"code"`
}

// flatError is a failure in a worker's shape.
type flatError struct {
	Error     string      `json:"error"`
	Message   string      `json:"message"`
	Timestamp client.Time `json:"timestamp"`
	RequestID string      `json:"request_id"`
}

// MarshalJSON implements json.Marshaler.
func (f *failure) MarshalJSON() ([]byte, error) {
	switch f.shape {
	case shapeProblem:
		return json.Marshal(problem{Type: "about:blank", Title: http.StatusText(f.status), Status: f.status,
			Detail: f.message, Instance: "urn:uuid:" + f.requestID, Code: f.code})
	case shapeFlat:
		return json.Marshal(flatError{Error: strings.ToLower(f.code), Message: f.message,
			Timestamp: client.Time{Time: f.at}, RequestID: f.requestID})
	}
	return json.Marshal(wire.ErrorBody{Error: f.detail()})
}

// detail is a failure as in an envelope.
func (f *failure) detail() client.ErrorDetail {
	d := client.ErrorDetail{Code: f.code, Message: f.message, RetryAfterSeconds: f.retrySeconds(), TaskUUID: f.taskUUID}
	if f.showID {
		d.RequestID = f.requestID
	}
	return d
}

// finish sets the fields that depend on the request.
func (f *failure) finish(x *exchange) {
	f.requestID, f.at = x.id, time.Now()
	switch {
	case f.refused != nil: // refusals look alike everywhere
	case isAdmin(x.request), isSession(x.request), isQueue(x.request):
		f.shape = shapeProblem
	case x.server.name == workerServer:
		f.shape = shapeFlat
	}
}

func badRequest(message string) *failure {
	return &failure{status: http.StatusBadRequest, code: codeBadRequest, message: message}
}

func unprocessable(message string) *failure {
	return &failure{status: http.StatusUnprocessableEntity, code: codeUnprocessed, message: message}
}

func notFound(message string) *failure {
	return &failure{status: http.StatusNotFound, code: codeNotFound, message: message}
}

// missing gives an error that wraps store.ErrNotFound a message for the sender of the
// request; other errors, and those that have a message, stay as they are.
func missing(err error, format string, args ...any) error {
	var known *failure
	if !errors.Is(err, store.ErrNotFound) || errors.As(err, &known) {
		return err
	}
	f := notFound(fmt.Sprintf(format, args...))
	f.cause = err
	return f
}

// noSuch says that there is nothing with an id, whatever the reason; format takes the id.
func noSuch(format, id string, cause error) error {
	f := notFound(fmt.Sprintf(format, clip(id, 64)))
	f.cause = cause
	return f
}

func conflict(message string) *failure {
	return &failure{status: http.StatusConflict, code: codeConflict, message: message}
}

func unavailable(message string, retryAfter time.Duration) *failure {
	return &failure{status: http.StatusServiceUnavailable, code: codeUnavailable, message: message, retryAfter: retryAfter}
}

func internal(code string) *failure {
	message := "An unexpected error occurred; the log has the details under the request id"
	if code == codeDatabase {
		message = "Database operation failed"
	}
	return &failure{status: http.StatusInternalServerError, code: code, message: message, showID: true}
}

// fail converts an error of an operation to an answer. Errors that the sender cannot fix
// are logged and not shown.
func (s *Server) fail(ctx context.Context, err error) *failure {
	x := exchangeOf(ctx)
	f := classify(ctx, err)
	f.finish(x)
	if own := (*places.ShareError)(nil); errors.As(err, &own) {
		s.cfg.Telemetry.SharesRefused.WithLabelValues(own.Label()).Inc()
	}
	if f.status >= http.StatusInternalServerError {
		s.logFailure(x, f, err)
	}
	return f
}

// logFailure logs a request that failed. The sender of an unexpected failure knows its
// request by an id, which the log must have; refusals have one cause, and are sampled.
func (s *Server) logFailure(x *exchange, f *failure, err error) {
	fields := []zap.Field{zap.String("request_id", x.id), zap.String("route", x.request.Pattern), zap.Error(err), lifecycle.StackField(err)}
	if f.showID {
		s.log.Error("a request failed", fields...)
		return
	}
	if leftOut, due := s.refused.due(f.code, time.Now()); due {
		s.log.Warn("a request failed", append(fields, zap.Int("left_out", leftOut))...)
	}
}

func classify(ctx context.Context, err error) *failure {
	var known *failure
	if errors.As(err, &known) {
		return known
	}
	if refused := (*auth.Failure)(nil); errors.As(err, &refused) {
		return unauthorised(refused)
	}
	if f := blameSender(err); f != nil {
		return f
	}
	if own := (*places.ShareError)(nil); errors.As(err, &own) {
		return refusedPlace(err, databaseRetry, "")
	}
	var open *breaker.OpenError
	var slow *schema.BudgetError
	switch {
	case errors.As(err, &open): // regardless of the request's deadline
		return &failure{status: http.StatusServiceUnavailable, code: codeBreakerOpen, retryAfter: max(open.RetryAfter, time.Second),
			message: "The database does not answer at the moment; requests that need it are rejected until it does"}
	case ctx.Err() != nil:
		return &failure{status: http.StatusGatewayTimeout, code: codeTimeout, message: "The request took too long"}
	case errors.Is(err, store.ErrUnavailable):
		return unavailable("The database cannot be reached at the moment", databaseRetry)
	case errors.Is(err, store.ErrNewer):
		return unavailable("A newer version of the daemon has written this; an orchestrator of that version can read it", databaseRetry)
	case errors.Is(err, auth.ErrUnavailable):
		return unavailable("Credentials cannot be verified at the moment", databaseRetry)
	case errors.Is(err, schema.ErrBusy), errors.As(err, &slow):
		return unavailable("The context cannot be checked at the moment: too many large ones are being checked", busyRetry)
	case errors.Is(err, command.ErrFull):
		return unavailable("Too many requests of this kind wait", databaseRetry)
	case errors.Is(err, command.ErrStopped), errors.Is(err, lifecycle.ErrStopped):
		return unavailable("The daemon is shutting down", shutdownRetry)
	}
	var sql interface{ SQLState() string }
	if errors.As(err, &sql) {
		return internal(codeDatabase)
	}
	return internal(codeInternal)
}

// unauthorised is the answer to a request without the credentials or the permission it needs.
func unauthorised(refused *auth.Failure) *failure {
	f := &failure{status: http.StatusUnauthorized, code: codeCredentials, message: refused.Message, retryAfter: refused.RetryAfter(), refused: refused}
	switch refused.Reason {
	case auth.Missing:
		f.code = codeUnauthorized
	case auth.Forbidden:
		f.status, f.code = http.StatusForbidden, codeForbidden
	}
	return f
}

// blameSender recognises errors that the sender of the request can fix.
func blameSender(err error) *failure {
	var (
		invalid   *orchestration.InvalidError
		unknown   *orchestration.UnknownTemplateError
		duplicate *orchestration.DuplicateError
		busy      *orchestration.BusyError
		refused   *orchestration.TransitionError
		running   *orchestration.ScheduleBusyError
		untyped   *orchestration.UnknownTypeError
		full      *submission.QuotaError
		fast      *submission.ThrottleError
	)
	switch {
	case errors.Is(err, taskmaster.ErrUnknownWorker):
		return notFound("The worker is not registered")
	case errors.Is(err, taskmaster.ErrUnknownTask):
		return notFound("Task not found")
	case errors.Is(err, taskmaster.ErrDeadWorker):
		return conflict("The worker is DEAD: register it again")
	case errors.Is(err, taskmaster.ErrNotHeld):
		return conflict("The worker does not hold the task")
	case errors.Is(err, taskmaster.ErrTooMany):
		return unavailable("Too many claims wait", databaseRetry)
	case errors.As(err, &invalid):
		return badRequest(invalid.Error())
	case errors.As(err, &unknown):
		return notFound(unknown.Error())
	case errors.As(err, &untyped):
		return badRequest(clip(untyped.Error(), 200))
	case errors.Is(err, store.ErrNoTaskType):
		return conflict("The template of this name is not a task type")
	case errors.Is(err, store.ErrVersionUsed):
		return conflict("Tasks have used this version with other content; give the changed type another version")
	case errors.As(err, &duplicate):
		f := conflict(duplicate.Error())
		if duplicate.Existing != [16]byte{} {
			f.taskUUID = duplicate.Existing.String()
			f.location = "/v1/tasks/" + f.taskUUID
		}
		return f
	case errors.As(err, &busy):
		return unavailable(busy.Error(), busyRetry)
	case errors.As(err, &full):
		return &failure{status: http.StatusTooManyRequests, code: codeQuota, message: full.Error(), retryAfter: max(full.RetryAfter, time.Second)}
	case errors.As(err, &fast):
		return &failure{status: http.StatusTooManyRequests, code: codeThrottled, message: fast.Error(), retryAfter: max(fast.RetryAfter, time.Second)}
	case errors.As(err, &refused):
		return badRequest(refused.Error())
	case errors.As(err, &running):
		return &failure{status: http.StatusConflict, code: codeConflict, message: running.Error(), taskUUID: running.Task.String()}
	case errors.Is(err, store.ErrScheduleExists):
		return conflict("A schedule of this name exists in the namespace")
	case errors.Is(err, store.ErrScheduleChanged):
		return conflict("The schedule has changed since it was read")
	case errors.Is(err, store.ErrTaskEnded):
		return badRequest("Cannot cancel a completed task")
	case errors.Is(err, store.ErrNotFound):
		return notFound("Resource not found")
	}
	return nil
}

// tellable reports whether the text of an error may be shown: it comes from neither the
// database nor the network.
func tellable(err error) bool {
	var sql interface{ SQLState() string }
	var network net.Error
	return !errors.As(err, &sql) && !errors.As(err, &network) && !errors.Is(err, store.ErrUnavailable)
}
