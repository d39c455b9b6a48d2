package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

const (
	dlqPath    = "/v1/dlq"
	replayPath = "/v1/dlq/replay"
	purgePath  = "/v1/dlq/purge"
	addPath    = "/v1/dlq/entries"
)

var entryPath = "/v1/dlq/entry/" + letterID.String()

// The forms of the six routes that Tasker has match its clients.
func TestDLQ(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	h.get(dlqPath).golden(t, "dlq")
	h.get("/v1/dlq/task/"+taskID.String()).golden(t, "dlq_entry")
	h.get("/v1/dlq/stats").golden(t, "dlq_stats")
	h.get("/v1/dlq/investigation-queue").golden(t, "dlq_queue")
	h.get("/v1/dlq/staleness").golden(t, "dlq_staleness")
	h.do(http.MethodPatch, entryPath, `{}`).golden(t, "dlq_updated")
	require.Equal(t, []acted{{"list", store.DeadLetterFilter{Limit: 50}}, {"read", taskID}, {"stats", nil}, {"queue", 100}, {"staleness", 100},
		{"update", store.DeadLetterUpdate{}}, {"read", letterID}}, o.taken())

	require.Equal(t, 200, h.get(dlqPath+"?resolution_status=ManuallyResolved&dlq_reason=WorkerUnavailable&namespace=n&task_name=t&limit=1000&offset=100000").StatusCode)
	require.Equal(t, []acted{{"list", store.DeadLetterFilter{Resolution: ref(store.ResolutionManuallyResolved), Reason: ref(workflow.DeadLetterWorkerUnavailable),
		Namespace: "n", Name: "t", Limit: 1000, Offset: 100_000}}}, o.taken())
	// The spelling of the other routes, of a task's summary and of gRPC.
	require.Equal(t, 200, h.get(dlqPath+"?resolution_status=manually_resolved&dlq_reason=worker_unavailable").StatusCode)
	require.Equal(t, []acted{{"list", store.DeadLetterFilter{Resolution: ref(store.ResolutionManuallyResolved),
		Reason: ref(workflow.DeadLetterWorkerUnavailable), Limit: 50}}}, o.taken())
	for _, resolution := range []string{"pending", "Pending", "permanently_failed", "PermanentlyFailed", "cancelled", "Cancelled"} {
		require.Equal(t, 200, h.get(dlqPath+"?resolution_status="+resolution).StatusCode, resolution)
		require.Equal(t, 200, h.do(http.MethodPatch, entryPath, `{"resolution_status":"`+resolution+`"}`).StatusCode, resolution)
	}
	for _, reason := range []string{"staleness_timeout", "max_retries_exceeded", "dependency_cycle_detected", "manual_dlq"} {
		require.Equal(t, 200, h.get(dlqPath+"?dlq_reason="+reason).StatusCode, reason)
	}
	o.taken()
	for query, says := range map[string]string{
		"resolution_status=open": "want one of Pending, ManuallyResolved, PermanentlyFailed, Cancelled", "dlq_reason=odd": "want one of StalenessTimeout",
		"limit=0": "limit must be between 1 and 1000", "limit=1001": "limit must be between", "limit=x": "limit must be between",
		"offset=-1": "offset must be between 0 and 100000", "offset=100001": "offset must be between", "namespace=%00": "namespace must be text",
		"task_name=" + strings.Repeat("x", 65): "task_name must have at most 64", "resolution_status=%ff": "want one of",
	} {
		require.Contains(t, h.get(dlqPath+"?"+query).refused(t, 400, "BAD_REQUEST").Message, says, query)
	}
	for _, path := range []string{"/v1/dlq/investigation-queue", "/v1/dlq/staleness"} {
		h.get(path+"?limit=0").refused(t, 400, "BAD_REQUEST")
		h.get(path+"?limit=1001").refused(t, 400, "BAD_REQUEST")
	}
	h.get("/v1/dlq/task/x").refused(t, 400, "INVALID_UUID")
	other := uuid.NewString()
	require.Equal(t, "DLQ entry not found for task: "+other, h.get("/v1/dlq/task/"+other).refused(t, 404, "NOT_FOUND").Message)
	require.Empty(t, o.taken())
	o.fails(fmt.Errorf("list: %w", sqlError{}))
	require.NotContains(t, string(h.get(dlqPath).body), "secret")
}

