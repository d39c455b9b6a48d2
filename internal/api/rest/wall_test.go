package rest_test

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/remote"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/transcode"
	_ "github.com/tasker-go/tasker/proto/tasker/session/v1" // its rpcs are in the table
	"github.com/tasker-go/tasker/workflow"
)

// The wall between namespaces, for every route: a principal with every permission in one namespace
// names something of another, and then something that does not exist.

// wall is what such a request is answered.
type wall struct {
	status int
	// says is in the answer where each of many things has its own.
	says string
}

var (
	// asAbsent is the answer about what does not exist.
	asAbsent = wall{status: http.StatusNotFound}
	// byName is the answer about what the request names itself: a namespace, or the whole fleet.
	byName = wall{status: http.StatusForbidden}
)

// thingInPath is a parameter of a path that names a thing by something else than its namespace.
var thingInPath = regexp.MustCompile(`\{(uuid|task_uuid|dlq_entry_uuid|id|token|session)\}|^[A-Z]+ /v1/event-consumers/\{name\}`)

// walls are those of routes whose bodies name things, or many of them.
var walls = map[string]wall{
	"GET /v1/api-keys":        {http.StatusOK, `"api_keys":[]`},
	"POST /v1/dlq/entries":    asAbsent,
	"POST /tasks/v1/claim":    asAbsent,
	"POST /tasks/v1/complete": {http.StatusOK, "Task not found"},
	"POST /v1/tasks/batch":    {http.StatusOK, `"code":"FORBIDDEN"`},
	"POST /tasks/v1/bulk":     {http.StatusOK, "no access to namespace"},
	"POST /v1/enqueue":        {http.StatusBadRequest, "Unknown task type: "},
	"POST /enqueue":           {http.StatusBadRequest, "Unknown task type: "},
	"POST /api/v1/jobs":       {http.StatusBadRequest, "Unknown task type: "},
}

func wallOf(route string) wall {
	w, known := walls[route]
	switch {
	case known:
		return w
	case thingInPath.MatchString(route):
		return asAbsent
	}
	return byName
}

// nothing names what does not exist in the place of what is the namespace shapes'.
func (h *house) nothing() *strings.Replacer {
	return strings.NewReplacer(taskID.String(), absentID.String(), "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f10", absentID.String(), cmp.Or(h.session, "no session"), absentID.String(),
		"/event-consumers/shapes", "/event-consumers/"+absentName, `"workerId":"w"`, `"workerId":"`+absentName+`"`, `"diamond"`, `"nothing"`,
		"shapes", "nowhere")
}

