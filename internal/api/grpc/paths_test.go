package grpc

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

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
