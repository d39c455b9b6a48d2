package grpc

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

func TestConversions(t *testing.T) {
	t.Parallel()
	step := &taskerv1.Step{}
	require.NoError(t, decode([]byte(`{"current_state":"enqueued_as_error_for_orchestration","created_at":"2026-03-21T10:11:12.123456",
		"completed_at":null,"attempts":2,"results":{"a":[1,null,true,"x",{"b":1e400}]},"unknown":1}`), step))
	require.Equal(t, taskerv1.StepState_STEP_STATE_ENQUEUED_AS_ERROR_FOR_ORCHESTRATION, step.GetState())
	require.EqualValues(t, 123456000, step.GetCreatedAt().GetNanos(), "a time without a zone is UTC")
	require.Nil(t, step.CompletedAt)
	require.EqualValues(t, 2, step.GetAttempts())
	list := step.GetResults().GetFields()["a"].GetListValue().GetValues()
	require.Len(t, list, 5)
	require.Equal(t, "1e400", list[4].GetStructValue().GetFields()["b"].GetStringValue(), "a double cannot carry it")

	for _, results := range []string{`null`, `[1]`, `"text"`, `7`} {
		require.NoError(t, decode([]byte(`{"results":`+results+`}`), step))
	}
	other := &taskerv1.Step{}
	require.NoError(t, decode([]byte(`{"results":[1]}`), other))
	require.Nil(t, other.Results, "a Struct is an object")

	entry := &taskerv1.DlqEntry{}
	require.NoError(t, decode([]byte(`{"dlq_reason":"ManualDlq","resolution_status":"PermanentlyFailed"}`), entry))
	require.Equal(t, taskerv1.DlqReason_DLQ_REASON_MANUAL_DLQ, entry.GetDlqReason())
	require.Equal(t, taskerv1.DlqResolutionStatus_DLQ_RESOLUTION_STATUS_PERMANENTLY_FAILED, entry.GetResolutionStatus())
	require.NoError(t, decode([]byte(`{"dlq_reason":"Unheard"}`), entry))
	require.Zero(t, entry.GetDlqReason())
	require.Equal(t, "permanently_failed", nameOf(entry.GetResolutionStatus()))
	require.Empty(t, nameOf(taskerv1.DlqReason(99)))
	require.Empty(t, nameOf(taskerv1.DlqReason(0)))
}

func TestObjects(t *testing.T) {
	t.Parallel()
	raw, err := objectOf(nil)
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(raw))
	raw, err = objectOf(&structpb.Struct{Fields: map[string]*structpb.Value{"n": structpb.NewNumberValue(6)}})
	require.NoError(t, err)
	require.JSONEq(t, `{"n":6}`, string(raw))
	_, err = objectOf(&structpb.Struct{Fields: map[string]*structpb.Value{"n": structpb.NewNumberValue(math.NaN())}})
	require.ErrorContains(t, err, "invalid value")
}

// The template of a worker is shown in part.
func TestATemplateOfAWorker(t *testing.T) {
	t.Parallel()
	f := newFake(`{"template":{"template":{"name":"n","namespace_name":"ns","version":"1","description":"d",
		"steps":[{"name":"a","retry":{"max_attempts":4}},{"name":"b","description":"c","retry":{"retryable":false,"max_attempts":1}}]}},
		"handler_metadata":{"namespace":"ns","name":"n","version":"1"},"cached":false,"cache_age_seconds":null}`)
	s, err := NewWorker(f.config(), f)
	require.NoError(t, err)
	ctx := context.WithValue(t.Context(), visitKey{}, &visit{route: routes[taskerv1.WorkerTemplateService_GetTemplate_FullMethodName]})
	shown, err := workerTemplateService{Server: s}.GetTemplate(ctx,
		&taskerv1.WorkerGetTemplateRequest{Namespace: "ns", Name: "n", Version: "1"})
	require.NoError(t, err)
	require.Equal(t, "/v1/templates/ns/n/1", f.last().URL.Path)
	template := shown.GetTemplate()
	require.Equal(t, []string{"ns", "n", "1", "d"}, []string{template.GetNamespace(), template.GetName(),
		template.GetVersion(), template.GetDescription()})
	require.Equal(t, []bool{true, false}, []bool{template.GetSteps()[0].GetRetryable(), template.GetSteps()[1].GetRetryable()})
	require.EqualValues(t, 4, template.GetSteps()[0].GetMaxAttempts())
	require.Equal(t, "n", shown.GetHandlerMetadata().GetHandlerName())
	require.Equal(t, []string{"a", "b"}, shown.GetHandlerMetadata().GetStepNames())
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		path, want, invalid string
		values              []string
	}{
		"a task":    {"/v1/tasks/{uuid}", "/v1/tasks/" + id, "", []string{id}},
		"none":      {"/v1/tasks/{uuid}", "/v1/tasks/invalid", emptyUUID, []string{""}},
		"climbing":  {"/v1/tasks/{uuid}/x", "/v1/tasks/invalid/x", "..", []string{".."}},
		"template":  {"/v1/templates/{namespace}/{name}/{version}", "/v1/templates/a%2Fb/%2E%2E/%20", "", []string{"a/b", "..", ""}},
		"one fewer": {"/v1/{a}/{b}", "/v1/x/{b}", "", []string{"x"}},
	} {
		path, invalid := expand(tt.path, tt.values)
		require.Equal(t, []string{tt.want, tt.invalid}, []string{path, invalid}, name)
	}
}
