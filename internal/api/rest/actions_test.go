package rest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

var (
	leftStep    = store.StepUUID(taskID, 1)
	stepPath    = "/v1/tasks/" + taskID.String() + "/workflow_steps/" + leftStep.String()
	actionsPath = "/v1/tasks/" + taskID.String() + "/actions"
)

const bulkPath = "/v1/tasks/actions"

func TestStepActions(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	for body, want := range map[string]orchestration.Action{
		`{"action_type":"reset_for_retry","reason":"fixed","reset_by":"ana"}`:                        {Kind: orchestration.ActionResetForRetry, Reason: "fixed", Actor: "ana"},
		`{"action_type":"resolve_manually","reason":"fixed","resolved_by":"ana","reset_by":"other"}`: {Kind: orchestration.ActionResolveManually, Reason: "fixed", Actor: "ana"},
		`{"action_type":"complete_manually","reason":"fixed","completed_by":"ana","completion_data":{"result":{"total":12},"metadata":{"ticket":"X-1"}},"other":1}`: {
			Kind: orchestration.ActionCompleteManually, Reason: "fixed", Actor: "ana", Result: json.RawMessage(`{"total":12}`), Metadata: json.RawMessage(`{"ticket":"X-1"}`)},
		`{"action_type":"complete_manually","reason":"fixed","completed_by":"ana","completion_data":{"result":null}}`: {
			Kind: orchestration.ActionCompleteManually, Reason: "fixed", Actor: "ana", Result: json.RawMessage(`null`)},
	} {
		h.do(http.MethodPatch, stepPath, body).golden(t, "left_step")
		want.Step = &leftStep
		require.Equal(t, []acted{{"act", want}}, o.taken(), body)
	}
}

func TestStepActionsThatAreNone(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	long := strings.Repeat("é", 501)
	for body, want := range map[string]struct {
		status int
		code   string
		says   string
	}{
		`{`:                                 {400, "JSON_ERROR", "not JSON"},
		`[]`:                                {422, "UNPROCESSABLE_ENTITY", "JSON object"},
		`{}`:                                {422, "UNPROCESSABLE_ENTITY", "missing field: action_type"},
		`{"action_type":7}`:                 {422, "UNPROCESSABLE_ENTITY", "action_type"},
		`{"action_type":"explode"}`:         {422, "UNPROCESSABLE_ENTITY", `invalid action_type "explode"`},
		`{"action_type":"reset_for_retry"}`: {422, "UNPROCESSABLE_ENTITY", "missing field: reason, reset_by"},
		`{"action_type":"resolve_manually","reason":"r","reset_by":"b"}`:                                                           {422, "UNPROCESSABLE_ENTITY", "missing field: resolved_by"},
		`{"action_type":"complete_manually","reason":"r","completed_by":"b"}`:                                                      {422, "UNPROCESSABLE_ENTITY", "missing field: completion_data"},
		`{"action_type":"complete_manually","reason":"r","completed_by":"b","completion_data":{}}`:                                 {422, "UNPROCESSABLE_ENTITY", "completion_data.result"},
		`{"action_type":"complete_manually","reason":"r","completed_by":"b","completion_data":{"result":"\u0000"}}`:                {400, "BAD_REQUEST", "completion_data.result contains the character NUL"},
		`{"action_type":"complete_manually","reason":"r","completed_by":"b","completion_data":{"result":"\ud800"}}`:                {400, "BAD_REQUEST", "surrogate"},
		`{"action_type":"complete_manually","reason":"r","completed_by":"b","completion_data":{"result":1,"metadata":["\u0000"]}}`: {400, "BAD_REQUEST", "completion_data.metadata[0] contains"},
		`{"action_type":"reset_for_retry","reason":" ","reset_by":"b"}`:                                                            {400, "BAD_REQUEST", "reason must not be empty"},
		`{"action_type":"reset_for_retry","reason":"` + long + `","reset_by":"b"}`:                                                 {400, "BAD_REQUEST", "at most 500 characters"},
		`{"action_type":"reset_for_retry","reason":"r","reset_by":"\u0000"}`:                                                       {400, "BAD_REQUEST", "reset_by must be text"},
	} {
		require.Contains(t, h.do(http.MethodPatch, stepPath, body).refused(t, want.status, want.code).Message, want.says, body)
	}
	const good = `{"action_type":"reset_for_retry","reason":"r","reset_by":"b"}`
	tasks := "/v1/tasks/" + taskID.String()
	for path, want := range map[string]struct {
		status int
		says   string
	}{
		"/v1/tasks/x/workflow_steps/" + leftStep.String():                        {400, "Invalid task UUID format"},
		tasks + "/workflow_steps/x":                                              {400, "Invalid step UUID format"},
		"/v1/tasks/" + uuid.NewString() + "/workflow_steps/" + leftStep.String(): {404, "Resource not found"},
		tasks + "/workflow_steps/" + uuid.NewString():                            {404, "Step does not belong to the specified task"},
	} {
		code := map[int]string{400: "BAD_REQUEST", 404: "NOT_FOUND"}[want.status]
		require.Equal(t, want.says, h.do(http.MethodPatch, path, good).refused(t, want.status, code).Message)
	}
	require.Empty(t, o.taken(), "no request reached the engine")

	o.fails(fmt.Errorf("act: %w", &workflow.NotAllowedError{Action: "reset_for_retry", Step: "left", From: "complete"}))
	require.Equal(t, "Cannot manually resolve step: invalid transition from complete to ResetForRetry",
		h.do(http.MethodPatch, stepPath, good).refused(t, 400, "BAD_REQUEST").Message)
	o.fails(store.ErrTaskEnded)
	require.Contains(t, h.do(http.MethodPatch, stepPath, good).refused(t, 400, "BAD_REQUEST").Message, "has ended")
}

