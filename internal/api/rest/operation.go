package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/klauspost/compress/gzhttp"

	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/remote"
	"github.com/tasker-go/tasker/internal/span"
	"github.com/tasker-go/tasker/internal/transcode"
	"github.com/tasker-go/tasker/internal/wording"
)

// api is a server under construction.
type api struct {
	*Server
	mux      *http.ServeMux
	document *document
	guard    *breaker.Breaker // of the routes that need the database; nil: none
	owner    ownerOf          // nil: no route names a thing with a namespace
	sessions *remote.Hub      // nil: no route names a session
	unknown  []string         // operations without a line in accesses
}

func (s *Server) newAPI(title string, guard *breaker.Breaker) *api {
	return &api{Server: s, mux: http.NewServeMux(), document: newDocument(title, s.cfg.Version, s.cfg.Access.KeyHeader, s.name == orchestratorServer), guard: guard}
}

// finish closes the list of routes.
func (a *api) finish() error {
	if len(a.unknown) > 0 {
		return fmt.Errorf("operations %v need a line in accesses", a.unknown)
	}
	a.addMetrics()
	if err := a.addDocs(); err != nil {
		return err
	}
	compress, err := gzhttp.NewWrapper(gzhttp.MinSize(minCompressed), gzhttp.EnableZstd(true),
		gzhttp.ContentTypeFilter(func(media string) bool { return !strings.HasPrefix(media, eventStreamMedia) }))
	if err != nil {
		return fmt.Errorf("compress answers: %w", err)
	}
	a.handler = compress(a.serveExchange(a.mux))
	return nil
}

// minCompressed is the size in bytes from which answers are compressed for clients that accept
// zstd or gzip: shorter ones fit into one packet.
const minCompressed = 1400

// operation describes a route.
type operation struct {
	method, path, id, summary, tag string
	body                           any // what the document shows in place of the type that is read
	failure                        shape
	// status is that of a success, 200 if it is 0. also describes 200 beside another one.
	status int
	also   string
	media  string // of the answer; "": JSON
	// optional bodies may be left out.
	optional bool
	// anyQuery ignores unknown parameters: others than clients send the request.
	anyQuery bool
	// unguarded routes need no answer of the database, or show its recovery: no circuit
	// breaker rejects them.
	unguarded bool
}

// at is an operation that shares with op what op says.
func (op operation) at(method, path, id, summary string) operation {
	op.method, op.path, op.id, op.summary = method, path, id, summary
	return op
}

func (op *operation) successStatus() int { return cmp.Or(op.status, http.StatusOK) }

// add registers a route without a body.
func add[I, T any](a *api, op operation, run func(ctx context.Context, in *I) (T, error)) {
	addOwn[I, struct{}, T](a, op, func(x *exchange, in *I) error {
		return answerThrough(a, x, op, func(ctx context.Context) (T, error) { return run(ctx, in) })
	})
}

// addBody registers a route with a JSON body. The body is read and decoded before the
// circuit breaker is asked, so that a slow sender occupies none of its trials.
func addBody[I, B, T any](a *api, op operation, run func(ctx context.Context, in *I, body *request[B]) (T, error)) {
	addOwn[I, B, T](a, op, func(x *exchange, in *I) error {
		body, err := readBody[B](x, op.id)
		if err != nil {
			return err
		}
		body.who = x.who
		return answerThrough(a, x, op, func(ctx context.Context) (T, error) { return run(ctx, in, body) })
	})
}

// addOwn registers a route that reads its body and writes its answer itself, and asks the
// circuit breaker itself. I has the parameters; B, struct{} without a body, and T are for the
// document.
func addOwn[I, B, T any](a *api, op operation, serve func(x *exchange, in *I) error) {
	params := paramsOf(reflect.TypeFor[I]())
	body := reflect.TypeFor[B]()
	switch {
	case op.body != nil:
		body = reflect.TypeOf(op.body)
	case body == reflect.TypeFor[struct{}]():
		body = nil
	}
	needed, known := accesses[op.id]
	if !known {
		a.unknown = append(a.unknown, op.id)
	}
	needed = a.inForce(needed)
	a.permissions[op.method+" "+op.path] = needed.needs
	a.document.add(op, needed, params, body, reflect.TypeFor[T]())
	allowed := queryNames(params)
	a.mux.HandleFunc(op.method+" "+op.path, a.guarded(needed, func(x *exchange) error {
		in := new(I)
		var err error
		if !op.anyQuery {
			err = x.server.checkQuery(x.request, &op, allowed)
		}
		if err == nil {
			err = bind(x.request, params, reflect.ValueOf(in).Elem())
		}
		if err == nil {
			err = serve(x, in)
		}
		return err
	}))
}

// guarded is a handler of the requests that have the access.
func (a *api) guarded(needed access, serve func(x *exchange) error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		x, ok := w.(*exchange)
		if !ok {
			return // never: see serveExchange
		}
		err := a.authorise(x, needed)
		switch {
		case err == nil && asksOnly(x.request.Context()):
			x.WriteHeader(http.StatusNoContent)
		case err == nil:
			err = serve(x)
		}
		if err != nil {
			x.fail(a.fail(x.request.Context(), err))
		}
	}
}

