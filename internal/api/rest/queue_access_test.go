package rest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
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

// as posts a request of a principal of some namespaces and returns status and body. One whose name
// is not ana stands before them: bo@shop.
func (h *queueHouse) as(namespaces, path, body string) (status int, answer string) {
	h.t.Helper()
	subject, of, named := strings.Cut(namespaces, "@")
	if !named {
		subject, of = "ana", namespaces
	}
	token := h.issuer.signFor(subject, jose.EdDSA, h.issuer.key, time.Hour, strings.Fields(of), "tasks:create", "workers:execute")
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
	require.Equal(t, http.StatusNotFound, status, answer)
	beat := h.ok("bank", "/workers/v1/w/heartbeat", `{"claims":[{"id":"`+held[0].ID+`","token":"`+held[0].Token+`"}]}`)
	require.Contains(t, beat, `"queue":"bank"`)
	require.Contains(t, beat, `"lost":[]`)
	h.ok("bank", "/workers/v1/register", `{"workerId":"w","queue":"bank","instance":"2"}`)
}

// Workers belong to their principal: the id of another one's claims nothing, ends nothing, and is free.
func TestWorkersOfOtherPrincipalsClaimNothing(t *testing.T) {
	t.Parallel()
	h := newQueueHouse(t)
	h.ok("ana@bank", "/workers/v1/register", `{"workerId":"w","queue":"bank","instance":"1"}`)
	h.ok("ana@bank", "/tasks/v1", `{"queue":"bank","payload":1}`)
	held := h.claimed(h.ok("ana@bank", "/tasks/v1/claim", `{"workerId":"w"}`))
	require.Len(t, held, 1)
	h.ok("ana@bank", "/tasks/v1", `{"queue":"bank","payload":2}`)

	for path, body := range map[string]string{"/tasks/v1/claim": `{"workerId":"w","held":[]}`, "/workers/v1/w/heartbeat": `{}`,
		"/tasks/v1/" + held[0].ID + "/complete": `{"workerId":"w"}`} {
		for _, id := range []string{"w", "nobody"} {
			status, answer := h.as("bo@bank", strings.Replace(path, "/w/", "/"+id+"/", 1), strings.Replace(body, `"w"`, `"`+id+`"`, 1))
			require.Equal(t, http.StatusNotFound, status, "%s as %s: %s", path, id, answer)
		}
	}
	registered := h.ok("bo@bank", "/workers/v1/register", `{"workerId":"w","queue":"bank","instance":"2"}`)
	require.Contains(t, registered, `"workerId":"w"`)
	require.Len(t, h.claimed(h.ok("bo@bank", "/tasks/v1/claim", `{"workerId":"w","held":[]}`)), 1, "what waits, not what ana holds")
	h.ok("ana@bank", "/tasks/v1/"+held[0].ID+"/complete", `{"workerId":"w"}`)
}
