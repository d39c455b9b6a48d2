package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is a failure reported by the server.
type Error struct {
	Status     int    // HTTP status; 0 for one task of a batch, which has none
	Code       string // such as NOT_FOUND; derived from the status if the server sent none
	Message    string
	RequestID  string        // x-request-id of the answer
	RetryAfter time.Duration // 0 if the server sent none
	// TaskUUID is the task that exists already, in an answer 409 to a request
	// with an idempotency key.
	TaskUUID string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Status == 0 {
		return e.Code + ": " + e.Message
	}
	text := fmt.Sprintf("%s (%d): %s", e.Code, e.Status, e.Message)
	if e.RequestID != "" && e.Status >= http.StatusInternalServerError {
		text += " [request " + e.RequestID + "]"
	}
	return text
}

// The codes that this package checks.
const (
	codeNotFound     = "NOT_FOUND"
	codeConflict     = "CONFLICT" // a task exists already
	codeBackpressure = "BACKPRESSURE"
	codeBreakerOpen  = "CIRCUIT_BREAKER_OPEN"
)

// IsNotFound reports whether err says that the requested object does not exist.
func IsNotFound(err error) bool {
	return hasStatus(err, http.StatusNotFound) || hasCode(err, codeNotFound)
}

// IsConflict reports whether err is a conflict, such as an existing task.
func IsConflict(err error) bool {
	return hasStatus(err, http.StatusConflict) || hasCode(err, codeConflict)
}

func hasStatus(err error, status int) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == status
}

// hasCode is for errors without a status.
func hasCode(err error, code string) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == 0 && e.Code == code
}

// turnedAway reports that the server has created nothing and requests a later retry.
func (e *Error) turnedAway() bool {
	return e.Status == http.StatusTooManyRequests || e.Code == codeBackpressure || e.Code == codeBreakerOpen
}

// ErrorDetail is the inner part of the body of a failure on the routes of Tasker's own API.
type ErrorDetail struct {
	Code              string `json:"code" doc:"Such as NOT_FOUND"`
	Message           string `json:"message"`
	RetryAfterSeconds int64  `json:"retry_after_seconds,omitempty"`
	RequestID         string `json:"request_id,omitempty" doc:"Set for unexpected failures; the log has the same"`
	TaskUUID          string `json:"task_uuid,omitempty" doc:"The task that has this idempotency key"`
}

// failure is the error of one task of a batch.
func (d *ErrorDetail) failure() *Error {
	return &Error{Code: d.Code, Message: d.Message, RequestID: d.RequestID, RetryAfter: time.Duration(d.RetryAfterSeconds) * time.Second, TaskUUID: d.TaskUUID}
}

// newError reads a failure in any of the shapes that are in use: the envelope
// of /v1, the worker's flat one, and RFC 9457.
func newError(status int, header http.Header, body []byte) *Error {
	e := &Error{Status: status, RequestID: header.Get("X-Request-Id"), RetryAfter: retryAfter(header)}
	var shape struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Title   string          `json:"title"`
		Detail  string          `json:"detail"`
	}
	if json.Unmarshal(body, &shape) == nil {
		var detail ErrorDetail
		var flat string
		switch {
		case json.Unmarshal(shape.Error, &detail) == nil && detail.Code != "":
			e.Code, e.Message, e.TaskUUID = detail.Code, detail.Message, detail.TaskUUID
			e.RetryAfter = cmp.Or(e.RetryAfter, time.Duration(detail.RetryAfterSeconds)*time.Second)
		case json.Unmarshal(shape.Error, &flat) == nil && flat != "":
			e.Code, e.Message = strings.ToUpper(flat), shape.Message
		default:
			e.Message = cmp.Or(shape.Detail, shape.Title)
		}
	}
	e.Code = cmp.Or(e.Code, strings.ToUpper(strings.ReplaceAll(http.StatusText(status), " ", "_")))
	e.Message = cmp.Or(e.Message, excerpt(body), "no message")
	return e
}

// excerpt is the beginning of an answer that is not JSON.
func excerpt(body []byte) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(body[:min(len(body), 200)]), "")), " ")
}

// retryAfter reads both forms of the header.
func retryAfter(header http.Header) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