func TestTaskActions(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	step := `,"step_uuid":"` + leftStep.String() + `"`
	for body, want := range map[string]acted{
		`"cancel"`:                            {"act", orchestration.Action{Kind: orchestration.ActionCancel}},
		`"fail"`:                              {"act", orchestration.Action{Kind: orchestration.ActionFail}},
		`"resolve"`:                           {"act", orchestration.Action{Kind: orchestration.ActionResolveManually}},
		`"resolve"` + step:                    {"act", orchestration.Action{Kind: orchestration.ActionResolveManually, Step: &leftStep}},
		`"reset_for_retry"` + step:            {"act", orchestration.Action{Kind: orchestration.ActionResetForRetry, Step: &leftStep}},
		`"run_again"` + step:                  {"act", orchestration.Action{Kind: orchestration.ActionRunAgain, Step: &leftStep}},
		`"release_lease"` + step:              {"act", orchestration.Action{Kind: orchestration.ActionReleaseLease, Step: &leftStep}},
		`"reprioritise","priority":-5`:        {"act", orchestration.Action{Kind: orchestration.ActionReprioritise, Priority: ref(-5)}},
		`"replay"`:                            {"replay", orchestration.Replay{Actor: "ana", Reason: "why"}},
		`"replay","context":{"n":1}`:          {"replay", orchestration.Replay{Actor: "ana", Reason: "why", Edit: &orchestration.ContextEdit{Context: json.RawMessage(`{"n":1}`)}}},
		`"replay","context_patch":{"n":null}`: {"replay", orchestration.Replay{Actor: "ana", Reason: "why", Edit: &orchestration.ContextEdit{Patch: json.RawMessage(`{"n":null}`)}}},
		`"run_again","context":{"n":1}` + step: {"act", orchestration.Action{Kind: orchestration.ActionRunAgain, Step: &leftStep,
			Edit: &orchestration.ContextEdit{Context: json.RawMessage(`{"n":1}`)}}},
		`"reset_for_retry","context_patch":{"n":2}` + step: {"act", orchestration.Action{Kind: orchestration.ActionResetForRetry, Step: &leftStep,
			Edit: &orchestration.ContextEdit{Patch: json.RawMessage(`{"n":2}`)}}},
		`"dead_letter"`: {"open", []string{"why", "ana", ""}},
		`"complete_manually","result":[1]` + step: {"act", orchestration.Action{Kind: orchestration.ActionCompleteManually, Step: &leftStep,
			Result: json.RawMessage(`[1]`)}},
	} {
		if a, ok := want.with.(orchestration.Action); ok {
			a.Actor, a.Reason = "ana", "why"
			want.with = a
		}
		var task client.Task
		h.do(http.MethodPost, actionsPath, `{"actor":"ana","reason":"why","action":`+body+`}`).into(t, &task)
		require.Equal(t, taskID.String(), task.TaskUUID)
		require.Equal(t, []acted{want}, o.taken(), body)
	}
}

