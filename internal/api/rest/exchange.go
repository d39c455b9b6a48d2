package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/tracing"
	"github.com/tasker-go/tasker/workflow"
)

// exchange is one request with its answer. It is between the handlers and the connection.
type exchange struct {
	http.ResponseWriter
	server     *Server
	request    *http.Request
	id         string
	begin      time.Time
	status     int
	bytes      int64
	muted      bool               // the following body is not for the client
	left       error              // why the client did not get its answer, or the rest of it
	who        *auth.Principal    // set by authorise
	permission auth.Permission    // that the route needs
	enqueues   *workflow.Template // the task type that the request names, once it is found

	body    share // of the budget of bodies
	answers share
}

type exchangeKey struct{}

// exchangeOf returns the exchange that ctx belongs to.
func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// holder names the principal to what bounds its share; "" before it is known.
func (x *exchange) holder() string {
	if x == nil {
		return ""
	}
	return x.who.Holder()
}

// WriteHeader implements http.ResponseWriter. The multiplexer's own answers to unknown
// routes and methods get the shape of all failures.
func (x *exchange) WriteHeader(status int) {
	if x.status != 0 {
		return
	}
	if x.request.Pattern == "" && (status == http.StatusNotFound || status == http.StatusMethodNotAllowed) {
		x.muted = true
		x.refuse(unmatched(status, x.request))
		return
	}
	x.status = status
	x.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer. It returns no error if the client has left, which is not a
// failure of the handler.
func (x *exchange) Write(p []byte) (int, error) {
	if x.muted {
		return len(p), nil
	}
	if x.status == 0 {
		x.status = http.StatusOK
	}
	n, err := x.ResponseWriter.Write(p)
	x.bytes += int64(n)
	if err != nil {
		x.left = err
	}
	return len(p), nil
}

// Unwrap gives http.ResponseController the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// refuse answers with a failure outside of operations.
func (x *exchange) refuse(f *failure) {
	f.finish(x)
	x.Header().Del("Content-Length")
	status, body := x.encodeFailure(f)
	x.status = status
	x.ResponseWriter.WriteHeader(status)
	n, _ := x.ResponseWriter.Write(body) // the client is gone if this fails
	x.bytes = int64(n)
}

// fail answers with a failure of an operation.
func (x *exchange) fail(f *failure) {
	status, body := x.encodeFailure(f)
	x.WriteHeader(status)
	_, _ = x.Write(append(body, '\n')) // never an error, see there
}

// encodeFailure sets the headers of a failure and returns status and body.
func (x *exchange) encodeFailure(f *failure) (status int, body []byte) {
	h := x.Header()
	f.setHeaders(h)
	body, err := f.MarshalJSON()
	if err != nil {
		x.server.log.Error("could not encode a failure", zap.Error(err))
	}
	return f.status, body
}

// answer answers with v.
func (x *exchange) answer(v any) error {
	return x.answerWith(http.StatusOK, v)
}

// answerWith is answer with another status than 200. What was read is not sent to a client
// that has it already, by If-None-Match.
func (x *exchange) answerWith(status int, v any) error {
	b, _ := x.server.buffers.Get().(*bytes.Buffer)
	if b == nil {
		b = &bytes.Buffer{}
	}
	b.Reset()
	if err := encodeTo(b, v); err != nil {
		return err
	}
	x.Header().Set("Content-Type", "application/json")
	if status == http.StatusOK && x.request.Method == http.MethodGet && x.unchanged(b.Bytes()) {
		x.WriteHeader(http.StatusNotModified)
	} else {
		x.WriteHeader(status)
		_, _ = x.Write(b.Bytes()) // never an error, see there
	}
	if b.Cap() <= maxKept {
		x.server.buffers.Put(b)
	}
	return nil
}

// unchanged sets the tag of an answer, which is of its bytes and so the same in all replicas, and
// reports whether the client has it.
func (x *exchange) unchanged(body []byte) bool {
	h := x.Header()
	tag := `W/"` + strconv.FormatUint(xxhash.Sum64(body), 36) + `"`
	h.Set("ETag", tag)
	h.Set("Cache-Control", "private, no-cache")
	for _, known := range x.request.Header.Values("If-None-Match") {
		for one := range strings.SplitSeq(known, ",") {
			if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == tag[2:] {
				h.Del("Content-Type")
				return true
			}
		}
	}
	return false
}

// maxKept bounds the buffers kept for later answers.
const maxKept = 64 << 10

// encodeTo appends v as JSON.
func encodeTo(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return nil
}

func unmatched(status int, r *http.Request) *failure {
	if status == http.StatusMethodNotAllowed {
		return &failure{status: status, code: "METHOD_NOT_ALLOWED", message: r.Method + " is not allowed here"}
	}
	return &failure{status: status, code: codeNotFound, message: "There is no such route"}
}

// serveExchange wraps the routes with what every request needs.
func (s *Server) serveExchange(routes http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{ResponseWriter: w, server: s, id: uuid.NewString(), begin: time.Now()}
		x.body, x.answers = share{budget: s.bodies, of: x}, share{budget: s.answers, of: x}
		defer x.body.giveBack()
		defer x.answers.giveBack()
		if s.draining.Load() {
			w.Header().Set("Connection", "close") // the next request should go elsewhere
		}
		w.Header().Set("X-Request-Id", x.id)
		protect(w.Header(), r)
		echo(w.Header(), r.Header)
		ctx, cancel := context.WithTimeout(r.Context(), s.cfg.RequestTimeout+s.waitOf(r))
		defer cancel()
		if s.cfg.Tracer != nil && traced(r) {
			var span trace.Span
			ctx, span = s.cfg.Tracer.Serve(ctx, r.Header, r.Method)
			defer func() { tracing.Served(span, x.request.Pattern, x.status) }()
		}
		r = r.WithContext(context.WithValue(ctx, exchangeKey{}, x))
		x.request = r
		if r.ContentLength != 0 {
			// Bounds the reading of the body; a recorder in a test has no such
			// deadline.
			_ = http.NewResponseController(w).SetReadDeadline(x.begin.Add(s.cfg.RequestTimeout))
		}
		if s.allowOrigin(x, r) || x.turnAway() {
			return
		}
		if !isProbe(r) && !isSession(r) { // sessions report while the worker waits for its steps
			if !s.intake.Admit() {
				x.refuse(unavailable("The daemon is shutting down", shutdownRetry))
				x.end(nil)
				return
			}
			defer s.intake.Leave()
		}
		err := lifecycle.Guard(func() error { routes.ServeHTTP(x, r); return nil })
		x.end(err)
	})
}

