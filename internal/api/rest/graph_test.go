package rest_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

func TestGraph(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.get("/v1/tasks/"+taskID.String()+"/graph").golden(t, "graph")
}

// A task in one answer: what its steps depend on, how they are, and the tasks that they are.
func TestTheGraphOfATask(t *testing.T) {
	t.Parallel()
	base, transport, e := operatedAt(t)
	c := client.New(client.Config{BaseURL: base, HTTP: &http.Client{Transport: transport}})
	bad := ended(t, c, "bad", "error")
	require.NoError(t, e.Store.KeepLogs(t.Context(), nil, nil, []store.StepProgress{{Task: uuid.MustParse(bad.TaskUUID), Step: 1, Token: 1, Fraction: 0.25, Message: "a quarter"}}))
	g, err := c.TaskGraph(t.Context(), bad.TaskUUID)
	require.NoError(t, err)
	require.Equal(t, "error", g.Status)
	require.NotNil(t, g.CompletedAt)
	require.Len(t, g.Steps, 2)
	require.Equal(t, "complete", g.Steps[0].State)
	require.Equal(t, "test.ok", g.Steps[0].Callable)
	require.Equal(t, []int{0}, g.Steps[1].DependsOn)
	require.Equal(t, "error", g.Steps[1].State)
	require.Equal(t, "PermanentError", g.Steps[1].ErrorType)
	require.Equal(t, "in a bad mood", g.Steps[1].Error)
	require.InDelta(t, 0.25, g.Steps[1].Progress.Fraction, 1e-6)
	require.NotNil(t, g.Steps[1].StartedAt)
	require.NotNil(t, g.Steps[1].EndedAt)

	waiting, err := c.CreateTask(t.Context(), client.TaskRequest{Name: "waiting", Namespace: "shapes", Version: "1.0.0", Initiator: "ana", SourceSystem: "test", Reason: "why not",
		Context: []byte(`{"order": "7"}`)})
	require.NoError(t, err)
	_, err = c.SendEvent(t.Context(), client.ExternalEvent{Namespace: "shapes", Name: "paid", Key: "7"})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		g, err = c.TaskGraph(t.Context(), waiting.TaskUUID)
		return err == nil && g.Steps[1].Waiting != nil && g.Steps[1].Waiting.Kind == "approval"
	}, 30*time.Second, 20*time.Millisecond)
	approvals, err := c.Approvals(t.Context(), client.ApprovalListOptions{TaskUUID: waiting.TaskUUID})
	require.NoError(t, err)
	require.Len(t, approvals, 1)
	_, err = c.Decide(t.Context(), approvals[0].Token, client.Verdict{Approved: true, Actor: "bo", Data: []byte(`{"mood":"good"}`)})
	require.NoError(t, err)
	endOf(t, c, waiting.TaskUUID, "complete")
	g, err = c.TaskGraph(t.Context(), waiting.TaskUUID)
	require.NoError(t, err)
	require.Len(t, g.Children, 1)
	require.Equal(t, 2, g.Children[0].StepNo)
	require.Equal(t, "complete", g.Children[0].Status)
	require.Equal(t, "chain", g.Children[0].Name)
	child, err := c.TaskGraph(t.Context(), g.Children[0].TaskUUID)
	require.NoError(t, err)
	require.Equal(t, waiting.TaskUUID, child.Parent.TaskUUID)
	require.Equal(t, 2, child.Parent.StepNo)
	_, err = c.TaskGraph(t.Context(), uuid.NewString())
	require.True(t, client.IsNotFound(err))
}

var graphSteps = flag.Int("graph.steps", 300, "parallel steps of the task whose graph is read")

// A graph of many steps stays within bounds.
func TestTheGraphOfManySteps(t *testing.T) {
	t.Parallel()
	base, transport, e := operatedAt(t)
	c := client.New(client.Config{BaseURL: base, HTTP: &http.Client{Transport: transport}})
	wide, _, err := template.Parse("wide.yaml", []byte(enginetest.JoinTemplate("shapes", "wide", *graphSteps, "test.ok", "test.ok")))
	require.NoError(t, err)
	_, err = e.Store.RegisterTemplates(t.Context(), store.Registrant{ID: "test", Immutable: store.VersionsRefuse}, []*workflow.Template{wide})
	require.NoError(t, err)
	task, err := c.CreateTask(t.Context(), client.TaskRequest{Name: "wide", Namespace: "shapes", Version: "1.0.0", Initiator: "ana", SourceSystem: "test", Reason: "why not", Context: []byte(`{}`)})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		read, err := c.Task(t.Context(), task.TaskUUID, 30*time.Second)
		return err == nil && read.Status == "complete"
	}, 10*time.Minute, 100*time.Millisecond)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begun := time.Now()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/v1/tasks/"+task.TaskUUID+"/graph", nil)
	require.NoError(t, err)
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, errors.Join(err, resp.Body.Close()))
	took := time.Since(begun)
	runtime.ReadMemStats(&after)
	var g client.TaskGraph
	require.NoError(t, json.Unmarshal(body, &g))
	require.Len(t, g.Steps, *graphSteps+1)
	require.Len(t, g.Steps[*graphSteps].DependsOn, *graphSteps)
	require.Equal(t, "complete", g.Status)
	t.Logf("%d steps: %d kB, %v, %d MB allocated", *graphSteps, len(body)>>10, took.Round(time.Millisecond), (after.TotalAlloc-before.TotalAlloc)>>20)
	require.Less(t, len(body), 1_000*(*graphSteps+1))
}