func TestPreviews(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	const why = `{"actor":"ana","reason":"why","action":`
	h.do(http.MethodPost, actionsPath+"/preview", why+`"run_again","step_uuid":"`+leftStep.String()+`","context_patch":{"a":null}}`).golden(t, "preview")
	require.Equal(t, []acted{{"preview", orchestration.Action{Kind: orchestration.ActionRunAgain, Step: &leftStep, Actor: "ana", Reason: "why",
		Edit: &orchestration.ContextEdit{Patch: json.RawMessage(`{"a":null}`)}}}}, o.taken())
	var p client.ActionPreview
	h.do(http.MethodPost, actionsPath+"/preview", why+`"cancel"}`).into(t, &p)
	require.Equal(t, client.ActionPreview{TaskUUID: taskID.String(), Action: "cancel", Steps: []client.StepPreview{}, EndsAs: "cancelled"}, p)
	h.do(http.MethodPost, actionsPath+"/preview", why+`"replay","context":{"n":1}}`).into(t, &p)
	require.Equal(t, acted{"preview replay", orchestration.Replay{Actor: "ana", Reason: "why", Edit: &orchestration.ContextEdit{Context: json.RawMessage(`{"n":1}`)}}}, o.taken()[1])
	h.do(http.MethodPost, actionsPath+"/preview", why+`"dead_letter"}`).refused(t, 400, "BAD_REQUEST")
	h.do(http.MethodPost, actionsPath+"/preview", why+`"run_again"}`).refused(t, 422, "UNPROCESSABLE_ENTITY")
	h.do(http.MethodPost, "/v1/tasks/"+uuid.NewString()+"/actions/preview", why+`"cancel"}`).refused(t, 404, "NOT_FOUND")
	o.fails(&orchestration.InvalidError{Problems: []string{"context/n: no"}})
	require.Equal(t, "context/n: no", h.do(http.MethodPost, actionsPath+"/preview", why+`"cancel"}`).refused(t, 400, "BAD_REQUEST").Message)
}