func TestDLQUpdate(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	h.do(http.MethodPatch, entryPath, `{"resolution_status":"PermanentlyFailed","resolution_notes":"n","resolved_by":"ana","metadata":{"a":1}}`).golden(t, "dlq_updated")
	failed := store.ResolutionPermanentlyFailed
	require.Equal(t, acted{"update", store.DeadLetterUpdate{Resolution: &failed, Notes: ref("n"), By: ref("ana"), Metadata: []byte(`{"a":1}`)}}, o.taken()[0])
	for body, want := range map[string]struct {
		status int
		says   string
	}{
		`{"resolution_status":"open"}`:                             {422, "resolution_status"},
		`{"resolution_status":""}`:                                 {422, "resolution_status must not be empty"},
		`{"resolution_status":1}`:                                  {422, "resolution_status"},
		`{"metadata":[]}`:                                          {400, "metadata must be a JSON object"},
		`{"metadata":{"a":"\u0000"}}`:                              {400, "metadata.a contains the character NUL"},
		`{"resolution_notes":"` + strings.Repeat("x", 2001) + `"}`: {400, "resolution_notes must have at most 2000"},
		`{"resolved_by":"` + strings.Repeat("x", 256) + `"}`:       {400, "resolved_by must have at most 255"},
		`{"resolution_notes":"\u0000","resolved_by":"\u001f"}`:     {400, "resolution_notes must be text"},
	} {
		code := map[int]string{400: "BAD_REQUEST", 422: "UNPROCESSABLE_ENTITY"}[want.status]
		require.Contains(t, h.do(http.MethodPatch, entryPath, body).refused(t, want.status, code).Message, want.says, body)
	}
	require.Empty(t, o.taken())
	h.do(http.MethodPatch, "/v1/dlq/entry/x", `{}`).refused(t, 400, "INVALID_UUID")
	other := uuid.NewString()
	require.Equal(t, "DLQ entry not found: "+other, h.do(http.MethodPatch, "/v1/dlq/entry/"+other, `{}`).refused(t, 404, "NOT_FOUND").Message)
	o.fails(store.ErrDeadLetterOpen)
	h.do(http.MethodPatch, entryPath, `{"resolution_status":"Pending"}`).refused(t, 409, "CONFLICT")
}

func TestDLQAdd(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	var e client.DLQEntry
	h.do(http.MethodPost, addPath, `{"task_uuid":"`+taskID.String()+`","reason":"looks odd","actor":"ana","metadata":{"a":1}}`).into(t, &e)
	require.Equal(t, "ManualDlq", e.DLQReason)
	require.Equal(t, "looks odd", e.Detail)
	require.Equal(t, []acted{{"open", []string{"looks odd", "ana", `{"a":1}`}}}, o.taken())
	for body, want := range map[string]int{
		`{}`: 422, `{"task_uuid":"x","reason":"r","actor":"a"}`: 400, `{"task_uuid":"` + taskID.String() + `","reason":"r"}`: 422,
		`{"task_uuid":"` + taskID.String() + `","reason":"r","actor":"a","metadata":7}`: 400,
		`{"task_uuid":"` + uuid.NewString() + `","reason":"r","actor":"a"}`:             404,
	} {
		require.Equal(t, want, h.do(http.MethodPost, addPath, body).StatusCode, body)
	}
	require.Empty(t, o.taken())
}

func TestDLQReplay(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{bulk: orchestration.BulkResult{Matched: 3, Changed: 2, Skipped: 1, Tasks: []uuid.UUID{taskID}}}
	h := newHouse(t, operated(o))
	var got client.BulkResult
	one := `{"dlq_entry_uuid":"` + letterID.String() + `","reason":"r","actor":"a"`
	h.do(http.MethodPost, replayPath, one+`,"context":{"n":1}}`).into(t, &got)
	require.Equal(t, client.BulkResult{Matched: 1, Changed: 1, Tasks: []string{taskID.String()}, ReplayedAs: taskID.String()}, got)
	require.Equal(t, acted{"replay", orchestration.Replay{Actor: "a", Reason: "r", Edit: &orchestration.ContextEdit{Context: []byte(`{"n":1}`)}}}, o.taken()[1])
	h.do(http.MethodPost, replayPath, one+`,"dry_run":true}`).into(t, &got)
	require.True(t, got.DryRun)
	require.Equal(t, []acted{{"read", letterID}}, o.taken())

	many := `{"filter":{"dlq_reason":"MaxRetriesExceeded","namespace":"n","task_name":"t","since":"2026-03-21T10:11:12.123456Z"},"reason":"r","actor":"a"`
	h.do(http.MethodPost, replayPath, many+`}`).into(t, &got)
	require.True(t, got.DryRun, "dry by default")
	got = client.BulkResult{}
	h.do(http.MethodPost, replayPath, many+`,"dry_run":false,"per_second":100,"limit":1000}`).into(t, &got)
	require.Equal(t, client.BulkResult{Matched: 3, Changed: 2, Skipped: 1, Tasks: []string{taskID.String()}}, got)
	filter := store.DeadLetterFilter{Resolution: ref(store.ResolutionPending), Reason: ref(workflow.DeadLetterExhausted), Namespace: "n", Name: "t", Since: &began, Limit: 100}
	wide := filter
	wide.Limit = 1000
	require.Equal(t, []acted{
		{"replay many", orchestration.ReplayMany{Filter: filter, PerSecond: 10, Limit: 100, DryRun: true, Actor: "a", Reason: "r"}},
		{"replay many", orchestration.ReplayMany{Filter: wide, PerSecond: 100, Limit: 1000, Actor: "a", Reason: "r"}},
	}, o.taken())
	o.fails(store.ErrUnavailable)
	require.Contains(t, h.do(http.MethodPost, replayPath, many+`,"dry_run":false}`).refused(t, 503, "SERVICE_UNAVAILABLE").Message, "2 of 3 were done;")
}

