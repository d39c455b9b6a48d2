package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/breaker"
)

// api is a server under construction.
type api struct {
	*Server
	huma  huma.API
	mux   markedMux
	guard *breaker.Breaker // of the routes that need the database; nil: none
}

// markedMux records in each exchange the route that it took. The routes in own have their
// own functions; huma only describes them.
type markedMux struct {
	*http.ServeMux
	own map[string]func(*exchange)
}

// HandleFunc implements humago.Mux.
func (m markedMux) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	if own := m.own[pattern]; own != nil {
		h = func(w http.ResponseWriter, _ *http.Request) {
			if x, ok := w.(*exchange); ok {
				own(x)
			}
		}
	}
	m.ServeMux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if x, ok := w.(*exchange); ok {
			x.route = pattern
		}
		h(w, r)
	})
}

func (s *Server) newAPI(title string, guard *breaker.Breaker) *api {
	mux := markedMux{http.NewServeMux(), map[string]func(*exchange){}}
	json := huma.DefaultJSONFormat
	// Not huma.DefaultConfig: it would add $schema to every answer, and pages that load
	// scripts from other hosts.
	registry := huma.NewMapRegistry("#/components/schemas/", schemaName)
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI:    "3.1.0",
			Info:       &huma.Info{Title: title, Version: s.cfg.Version},
			Components: &huma.Components{Schemas: registry},
		},
		Formats:       map[string]huma.Format{"application/json": json, "json": json},
		DefaultFormat: "application/json",
	}
	return &api{Server: s, huma: humago.New(mux, config), mux: mux, guard: guard}
}

// foreignSchema marks the schemas of huma's own failures, which it registers although no
// route here uses them.
const foreignSchema = "huma."

func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.PkgPath() == reflect.TypeFor[huma.ErrorModel]().PkgPath() {
		return foreignSchema + name
	}
	return name
}

// finish closes the list of routes.
func (a *api) finish() error {
	maps.DeleteFunc(a.huma.OpenAPI().Components.Schemas.Map(), func(name string, _ *huma.Schema) bool {
		return strings.HasPrefix(name, foreignSchema)
	})
	a.addMetrics()
	if err := a.addDocs(); err != nil {
		return err
	}
	a.handler = a.serveExchange(a.mux)
	return nil
}

// operation describes a route.
type operation struct {
	method, path, id, summary, tag string
	body                           any // an example of the type of the body
	failure                        shape
	// status is that of a success, 200 if it is 0. also describes 200 beside another one.
	status int
	also   string
	// unguarded routes need no answer of the database, or show its recovery: no circuit
	// breaker rejects them.
	unguarded bool
}

type answer[T any] struct{ Body T }

// add registers a route without a body.
func add[I, T any](a *api, op operation, run func(ctx context.Context, in *I) (T, error)) {
	register(a, op, func(ctx context.Context, in *I) (T, error) {
		return through(ctx, a.guardOf(op), func(ctx context.Context) (T, error) { return run(ctx, in) })
	})
}

// addBody registers a route with a JSON body. The body is read and decoded before the
// circuit breaker is asked, so that a slow sender occupies none of its trials.
func addBody[I, B, T any](a *api, op operation, run func(ctx context.Context, in *I, body *request[B]) (T, error)) {
	if op.body == nil {
		op.body = *new(B)
	}
	register(a, op, func(ctx context.Context, in *I) (none T, _ error) {
		body, err := readBody[B](ctx)
		if err != nil {
			return none, err
		}
		return through(ctx, a.guardOf(op), func(ctx context.Context) (T, error) { return run(ctx, in, body) })
	})
}

// guardOf is the circuit breaker of a route; nil, which admits everything, if it has none.
func (a *api) guardOf(op operation) *breaker.Breaker {
	if op.unguarded {
		return nil
	}
	return a.guard
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

// addOwn registers a route that reads its request and writes its answer itself, without
// huma's overhead: for routes with thousands of requests per second, and for streams. It
// asks the circuit breaker itself. I and T are for the document.
func addOwn[I, T any](a *api, op operation, serve func(x *exchange) error) {
	a.mux.own[op.method+" "+op.path] = func(x *exchange) {
		if err := serve(x); err != nil {
			x.fail(a.fail(x.request.Context(), err))
		}
	}
	register(a, op, func(context.Context, *I) (none T, _ error) { return none, nil })
}

// register adds a route to the document and to the multiplexer. Every parameter is text
// and is checked by the operation itself, so that its failures have one shape and the right
// status.
func register[I, T any](a *api, op operation, run func(ctx context.Context, in *I) (T, error)) {
	registry := a.huma.OpenAPI().Components.Schemas
	o := huma.Operation{
		Method: op.method, Path: op.path, OperationID: op.id, Summary: op.summary, Tags: []string{op.tag},
		SkipValidateParams: true, DefaultStatus: op.status,
		Responses: map[string]*huma.Response{"default": failureResponse(registry, op.failure)},
	}
	huma.Register(a.huma, o, func(ctx context.Context, in *I) (*answer[T], error) {
		body, err := run(ctx, in)
		if err != nil {
			return nil, a.fail(ctx, err)
		}
		return &answer[T]{Body: body}, nil
	})
	if op.body != nil {
		a.describeBody(op)
	}
	if op.also != "" {
		o.Responses["200"] = &huma.Response{Description: op.also, Content: o.Responses[strconv.Itoa(op.status)].Content}
	}
}

// describeBody adds the body of a registered route to the document. huma must not know it
// before, or it would read it.
func (a *api) describeBody(op operation) {
	registry := a.huma.OpenAPI().Components.Schemas
	schema := registry.Schema(reflect.TypeOf(op.body), true, op.id)
	registry.SchemaFromRef(schema.Ref).AdditionalProperties = true // unknown keys are ignored
	body := &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
	item := a.huma.OpenAPI().Paths[op.path]
	for _, described := range []*huma.Operation{item.Post, item.Put, item.Patch} {
		if described != nil && described.OperationID == op.id {
			described.RequestBody = body
		}
	}
}

func failureResponse(registry huma.Registry, s shape) *huma.Response {
	media, t := "application/json", reflect.TypeFor[client.ErrorBody]()
	switch s {
	case shapeProblem:
		media, t = problemMediaType, reflect.TypeFor[problem]()
	case shapeFlat:
		t = reflect.TypeFor[flatError]()
	}
	return &huma.Response{
		Description: "Failure",
		Content:     map[string]*huma.MediaType{media: {Schema: registry.Schema(t, true, "Failure")}},
	}
}

// number is a query parameter that is described as an integer.
type number string

// Schema implements huma.SchemaProvider.
func (number) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeInteger} }

// within reads n; a missing one is fallback. complaint names minimum and maximum.
func (n number) within(minimum, maximum, fallback int, complaint string) (int, error) {
	if n == "" {
		return fallback, nil
	}
	v, err := strconv.Atoi(string(n))
	if err != nil || v < minimum || v > maximum {
		return 0, badRequest(complaint)
	}
	return v, nil
}

// taskInput selects a task.
type taskInput struct {
	UUID string `path:"uuid" format:"uuid"`
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
	if r.URL.Path == eventStreamPath {
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
