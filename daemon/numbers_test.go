package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tasker-go/tasker/client"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// reasonOf is the reason of a refusal.
func reasonOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is {
			return info.GetReason()
		}
	}
	return ""
}

// TestNumbersOverGRPC: a number passes as it is, or is refused in words.
func TestNumbersOverGRPC(t *testing.T) {
	t.Parallel()
	p := newPair(t, "", nil)
	tasks, steps := taskerv1.NewTaskServiceClient(p.over), taskerv1.NewStepServiceClient(p.over)
	for _, number := range []float64{9007199254740992, -9007199254740992, 1e30} {
		_, err := tasks.CreateTask(p.ctx, newTask("slow", number))
		require.Equal(t, codes.InvalidArgument, status.Code(err), "it may have been another one")
		require.Equal(t, "INEXACT_NUMBER", reasonOf(err))
		require.ErrorContains(t, err, "in context.n: want one that a double of google.protobuf.Struct carries exactly, or a text of its digits; REST takes all numbers")
	}
	shown, err := tasks.GetTask(p.ctx, &taskerv1.GetTaskRequest{TaskUuid: p.create("slow", 9007199254740991).GetTaskUuid()})
	require.NoError(t, err)
	require.InDelta(t, 9007199254740991, shown.GetTask().GetContext().GetFields()["n"].GetNumberValue(), 0)

	for _, number := range []string{"9007199254740993", "123456789012345678901234567890", "1.000000000000000001"} {
		r := request(t, http.MethodPost, p.rest+"/v1/tasks", fmt.Sprintf(`{"name":"slow","namespace":"none","version":"1.0.0","context":{"deep":[{"n":%s}]},
			"initiator":"i","source_system":"s","reason":"r"}`, number))
		require.Equal(t, http.StatusOK, r.status, r.body)
		var task client.Task
		require.NoError(t, json.Unmarshal([]byte(r.body), &task))
		_, err := tasks.GetTask(p.ctx, &taskerv1.GetTaskRequest{TaskUuid: task.TaskUUID})
		require.Equal(t, codes.FailedPrecondition, status.Code(err))
		require.Equal(t, "INEXACT_NUMBER", reasonOf(err))
		require.ErrorContains(t, err, "invalid number "+number+" in context.deep[0].n")
		require.ErrorContains(t, err, "REST shows it: GET /v1/tasks/{uuid}")
		_, err = tasks.GetTaskContext(p.ctx, &taskerv1.GetTaskContextRequest{TaskUuid: task.TaskUUID})
		require.ErrorContains(t, err, "invalid number "+number+" in inputs.deep[0].n")

		// What was done is reported, and the document is named that the answer lacks.
		var trailer metadata.MD
		cancelled, err := tasks.CancelTask(p.ctx, &taskerv1.CancelTaskRequest{TaskUuid: task.TaskUUID}, grpc.Trailer(&trailer))
		require.NoError(t, err)
		require.True(t, cancelled.GetSuccess())
		require.Nil(t, cancelled.GetTask().GetContext())
		require.Contains(t, trailer.Get("tasker-left-out")[0], number)
		again, err := tasks.CancelTask(p.ctx, &taskerv1.CancelTaskRequest{TaskUuid: task.TaskUUID})
		require.NoError(t, err)
		require.False(t, again.GetSuccess())
	}

	running := p.create("slow", 2).GetTaskUuid()
	list, err := steps.ListSteps(p.ctx, &taskerv1.ListStepsRequest{TaskUuid: running})
	require.NoError(t, err)
	_, err = steps.ResolveStep(p.ctx, &taskerv1.ResolveStepRequest{TaskUuid: running, StepUuid: list.GetSteps()[0].GetStepUuid(), PerformedBy: "ana", Reason: "r",
		ActionType: taskerv1.StepManualActionType_STEP_MANUAL_ACTION_TYPE_COMPLETE_MANUALLY,
		Result:     &structpb.Struct{Fields: map[string]*structpb.Value{"total": structpb.NewNumberValue(1 << 60)}}})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "invalid number 1152921504606846976 in result.total")

	c := p.clientOver(p.orchestrator.GRPCAddr(), false)
	_, err = c.CreateTask(p.ctx, client.TaskRequest{Name: "slow", Namespace: "none", Version: "1.0.0", Context: json.RawMessage(`{"n":1.000000000000000001}`)})
	require.ErrorIs(t, err, client.ErrNotServed)
	require.ErrorContains(t, err, "no exact number 1.000000000000000001 in context.n; send it as a text")
}
