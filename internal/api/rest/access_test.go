package rest_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/plainqueue"
	"github.com/tasker-go/tasker/internal/remote"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/taskmaster"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/transcode"
	"github.com/tasker-go/tasker/workflow"
)

// issuer signs tokens.
type issuer struct {
	t     testing.TB
	now   time.Time
	key   ed25519.PrivateKey
	other ed25519.PrivateKey
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	_, other, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return &issuer{t: t, now: time.Now(), key: key, other: other}
}

func (i *issuer) sign(algorithm jose.SignatureAlgorithm, key any, life time.Duration, namespaces []string, permissions ...string) string {
	i.t.Helper()
	return i.signFor("ana", algorithm, key, life, namespaces, permissions...)
}

func (i *issuer) signFor(subject string, algorithm jose.SignatureAlgorithm, key any, life time.Duration, namespaces []string, permissions ...string) string {
	i.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, nil)
	require.NoError(i.t, err)
	claims := map[string]any{"iss": "tasker-core", "aud": "tasker-api", "sub": subject, "exp": i.now.Add(life).Unix(), "permissions": permissions}
	if namespaces != nil {
		claims["worker_namespaces"] = namespaces
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	require.NoError(i.t, err)
	return token
}

func (i *issuer) token(namespaces []string, permissions ...string) string {
	i.t.Helper()
	return i.sign(jose.EdDSA, i.key, time.Hour, namespaces, permissions...)
}

// of is a token of a principal with every permission.
func (i *issuer) of(subject string) string {
	i.t.Helper()
	all := make([]string, len(auth.All()))
	for n, p := range auth.All() {
		all[n] = string(p)
	}
	return i.signFor(subject, jose.EdDSA, i.key, time.Hour, nil, all...)
}

func (i *issuer) access() rest.Access {
	i.t.Helper()
	a, err := auth.New(auth.Options{Tokens: &auth.TokenOptions{
		Keys: auth.Static{i.key.Public()}, Algorithms: []string{"EdDSA"}, Issuer: "tasker-core", Audience: "tasker-api",
		PermissionsClaim: "permissions", NamespacesClaim: "worker_namespaces", Strict: true,
	}})
	require.NoError(i.t, err)
	return rest.Access{Authenticator: a, KeyHeader: "X-API-Key"}
}

// lockedEngine and lockedStore have one thing of each kind, all of the namespace shapes.
type lockedEngine struct{ *fakeEngine }

func (lockedEngine) Schedule(_ context.Context, id uuid.UUID) (store.Schedule, error) {
	return aNightlySchedule(), thereIs(id)
}

func (lockedEngine) Approval(_ context.Context, token string) (store.Approval, error) {
	return store.Approval{Namespace: "shapes"}, thereIs(uuid.MustParse(token))
}

func (lockedEngine) PlanOfType(_ context.Context, queue, name string) (*store.Plan, error) {
	if queue != "" && queue != "shapes" || name != "diamond" {
		return nil, &orchestration.UnknownTypeError{Namespace: queue, Type: name}
	}
	return diamond(), nil
}

// absentID is that of nothing, absentName the name of nothing.
var (
	absentID   = uuid.MustParse("019d1c5e-0c3e-7a41-9a0e-ffffffffffff")
	absentName = "absent"
)

func thereIs(id uuid.UUID) error {
	if id == absentID {
		return store.ErrNotFound
	}
	return nil
}

func (lockedEngine) Replay(context.Context, uuid.UUID, orchestration.Replay) (orchestration.Created, error) {
	return orchestration.Created{}, store.ErrNotFound
}

type lockedStore struct{ *fakeStore }

func (lockedStore) DeadLetter(_ context.Context, id uuid.UUID) (store.DeadLetter, error) {
	return store.DeadLetter{Namespace: "shapes"}, thereIs(id)
}

func (lockedStore) EventConsumer(_ context.Context, name string) (store.EventConsumer, error) {
	if name == absentName {
		return store.EventConsumer{}, store.ErrNotFound
	}
	return store.EventConsumer{Name: name, Namespace: "shapes"}, nil
}