// passing is what differs between two answers to the same request.
var passing = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[0-9:.]+Z|absent|shapes|nowhere|diamond|nothing`)

// isWalled holds the answers about what is foreign against those about what does not exist.
func (h *house) isWalled(route, token string) {
	h.t.Helper()
	want := wallOf(route)
	foreign, absent := h.asked(route, token), h.askedFor(route, token, h.nothing())
	require.Equal(h.t, want.status, foreign.StatusCode, "%s: another namespace: %s", route, foreign.body)
	require.Contains(h.t, string(foreign.body), want.says, route)
	require.Equal(h.t, foreign.StatusCode, absent.StatusCode, "%s: nothing: %s", route, absent.body)
	plain := func(r reply) string { return passing.ReplaceAllString(string(r.body), "…") }
	require.Equal(h.t, plain(absent), plain(foreign), route)
	require.Equal(h.t, absent.Header.Get("X-Auth-Failure-Reason"), foreign.Header.Get("X-Auth-Failure-Reason"), route)
}

// TestEveryRPCIsWalled: what an rpc may do is what its operation of REST may, which the table has.
func TestEveryRPCIsWalled(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	routes := lockedWorker(t, i).server.Permissions()
	for route, needed := range locked(t, i, configured).server.Permissions() {
		routes[route] = cmp.Or(needed, routes[route])
	}
	rpcs := 0
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(string(f.Package()), "tasker.") {
			return true
		}
		for n := range f.Services().Len() {
			service := f.Services().Get(n)
			for m := range service.Methods().Len() {
				rpcs++
				rpc := "/" + string(service.FullName()) + "/" + string(service.Methods().Get(m).Name())
				operation := transcode.Operations[rpc]
				if rpc == "/tasker.session.v1.SessionService/Run" {
					operation = "POST /v1/sessions" // and those of a session, by its id
				}
				require.Contains(t, routes, operation, rpc)
			}
		}
		return true
	})
	require.Greater(t, rpcs, 30)
}

// contentFields are the fields of what clients bring that name something the engine follows later, by
// their paths, with what keeps them within reach.
var contentFields = map[string]string{
	"template: namespace_name":         "TestEveryRouteIsLocked: the principal must have it",
	"template: steps[].task.name":      "TestContentNamesOnlyWhatItReaches",
	"template: steps[].task.namespace": "TestContentNamesOnlyWhatItReaches, enginetest.TestASubWorkflowStaysWithinReach",
	"task: name":                       "it is one of namespace",
	"task: namespace":                  "TestEveryRouteIsLocked: the principal must have it",
	"task: depends_on":                 "TestContentNamesOnlyWhatItReaches, enginetest.TestDependenciesStayWithinReach",
	"task: correlation_id":             "nothing is followed by it",
	"task: parent_correlation_id":      "nothing is followed by it",
	"schedule: name":                   "it is one of namespace",
	"schedule: namespace":              "TestEveryRouteIsLocked: the principal must have it",
	"schedule: template":               "it is one of namespace",
	"external event: name":             "it is one of namespace",
	"external event: namespace":        "TestEveryRouteIsLocked: the principal must have it",
	"external event: task_uuid":        "TestContentNamesOnlyWhatItReaches",
	"dead letter: task_uuid":           "TestEveryRouteIsLocked",
	"replay: dlq_entry_uuid":           "TestContentNamesOnlyWhatItReaches",
	"event consumer: name":             "it is one of namespace",
	"event consumer: namespace":        "TestEveryRouteIsLocked: the principal must have it",
}

// naming are the names of fields that name something.
var naming = regexp.MustCompile(`^(name|namespace|namespace_name|template|queue|depends_on|.*_uuid|.*correlation_id|task)$`)

// TestEveryContentFieldIsKnown: a field that names something has a line that says what keeps it within
// reach.
func TestEveryContentFieldIsKnown(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for what, of := range map[string]any{"task": client.TaskRequest{}, "schedule": client.ScheduleRequest{}, "external event": client.ExternalEvent{},
		"dead letter": client.DLQAdd{}, "replay": client.DLQReplay{}, "event consumer": client.EventConsumerRequest{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); naming.MatchString(name) {
				found[what+": "+name] = true
			}
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[workflow.TaskSettings]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); naming.MatchString(name) {
			found["template: steps[].task."+name] = true
		}
	}
	found["template: namespace_name"] = true
	for field := range found {
		require.NotEmpty(t, contentFields[field], "%s: what keeps it within reach?", field)
	}
	for field := range contentFields {
		require.True(t, found[field], "%s is no field", field)
	}
}

// TestContentNamesOnlyWhatItReaches: content of one namespace names something of another.
func TestContentNamesOnlyWhatItReaches(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	granted := map[string][]string{"other": {"granted"}}
	engine := newFakeEngine()
	h := newHouse(t, func(c *rest.Config, o *rest.Orchestrator) {
		c.Access = i.access()
		c.Access.Reach = &auth.Reach{Walled: true, Grants: granted}
		o.Engine, o.Store, o.MaxEventStreams = lockedEngine{engine}, lockedStore{newFakeStore()}, 1
		o.RegisterTemplate = func(context.Context, *workflow.Template, string) (store.Registered, error) {
			return store.Registered{}, nil
		}
	})
	as := func(namespaces ...string) []string {
		all := make([]string, 0, len(auth.All()))
		for _, p := range auth.All() {
			all = append(all, string(p))
		}
		return []string{"Authorization", "Bearer " + i.token(namespaces, all...)}
	}
	same := func(method, target, body string, status int) {
		t.Helper()
		foreign := h.do(method, target, body, as("other")...)
		absent := h.do(method, h.nothing().Replace(target), h.nothing().Replace(body), as("other")...)
		require.Equal(t, status, foreign.StatusCode, "%s", foreign.body)
		require.Equal(t, status, absent.StatusCode, "%s", absent.body)
		require.Equal(t, passing.ReplaceAllString(string(absent.body), ""), passing.ReplaceAllString(string(foreign.body), ""))
	}
	same(http.MethodPost, "/v1/external-events", `{"name":"n","task_uuid":"`+taskID.String()+`"}`, http.StatusNotFound)
	same(http.MethodPost, "/v1/dlq/replay", `{"dlq_entry_uuid":"`+taskID.String()+`","reason":"r","actor":"a"}`, http.StatusNotFound)
	same(http.MethodGet, "/v1/transitions/stream?task_uuid="+taskID.String(), "", http.StatusNotFound)

	template := func(namespace string) string {
		source, err := json.Marshal("name: t\nnamespace_name: other\nversion: 1.0.0\nsteps: [{name: a, type: task, task: {name: diamond, namespace: " + namespace + "}}]")
		require.NoError(t, err)
		return `{"source":` + string(source) + `}`
	}
	for _, who := range [][]string{as("other"), as("other", "shapes"), as()} { // others run it: whoever brings it does not count
		require.Equal(t, http.StatusForbidden, h.do(http.MethodPost, "/v1/templates", template("shapes"), who...).StatusCode)
		require.NotEqual(t, http.StatusForbidden, h.do(http.MethodPost, "/v1/templates", template("granted"), who...).StatusCode)
		require.NotEqual(t, http.StatusForbidden, h.do(http.MethodPost, "/v1/templates", template("other"), who...).StatusCode)
	}

	body := `{"name":"diamond","namespace":"other","version":"1.0.0","context":{},"initiator":"i","source_system":"s","reason":"r","depends_on":["` + uuid.NewString() + `"]}`
	for _, path := range []string{"/v1/tasks", "/v1/tasks/batch"} {
		sent := body
		if path == "/v1/tasks/batch" {
			sent = `{"tasks":[` + body + `]}`
		}
		h.do(http.MethodPost, path, sent, as("other", "second")...)
		r := engine.created[len(engine.created)-1]
		require.Equal(t, []bool{false, true, true, true}, []bool{r.MayReach("shapes"), r.MayReach("granted"), r.MayReach("second"), r.MayReach("other")}, path)
		h.do(http.MethodPost, path, sent, as()...)
		r = engine.created[len(engine.created)-1]
		require.True(t, r.MayReach("shapes"), path)
	}
}

// TestContextsNeedTheirPermission: no route shows a context or a payload without tasks:context_read,
// whatever else its sender may do. The tasks and schedules of the fakes, and what is created here, have
// a context with even_number.
func TestContextsNeedTheirPermission(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	h := locked(t, i, configured)
	others := slices.DeleteFunc(auth.All(), func(p auth.Permission) bool { return p == auth.TasksContextRead })
	names := make([]string, len(others))
	for n, p := range others {
		names[n] = string(p)
	}
	secret := strings.NewReplacer(`"context":{}`, `"context":{"even_number":6}`, `"payload":{}`, `"payload":{"even_number":6}`, `"payload":1`, `"payload":{"even_number":6}`)
	seen := 0
	for route := range h.server.Permissions() {
		with := h.askedFor(route, i.of("ana"), secret)
		without := h.askedFor(route, i.token(nil, names...), secret)
		require.NotContains(t, string(without.body), "even_number", "%s", route)
		if strings.Contains(string(with.body), `even_number":6`) {
			seen++
		}
	}
	require.Greater(t, seen, 5, "with the permission they show")
	got := h.do(http.MethodGet, "/v1/tasks?include=context", "", "Authorization", "Bearer "+i.token(nil, names...))
	require.Equal(t, http.StatusForbidden, got.StatusCode)
}

