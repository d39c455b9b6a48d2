package grpc

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// TestAnswersOfREST converts the recorded answers: of what they have nothing is lost.
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
		body, err := os.ReadFile("../rest/testdata/" + file + ".json")
		require.NoError(t, err)
		require.NoError(t, decode(body, into), file)
		kept(t, file, into.ProtoReflect(), body)
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
		body, err := os.ReadFile("../rest/testdata/" + file + ".json")
		require.NoError(t, err)
		require.NoError(t, decodeList(body, list.into, list.field), file)
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
		key := string(field.Name())
		if other, differs := spellings[field.FullName()]; differs {
			key = other
		}
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