func (s lockedStore) EventConsumerIn(ctx context.Context, name string, namespaces []string) (store.EventConsumer, error) {
	if !slices.Contains(namespaces, "shapes") {
		return store.EventConsumer{}, store.ErrNotFound
	}
	return s.EventConsumer(ctx, name)
}

func (lockedStore) TaskWithoutResults(_ context.Context, id uuid.UUID) (*store.Task, error) {
	if err := thereIs(id); err != nil {
		return nil, err
	}
	return aTask(), nil
}

// lockedQueues are queues of the namespace shapes.
type lockedQueues struct{}

func (lockedQueues) Submit(_ context.Context, list []taskmaster.Submission) ([]orchestration.CreateResult, error) {
	return make([]orchestration.CreateResult, len(list)), nil
}

func (lockedQueues) Claim(_ context.Context, r taskmaster.ClaimRequest) ([]taskmaster.Claimed, error) {
	if plainqueue.ShownWorker(r.Worker) == absentName || r.Permitted("shapes") != nil {
		return nil, taskmaster.ErrUnknownWorker
	}
	return nil, nil
}

func (lockedQueues) Finish(_ context.Context, list []taskmaster.Finish, permitted func(string) error) ([]taskmaster.Finished, error) {
	if list[0].Task == absentID || permitted("shapes") != nil {
		//nolint:nilerr // each task has its own answer
		return []taskmaster.Finished{{Err: taskmaster.ErrUnknownTask}}, nil
	}
	return []taskmaster.Finished{{Queue: "shapes", Status: taskmaster.Done}}, nil
}

func (lockedQueues) Register(context.Context, store.QueueRegistration) (store.QueueWorker, error) {
	return store.QueueWorker{Status: store.WorkerActive}, nil
}

func (lockedQueues) Heartbeat(context.Context, string, []store.HeldClaim) (store.QueueWorker, []store.HeldClaim, error) {
	return store.QueueWorker{Status: store.WorkerActive}, nil, nil
}

func (lockedQueues) Worker(_ context.Context, id string) (store.QueueWorker, error) {
	if plainqueue.ShownWorker(id) == absentID.String() {
		return store.QueueWorker{}, taskmaster.ErrUnknownWorker
	}
	return store.QueueWorker{Queue: "shapes", Status: store.WorkerActive}, nil
}

func (lockedQueues) Workers(context.Context, string, int) ([]store.QueueWorker, error) {
	return nil, nil
}

func (lockedQueues) Queues(context.Context, string) ([]store.QueueCounts, error) {
	return []store.QueueCounts{{Queue: "shapes"}}, nil
}

func locked(t testing.TB, i *issuer, change ...func(*rest.Config, *rest.Orchestrator)) *house {
	t.Helper()
	return newHouse(t, append(change, func(c *rest.Config, o *rest.Orchestrator) {
		c.Access = i.access()
		o.Engine, o.Store = lockedEngine{newFakeEngine()}, lockedStore{newFakeStore()}
		o.MaxEventStreams = 1
		o.Queues, o.Compat = lockedQueues{}, rest.Compat{DistributedTaskQueue: true, TaskQueueEngine: true}
		o.RegisterTemplate = func(context.Context, *workflow.Template, string) (store.Registered, error) {
			return store.Registered{}, nil
		}
	})...)
}