// TestSessionsBelongToTheirPrincipal: to another one in the same namespaces, or in all, they do not exist.
func TestSessionsBelongToTheirPrincipal(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	h := lockedWorker(t, i)
	as := func(subject string, namespaces []string) string {
		return i.signFor(subject, jose.EdDSA, i.key, time.Hour, namespaces, "workers:execute")
	}
	ana, bo, admin := as("ana", []string{"shapes"}), as("bo", []string{"shapes"}), as("admin", nil)
	opened := h.do(http.MethodPost, "/v1/sessions", aSession, "Authorization", "Bearer "+ana)
	require.Equal(t, http.StatusCreated, opened.StatusCode)
	var session remote.Opened
	require.NoError(t, json.Unmarshal(opened.body, &session))
	h.session = session.SessionID.String()
	for route := range h.server.Permissions() {
		if !strings.Contains(route, "{session}") {
			continue
		}
		for _, other := range []string{bo, admin} {
			foreign, absent := h.asked(route, other), h.askedFor(route, other, h.nothing())
			require.Equal(t, http.StatusNotFound, foreign.StatusCode, "%s: %s", route, foreign.body)
			require.Equal(t, passing.ReplaceAllString(string(absent.body), ""), passing.ReplaceAllString(string(foreign.body), ""), route)
		}
	}
	require.Equal(t, http.StatusOK, h.asked("DELETE /v1/sessions/{session}", ana).StatusCode)
	require.NotEmpty(t, h.logs.All())
	for _, line := range h.logs.All() {
		text, err := json.Marshal(line.ContextMap())
		require.NoError(t, err)
		require.NotContains(t, line.Message+string(text), h.session, "its id is what a process proves itself by")
	}
	nowhere := as("ana", []string{})
	open := `{"protocol":1,"callables":[{"callable":"right"}]}`
	require.Equal(t, http.StatusForbidden, h.do(http.MethodPost, "/v1/sessions", open, "Authorization", "Bearer "+nowhere).StatusCode, "none is not all")
}
