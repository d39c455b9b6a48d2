package transcode

import (
	"encoding/json"
	"math"
	"math/big"
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
		"completed_at":null,"attempts":2,"results":{"a":[1,null,true,"x",{"b":1e22}]},"unknown":1}`), step))
	require.Equal(t, taskerv1.StepState_STEP_STATE_ENQUEUED_AS_ERROR_FOR_ORCHESTRATION, step.GetState())
	require.EqualValues(t, 123456000, step.GetCreatedAt().GetNanos(), "a time without a zone is UTC")
	require.Nil(t, step.CompletedAt)
	require.EqualValues(t, 2, step.GetAttempts())
	list := step.GetResults().GetFields()["a"].GetListValue().GetValues()
	require.Len(t, list, 5)
	require.InDelta(t, 1e22, list[4].GetStructValue().GetFields()["b"].GetNumberValue(), 0)

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

// A number passes through a Struct as it is, or is refused: in answers what a double cannot carry,
// in requests also what may have been another number.
func TestNumbersOfStructs(t *testing.T) {
	t.Parallel()
	for number, exact := range map[string]bool{
		"0": true, "-0": true, "-0.0": true, "1.10": true, "-1.5e-7": true, "9007199254740991": true, "9007199254740992": true, "-9007199254740991": true,
		"0.30000000000000004": true, "0.1": true, "1e22": true, "100000000000000000000": true, "5e-324": true, "0.10000000000000001": true,
		"9007199254740993": false, "-9007199254740993": false, "9007199254740993.0": false, "1152921504606846976": false,
		"123456789012345678901234567890": false, "1.000000000000000001": false, "0.1234567890123456789012345678": false, "1e400": false, "-1e400": false,
		"1e-400": false,
	} {
		step := &taskerv1.Step{}
		document := `{"a":[{"b":` + number + `}],"c":1}`
		err := Decode([]byte(`{"results":`+document+`}`), step)
		if !exact {
			var inexact *InexactError
			require.ErrorAs(t, err, &inexact, number)
			require.Equal(t, InexactError{"results.a[0].b", number}, *inexact)
			left, err := DecodeLeaving([]byte(`{"name":"n","results":`+document+`}`), step, "")
			require.NoError(t, err)
			require.Equal(t, []*InexactError{inexact}, left)
			require.Equal(t, "n", step.GetName())
			require.Nil(t, step.Results)
			continue
		}
		require.NoError(t, err, number)
		back, err := Object(step.GetResults())
		require.NoError(t, err)
		var got, want struct {
			A []struct{ B json.Number }
		}
		require.NoError(t, json.Unmarshal(back, &got))
		require.NoError(t, json.Unmarshal([]byte(document), &want))
		if number != "0.10000000000000001" { // 0.1 as it is printed with 17 digits
			require.Zero(t, rational(t, got.A[0].B).Cmp(rational(t, want.A[0].B)), "%s came back as %s", number, got.A[0].B)
		}
	}
	for number, want := range map[float64]string{1<<53 - 1: "9007199254740991", -(1<<53 - 1): "-9007199254740991", 0.1: "0.1", 1e-300: "1e-300"} {
		sent, err := Sent("context", &structpb.Struct{Fields: map[string]*structpb.Value{"n": structpb.NewNumberValue(number)}})
		require.NoError(t, err)
		require.JSONEq(t, `{"n":`+want+`}`, string(sent))
	}
	for _, number := range []float64{1 << 53, -(1 << 53), 1e22, 1e300} {
		_, err := Sent("context", &structpb.Struct{Fields: map[string]*structpb.Value{"l": structpb.NewListValue(&structpb.ListValue{
			Values: []*structpb.Value{structpb.NewNullValue(), structpb.NewNumberValue(number)}})}})
		require.ErrorContains(t, err, "in context.l[1]: want one that a double of google.protobuf.Struct carries exactly")
	}
	_, err := Sent("context", &structpb.Struct{Fields: map[string]*structpb.Value{"n": structpb.NewNumberValue(math.Inf(1))}})
	require.ErrorContains(t, err, "invalid value")
}

func rational(t *testing.T, n json.Number) *big.Rat {
	t.Helper()
	r, ok := new(big.Rat).SetString(n.String())
	require.True(t, ok, n)
	return r
}
