package grpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// domain of the reasons of failures.
const domain = "tasker"

// codesOf are the codes of failures by their HTTP status.
var codesOf = map[int]codes.Code{
	http.StatusBadRequest: codes.InvalidArgument, http.StatusUnprocessableEntity: codes.InvalidArgument,
	http.StatusUnsupportedMediaType: codes.InvalidArgument,
	http.StatusUnauthorized:         codes.Unauthenticated, http.StatusForbidden: codes.PermissionDenied,
	http.StatusNotFound: codes.NotFound, http.StatusConflict: codes.AlreadyExists,
	http.StatusRequestTimeout: codes.DeadlineExceeded, http.StatusGatewayTimeout: codes.DeadlineExceeded,
	http.StatusRequestEntityTooLarge: codes.ResourceExhausted, http.StatusTooManyRequests: codes.ResourceExhausted,
	http.StatusServiceUnavailable: codes.Unavailable, http.StatusMethodNotAllowed: codes.Unimplemented,
}

// envelope is a failure of REST in any of its shapes: of an orchestrator, whose error is an
// object, of a worker, whose error is the code, or a problem, which has a detail.
type envelope struct {
	Error   json.RawMessage `json:"error"`
	Message string          `json:"message"`
	Detail  string          `json:"detail"`
	Code    string          `json:"code"`
}

// detail is the inner part of an orchestrator's envelope.
type detail struct {
	Code     string `json:"code"`
	Message  string `json:"message"`
	TaskUUID string `json:"task_uuid"`
}

func detailOf(body []byte) (d detail) {
	var e envelope
	if json.Unmarshal(body, &e) != nil {
		return d
	}
	if len(e.Error) == 0 {
		return detail{Code: e.Code, Message: e.Detail}
	}
	if json.Unmarshal(e.Error, &d) == nil {
		return d
	}
	if json.Unmarshal(e.Error, &d.Code) == nil {
		d.Code, d.Message = strings.ToUpper(d.Code), e.Message
	}
	return d
}

// failureOf converts a failure of an operation to a status.
func failureOf(ctx context.Context, r route, a *answer) error {
	code, known := r.codes[a.status]
	if !known {
		code, known = codesOf[a.status]
	}
	if !known {
		code = codes.Internal
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		code = codes.Canceled
	}
	d := detailOf(a.body.Bytes())
	return withDetails(status.New(code, messageFor(code, a, d)), a, d)
}

// The texts that clients of Tasker know.
const (
	internalError     = "Internal server error"
	backpressure      = "Backpressure active: "
	unready           = "Not ready: "
	codeBackpressure  = "BACKPRESSURE"
	codeBreakerOpen   = "CIRCUIT_BREAKER_OPEN"
	serviceNotReady   = "Service is not ready: "
	workerNotReady    = "Worker is not ready: "
	cannotCancel      = "Cannot cancel a " // the beginning of the refusal for a task that has ended
	headerRequestID   = "x-request-id"
	headerRetryAfter  = "retry-after"
	headerAuthFailure = "X-Auth-Failure-Reason"
)

// messageFor is the text of a status.
func messageFor(code codes.Code, a *answer, d detail) string {
	switch {
	case a.invalid == emptyUUID && a.status == http.StatusBadRequest:
		return `Invalid UUID: ""`
	case a.invalid != "" && a.status == http.StatusBadRequest:
		return fmt.Sprintf("Invalid UUID: %q", clip(a.invalid))
	case code == codes.Internal:
		return internalError
	case d.Code == codeBackpressure, d.Code == codeBreakerOpen:
		return backpressure + d.Message
	case d.Message == "":
		return http.StatusText(a.status)
	}
	return d.Message
}

// clip bounds a text of a client in a message to it.
func clip(text string) string {
	const most = 64
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "?")
}

// withDetails adds what REST says in the envelope and the headers of a failure.
func withDetails(s *status.Status, a *answer, d detail) error {
	info := &errdetails.ErrorInfo{Reason: d.Code, Domain: domain, Metadata: map[string]string{"http_status": strconv.Itoa(a.status)}}
	for key, value := range map[string]string{
		"request_id": a.header.Get(headerRequestID), "task_uuid": d.TaskUUID, "auth_failure_reason": a.header.Get(headerAuthFailure),
	} {
		if value != "" {
			info.Metadata[key] = value
		}
	}
	details := []protoadapt.MessageV1{info}
	if seconds, err := strconv.ParseUint(a.header.Get(headerRetryAfter), 10, 31); err == nil {
		delay := durationpb.New(time.Duration(seconds) * time.Second)
		details = append(details, &errdetails.RetryInfo{RetryDelay: delay})
	}
	full, err := s.WithDetails(details...)
	if err != nil { // never: all of them can be encoded
		return s.Err()
	}
	return full.Err()
}

// notReady words the refusal of a readiness check as clients know it.
func notReady(err error, words string) error {
	s, _ := status.FromError(err)
	if reason, ok := strings.CutPrefix(s.Message(), unready); ok {
		p := s.Proto()
		p.Message = words + reason
		return status.FromProto(p).Err()
	}
	return err
}