// lockedBodies name the namespace shapes where the body of a route is what names one.
var lockedBodies = map[string]string{
	"POST /v1/tasks": `{"name":"diamond","namespace":"shapes","version":"1.0.0","context":{},"initiator":"i","source_system":"s","reason":"r"}`,
	"POST /v1/tasks/batch": `{"tasks":[{"name":"diamond","namespace":"shapes","version":"1.0.0","context":{},"initiator":"i",` +
		`"source_system":"s","reason":"r"}]}`,
	"POST /v1/templates":     `{"source":"name: t\nnamespace_name: shapes\nversion: 1.0.0\nsteps: [{name: a, handler: {callable: a}}]"}`,
	"POST /v1/enqueue":       `{"type":"diamond","payload":{}}`,
	"POST /v1/tasks/actions": `{"action":"cancel","filter":{"namespace":"shapes"},"reason":"r","actor":"a"}`,
	"PUT /v1/namespaces/{namespace}/submissions/{template}": `{"throttle":{"max":1,"period_ms":1000}}`,
	"PUT /v1/namespaces/{namespace}/quota":                  `{"max_tasks":1}`,
	"PUT /v1/task-types/{name}":                             `{"namespace":"shapes","reason":"r","actor":"a"}`,
	"POST /v1/dlq/entries":                                  `{"task_uuid":"019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f10","reason":"r","actor":"a"}`,
	"POST /v1/dlq/replay":                                   `{"filter":{"namespace":"shapes"},"reason":"r","actor":"a","limit":1}`,
	"POST /v1/schedules":                                    `{"name":"n","namespace":"shapes","template":"diamond","version":"1.0.0","cron":"@daily","context":{}}`,
	"POST /v1/event-consumers":                              `{"name":"n","namespace":"shapes","from":"now"}`,
	"POST /v1/external-events":                              `{"name":"n","namespace":"shapes","key":"k"}`,

	"POST /v1/api-keys": `{"name":"n","permissions":["auth:manage"],"namespaces":["shapes"]}`,

	"POST /tasks/v1":                `{"queue":"shapes","payload":1}`,
	"POST /tasks/v1/bulk":           `{"tasks":[{"queue":"shapes","payload":1}]}`,
	"POST /tasks/v1/claim":          `{"workerId":"w"}`,
	"POST /tasks/v1/complete":       `{"tasks":[{"id":"019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f10","workerId":"w"}]}`,
	"POST /tasks/v1/{id}/complete":  `{"workerId":"w"}`,
	"POST /tasks/v1/{id}/fail":      `{"workerId":"w"}`,
	"POST /workers/v1/register":     `{"workerId":"w","queue":"shapes"}`,
	"POST /queues/v1/{name}/pause":  `{"reason":"r","actor":"a"}`,
	"POST /queues/v1/{name}/resume": `{"reason":"r","actor":"a"}`,
	"POST /enqueue":                 `{"type":"diamond","payload":{}}`,
	"POST /api/v1/jobs":             `{"type":"diamond","payload":{}}`,
	"POST /v1/sessions":             aSession,
}

// aSession is one of the namespace shapes.
const aSession = `{"protocol":1,"callables":[{"callable":"right"}],"namespaces":["shapes"]}`

// configured serves the configuration.
func configured(_ *rest.Config, o *rest.Orchestrator) {
	o.Config = func() *client.OrchestratorConfig { return &client.OrchestratorConfig{} }
}

func lockedWorker(t testing.TB, i *issuer) *house {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	h := newWorkerHouse(t, newFakeStatus(), newFakeStore(), func(c *rest.Config, w *rest.Worker) {
		c.Access, c.Logger = i.access(), zap.New(core)
		w.Config = func() *client.WorkerConfig { return &client.WorkerConfig{} }
		w.Sessions = remote.New(remote.Config{MaxSessions: 100, MaxPermits: 1, ReclaimGrace: time.Minute, Offer: func() {}, Logger: zap.New(core), Metrics: telemetry.Discard()})
	})
	h.logs = logs
	return h
}

// Every route with every kind of credentials. The routes come from the server itself, so that
// none is left out.
func TestEveryRouteIsLocked(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	orchestrator, worker := locked(t, i, configured), lockedWorker(t, i)
	for h, open := range map[*house]int{orchestrator: 5, worker: 4} {
		public, routes := 0, h.server.Permissions()
		for _, route := range slices.Sorted(maps.Keys(routes)) {
			switch {
			case slices.Contains(selfRoutes, route):
				h.isForTheKnown(i, route)
				continue
			case slices.Contains(loginRoutes, route): // see TestLogin…
				continue
			}
			if routes[route] == "" {
				public++
				require.NotContains(t, []int{401, 403}, h.asked(route, "").StatusCode, route)
				continue
			}
			h.isLocked(i, route, routes[route])
		}
		require.Equal(t, open, public, "health, and no more")
	}
}

