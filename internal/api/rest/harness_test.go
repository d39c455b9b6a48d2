package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/autoscale"
	"github.com/tasker-go/tasker/internal/settings"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/wire"
)

var update = flag.Bool("update", false, "write the golden files anew")

// house is a server over fakes.
type house struct {
	session   string              // id of an open one
	described map[string][]string // see parameters
	t         testing.TB
	server    *rest.Server
	engine    *fakeEngine
	store     *fakeStore
	logs      *observer.ObservedLogs
	schema    *contract
}

// levels are those of a daemon that logs from info on.
func levels(t testing.TB) *telemetry.Levels {
	t.Helper()
	l, err := telemetry.NewLevels("info", []string{"store=warn"})
	require.NoError(t, err)
	return l
}

// bounded sets the bounds missing in cfg to the defaults of the configuration.
func bounded(t testing.TB, cfg rest.Config) rest.Config {
	t.Helper()
	defaults, err := config.Defaults()
	require.NoError(t, err)
	web := rest.Configure(defaults.Orchestration.Web)
	web.Address, web.MaxWait = cfg.Address, cfg.MaxWait
	return settings.Or(cfg, web)
}

// Defaults are those of the configuration: missing bounds are rejected.
func TestNoBoundIsInvented(t *testing.T) {
	t.Parallel()
	o := rest.Orchestrator{Engine: newFakeEngine(), Store: newFakeStore()}
	_, err := rest.NewOrchestrator(rest.Config{}, o)
	_, again := rest.NewWorker(rest.Config{}, rest.Worker{ID: "w", Type: "general", Status: newFakeStatus()})
	require.Equal(t, err, again)
	for _, field := range []string{"RequestTimeout", "MaxBodyBytes", "BodyBudget", "AnswerBudget"} {
		require.ErrorContains(t, err, "invalid "+field+" 0")
	}
}

func newHouse(t testing.TB, change ...func(*rest.Config, *rest.Orchestrator)) *house {
	t.Helper()
	h := &house{t: t, engine: newFakeEngine(), store: newFakeStore()}
	core, logs := observer.New(zap.DebugLevel)
	h.logs = logs
	cfg := bounded(t, rest.Config{Address: "127.0.0.1:0", Version: "1.2.3", Environment: "test", MaxWait: time.Minute, Logger: zap.New(core), LogLevels: levels(t)})
	o := rest.Orchestrator{Engine: h.engine, Store: h.store, ID: "orchestrator-1",
		Verify: func(context.Context, uuid.UUID) ([]string, error) { return nil, nil }}
	o.Autoscaling = func(_ context.Context, namespace string) (autoscale.Advice, error) {
		if namespace != "orders" {
			return autoscale.Advice{}, store.ErrNotFound
		}
		return autoscale.Advice{Namespace: namespace, DesiredWorkers: 4, NeededWorkers: 3, Workers: 2, Permits: 10, NeededPermits: 24, TargetWait: 10,
			Callables: []autoscale.CallableAdvice{{Callable: "charge", Waiting: 500, Running: 14, OldestSeconds: 5, Service: 0.1, NeededPermits: 24}}}, nil
	}
	for _, c := range change {
		c(&cfg, &o)
	}
	var err error
	h.server, err = rest.NewOrchestrator(cfg, o)
	require.NoError(t, err)
	h.schema = newContract(t, h.server.OpenAPI())
	return h
}

// reply is an answer, read to its end.
type reply struct {
	*http.Response
	body []byte
}

// do sends a request and holds the answer against the OpenAPI document.
func (h *house) do(method, target, body string, header ...string) reply {
	h.t.Helper()
	return h.doWithin(h.t.Context(), method, target, body, header...)
}

func (h *house) doWithin(ctx context.Context, method, target, body string, header ...string) reply {
	h.t.Helper()
	r := request(method, target, body, header...).WithContext(ctx)
	w := httptest.NewRecorder()
	h.server.Handler().ServeHTTP(w, r)
	got := reply{Response: w.Result()}
	got.body, _ = io.ReadAll(got.Body)
	id := got.Header.Get("X-Request-Id")
	_, err := uuid.Parse(id)
	require.NoError(h.t, err, "x-request-id")
	require.NotEqual(h.t, r.Header.Get("X-Request-Id"), id)
	h.schema.check(h.t, method, r.URL.Path, got)
	return got
}

func request(method, target, body string, header ...string) *http.Request {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, reader)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

func (h *house) get(target string) reply { h.t.Helper(); return h.do(http.MethodGet, target, "") }