func TestTaskActionsThatAreNone(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	step := `,"step_uuid":"` + leftStep.String() + `"`
	for body, want := range map[string]struct {
		status int
		says   string
	}{
		`{"action":"cancel","actor":"a"}`:                                                             {422, "missing field: reason"},
		`{"actor":"a","reason":"r"}`:                                                                  {422, "missing field: action"},
		`{"action":"explode","actor":"a","reason":"r"}`:                                               {422, `invalid action "explode"`},
		`{"actor":"a","reason":"r","action":"run_again"}`:                                             {422, "missing field: step_uuid"},
		`{"actor":"a","reason":"r","action":"cancel"` + step + `}`:                                    {400, "step_uuid is for"},
		`{"actor":"a","reason":"r","action":"run_again","step_uuid":"x"}`:                             {422, "step_uuid must be a UUID"},
		`{"actor":"a","reason":"r","action":"run_again","step_uuid":"` + uuid.NewString() + `"}`:      {404, "Step does not belong"},
		`{"actor":"a","reason":"r","action":"reprioritise"}`:                                          {422, "missing field: priority"},
		`{"actor":"a","reason":"r","action":"reprioritise","priority":101}`:                           {400, "priority must be between -100 and 100"},
		`{"actor":"a","reason":"r","action":"reprioritise","priority":1000000000}`:                    {400, "priority must be between"},
		`{"actor":"a","reason":"r","action":"reprioritise","priority":"1"}`:                           {422, "priority"},
		`{"actor":"a","reason":"r","action":"cancel","priority":1}`:                                   {400, "priority is for reprioritise only"},
		`{"actor":"a","reason":"r","action":"cancel","result":1}`:                                     {400, "result is for complete_manually only"},
		`{"actor":"a","reason":"r","action":"cancel","context":{}}`:                                   {400, "context is for replay and run_again and reset_for_retry only"},
		`{"actor":"a","reason":"r","action":"fail","context_patch":{}}`:                               {400, "context_patch is for replay and run_again and reset_for_retry only"},
		`{"actor":"a","reason":"r","action":"run_again","context_patch":[]` + step + `}`:              {400, "context_patch must be a JSON object"},
		`{"actor":"a","reason":"r","action":"run_again","context":{},"context_patch":{}` + step + `}`: {400, "give context or context_patch, not both"},
		`{"actor":"a","reason":"r","action":"replay","context":[]}`:                                   {400, "context must be a JSON object"},
		`{"actor":"a","reason":"r","action":"complete_manually"` + step + `}`:                         {422, "missing field: result"},
		`{"actor":"` + strings.Repeat("a", 256) + `","reason":"r","action":"cancel"}`:                 {400, "actor must have at most 255"},
	} {
		code := map[int]string{400: "BAD_REQUEST", 404: "NOT_FOUND", 422: "UNPROCESSABLE_ENTITY"}[want.status]
		require.Contains(t, h.do(http.MethodPost, actionsPath, body).refused(t, want.status, code).Message, want.says, body)
	}
	require.Empty(t, o.taken())
	h.do(http.MethodPost, "/v1/tasks/x/actions", `{}`).refused(t, 400, "INVALID_UUID")
	const cancel = `{"actor":"a","reason":"r","action":"cancel"}`
	other := uuid.NewString()
	require.Equal(t, "Task not found: "+other, h.do(http.MethodPost, "/v1/tasks/"+other+"/actions", cancel).refused(t, 404, "NOT_FOUND").Message)
	o.fails(store.ErrTaskEnded)
	require.Equal(t, "Cannot cancel a completed task", h.do(http.MethodPost, actionsPath, cancel).refused(t, 400, "BAD_REQUEST").Message)
	h.store.task.State = workflow.TaskCancelled
	require.Equal(t, "Cannot cancel a cancelled task", h.do(http.MethodPost, actionsPath, cancel).refused(t, 400, "BAD_REQUEST").Message)
	require.Equal(t, "Cannot cancel a cancelled task", h.do(http.MethodPost, actionsPath+"/preview", cancel).refused(t, 400, "BAD_REQUEST").Message)
	require.Contains(t, h.do(http.MethodPost, actionsPath, `{"actor":"a","reason":"r","action":"fail"}`).refused(t, 400, "BAD_REQUEST").Message, "does not allow fail")
	o.fails(&workflow.NotAllowedError{Action: "run_again", Step: "left", From: "waiting"})
	require.Contains(t, h.do(http.MethodPost, actionsPath, cancel).refused(t, 400, "BAD_REQUEST").Message, "step left in state waiting does not allow run_again")
	o.fails(&orchestration.DuplicateError{Existing: againID})
	require.Equal(t, againID.String(), h.do(http.MethodPost, actionsPath, `{"actor":"a","reason":"r","action":"replay"}`).refused(t, 409, "CONFLICT").TaskUUID)
}

