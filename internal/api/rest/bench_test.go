package rest_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/orchestration"
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

// The same with credentials, whose answer is remembered after the first request.
func BenchmarkCreateWithToken(b *testing.B) {
	i := newIssuer(b)
	benchmark(b, "/v1/tasks", goodBody+"}", 1, func(c *rest.Config, header http.Header) {
		c.Access = i.access()
		header.Set("Authorization", "Bearer "+i.token(nil, "tasks:create"))
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