// answerThrough answers with what fn returns.
func answerThrough[T any](a *api, x *exchange, op operation, fn func(ctx context.Context) (T, error)) error {
	guard := a.guard
	if op.unguarded {
		guard = nil // it admits everything
	}
	result, err := through(x.request.Context(), guard, fn)
	if err != nil {
		return err
	}
	return x.answerWith(op.successStatus(), result)
}

// through runs fn through a breaker. While fn waits for something else than the database it
// should use breaker.Outside.
func through[T any](ctx context.Context, b *breaker.Breaker, fn func(ctx context.Context) (T, error)) (result T, err error) {
	err = b.DoSuspendable(ctx, func(ctx context.Context) (err error) {
		result, err = fn(ctx)
		return err
	})
	return result, err
}

// param is a parameter of a route: a text, several of them, a time, a UUID or a number.
type param struct {
	name, in                   string // in "path" or "query"
	field                      reflect.StructField
	minimum, maximum, fallback int // of a number: its tag within
}

func paramsOf(t reflect.Type) (list []param) {
	for _, f := range reflect.VisibleFields(t) {
		for _, in := range []string{"path", "query"} {
			if name := f.Tag.Get(in); name != "" {
				p := param{name: name, in: in, field: f}
				_, _ = fmt.Sscanf(f.Tag.Get("within"), "%d,%d,%d", &p.minimum, &p.maximum, &p.fallback) // texts have none
				list = append(list, p)
			}
		}
	}
	return list
}

func queryNames(params []param) (names []string) {
	for i := range params {
		if params[i].in == "query" {
			names = append(names, params[i].name)
		}
	}
	return names
}

// checkQuery refuses query parameters that the operation does not have: a filter that was
// ignored would answer with everything. Operations of Tasker ignore them as it does, but for
// those that look like a misspelling.
func (s *Server) checkQuery(r *http.Request, op *operation, allowed []string) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	var found []strayKey
	for key := range r.URL.Query() {
		if !slices.Contains(allowed, key) && len(found) < maxStray {
			found = append(found, strayKey{printable(key), wording.Misspelt(key, allowed)})
		}
	}
	ignored, err := strays("parameter", found, op.ofTasker())
	s.ignored(op.id, ignored)
	return err
}

// taskers are the operations that Tasker has, and an rpc stands for.
var taskers = slices.Collect(maps.Values(transcode.Operations))

func (op *operation) ofTasker() bool { return slices.Contains(taskers, op.method+" "+op.path) }

// bind sets the parameters of a request. The operation checks texts by itself.
func bind(r *http.Request, params []param, in reflect.Value) error {
	var query url.Values
	if r.URL.RawQuery != "" {
		query = r.URL.Query()
	}
	for i := range params {
		p := &params[i]
		text := query.Get(p.name)
		if p.in == "path" {
			text = r.PathValue(p.name)
		}
		switch to := field(in, p.field.Index).Addr().Interface().(type) {
		case *uuid.UUID:
			id, err := parseTask(text)
			if *to = id; err != nil {
				return err
			}
		case *number:
			if err := to.read(p, text); err != nil {
				return err
			}
		case *string:
			*to = text
		case *[]string:
			*to = query[p.name]
		case *time.Time:
			if text == "" {
				continue
			}
			at, err := span.Moment(text)
			if *to = at; err != nil {
				return badRequest(p.name + ": " + err.Error())
			}
		default: // or it would be ignored
			return fmt.Errorf("invalid type %T of the parameter %s: want one that a request is read into", to, p.name)
		}
	}
	return nil
}

// number is a query parameter with the tag within: its minimum, maximum and default.
type number int

func (n *number) read(p *param, text string) error {
	value, err := p.fallback, error(nil)
	if text != "" {
		value, err = strconv.Atoi(text)
	}
	if *n = number(value); err != nil || value < p.minimum || value > p.maximum {
		return badRequest(fmt.Sprintf("%s must be between %d and %d", p.name, p.minimum, p.maximum))
	}
	return nil
}

// taskInput selects a task.
type taskInput struct {
	UUID uuid.UUID `path:"uuid" format:"uuid"`
}

// parseTask reads a UUID with the error text of the task routes.
func parseTask(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, &failure{status: http.StatusBadRequest, code: codeInvalidUUID,
			message: fmt.Sprintf("Invalid UUID: %q", clip(strings.ToValidUTF8(text, "?"), 64))}
	}
	return id, nil
}

// filterText rejects text that PostgreSQL cannot compare with.
func filterText(name, value string) error {
	if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
		return badRequest(name + " must be text")
	}
	return nil
}

// waitOf is how long a request may wait for a task, 0 without a wait or with an
// unreadable one (which its operation rejects).
func (s *Server) waitOf(r *http.Request) time.Duration {
	if r.URL.Path == eventStreamPath || r.URL.Path == transitionStreamPath {
		return streamLife
	}
	if !strings.Contains(r.URL.RawQuery, "wait=") {
		return 0
	}
	d, err := s.parseWait(r.URL.Query().Get("wait"))
	if err != nil {
		return 0
	}
	return d
}

// parseWait reads "30s" or "30" and caps it at the longest allowed wait.
func (s *Server) parseWait(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if seconds, numberErr := strconv.ParseUint(text, 10, 31); numberErr == nil {
		d, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || d < 0 {
		return 0, badRequest("wait must be a duration such as 30s")
	}
	return min(d, s.cfg.MaxWait), nil
}

func rawOr(raw json.RawMessage, fallback string) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage(fallback)
	}
	return raw
}