// selfRoutes are about whoever asks: they need credentials, and no permission. loginRoutes look at
// credentials themselves.
var (
	selfRoutes  = []string{"GET /v1/me", "GET /v1/browser-sessions", "DELETE /v1/browser-sessions/{id}"}
	loginRoutes = []string{"POST /v1/login", "POST /v1/logout", "GET /v1/login/oidc", "GET /v1/login/oidc/callback"}
)

// isForTheKnown holds a route against credentials that are bad, and against good ones that permit
// something else.
func (h *house) isForTheKnown(i *issuer, route string) {
	t := h.t
	t.Helper()
	for reason, token := range map[string]string{
		"missing": "",
		"expired": i.sign(jose.EdDSA, i.key, -time.Hour, nil, "tasks:read"),
		"invalid": i.sign(jose.EdDSA, i.other, time.Hour, nil, "tasks:read"),
	} {
		got := h.asked(route, token)
		require.Equal(t, http.StatusUnauthorized, got.StatusCode, "%s: %s", route, reason)
		require.Equal(t, reason, got.Header.Get("X-Auth-Failure-Reason"), route)
	}
	elsewhere := i.token([]string{"other"}, "tasks:read")
	if strings.Contains(route, "{") {
		h.isWalled(route, elsewhere)
		return
	}
	require.Equal(t, http.StatusOK, h.asked(route, elsewhere).StatusCode, route)
}

// asked sends a request to a route with a token; "" for none.
func (h *house) asked(route, token string) reply {
	return h.askedFor(route, token, strings.NewReplacer())
}

// askedFor is asked with something else in the place of what is named.
func (h *house) askedFor(route, token string, other *strings.Replacer) reply {
	h.t.Helper()
	method, path, _ := strings.Cut(route, " ")
	template := "shapes"
	if strings.Contains(path, "{version}") {
		template = "diamond"
	}
	target := strings.NewReplacer("{uuid}", taskID.String(), "{task_uuid}", taskID.String(), "{step_uuid}", aTask().Steps[0].UUID.String(),
		"{dlq_entry_uuid}", taskID.String(), "{id}", taskID.String(), "{token}", taskID.String(), "{namespace}", "shapes",
		"{name}", template, "{version}", "1.0.0", "{session}", h.session).Replace(path)
	header := []string{}
	if token != "" {
		header = []string{"Authorization", "Bearer " + token}
	}
	body := lockedBodies[route]
	if body == "" && method != http.MethodGet && method != http.MethodDelete {
		body = `{}`
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	if strings.HasSuffix(path, "/stream") && !strings.Contains(path, "{uuid}") { // that of a task ends with it
		cancel() // it would not end
	}
	defer cancel()
	if slices.Contains(h.parameters()[method+" "+path], "namespace") {
		target += "?namespace=shapes"
	}
	if slices.Contains(h.parameters()[method+" "+path], "queue") {
		target += "?queue=shapes"
	}
	return h.doWithin(ctx, method, other.Replace(target), other.Replace(body), header...)
}

// parameters are those of each route, as described.
func (h *house) parameters() map[string][]string {
	if h.described != nil {
		return h.described
	}
	var doc struct {
		Paths map[string]map[string]struct{ Parameters []struct{ Name string } }
	}
	require.NoError(h.t, json.Unmarshal(h.server.OpenAPI(), &doc))
	h.described = map[string][]string{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			route := strings.ToUpper(method) + " " + path
			h.described[route] = []string{}
			for _, p := range op.Parameters {
				h.described[route] = append(h.described[route], p.Name)
			}
		}
	}
	return h.described
}