// refused checks a failure in Tasker's envelope and returns its message.
func (r reply) refused(t testing.TB, status int, code string) client.ErrorDetail {
	t.Helper()
	require.Equal(t, status, r.StatusCode, "%s", r.body)
	require.Equal(t, "application/json", r.Header.Get("Content-Type"))
	var e wire.ErrorBody
	require.NoError(t, json.Unmarshal(r.body, &e), "%s", r.body)
	require.Equal(t, code, e.Error.Code)
	require.NotEmpty(t, e.Error.Message)
	return e.Error
}

// problem checks a failure as of RFC 9457 and returns its detail.
func (r reply) problem(t testing.TB, status int) string {
	t.Helper()
	require.Equal(t, status, r.StatusCode, "%s", r.body)
	require.Equal(t, "application/problem+json", r.Header.Get("Content-Type"))
	var p struct {
		Type, Title, Detail, Instance string
		Status                        int
	}
	require.NoError(t, json.Unmarshal(r.body, &p))
	require.Equal(t, status, p.Status)
	require.Equal(t, http.StatusText(status), p.Title)
	require.Equal(t, "urn:uuid:"+r.Header.Get("X-Request-Id"), p.Instance)
	return p.Detail
}

func (r reply) into(t testing.TB, v any) {
	t.Helper()
	require.Equal(t, http.StatusOK, r.StatusCode, "%s", r.body)
	require.NoError(t, json.Unmarshal(r.body, v), "%s", r.body)
}

// golden compares an answer, indented, with a file.
func (r reply) golden(t testing.TB, name string) {
	t.Helper()
	goldenJSON(t, name, r.body)
}

func goldenJSON(t testing.TB, name string, body []byte) {
	t.Helper()
	var pretty bytes.Buffer
	require.NoError(t, json.Indent(&pretty, bytes.TrimSpace(body), "", "  "), "%s", body)
	pretty.WriteByte('\n')
	file := filepath.Join("testdata", name+".json")
	if *update {
		require.NoError(t, os.WriteFile(file, pretty.Bytes(), 0o600))
	}
	want, err := os.ReadFile(file) // #nosec G304 -- a file of ours
	require.NoError(t, err)
	require.Equal(t, string(want), pretty.String())
}

// contract holds answers against an OpenAPI document.
type contract struct {
	mu        sync.Mutex // of the compiler
	compiler  *jsonschema.Compiler
	paths     map[string]map[string]any
	responses map[string]any
}

func newContract(t testing.TB, document []byte) *contract {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	require.NoError(t, err)
	c := &contract{compiler: jsonschema.NewCompiler(), paths: map[string]map[string]any{}}
	require.NoError(t, c.compiler.AddResource("http://localhost/openapi.json", doc))
	c.responses = doc.(map[string]any)["components"].(map[string]any)["responses"].(map[string]any)
	for path, item := range doc.(map[string]any)["paths"].(map[string]any) {
		c.paths[path] = item.(map[string]any)
	}
	return c
}

// check skips what is not an operation: pages, metrics, unknown routes.
func (c *contract) check(t testing.TB, method, path string, r reply) {
	t.Helper()
	template, item := c.find(path)
	op, ok := item[strings.ToLower(method)].(map[string]any)
	if !ok || len(r.body) == 0 {
		return
	}
	responses := op["responses"].(map[string]any)
	status := strconv.Itoa(r.StatusCode)
	if responses[status] == nil {
		status = "default"
	}
	media := r.Header.Get("Content-Type")
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
	response, pointer := responses[status].(map[string]any), "/paths/"+escape.Replace(template)+"/"+strings.ToLower(method)+"/responses/"+status
	if reference, ok := response["$ref"].(string); ok {
		pointer = strings.TrimPrefix(reference, "#")
		response = c.responses[strings.TrimPrefix(pointer, "/components/responses/")].(map[string]any)
	}
	require.Contains(t, response["content"], media, "%s %s", method, path)
	if strings.HasPrefix(media, "text/event-stream") {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	schema, err := c.compiler.Compile("http://localhost/openapi.json#" + pointer + "/content/" + escape.Replace(media) + "/schema")
	require.NoError(t, err)
	body, err := jsonschema.UnmarshalJSON(bytes.NewReader(r.body))
	require.NoError(t, err)
	require.NoError(t, schema.Validate(body), "%s %s: %s", method, path, r.body)
}

func (c *contract) find(path string) (string, map[string]any) {
	if item := c.paths[path]; item != nil {
		return path, item
	}
	parts := strings.Split(path, "/")
next:
	for template, item := range c.paths {
		pattern := strings.Split(template, "/")
		if len(pattern) != len(parts) {
			continue
		}
		for i := range pattern {
			if !strings.HasPrefix(pattern[i], "{") && pattern[i] != parts[i] {
				continue next
			}
		}
		return template, item
	}
	return "", nil
}

// await receives from a channel, or fails after a time-out.
func await[T any](t testing.TB, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(10 * time.Second):
		require.Fail(t, "nothing received within ten seconds")
	}
	return v
}
