package grpc

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/tasker-go/tasker/internal/transcode"
	sessionv1 "github.com/tasker-go/tasker/proto/tasker/session/v1"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// Operations that rpcs call besides their own.
var (
	opGetTask     = transcode.Operations[taskerv1.TaskService_GetTask_FullMethodName]
	opListSteps   = transcode.Operations[taskerv1.StepService_ListSteps_FullMethodName]
	opTaskContext = transcode.Operations[taskerv1.TaskService_GetTaskContext_FullMethodName]
)

// route is what an rpc does.
type route struct {
	// operation of REST, whose permission the rpc needs.
	operation string
	// also are operations that fields of the request ask for.
	also []string
	// codes replace those that failures of an HTTP status have elsewhere.
	codes map[int]codes.Code
	// absent is the code where the daemon does not serve the operation; OK: UNIMPLEMENTED.
	absent codes.Code
}

// routes has every rpc: the permissions of gRPC are those of its operations.
var routes = allRoutes()

func allRoutes() map[string]route {
	all := map[string]route{
		taskerv1.TaskService_CreateTask_FullMethodName: {codes: map[int]codes.Code{404: codes.InvalidArgument}}, // an unknown template
		taskerv1.TaskService_GetTask_FullMethodName:    {also: []string{opListSteps, opTaskContext}},
		taskerv1.TaskService_CancelTask_FullMethodName: {also: []string{opGetTask}},

		taskerv1.WorkerConfigService_GetConfig_FullMethodName: {absent: codes.NotFound},

		sessionv1.SessionService_Run_FullMethodName: sessionRoute,

		// Its operation has the access alone: the library answers.
		grpc_reflection_v1.ServerReflection_ServerReflectionInfo_FullMethodName: {operation: transcode.Reflection},
	}
	for rpc, operation := range transcode.Operations {
		r := all[rpc]
		r.operation = operation
		all[rpc] = r
	}
	return all
}