// An action must not look failed because its outcome could not be shown.
func TestActionsThatCannotBeShown(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	h.store.fails(store.ErrUnavailable)
	e := h.do(http.MethodPost, actionsPath, `{"actor":"a","reason":"r","action":"cancel"}`).refused(t, 503, "SERVICE_UNAVAILABLE")
	require.Equal(t, taskID.String(), e.TaskUUID)
	require.Contains(t, e.Message, "The action was carried out")
}

func TestBulkActions(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{bulk: orchestration.BulkResult{Matched: 150, Changed: 140, Skipped: 10, Tasks: make([]uuid.UUID, 150)}}
	h := newHouse(t, operated(o))
	var got client.BulkResult
	h.do(http.MethodPost, bulkPath, `{"filter":{"namespace":"shapes"},"action":"cancel","reason":"r","actor":"a"}`).into(t, &got)
	require.True(t, got.DryRun, "dry by default")
	require.Equal(t, 150, got.Matched)
	require.Equal(t, 140, got.Changed)
	require.Equal(t, 10, got.Skipped)
	require.Len(t, got.Tasks, limits.MaxBulkTasks)
	cancel := orchestration.Action{Kind: orchestration.ActionCancel, Actor: "a", Reason: "r"}
	require.Equal(t, []acted{{"act on many", orchestration.Bulk{Select: orchestration.TaskSelection{Namespace: "shapes", States: []workflow.TaskState{}},
		Action: cancel, DryRun: true, Limit: limits.DefaultBulkLimit}}}, o.taken())

	h.do(http.MethodPost, bulkPath, `{"filter":{"name":"diamond","version":"1","states":["error","cancelled"],"tag":"demo","created_before":"2026-03-21T10:11:12.123456Z",
		"created_after":"2026-03-21T10:11:12.123456Z","step_name":"left"},"action":"reset_for_retry","reason":"r","actor":"a","dry_run":false,"limit":7}`).into(t, &got)
	require.False(t, got.DryRun)
	require.Equal(t, []acted{{"act on many", orchestration.Bulk{Select: orchestration.TaskSelection{Name: "diamond", Version: "1",
		States: []workflow.TaskState{workflow.TaskError, workflow.TaskCancelled}, Tag: "demo", CreatedBefore: &began, CreatedAfter: &began},
		Action: orchestration.Action{Kind: orchestration.ActionResetForRetry, StepName: "left", Actor: "a", Reason: "r"}, Limit: 7}}}, o.taken())

	o.fails(fmt.Errorf("in the middle: %w", store.ErrUnavailable))
	e := h.do(http.MethodPost, bulkPath, `{"filter":{"tag":"x"},"action":"cancel","reason":"r","actor":"a","dry_run":false}`).refused(t, 503, "SERVICE_UNAVAILABLE")
	require.Contains(t, e.Message, "140 of 150 were done;")
	o.fails(errors.New("odd"))
	o.bulk.Changed = 0
	require.NotContains(t, h.do(http.MethodPost, bulkPath, `{"filter":{"tag":"x"},"action":"cancel","reason":"r","actor":"a"}`).refused(t, 500, "INTERNAL_ERROR").Message, "before that")
}

