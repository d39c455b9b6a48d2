package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

func TestList(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.get("/v1/tasks?page=2&per_page=20&namespace=shapes&status=waiting_for_retry&initiator=i&source_system=s").golden(t, "list")
	h.get("/v1/tasks")
	require.Equal(t, []store.TaskFilter{
		{Namespace: "shapes", States: []workflow.TaskState{workflow.TaskWaitingForRetry}, Initiator: "i", SourceSystem: "s", Limit: 20, Offset: 20},
		{Limit: 25},
	}, h.store.filters)
	for _, state := range workflow.TaskStates() {
		require.Equal(t, http.StatusOK, h.get("/v1/tasks?status="+state.String()).StatusCode)
		require.Equal(t, []workflow.TaskState{state}, h.store.filters[len(h.store.filters)-1].States)
	}
	h.get("/v1/tasks?status=completed")
	require.Equal(t, []workflow.TaskState{workflow.TaskComplete}, h.store.filters[len(h.store.filters)-1].States)
	h.get("/v1/tasks?status=error,cancelled&status=pending&status=error&tag=a&tag=b,c&name=t&name_contains=X&version=1.0&correlation_id=" + taskID.String() +
		"&created_after=2026-01-02T03:04:05Z&created_before=2026-01-02T04:04:05%2B01:00")
	hour := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	require.Equal(t, store.TaskFilter{States: []workflow.TaskState{workflow.TaskError, workflow.TaskCancelled, workflow.TaskPending}, Tags: []string{"a", "b,c"},
		Name: "t", Text: "X", Version: "1.0", CorrelationID: taskID, CreatedAfter: hour, CreatedBefore: hour, Limit: 25}, inUTC(h.store.filters[len(h.store.filters)-1]))
}

func inUTC(f store.TaskFilter) store.TaskFilter {
	f.CreatedAfter, f.CreatedBefore = f.CreatedAfter.UTC(), f.CreatedBefore.UTC()
	return f
}

func TestListGoesOnByCursor(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.store.next = taskID
	for _, cursor := range []string{client.NewestTasks, taskID.String()} {
		var list client.TaskList
		h.get("/v1/tasks?cursor="+cursor).into(t, &list)
		require.Equal(t, taskID.String(), list.NextCursor)
		require.Zero(t, list.Pagination)
	}
	require.Equal(t, []store.TaskFilter{{Limit: 25, Continued: true}, {Limit: 25, Continued: true, Before: taskID}}, h.store.filters)
}

func TestListPages(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, c := range []struct {
		total int
		query string
		want  client.Pagination
	}{
		{0, "", client.Pagination{Page: 1, PerPage: 25}},
		{3, "", client.Pagination{Page: 1, PerPage: 25, TotalCount: 3, TotalPages: 1}},
		{50, "?page=1", client.Pagination{Page: 1, PerPage: 25, TotalCount: 50, TotalPages: 2, HasNext: true}},
		{50, "?page=2", client.Pagination{Page: 2, PerPage: 25, TotalCount: 50, TotalPages: 2, HasPrevious: true}},
		{50, "?page=9", client.Pagination{Page: 9, PerPage: 25, TotalCount: 50, TotalPages: 2, HasPrevious: true}},
		{101, "?per_page=100", client.Pagination{Page: 1, PerPage: 100, TotalCount: 101, TotalPages: 2, HasNext: true}},
	} {
		h.store.total = c.total
		var list client.TaskList
		h.get("/v1/tasks"+c.query).into(t, &list)
		require.Equal(t, c.want, list.Pagination, c)
	}
}

func TestListRefusesBadQueries(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for query, says := range map[string]string{
		"page=0":                   "page must be between 1 and",
		"page=-1":                  "page must be between 1 and",
		"page=x":                   "page must be between 1 and",
		"page=9999999999999999999": "page must be between 1 and",
		"page=1000000":             "narrow the filter",
		"per_page=0":               "per_page must be between 1 and 100",
		"per_page=101":             "per_page must be between 1 and 100",
		"per_page=1.5":             "per_page must be between 1 and 100",
		"status=done":              `"done" is not a task state`,
		"namespace=a%00":           "namespace must be text",
		"initiator=%ff":            "initiator must be text",
		"source_system=%00":        "source_system must be text",
		"tag=%00":                  "tag must be text",
		"status=error,done":        `"done" is not a task state`,
		"correlation_id=x":         "Invalid UUID",
		"created_after=yesterday":  "created_after: invalid time",
		"cursor=x":                 "cursor must be newest, or",
		"cursor=newest&page=2":     "give page or cursor, not both",
	} {
		code := "BAD_REQUEST"
		if says == "Invalid UUID" {
			code = "INVALID_UUID"
		}
		require.Contains(t, h.get("/v1/tasks?"+query).refused(t, 400, code).Message, says, query)
	}
	require.Empty(t, h.store.filters)
	h.store.fails(sqlError{})
	h.get("/v1/tasks").refused(t, 500, "DATABASE_ERROR")
}