// isLocked holds a route against every kind of credentials.
func (h *house) isLocked(i *issuer, route string, needed auth.Permission) {
	t := h.t
	t.Helper()
	require.Contains(t, auth.All(), needed, route)
	if strings.Contains(route, "{session}") {
		var opened remote.Opened
		got := h.do(http.MethodPost, "/v1/sessions", aSession, "Authorization", "Bearer "+i.token([]string{"shapes"}, "workers:execute"))
		require.Equal(t, http.StatusCreated, got.StatusCode, got.body)
		require.NoError(t, json.Unmarshal(got.body, &opened))
		h.session = opened.SessionID.String()
		require.NotContains(t, []int{401, 403}, h.asked(strings.Replace(route, "DELETE", "POST", 1), i.token([]string{"shapes", "more"}, string(needed))).StatusCode, route)
	}
	for reason, token := range map[string]string{
		"missing": "",
		"expired": i.sign(jose.EdDSA, i.key, -time.Hour, nil, string(needed)),
		"invalid": i.sign(jose.EdDSA, i.other, time.Hour, nil, string(needed)),
	} {
		got := h.asked(route, token)
		require.Equal(t, http.StatusUnauthorized, got.StatusCode, "%s: %s", route, reason)
		require.Equal(t, reason, got.Header.Get("X-Auth-Failure-Reason"), route)
	}
	hmac := i.sign(jose.HS256, []byte(i.key.Public().(ed25519.PublicKey)), time.Hour, nil, string(needed))
	require.Equal(t, http.StatusUnauthorized, h.asked(route, hmac).StatusCode, "%s: another algorithm", route)
	wrong := string(auth.All()[(slices.Index(auth.All(), needed)+1)%len(auth.All())])
	refused := h.asked(route, i.token(nil, wrong))
	require.Equal(t, http.StatusForbidden, refused.StatusCode, "%s: another permission", route)
	require.Contains(t, string(refused.body), string(needed))
	elsewhere := i.token([]string{"other"}, string(needed))
	switch route {
	case "GET /api-docs/openapi.json", "GET /api-docs/ui", transcode.Reflection: // of no namespace
		require.NotEqual(t, http.StatusForbidden, h.asked(route, elsewhere).StatusCode, route)
	default:
		h.isWalled(route, elsewhere)
	}
	require.NotContains(t, []int{401, 403}, h.asked(route, i.token(nil, string(needed))).StatusCode, route)
}

// A principal of some namespaces sees what it names, or its only one.
func TestListsAreOfTheNamespacesOfTheirPrincipal(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	h := locked(t, i)
	list := func(query string, namespaces ...string) int {
		t.Helper()
		return h.do(http.MethodGet, "/v1/tasks"+query, "", "Authorization", "Bearer "+i.token(namespaces, "tasks:list")).StatusCode
	}
	require.Equal(t, 200, list("", "shapes"))
	require.Equal(t, 200, list("?namespace=shapes", "shapes", "other"))
	require.Equal(t, 403, list("?namespace=third", "shapes", "other"))
	require.Equal(t, 403, list("?namespace=", "shapes"), "all namespaces")
	require.Equal(t, 403, list("?namespace=shapes&namespace=third", "third"))
	require.Equal(t, 403, list("", "shapes", "other"), "which of them?")
	fleet := h.do(http.MethodGet, "/v1/admin/fleet", "", "Authorization", "Bearer "+i.token([]string{"shapes"}, "system:read"))
	require.Equal(t, 403, fleet.StatusCode)
}

