package transcode

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	sessionv1 "github.com/tasker-go/tasker/proto/tasker/session/v1"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

func TestConversions(t *testing.T) {
	t.Parallel()
	step := &taskerv1.Step{}
	require.NoError(t, Decode([]byte(`{"current_state":"enqueued_as_error_for_orchestration","created_at":"2026-03-21T10:11:12.123456",
		"completed_at":null,"attempts":2,"results":{"a":[1,null,true,"x",{"b":1e400}]},"unknown":1}`), step))
	require.Equal(t, taskerv1.StepState_STEP_STATE_ENQUEUED_AS_ERROR_FOR_ORCHESTRATION, step.GetState())
	require.EqualValues(t, 123456000, step.GetCreatedAt().GetNanos(), "a time without a zone is UTC")
	require.Nil(t, step.CompletedAt)
	require.EqualValues(t, 2, step.GetAttempts())
	list := step.GetResults().GetFields()["a"].GetListValue().GetValues()
	require.Len(t, list, 5)
	require.Equal(t, "1e400", list[4].GetStructValue().GetFields()["b"].GetStringValue(), "a double cannot carry it")

	for _, results := range []string{`null`, `[1]`, `"text"`, `7`} {
		require.NoError(t, Decode([]byte(`{"results":`+results+`}`), step))
	}
	other := &taskerv1.Step{}
	require.NoError(t, Decode([]byte(`{"results":[1]}`), other))
	require.Nil(t, other.Results, "a Struct is an object")

	entry := &taskerv1.DlqEntry{}
	require.NoError(t, Decode([]byte(`{"dlq_reason":"ManualDlq","resolution_status":"PermanentlyFailed"}`), entry))
	require.Equal(t, taskerv1.DlqReason_DLQ_REASON_MANUAL_DLQ, entry.GetDlqReason())
	require.Equal(t, taskerv1.DlqResolutionStatus_DLQ_RESOLUTION_STATUS_PERMANENTLY_FAILED, entry.GetResolutionStatus())
	require.NoError(t, Decode([]byte(`{"dlq_reason":"Unheard"}`), entry))
	require.Zero(t, entry.GetDlqReason())
	require.Equal(t, "PermanentlyFailed", EnumName(entry.GetResolutionStatus()))
	require.Empty(t, EnumName(taskerv1.DlqReason(99)))
	require.Empty(t, EnumName(taskerv1.DlqReason(0)))
}

// Bytes are JSON documents, but for those that the worker protocol calls opaque.
func TestOpaqueBytes(t *testing.T) {
	t.Parallel()
	report := &sessionv1.Report{}
	require.NoError(t, Decode([]byte(`{"fence":"1.1","result_bytes":"AP8=","content_type":"image/png"}`), report))
	require.Equal(t, []byte{0, 0xff}, report.GetResultBytes())
	require.Nil(t, report.Result)
	report.Result = []byte(`{"a": 1}`)
	again, err := Encode(report)
	require.NoError(t, err)
	var back map[string]any
	require.NoError(t, json.Unmarshal(again, &back))
	require.Equal(t, "AP8=", back["result_bytes"])
	require.Equal(t, map[string]any{"a": 1.0}, back["result"])
	again, err = Encode(&sessionv1.Report{})
	require.NoError(t, err)
	require.NotContains(t, string(again), "result_bytes", "absent ones have no key")
	require.Error(t, Decode([]byte(`{"result_bytes":"a?"}`), report))
}

func TestObjects(t *testing.T) {
	t.Parallel()
	raw, err := Object(nil)
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(raw))
	raw, err = Object(&structpb.Struct{Fields: map[string]*structpb.Value{"n": structpb.NewNumberValue(6)}})
	require.NoError(t, err)
	require.JSONEq(t, `{"n":6}`, string(raw))
	_, err = Object(&structpb.Struct{Fields: map[string]*structpb.Value{"n": structpb.NewNumberValue(math.NaN())}})
	require.ErrorContains(t, err, "invalid value")
}