func TestSteps(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	base := "/v1/tasks/" + taskID.String() + "/workflow_steps"
	h.get(base).golden(t, "steps")
	h.get(base+"/"+store.StepUUID(taskID, 0).String()).golden(t, "step")
	var none []client.Step
	r := h.get("/v1/tasks/" + uuid.NewString() + "/workflow_steps")
	r.into(t, &none)
	require.Equal(t, "[]\n", string(r.body))

	for target, want := range map[string]struct {
		status     int
		code, says string
	}{
		"/v1/tasks/x/workflow_steps":             {400, "BAD_REQUEST", "Invalid task UUID format"},
		"/v1/tasks/x/workflow_steps/y":           {400, "BAD_REQUEST", "Invalid task UUID format"},
		base + "/y":                              {400, "BAD_REQUEST", "Invalid step UUID format"},
		base + "/y/audit":                        {400, "BAD_REQUEST", "Invalid step UUID format"},
		base + "/" + uuid.NewString():            {404, "NOT_FOUND", "Step does not belong to the specified task"},
		base + "/" + uuid.NewString() + "/audit": {404, "NOT_FOUND", "Step does not belong"},
		"/v1/tasks/" + uuid.NewString() + "/workflow_steps/" + uuid.NewString():           {404, "NOT_FOUND", "Resource not found"},
		"/v1/tasks/" + uuid.NewString() + "/workflow_steps/" + taskID.String() + "/audit": {404, "NOT_FOUND", "Task not found"},
	} {
		require.Contains(t, h.get(target).refused(t, want.status, want.code).Message, want.says, target)
	}
	h.store.fails(store.ErrUnavailable)
	h.get(base).refused(t, 503, "SERVICE_UNAVAILABLE")
	h.store.fails(fmt.Errorf("read the task: %w", store.ErrNewer))
	require.Contains(t, h.get(base).refused(t, 503, "SERVICE_UNAVAILABLE").Message, "A newer version of the daemon has written this")
}

func TestStepAudit(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	target := "/v1/tasks/" + taskID.String() + "/workflow_steps/" + store.StepUUID(taskID, 1).String() + "/audit"
	first := h.get(target)
	first.golden(t, "audit")
	require.Equal(t, first.body, h.get(target).body, "derived ids must not change")

	// The report of a cancelled execution counts, not its end.
	h.store.timeline.Attempts = []store.StepAttempt{
		{Step: 1, Attempt: 1, Token: 1, Claimed: 1, Reported: 2, Applied: 3, Outcome: "cancelled", Result: json.RawMessage(`7`)},
		{Step: 1, Attempt: 2, Token: 2, Claimed: 3, Reported: 4, Applied: 5, Outcome: "cancelled", Error: json.RawMessage(`{"message":"m"}`)},
		{Step: 1, Attempt: 3, Token: 3, Claimed: 5, Reported: -1, Applied: 6, Outcome: "cancelled"},
	}
	var rows []client.StepAudit
	h.get(target).into(t, &rows)
	require.Len(t, rows, 2)
	require.False(t, rows[0].Success)
	require.Contains(t, string(rows[0].Result), `"message":"m"`)
	require.True(t, rows[1].Success)
	require.Contains(t, string(rows[1].Result), `"result":7`)
	require.Empty(t, rows[0].WorkerUUID)
}

func TestStepResults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step   store.Step
		null   bool
		status string
		result string
		reason string
	}{
		"never ran":            {store.Step{State: workflow.StepPending}, true, "", "", ""},
		"success with nothing": {store.Step{State: workflow.StepComplete, CompletedAt: at(1)}, false, "completed", "null", ""},
		"resolved by hand": {store.Step{State: workflow.StepResolvedManually, Error: json.RawMessage(`{"message":"m"}`)},
			true, "", "", ""},
		"failed for good": {store.Step{State: workflow.StepError, Error: json.RawMessage(`{"message":"m","retryable":false}`)},
			false, "error", "{}", "m"},
		"worker lost": {store.Step{State: workflow.StepError, Reason: ref("worker_lost")}, false, "error", "{}", "worker_lost"},
		"an unreadable failure": {store.Step{State: workflow.StepWaitingForRetry, Error: json.RawMessage(`[]`)},
			false, "failed", "{}", "the record of the failure cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			c.step.UUID, c.step.Name, c.step.CreatedAt = store.StepUUID(taskID, 0), "start", began
			h.store.task.Steps = []store.Step{c.step}
			var got client.Step
			h.get("/v1/tasks/"+taskID.String()+"/workflow_steps/"+c.step.UUID.String()).into(t, &got)
			if c.null {
				require.Equal(t, "null", string(got.Results))
				return
			}
			var result client.StepResult
			require.NoError(t, json.Unmarshal(got.Results, &result))
			require.Equal(t, c.status, result.Status)
			require.Equal(t, c.result, string(result.Result))
			require.Equal(t, c.reason == "", result.Success)
			if c.reason != "" {
				require.Equal(t, c.reason, result.Error.Message)
			}
		})
	}
}