// Authorisation comes before the body: what a client without permission sends is not read.
func TestABodyWithoutPermissionIsNotRead(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	h := locked(t, i)
	got := h.do(http.MethodPost, "/v1/tasks", `{"not":`, "Authorization", "Bearer "+i.token(nil, "tasks:read"))
	detail := got.refused(t, http.StatusForbidden, "FORBIDDEN")
	require.Equal(t, "missing permission tasks:create", detail.Message)
	require.Equal(t, "medium", got.Header.Get("X-Auth-Failure-Severity"))
	require.Equal(t, "5", got.Header.Get("Retry-After"))
	h.do(http.MethodPost, "/v1/tasks", `{}`).refused(t, http.StatusUnauthorized, "UNAUTHORIZED")
	huge := h.do(http.MethodGet, "/v1/tasks", "", "Authorization", "Bearer "+strings.Repeat("a", 1<<20))
	huge.refused(t, http.StatusUnauthorized, "AUTHENTICATION_FAILED")
	require.Equal(t, "malformed", huge.Header.Get("X-Auth-Failure-Reason"))
}

func TestEnforcementMayOnlyLog(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	h := locked(t, i, func(*rest.Config, *rest.Orchestrator) {})
	logging := newHouse(t, func(c *rest.Config, o *rest.Orchestrator) {
		c.Access = i.access()
		c.Access.LogOnly = true
		o.Engine, o.Store = lockedEngine{newFakeEngine()}, lockedStore{newFakeStore()}
	})
	require.Equal(t, 401, h.get("/v1/tasks").StatusCode)
	require.Equal(t, 200, logging.get("/v1/tasks").StatusCode)
	lines := logging.logs.FilterMessage("would be refused").All()
	require.Len(t, lines, 1)
	require.Equal(t, "audit", lines[0].LoggerName)
	require.Equal(t, "tasks:list", lines[0].ContextMap()["permission"])
}

// Changes are in the audit log with their principal, and their records name it.
func TestChangesNameTheirPrincipal(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	engine := newFakeEngine()
	h := newHouse(t, func(c *rest.Config, o *rest.Orchestrator) {
		c.Access = i.access()
		o.Engine, o.Store = lockedEngine{engine}, lockedStore{newFakeStore()}
	})
	token := "Bearer " + i.token([]string{"shapes"}, "tasks:cancel")
	path := "/v1/tasks/" + taskID.String()
	require.Equal(t, 200, h.do(http.MethodDelete, path, "", "Authorization", token).StatusCode)
	require.Equal(t, 200, h.do(http.MethodDelete, path+"?actor=bo", "", "Authorization", token).StatusCode)
	require.Equal(t, []string{"ana", "bo (ana)"}, engine.cancelled)
	lines := h.logs.FilterMessage("allowed").FilterLevelExact(zapcore.InfoLevel).All()
	require.Len(t, lines, 2)
	require.Equal(t, "ana", lines[0].ContextMap()["principal"])
	require.Equal(t, "DELETE /v1/tasks/{uuid}", lines[0].ContextMap()["route"])
}

func TestBrowsersOfOtherOriginsAreNotAnswered(t *testing.T) {
	t.Parallel()
	closed := newHouse(t)
	open := newHouse(t, func(c *rest.Config, _ *rest.Orchestrator) { c.Access.Origins = []string{"https://ops.example"} })
	preflight := func(h *house, origin string) reply {
		t.Helper()
		return h.do(http.MethodOptions, "/v1/tasks", "", "Origin", origin, "Access-Control-Request-Method", "POST")
	}
	require.Empty(t, preflight(closed, "https://ops.example").Header.Get("Access-Control-Allow-Origin"))
	require.Empty(t, preflight(open, "https://evil.example").Header.Get("Access-Control-Allow-Origin"))
	got := preflight(open, "https://ops.example")
	require.Equal(t, 200, got.StatusCode)
	require.Equal(t, "https://ops.example", got.Header.Get("Access-Control-Allow-Origin"))
}

// TestTemplatesOfOtherNamespacesAreNotListed: neither by their names nor in the counts.
func TestTemplatesOfOtherNamespacesAreNotListed(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	h := locked(t, i)
	for namespace, count := range map[string]int{"shapes": 1, "other": 0} {
		var list client.TemplateList
		h.do(http.MethodGet, "/v1/templates", "", "Authorization", "Bearer "+i.token([]string{namespace}, "templates:read")).into(t, &list)
		require.Len(t, list.Templates, count, namespace)
		require.Len(t, list.Namespaces, count, namespace)
		require.Equal(t, count, list.TotalCount, namespace)
	}
}