func TestBulkActionsThatAreNone(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	with := func(filter, more string) string {
		return `{"action":"cancel","reason":"r","actor":"a","filter":` + filter + more + `}`
	}
	for body, want := range map[string]struct {
		status int
		says   string
	}{
		`{"filter":{"tag":"x"},"reason":"r","actor":"a"}`:                      {422, "missing field: action"},
		`{"action":"cancel","reason":"r","actor":"a"}`:                         {422, "missing field: filter"},
		`{"action":"cancel","filter":{"tag":"x"}}`:                             {422, "missing field: actor"}, // a dry run needs no reason
		`{"action":"cancel","filter":{"tag":"x"},"dry_run":false}`:             {422, "missing field: reason, actor"},
		`{"action":"replay","filter":{"tag":"x"},"reason":"r","actor":"a"}`:    {400, "/v1/dlq/replay"},
		`{"action":"explode","filter":{"tag":"x"},"reason":"r","actor":"a"}`:   {422, "invalid action"},
		`{"action":"run_again","filter":{"tag":"x"},"reason":"r","actor":"a"}`: {422, "missing field: filter.step_name"},
		with(`null`, ``):                       {422, "missing field: filter"},
		with(`[]`, ``):                         {422, "filter must be a JSON object"},
		with(`{}`, ``):                         {400, "filter must have a condition"},
		with(`{"states":[]}`, ``):              {400, "filter must have a condition"},
		with(`{"step_name":"left"}`, ``):       {400, "filter must have a condition"},
		with(`{"namspace":"x","tag":"y"}`, ``): {400, `unknown key "filter.namspace": did you mean "namespace"?`},
		with(`{"states":["broken"]}`, ``):      {400, `"broken" is not a task state`},
		with(`{"states":"error"}`, ``):         {422, "states must not be of JSON type string"},
		with(`{"states":["error`+strings.Repeat(`","error`, 12)+`"]}`, ``): {400, "at most 12 entries"},
		with(`{"tag":"`+strings.Repeat("x", 129)+`"}`, ``):                 {400, "filter.tag must have at most 128"},
		with(`{"name":"\u0000"}`, ``):                                      {400, "filter.name must be text"},
		with(`{"created_before":"tomorrow"}`, ``):                          {400, "filter.created_before: invalid time \"tomorrow\""},
		with(`{"tag":"x"}`, `,"limit":0`):                                  {400, "limit must be between 1 and 10000"},
		with(`{"tag":"x"}`, `,"limit":10001`):                              {400, "limit must be between 1 and 10000"},
		with(`{"tag":"x"}`, `,"limit":1.5`):                                {422, "limit"},
		with(`{"tag":"x"}`, `,"dry_run":"yes"`):                            {422, "dry_run"},
	} {
		code := map[int]string{400: "BAD_REQUEST", 422: "UNPROCESSABLE_ENTITY"}[want.status]
		require.Contains(t, h.do(http.MethodPost, bulkPath, body).refused(t, want.status, code).Message, want.says, body)
	}
	require.Empty(t, o.taken())
}

func TestCancelSaysWhoAndWhy(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	path := "/v1/tasks/" + taskID.String()
	require.Equal(t, 200, h.do(http.MethodDelete, path, "").StatusCode)
	require.Equal(t, 200, h.do(http.MethodDelete, path+"?actor=ana&reason=wrong+import", "").StatusCode)
	require.Equal(t, 200, h.do(http.MethodDelete, path+"?actor=ana", `{"actor":"ben","reason":"why"}`).StatusCode)
	require.Equal(t, 200, h.do(http.MethodDelete, path, `not JSON, and not declared as JSON`, "Content-Type", "text/plain").StatusCode)
	require.Equal(t, []string{"orchestrator-1", "ana", "ben", "orchestrator-1"}, h.engine.cancelled)
	require.Equal(t, []string{"cancelled over the API", "wrong import", "why", "cancelled over the API"}, h.engine.reasons)
	h.do(http.MethodDelete, path, `{`).refused(t, 400, "JSON_ERROR")
	h.do(http.MethodDelete, path, `{"actor":7}`).refused(t, 422, "UNPROCESSABLE_ENTITY")
	h.do(http.MethodDelete, path+"?actor="+strings.Repeat("a", 256), "").refused(t, 400, "BAD_REQUEST")
	h.do(http.MethodDelete, path+"?reason=%00", "").refused(t, 400, "BAD_REQUEST")
	h.do(http.MethodDelete, path+"?reason=%ff", "").refused(t, 400, "BAD_REQUEST")
	require.Len(t, h.engine.cancelled, 4)
}

// Routes without an implementation do not exist.
func TestRoutesNeedTheirParts(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.get("/v1/admin/breakers").problem(t, 404)
	h.do(http.MethodPost, sweepPath, `{}`).refused(t, 404, "NOT_FOUND")
}
