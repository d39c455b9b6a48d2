package transcode

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tasker-go/tasker/client"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// TestAnswersOfREST converts the recorded answers: of what they have nothing is lost, and
// the way back has the same values.
func TestAnswersOfREST(t *testing.T) {
	t.Parallel()
	for file, into := range map[string]proto.Message{
		"task": &taskerv1.Task{}, "step": &taskerv1.Step{},
		"template": &taskerv1.TemplateDetail{}, "templates": &taskerv1.ListTemplatesResponse{},
		"dlq_entry": &taskerv1.DlqEntry{}, "dlq_updated": &taskerv1.UpdateDlqInvestigationResponse{}, "health": &taskerv1.HealthResponse{},
		"health_ready": &taskerv1.ReadinessResponse{}, "health_detailed": &taskerv1.DetailedHealthResponse{},
		"summary": &taskerv1.GetTaskSummaryResponse{}, "context": &taskerv1.TaskContext{}, "config": &taskerv1.GetConfigResponse{},
		"worker_config": &taskerv1.WorkerGetConfigResponse{}, "worker_templates": &taskerv1.WorkerTemplateListResponse{},
		"performance": &taskerv1.GetPerformanceMetricsResponse{}, "bottlenecks": &taskerv1.GetBottleneckAnalysisResponse{},
	} {
		body, err := os.ReadFile("../api/rest/testdata/" + file + ".json")
		require.NoError(t, err)
		require.NoError(t, Decode(body, into), file)
		kept(t, file, into.ProtoReflect(), body)
		again, err := Encode(into)
		require.NoError(t, err)
		returned(t, file, again, body)
	}
	for file, list := range map[string]struct {
		into  proto.Message
		field protoreflect.Name
	}{
		"steps": {&taskerv1.ListStepsResponse{}, "steps"}, "audit": {&taskerv1.GetStepAuditResponse{}, "audit_records"},
		"dlq": {&taskerv1.ListDlqEntriesResponse{}, "entries"}, "dlq_stats": {&taskerv1.GetDlqStatsResponse{}, "stats"},
		"dlq_queue":     {&taskerv1.GetDlqInvestigationQueueResponse{}, "entries"},
		"dlq_staleness": {&taskerv1.GetStalenessMonitoringResponse{}, "entries"},
	} {
		body, err := os.ReadFile("../api/rest/testdata/" + file + ".json")
		require.NoError(t, err)
		require.NoError(t, DecodeField(body, list.into, list.field), file)
		var elements []json.RawMessage
		require.NoError(t, json.Unmarshal(body, &elements))
		got := list.into.ProtoReflect().Get(list.into.ProtoReflect().Descriptor().Fields().ByName(list.field)).List()
		require.Equal(t, len(elements), got.Len(), file)
		for i := range elements {
			kept(t, file, got.Get(i).Message(), elements[i])
		}
	}
}

// kept checks that the fields of a message are set whose keys have a value in an answer.
func kept(t *testing.T, path string, m protoreflect.Message, body []byte) {
	t.Helper()
	var values map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(body, &values), path)
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		key := Key(field)
		switch string(values[key]) {
		case "", "null", "0", "0.0", "false", `""`, "[]":
			continue
		}
		require.True(t, m.Has(field), "%s.%s: %s", path, key, values[key])
		if field.Message() != nil && !field.IsList() && field.Message().ParentFile().Package() == "tasker.v1" {
			kept(t, path+"."+key, m.Get(field).Message(), values[key])
		}
	}
}

// returned checks that what has come back is what was sent; a time may have another number
// of digits.
func returned(t *testing.T, path string, again, body json.RawMessage) {
	t.Helper()
	var got, want any
	require.NoError(t, json.Unmarshal(again, &got), path)
	require.NoError(t, json.Unmarshal(body, &want), path)
	compare(t, path, got, want)
}

func compare(t *testing.T, path string, got, want any) {
	t.Helper()
	switch g := got.(type) {
	case map[string]any:
		w, _ := want.(map[string]any)
		for key, value := range g {
			if other, there := w[key]; there {
				compare(t, path+"."+key, value, other)
			} else {
				require.Contains(t, []any{nil, "", false, float64(0)}, value, path+"."+key)
			}
		}
	case []any:
		w, _ := want.([]any)
		require.Len(t, g, len(w), path)
		for i := range g {
			compare(t, path, g[i], w[i])
		}
	case string:
		w, _ := want.(string)
		var a, b client.NaiveTime
		if a.UnmarshalText([]byte(g)) == nil && b.UnmarshalText([]byte(w)) == nil {
			require.Equal(t, a, b, path)
			return
		}
		require.Equal(t, want, got, path)
	default:
		require.Equal(t, want, got, path)
	}
}
