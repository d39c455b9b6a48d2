package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
)

var isolatedPath = "/v1/tasks/" + taskID.String() + "/batches/isolated"

// fakeIsolated has three items of one task and records requests.
type fakeIsolated struct{ *fakeOperator }

func (f fakeIsolated) Isolated(_ context.Context, task uuid.UUID, q orchestration.IsolatedQuery) (*store.Task, []store.Isolated, error) {
	if err := f.note("isolated", q); err != nil {
		return nil, nil, err
	}
	if task != taskID {
		return nil, nil, fmt.Errorf("list: %w", store.ErrNotFound)
	}
	all := []store.Isolated{
		{Step: 5, No: 1, Template: 1, Batch: "left_001", Item: json.RawMessage(`{"row":17}`), Error: json.RawMessage(`{"message":"no such account","error_type":"PermanentError","error_code":"E7","retryable":false}`)},
		{Step: 5, No: 2, Template: 1, Batch: "left_001", Item: json.RawMessage(`"b-18"`), Error: json.RawMessage(`{"message":"timeout","error_type":"UnexpectedError","retryable":true}`), ReplayedAs: &workerID},
		{Step: 6, No: 1, Template: 1, Batch: "left_002", Item: json.RawMessage(`19`), Error: json.RawMessage(`{"message":"timeout","error_type":"UnexpectedError","retryable":true}`)},
	}
	var found []store.Isolated
	for _, i := range all {
		if i.Step > q.AfterStep || i.Step == q.AfterStep && i.No > q.AfterNo {
			found = append(found, i)
		}
	}
	return aTask(), found[:min(q.Limit, len(found))], nil
}

func (f fakeIsolated) ReplayIsolated(_ context.Context, task uuid.UUID, r orchestration.ReplayIsolated) (orchestration.ReplayedIsolated, error) {
	if err := f.note("replay isolated", r); err != nil {
		return orchestration.ReplayedIsolated{}, err
	}
	if task != taskID {
		return orchestration.ReplayedIsolated{}, fmt.Errorf("replay: %w", store.ErrNotFound)
	}
	done := orchestration.ReplayedIsolated{Items: 2, Batches: 1, More: true, DryRun: r.DryRun}
	if !r.DryRun {
		done.Task = workerID
	}
	return done, nil
}

func TestIsolatedItems(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	first := h.get(isolatedPath + "?worker_step=left&batch=left_001&retryable=true&replayed=false&limit=2")
	first.golden(t, "isolated")
	yes, no := true, false
	require.Equal(t, []acted{{"isolated", orchestration.IsolatedQuery{Worker: "left", Batch: "left_001", Retryable: &yes, Replayed: &no, Limit: 3}}}, o.taken())
	var page struct{ Next string }
	require.NoError(t, json.Unmarshal(first.body, &page))
	last := h.get(isolatedPath + "?after=" + page.Next)
	require.Contains(t, string(last.body), `"left_002"`)
	require.NotContains(t, string(last.body), `"left_001"`)
	require.Contains(t, string(last.body), `"next":null`)
	require.Equal(t, []acted{{"isolated", orchestration.IsolatedQuery{AfterStep: 5, AfterNo: 2, Limit: 101}}}, o.taken())

	for query, want := range map[string]int{"limit=0": 400, "limit=1001": 400, "limit=x": 400, "after=7": 400, "after=7.": 400, "after=-1.2": 400, "after=99999.1": 400,
		"retryable=perhaps": 400, "replayed=1": 400, "worker_step=%00": 400} {
		require.Equal(t, want, h.get(isolatedPath+"?"+query).StatusCode, query)
	}
	require.Empty(t, o.taken())
	h.get("/v1/tasks/"+correlationID.String()+"/batches/isolated").refused(t, 404, "NOT_FOUND")
}

func TestIsolatedItemsAreReplayed(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	no := false
	h.do(http.MethodPost, isolatedPath+"/replay", `{"reason":"why","actor":"ana","worker_step":"left","batch":"left_001","retryable":false,"again":true,"limit":7}`).golden(t, "isolated_replayed")
	require.Equal(t, []acted{{"replay isolated", orchestration.ReplayIsolated{Worker: "left", Batch: "left_001", Retryable: &no, Again: true, Limit: 7, Actor: "ana", Reason: "why"}}}, o.taken())
	dry := h.do(http.MethodPost, isolatedPath+"/replay", `{"reason":"why","actor":"ana","dry_run":true}`)
	require.JSONEq(t, `{"task_uuid":null,"items":2,"batches":1,"more":true,"dry_run":true}`, string(dry.body))
	require.Equal(t, []acted{{"replay isolated", orchestration.ReplayIsolated{Limit: limits.MaxIsolatedReplay, DryRun: true, Actor: "ana", Reason: "why"}}}, o.taken())
	for body, want := range map[string]int{`{}`: 422, `{"reason":"r"}`: 422, `{"reason":"r","actor":""}`: 400, `{"reason":"r","actor":"a","limit":0}`: 400,
		`{"reason":"r","actor":"a","limit":10001}`: 400, `{"reason":"r","actor":"a","retryable":"x"}`: 422} {
		require.Equal(t, want, h.do(http.MethodPost, isolatedPath+"/replay", body).StatusCode, body)
	}
	require.Empty(t, o.taken())
}