// servingStore has a worker of two namespaces.
type servingStore struct{ lockedStore }

func (servingStore) Workers(context.Context, store.WorkerFilter) ([]store.WorkerState, error) {
	var w store.WorkerState
	w.Status, w.Namespaces = store.WorkerActive, []string{"shapes", "billing"}
	w.Refused = []store.VersionConflict{{Namespace: "billing", Name: "invoice"}, {Namespace: "shapes", Name: "diamond"}}
	return []store.WorkerState{w}, nil
}

// TestWorkersShowTheNamespacesOfTheirPrincipal: a worker may serve others too.
func TestWorkersShowTheNamespacesOfTheirPrincipal(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	h := newHouse(t, func(c *rest.Config, o *rest.Orchestrator) {
		c.Access = i.access()
		o.Engine, o.Store = lockedEngine{newFakeEngine()}, servingStore{lockedStore{newFakeStore()}}
	})
	for _, c := range []struct{ of, shown []string }{{nil, []string{"shapes", "billing"}}, {[]string{"shapes"}, []string{"shapes"}}} {
		var list struct{ Workers []client.WorkerState }
		h.do(http.MethodGet, "/v1/workers?namespace=shapes", "", "Authorization", "Bearer "+i.token(c.of, "workers:read")).into(t, &list)
		require.Equal(t, c.shown, list.Workers[0].Namespaces)
		require.Len(t, list.Workers[0].RefusedTemplates, len(c.shown))
	}
}

// chainedStore has a chain whose first task is of another namespace.
type chainedStore struct{ lockedStore }

func (s chainedStore) Chain(ctx context.Context, id uuid.UUID, limit int) (store.Chain, error) {
	chain, err := s.lockedStore.Chain(ctx, id, limit)
	first := *chain.Tasks[0]
	first.Plan = diamond()
	first.Plan.Template.Namespace, chain.Tasks[0] = "billing", &first
	return chain, err
}

// TestChainsShowTheNamespacesOfTheirPrincipal: a handler may name a task of another namespace
// as the next one.
func TestChainsShowTheNamespacesOfTheirPrincipal(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	h := newHouse(t, func(c *rest.Config, o *rest.Orchestrator) {
		c.Access = i.access()
		o.Engine, o.Store = lockedEngine{newFakeEngine()}, chainedStore{lockedStore{newFakeStore()}}
	})
	for _, c := range []struct{ of, shown []string }{{nil, []string{"billing", "shapes"}}, {[]string{"shapes"}, []string{"shapes"}}} {
		var chain client.Chain
		h.do(http.MethodGet, "/v1/tasks/"+taskID.String()+"/chain", "", "Authorization", "Bearer "+i.token(c.of, "tasks:read")).into(t, &chain)
		var namespaces []string
		for _, task := range chain.Tasks {
			namespaces = append(namespaces, task.Namespace)
		}
		require.Equal(t, c.shown, namespaces)
	}
}

// TestTransitionsOfOtherNamespacesAreLocked: a task is of its own namespace, and all
// tasks are of all namespaces.
func TestTransitionsOfOtherNamespacesAreLocked(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	h := locked(t, i)
	for query, allowed := range map[string]string{"task_uuid=" + taskID.String(): "shapes", "namespace=shapes": "shapes", "": ""} {
		for _, of := range []string{"shapes", "other"} {
			token := i.token([]string{of}, "tasks:read")
			got := h.do(http.MethodGet, "/v1/transitions/stream?"+query, "", "Authorization", "Bearer "+token)
			refused := http.StatusForbidden
			if strings.HasPrefix(query, "task") {
				refused = http.StatusNotFound
			}
			require.Equal(t, of != allowed, got.StatusCode == refused, "%s of %s: %s", of, query, got.body)
		}
	}
}