// TestStepCheckpoint: the detail shows a step's checkpoint, a list does not.
func TestStepCheckpoint(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	step := store.Step{State: workflow.StepInProgress, UUID: store.StepUUID(taskID, 0), Name: "start", CreatedAt: began, Checkpoint: json.RawMessage(
		`{"cursor": {"page": 2}, "items_processed": 200, "timestamp": "2026-03-21T10:11:12.000345Z", "accumulated_results": {"sum": 1},
		  "history": [{"cursor": null, "timestamp": "2026-03-21T10:11:11.000000Z"}]}`)}
	h.store.task.Steps = []store.Step{step}
	base := "/v1/tasks/" + taskID.String() + "/workflow_steps"
	var got client.Step
	r := h.get(base + "/" + step.UUID.String())
	r.into(t, &got)
	require.JSONEq(t, `{"page": 2}`, string(got.Checkpoint.Cursor))
	require.EqualValues(t, 200, got.Checkpoint.ItemsProcessed)
	require.JSONEq(t, `{"sum": 1}`, string(got.Checkpoint.AccumulatedResults))
	require.Len(t, got.Checkpoint.History, 1)
	require.JSONEq(t, `null`, string(got.Checkpoint.History[0].Cursor))
	require.Contains(t, string(r.body), `"timestamp":"2026-03-21T10:11:12.000345Z"`)
	require.NotContains(t, string(h.get(base).body), "checkpoint")
	step.Checkpoint = json.RawMessage(`{"cursor": 1, "items_processed": 1, "timestamp": "2026-03-21T10:11:12Z"}`)
	h.store.task.Steps = []store.Step{step}
	require.Contains(t, string(h.get(base+"/"+step.UUID.String()).body), `"history":[]`)
	step.Checkpoint = json.RawMessage(`[]`)
	h.store.task.Steps = []store.Step{step}
	h.get(base+"/"+step.UUID.String()).refused(t, 500, "INTERNAL_ERROR")
	step.Checkpoint = nil
	h.store.task.Steps = []store.Step{step}
	require.NotContains(t, string(h.get(base+"/"+step.UUID.String()).body), "checkpoint")
}

func TestMetadataGivenByHand(t *testing.T) {
	t.Parallel()
	const ours = `"completed_by":"ana","completion_reason":"vendor fixed it","manually_completed":true`
	for input, want := range map[string]string{
		``:                       `{` + ours + `}`,
		`null`:                   `{` + ours + `}`,
		`{"ticket":"X-1"}`:       `{` + ours + `,"ticket":"X-1"}`,
		`{"completed_by":"eve"}`: `{` + ours + `}`,
		`["X-1",2]`:              `{` + ours + `,"operator_metadata":["X-1",2]}`,
		`"a note"`:               `{` + ours + `,"operator_metadata":"a note"}`,
	} {
		h := newHouse(t)
		step := store.Step{State: workflow.StepComplete, UUID: store.StepUUID(taskID, 0), Name: "start", CreatedAt: began, CompletedAt: at(1),
			ReportedAt: at(1), Result: json.RawMessage(`{"total":12}`), Manual: &store.Manual{Actor: "ana", Reason: "vendor fixed it"}}
		if input != "" {
			step.Manual.Metadata = json.RawMessage(input)
		}
		h.store.task.Steps = []store.Step{step}
		var got client.Step
		h.get("/v1/tasks/"+taskID.String()+"/workflow_steps/"+step.UUID.String()).into(t, &got)
		var result struct {
			Metadata struct {
				Custom json.RawMessage `json:"custom"`
				TookMS int64           `json:"execution_time_ms"`
			} `json:"metadata"`
		}
		require.NoError(t, json.Unmarshal(got.Results, &result))
		require.JSONEq(t, want, string(result.Metadata.Custom))
		require.Zero(t, result.Metadata.TookMS)
	}
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.get("/v1/templates").golden(t, "templates")
	var other client.TemplateList
	h.get("/v1/templates?namespace=other").into(t, &other)
	require.Equal(t, []client.TemplateSummary{}, other.Templates)
	require.Equal(t, 1, other.TotalCount)
	h.get("/v1/templates/shapes/diamond/1.0.0").golden(t, "template")
	for _, target := range []string{"/v1/templates/shapes/diamond/2.0.0", "/v1/templates/a%2Fb/c/d"} {
		require.Contains(t, h.get(target).refused(t, 404, "NOT_FOUND").Message, "Template not found: ")
	}
	h.get("/v1/templates/%00/%ff/1").refused(t, 404, "NOT_FOUND")
	h.store.fails(store.ErrUnavailable)
	h.get("/v1/templates").refused(t, 503, "SERVICE_UNAVAILABLE")
	h.get("/v1/templates/shapes/diamond/1.0.0").refused(t, 503, "SERVICE_UNAVAILABLE")
}

// TestStepsKeepTheOrderOfTheirPlan, regardless of the order of execution.
func TestStepsKeepTheOrderOfTheirPlan(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.store.task.Steps[0].CreatedAt, h.store.task.Steps[1].CreatedAt = *at(7), *at(3)
	var steps []client.Step
	h.get("/v1/tasks/"+taskID.String()+"/workflow_steps").into(t, &steps)
	var names []string
	for i := range steps {
		names = append(names, steps[i].Name)
	}
	require.Equal(t, []string{"start", "left", "right", "end"}, names)
}