func TestDLQReplayThatIsNone(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	one := `{"reason":"r","actor":"a","dlq_entry_uuid":"` + letterID.String() + `"`
	many := `{"reason":"r","actor":"a","filter":{"namespace":"n"}`
	for body, want := range map[string]struct {
		status int
		says   string
	}{
		`{}`:                           {422, "missing field: dlq_entry_uuid or filter"},
		`{"filter":{"namespace":"n"}}`: {422, "missing field: actor"}, // a dry run needs no reason
		`{"filter":{"namespace":"n"},"dry_run":false}`:                           {422, "missing field: reason, actor"},
		`{"reason":"r","actor":"a","dlq_entry_uuid":"x"}`:                        {400, "dlq_entry_uuid must be a UUID"},
		`{"reason":"r","actor":"a","dlq_entry_uuid":"` + uuid.NewString() + `"}`: {404, "DLQ entry not found"},
		one + `,"limit":1}`:                      {400, "are for many entries"},
		one + `,"filter":{"namespace":"n"}}`:     {400, "are for many entries"},
		one + `,"context":7}`:                    {400, "context must be a JSON object"},
		`{"reason":"r","actor":"a","filter":{}}`: {400, "filter must have a condition"},
		`{"reason":"r","actor":"a","filter":{"resolution_status":"Cancelled"}}`: {400, "can only be Pending"},
		`{"reason":"r","actor":"a","filter":{"dlq_reason":"odd"}}`:              {422, "filter.dlq_reason"},
		`{"reason":"r","actor":"a","filter":{"reason":"ManualDlq"}}`:            {400, `unknown key "filter.reason"`},
		many + `,"per_second":0}`:                      {400, "per_second must be above 0"},
		many + `,"per_second":-1}`:                     {400, "per_second must be above 0"},
		many + `,"per_second":1001}`:                   {400, "per_second must be above 0 and at most 1000"},
		many + `,"per_second":1e-300,"dry_run":false}`: {400, "replay them in parts"},
		many + `,"limit":1001}`:                        {400, "limit must be between 1 and 1000"},
		many + `,"context":{}}`:                        {400, "context is for dlq_entry_uuid only"},
		many + `,"limit":1000,"dry_run":false}`:        {400, "1000 tasks at 10 per second take 100 s, and a request may take 24 s"},
	} {
		code := map[int]string{400: "BAD_REQUEST", 404: "NOT_FOUND", 422: "UNPROCESSABLE_ENTITY"}[want.status]
		require.Contains(t, h.do(http.MethodPost, replayPath, body).refused(t, want.status, code).Message, want.says, body)
	}
	require.Empty(t, o.taken())
	e := h.do(http.MethodPost, replayPath, `{"reason":"r","actor":"a","dlq_entry_uuid":"`+closedID.String()+`"}`).refused(t, 409, "CONFLICT")
	require.Equal(t, againID.String(), e.TaskUUID, "it was replayed already")
}

func TestDLQPurge(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	var got client.DLQPurged
	const purge = `{"older_than_seconds":3600,"reason":"r","actor":"a"`
	h.do(http.MethodPost, purgePath, purge+`}`).into(t, &got)
	require.Equal(t, client.DLQPurged{Purged: 12, DryRun: true}, got)
	h.do(http.MethodPost, purgePath, purge+`,"dry_run":false,"limit":10000}`).into(t, &got)
	require.Equal(t, client.DLQPurged{Purged: 12}, got)
	target := func(limit int) any {
		return json.RawMessage(fmt.Sprintf(`{"older_than_seconds":3600,"limit":%d}`, limit))
	}
	require.Equal(t, []acted{
		{"purge", []any{time.Hour, 1000, store.OperatorAction{Actor: "a", Action: "purge_dlq", Reason: "r", Target: target(1000), DryRun: true}}},
		{"purge", []any{time.Hour, 10_000, store.OperatorAction{Actor: "a", Action: "purge_dlq", Reason: "r", Target: target(10_000)}}},
	}, o.taken())
	for body, want := range map[string]int{
		`{"reason":"r","actor":"a"}`: 422, `{"older_than_seconds":0}`: 422, `{"older_than_seconds":-1,"reason":"r","actor":"a"}`: 400,
		`{"older_than_seconds":9223372036854775807,"reason":"r","actor":"a"}`: 400, `{"older_than_seconds":1e30,"reason":"r","actor":"a"}`: 422,
		purge + `,"limit":10001}`: 400,
	} {
		require.Equal(t, want, h.do(http.MethodPost, purgePath, body).StatusCode, body)
	}
	require.Empty(t, o.taken())
}