// traced reports whether a request may create tasks.
func traced(r *http.Request) bool { return r.Method == http.MethodPost && !isSession(r) }

// correlationHeader names what a request belongs to, for its sender.
const correlationHeader = "X-Correlation-Id"

// maxEcho bounds the headers that are sent back.
const maxEcho = 256

const traceHeader = "Traceparent"

// followed are the headers by which senders follow a request.
var followed = []string{correlationHeader, traceHeader}

// echo sends these headers back.
func echo(to, from http.Header) {
	for _, header := range followed {
		if value := from.Get(header); value != "" && len(value) <= maxEcho {
			to.Set(header, value)
		}
	}
}

// end answers for a handler that panicked and logs the request.
func (x *exchange) end(err error) {
	if err != nil {
		x.server.log.Error("a request's handler panicked", append(x.fields(nil), zap.Error(err), lifecycle.StackField(err))...)
		if x.status != 0 {
			// Half of the answer is sent: only a broken connection shows the failure.
			panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to break a connection off
		}
		x.refuse(internal(codeInternal))
	}
	took := time.Since(x.begin)
	x.server.cfg.Telemetry.APIRequests.WithLabelValues(strconv.Itoa(max(x.status, http.StatusOK)/100) + "xx").Inc()
	telemetry.Observe(x.server.cfg.Telemetry.APIDuration.WithLabelValues(x.request.Pattern), took.Seconds(), tracing.TraceID(tracing.Row(x.request.Context())))
	level := zap.DebugLevel
	if x.status >= http.StatusInternalServerError {
		level = zap.WarnLevel
	}
	// The fields are collected only if needed.
	if line := x.server.log.Check(level, "request"); line != nil {
		line.Write(append(x.fields(nil), zap.String("route", x.request.Pattern), zap.Int("status", x.status),
			zap.Int64("bytes", x.bytes), zap.Int64("duration_ms", took.Milliseconds()), zap.NamedError("left", x.left))...)
	}
}

// fields adds what names the request in the log.
func (x *exchange) fields(to []zap.Field) []zap.Field {
	fields := slices.Grow(to, 12) // callers append
	if id := x.Header().Get(correlationHeader); id != "" {
		fields = append(fields, zap.String("correlation_id", id))
	}
	fields = append(fields, zap.String("request_id", x.id), zap.String("method", x.request.Method), zap.String("path", x.loggedPath()))
	if trace := x.Header().Get(traceHeader); trace != "" {
		fields = append(fields, zap.String("traceparent", trace))
	}
	return fields
}

// loggedPath is the path in logs, without the id of a session: its process proves itself by it.
func (x *exchange) loggedPath() string {
	path := x.request.URL.Path
	if rest, is := strings.CutPrefix(path, sessionsPath+"/"); is {
		_, what, _ := strings.Cut(rest, "/")
		path = sessionsPath + "/…/" + what
	}
	return clip(path, 200)
}

func isAdmin(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/v1/admin/") }

// printable is a text of a sender for a message to it.
func printable(s string) string { return clip(strings.ToValidUTF8(s, "?"), 64) }

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
