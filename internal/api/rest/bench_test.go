package rest_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// promptEngine creates no tasks and answers at once.
type promptEngine struct {
	*fakeEngine
	created orchestration.Created
}

func (e *promptEngine) Create(context.Context, orchestration.Request) (orchestration.Created, error) {
	return e.created, nil
}

func (e *promptEngine) CreateMany(_ context.Context, requests []orchestration.Request) []orchestration.CreateResult {
	results := make([]orchestration.CreateResult, len(requests))
	for i := range results {
		results[i].Created = e.created
	}
	return results
}

// The API's part of a creation: reading, checking, answering.
func BenchmarkCreate(b *testing.B) { benchmark(b, "/v1/tasks", goodBody+"}", 1) }

func BenchmarkCreateWithoutVersion(b *testing.B) {
	benchmark(b, "/v1/tasks", strings.Replace(goodBody, `"version":"1.0.0",`, "", 1)+"}", 1)
}

func BenchmarkCreateEscaped(b *testing.B) {
	benchmark(b, "/v1/tasks", goodBody+`,"options":{"note":"left to encoding/json"}}`, 1)
}

func BenchmarkCreateMany(b *testing.B) {
	const tasks = 1000
	benchmark(b, "/v1/tasks/batch", `{"tasks":[`+strings.Repeat(goodBody+"},", tasks-1)+goodBody+"}]}", tasks)
}

// The same with a token of the usual size, and a log to a file, which gets a line of the audit.
func BenchmarkCreateWithToken(b *testing.B) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(b, err)
	withCredentials(b, auth.TokenOptions{Keys: auth.Static{key.Public()}, Algorithms: []string{"RS256"}}, "Authorization",
		"Bearer "+newIssuer(b).sign(jose.RS256, key, time.Hour, nil, "tasks:create"))
}

func BenchmarkCreateWithKey(b *testing.B) {
	withCredentials(b, auth.TokenOptions{Keys: auth.Static{newIssuer(b).key.Public()}, Algorithms: []string{"EdDSA"}}, "X-API-Key", "secret")
}

func withCredentials(b *testing.B, tokens auth.TokenOptions, header, value string) {
	tokens.Issuer, tokens.Audience, tokens.PermissionsClaim, tokens.NamespacesClaim = "tasker-core", "tasker-api", "permissions", "worker_namespaces"
	file, err := os.Create(filepath.Join(b.TempDir(), "log"))
	require.NoError(b, err)
	log, err := telemetry.NewLogger("info", telemetry.FormatJSON, file)
	require.NoError(b, err)
	b.Cleanup(func() { _ = log.Sync(); require.NoError(b, file.Close()) })
	known := auth.APIKey{Name: "bench", Permissions: auth.Everything}
	authenticator, err := auth.New(auth.Options{Tokens: &tokens, Keys: &auth.KeyOptions{Configured: map[auth.KeyHash]auth.APIKey{auth.HashKey("secret"): known}}})
	require.NoError(b, err)
	benchmark(b, "/v1/tasks", goodBody+"}", 1, func(c *rest.Config, h http.Header) {
		c.Logger, c.Access = log, rest.Access{Authenticator: authenticator, KeyHeader: "X-API-Key"}
		h.Set(header, value)
	})
}

func benchmark(b *testing.B, path, body string, tasks int, change ...func(*rest.Config, http.Header)) {
	engine := &promptEngine{fakeEngine: newFakeEngine(), created: orchestration.Created{UUID: taskID, CorrelationID: correlationID, RequestedAt: began, Plan: diamond()}}
	cfg, r := bounded(b, rest.Config{}), httptest.NewRequest(http.MethodPost, path, nil)
	r.Header.Set("Content-Type", "application/json")
	for _, c := range change {
		c(&cfg, r.Header)
	}
	s, err := rest.NewOrchestrator(cfg, rest.Orchestrator{Engine: engine, Store: newFakeStore()})
	require.NoError(b, err)
	handler := s.Handler()
	r.ContentLength = int64(len(body))
	w := &nowhere{header: http.Header{}}
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		clear(w.header)
		r.Body = io.NopCloser(strings.NewReader(body))
		handler.ServeHTTP(w, r)
		if w.status != http.StatusOK {
			b.Fatal(w.status)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*tasks), "ns/task")
}

// nowhere discards what is written to it.
type nowhere struct {
	header http.Header
	status int
}

func (w *nowhere) Header() http.Header         { return w.header }
func (w *nowhere) WriteHeader(status int)      { w.status = status }
func (w *nowhere) Write(p []byte) (int, error) { return len(p), nil }
