package rest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// bodies are creations as clients write them, plain and not.
var bodies = []string{
	`{}`, `{"name":"a"}`, ` { "name" : "a" , "context" : { "n" : 1 } } `, `{"name":"a","name":"b"}`, `{"Name":"a"}`, `{"name":null}`,
	`{"name":"a\u0041"}`, `{"name":"é","tags":[]}`, `{"tags":["a","b"]}`, `{"tags":null}`, `{"tags":["a",1]}`, `{"priority":-7}`, `{"priority":-0}`,
	`{"priority":007}`, `{"priority":1.0}`, `{"priority":99999}`, `{"idempotency_key":"","idempotency_key":"k"}`, `{"context":{},"context":{"a":1}}`,
	`{"context":{"a":"\ud83d\ude00"}}`, `{"context":{"a":[1,2.5,-3,true,false,null,"x\n",{"b":{}}]}}`, `{"context":{"a":1e5}}`, `{"context":{"a":01}}`,
	`{"context":{"a":1,}}`, `{"context":[1]}`, `{"context":{"a":"` + "\t" + `"}}`, `{"name":"a",}`, `{"name":"a"} x`, `{"name" "a"}`, `{"requested_at":1}`,
	`{"correlation_id":"x","parent_correlation_id":"y","source_system":"s","initiator":"i","reason":"r","version":"1","namespace":"n"}`,
	`{"start_at":"2026-01-01T00:00:00Z"}`, `{"delay_seconds":1}`, `{"context":{"` + strings.Repeat("k", 20_000) + `":1}}`, `[`, ``, `null`,
}

func TestMostBodiesArePlain(t *testing.T) {
	t.Parallel()
	body, ok := readPlain([]byte(`{"name":"a","namespace":"n","version":"1","context":{"a":[{"b":"c"}]},"initiator":"","source_system":"","reason":"é",
		"tags":["t"],"priority":5,"idempotency_key":"k","correlation_id":"c","parent_correlation_id":"p"}`))
	require.True(t, ok)
	require.JSONEq(t, `{"a":[{"b":"c"}]}`, string(body.Context))
}

// The fast reader reads the same as encoding/json.
func FuzzReadPlain(f *testing.F) {
	for _, body := range bodies {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, text string) {
		body, ok := readPlain([]byte(text))
		if !ok {
			return
		}
		var want createBody
		require.NoError(t, json.Unmarshal([]byte(text), &want), "%q", text)
		require.Equal(t, want, *body, "%q", text)
		if body.Context != nil {
			require.NoError(t, orchestration.CheckContext(body.Context))
		}
	})
}

func TestBodiesAreReadOneAfterTheOther(t *testing.T) {
	t.Parallel()
	b := &batch{}
	text := func(name, priority string) string {
		return `{"name":"` + name + `","namespace":"n","version":"1","context":{},"initiator":"i","source_system":"s","reason":"r","priority":` + priority + `}`
	}
	require.True(t, b.readPlain([]byte(`{"tasks":[`+text("a", "1")+`,`+text("b", "2")+`,`+text("b", "3")+`]}`)))
	require.Len(t, b.requests, 3)
	for i, name := range []string{"a", "b", "b"} {
		require.Equal(t, name, b.requests[i].Name)
		require.Equal(t, i+1, *b.requests[i].Priority)
	}
}

func planOf(t testing.TB, yaml string) *store.Plan {
	t.Helper()
	template, _, err := template.Parse("t.yaml", []byte(yaml))
	require.NoError(t, err)
	plan, err := workflow.Compile(template)
	require.NoError(t, err)
	return &store.Plan{Plan: plan, ID: 1, Queue: 1}
}

// The assembled answer equals encoding/json's.
func TestFirstAnswerIsTheEncodedTask(t *testing.T) {
	t.Parallel()
	plan := planOf(t, `
name: "odd <name> & \"total_steps\":"
namespace_name: n
version: 1.0.0
steps:
  - name: first
    handler: {callable: a}
  - name: second
    dependencies: [first]
    handler: {callable: a}
    retry: {retryable: false, max_attempts: 1}
  - name: third
    handler: {callable: a}
`)
	first, err := newFirstAnswer(plan)
	require.NoError(t, err)
	high, parent := 100, uuid.New()
	for name, r := range map[string]orchestration.Request{
		"plain": {Context: json.RawMessage(`{"n":1}`), Initiator: "i", SourceSystem: "s", Reason: "r"},
		"empty": {Context: json.RawMessage(`{}`), Tags: []string{}},
		"full": {Context: json.RawMessage("{ \"a b\" : [ 1 ,\t\"x \\\" y\\\\\" ]\n}"), Initiator: `"<&>`, SourceSystem: "é\u2028\t", Reason: "\x7f\\",
			Tags: []string{"a", "<b>"}, Priority: &high, ParentCorrelationID: &parent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			created := orchestration.Created{UUID: uuid.New(), CorrelationID: uuid.New(), Plan: plan,
				RequestedAt: time.Date(2026, 3, 21, 10, 11, 12, 120_000_000, time.FixedZone("x", 3600))}
			fresh := newTaskOf(&r, &created)
			task, err := fresh.AsCreated(created.RequestedAt)
			require.NoError(t, err)
			want, err := encode(taskOf(task, true))
			require.NoError(t, err)
			require.Equal(t, string(want), string(first.append(nil, &r, &created)))
		})
	}
}

func TestBatchAnswerIsTheEncodedOne(t *testing.T) {
	t.Parallel()
	answer := &client.TaskBatch{Created: 2, Failed: 1, Results: []client.TaskBatchResult{
		{Index: 0, TaskUUID: uuid.NewString()}, {Index: 1, Error: &client.ErrorDetail{Code: "CONFLICT", Message: `<"é">`, TaskUUID: "x"}},
		{Index: 2, TaskUUID: uuid.NewString()}}}
	want, err := encode(answer)
	require.NoError(t, err)
	require.Equal(t, string(want), string(appendBatch(nil, answer)))
}
