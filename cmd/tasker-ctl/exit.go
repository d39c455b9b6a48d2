package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/store"
)

// The exit codes. They are part of the interface: scripts branch on them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitUnavailable = 5
	exitPermission  = 6
	exitInterrupted = 130
)

const exitCodesHelp = `Exit codes of tasker-ctl:

  0    the command did what was asked
  1    the operation failed: a watched or awaited task ended in error or was
       cancelled, a verification, validation or health check found problems,
       the server answered with an internal error
  2    the command line or the input is wrong; nothing was done
  3    the task, step, template, entry or schedule does not exist
  4    conflict: a task with the same identity or idempotency key, or a schedule
       of the same name exists, or the state of the task or step does not allow
       what was asked for
  5    the server or the database cannot be reached, is not ready, is
       overloaded or did not answer in time; trying again later may help
  6    credentials are missing or wrong, or the permission is not granted
  130  interrupted (Ctrl-C)

Errors go to stderr in one line, with the server's request id where it gave
one. Results go to stdout.`

func newExitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesHelp}
}

// usageError is a mistake on the command line or in the input.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// failure ends a command whose answer has been written already with exit code
// 1; its text, when there is one, sums up.
type failure string

func (f failure) Error() string { return string(f) }

// hinted adds what to do about an error.
type hinted struct {
	error
	hint string
}

func (e hinted) Unwrap() error { return e.error }

// coded gives an error an exit code that its kind does not tell.
type coded struct {
	error
	code int
}

func (e coded) Unwrap() error { return e.error }

// finish reports the outcome of a command and returns the exit code.
func (a *app) finish(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	if !a.started {
		err = usageError{err}
	}
	if ctx.Err() != nil && !isFinal(err) {
		return exitInterrupted // the user knows
	}
	code := exitCode(err)
	if line := errorLine(err, code); line != "" {
		fmt.Fprintf(a.stderr, "tasker-ctl: %s\n", line)
	}
	return code
}

// isFinal reports whether an error is an answer rather than a consequence of
// having been interrupted.
func isFinal(err error) bool { return isA[failure](err) || isA[usageError](err) }

// isA reports whether an error is one of a type, or wraps one.
func isA[T error](err error) bool {
	_, is := errors.AsType[T](err)
	return is
}

func exitCode(err error) int {
	if explicit, is := errors.AsType[coded](err); is {
		return explicit.code
	}
	answer, answered := errors.AsType[*client.Error](err)
	switch {
	case isA[usageError](err), errors.Is(err, client.ErrNotServed):
		return exitUsage
	case isA[failure](err), isA[*config.ValidationError](err):
		return exitFailed
	case answered:
		return exitCodeOfStatus(answer.Status)
	case errors.Is(err, store.ErrUnavailable), isUnreachable(err):
		return exitUnavailable
	}
	return exitFailed
}

func exitCodeOfStatus(status int) int {
	switch status {
	case 0, http.StatusRequestTimeout, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return exitUnavailable // 0: no answer came
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		return exitUsage
	case http.StatusUnauthorized, http.StatusForbidden:
		return exitPermission
	case http.StatusNotFound:
		return exitNotFound
	case http.StatusConflict:
		return exitConflict
	}
	return exitFailed
}

// errorLine makes one line of an error, with a hint and the request id.
func errorLine(err error, code int) string {
	text := strings.TrimSpace(err.Error())
	if text == "" {
		return ""
	}
	if !isA[*config.ValidationError](err) { // a list of problems stays a list
		text = flat(text)
	}
	if answer, is := errors.AsType[*client.Error](err); is {
		shown := fmt.Sprintf("%s (%s%s)", flat(answer.Message), flat(answer.Code), suffixed(", request id ", flat(answer.RequestID)))
		text = strings.Replace(text, flat(answer.Error()), shown, 1)
	}
	if hint := hintFor(err, code); hint != "" {
		text += "; " + hint
	}
	return text
}

// flat makes one line of foreign text, without control characters.
func flat(s string) string { return oneLine(strings.Join(strings.Fields(s), " ")) }

func hintFor(err error, code int) string {
	if h, is := errors.AsType[hinted](err); is {
		return h.hint
	}
	answer, isAnswer := errors.AsType[*client.Error](err)
	switch {
	case isAnswer && answer.Status == http.StatusUnauthorized:
		return "set TASKER_AUTH_TOKEN or TASKER_API_KEY, or put the credentials into a profile"
	case isAnswer && code == exitUnavailable && answer.RetryAfter > 0:
		return fmt.Sprintf("try again in %s", answer.RetryAfter)
	}
	return ""
}
