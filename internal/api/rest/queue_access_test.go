package rest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/taskmaster"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/poller"
	"github.com/tasker-go/tasker/worker"
)

// queueHouse serves plain queues of a real database to principals of an issuer.
type queueHouse struct {
	t      *testing.T
	issuer *issuer
	server *rest.Server
}

func newQueueHouse(t *testing.T) *queueHouse {
	t.Helper()
	e := enginetest.Start(t, func(*worker.Worker) error { return nil }, func(_ *orchestration.Config, w *worker.Config) { w.Namespaces = []string{"other"} })
	queues, err := taskmaster.New(taskmaster.Config{Store: e.Store, Engine: e.Orchestrator, Publisher: e.Bus, Actor: "test",
		Liveness: store.LivenessLimits{Stale: time.Minute, Dead: time.Hour}, BaseDelay: time.Millisecond, MaxWaiting: 10,
		System: enginetest.Completed(t, coordinator.Config{SystemID: "queues", Mode: deploymode.Hybrid, Listener: listener.New(listener.Config{Source: e.Bus}),
			Poller: poller.Config{Interval: time.Second, RelaxedInterval: time.Hour}})})
	require.NoError(t, err)
	require.NoError(t, queues.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, queues.Stop(context.Background())) })
	h := &queueHouse{t: t, issuer: newIssuer(t)}
	cfg := bounded(t, rest.Config{Address: "127.0.0.1:0", MaxWait: time.Minute})
	cfg.Access = h.issuer.access()
	h.server, err = rest.NewOrchestrator(cfg, rest.Orchestrator{Engine: enginetest.Supervised{Orchestrator: e.Orchestrator}, Store: e.Store, ID: "test", Queues: queues})
	require.NoError(t, err)
	return h
}

// as posts a request of a principal of some namespaces and returns status and body.
func (h *queueHouse) as(namespaces, path, body string) (status int, answer string) {
	h.t.Helper()
	token := h.issuer.token(strings.Fields(namespaces), "tasks:create", "workers:execute")
	r := request(http.MethodPost, path, body, "Authorization", "Bearer "+token).WithContext(h.t.Context())
	w := httptest.NewRecorder()
	h.server.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func (h *queueHouse) ok(namespaces, path, body string) string {
	h.t.Helper()
	status, answer := h.as(namespaces, path, body)
	require.Less(h.t, status, 300, "%s: %s", path, answer)
	return answer
}

// claimed are the tasks of an answer to a claim.
func (h *queueHouse) claimed(answer string) (tasks []struct{ ID, Token, Queue string }) {
	h.t.Helper()
	var w struct {
		Tasks *[]struct{ ID, Token, Queue string }
	}
	w.Tasks = &tasks
	require.NoError(h.t, json.Unmarshal([]byte(answer), &w))
	return tasks
}

// A principal that names the worker of another namespace is told nothing of what it holds, and
// takes nothing of it away.
func TestWhatWorkersOfOtherNamespacesHoldIsNotTold(t *testing.T) {
	t.Parallel()
	h := newQueueHouse(t)
	h.ok("bank", "/workers/v1/register", `{"workerId":"w","queue":"bank"}`)
	h.ok("bank", "/tasks/v1", `{"queue":"bank","payload":{"iban":"DE00"}}`)
	held := h.claimed(h.ok("bank", "/tasks/v1/claim", `{"workerId":"w"}`))
	require.Len(t, held, 1)

	require.Empty(t, h.claimed(h.ok("shop", "/tasks/v1/claim", `{"workerId":"w","queue":"shop","held":[]}`)))
	h.ok("bank", "/tasks/v1/"+held[0].ID+"/complete", `{"token":"`+held[0].Token+`"}`)
}

// A worker that is told again what it holds is told of all its queues.
func TestAWorkerIsToldAgainOfAllItsQueues(t *testing.T) {
	t.Parallel()
	h := newQueueHouse(t)
	const both = "shop bank"
	h.ok(both, "/workers/v1/register", `{"workerId":"w","queue":"shop"}`)
	h.ok(both, "/tasks/v1", `{"queue":"bank","payload":1}`)
	held := h.claimed(h.ok(both, "/tasks/v1/claim", `{"workerId":"w","queue":"bank"}`))
	again := h.claimed(h.ok(both, "/tasks/v1/claim", `{"workerId":"w","held":[]}`))
	require.Len(t, again, 1)
	require.Equal(t, held[0].ID, again[0].ID)
	require.Equal(t, "bank", again[0].Queue, "not that of the worker")
	require.NotEqual(t, held[0].Token, again[0].Token)
}

// A principal does not register the worker of another namespace again: that would move the
// worker, and end what it holds.
func TestWorkersOfOtherNamespacesAreNotRegistered(t *testing.T) {
	t.Parallel()
	h := newQueueHouse(t)
	h.ok("bank", "/workers/v1/register", `{"workerId":"w","queue":"bank","instance":"1"}`)
	h.ok("bank", "/tasks/v1", `{"queue":"bank","payload":1}`)
	held := h.claimed(h.ok("bank", "/tasks/v1/claim", `{"workerId":"w"}`))
	require.Len(t, held, 1)

	status, answer := h.as("shop", "/workers/v1/register", `{"workerId":"w","queue":"shop","instance":"2"}`)
	require.Equal(t, http.StatusForbidden, status, answer)
	beat := h.ok("bank", "/workers/v1/w/heartbeat", `{"claims":[{"id":"`+held[0].ID+`","token":"`+held[0].Token+`"}]}`)
	require.Contains(t, beat, `"queue":"bank"`)
	require.Contains(t, beat, `"lost":[]`)
	h.ok("bank", "/workers/v1/register", `{"workerId":"w","queue":"bank","instance":"2"}`)
}
