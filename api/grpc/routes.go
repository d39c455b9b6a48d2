package grpc

import (
	"google.golang.org/grpc/codes"

	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// The operations of REST that rpcs call: a method and a path with its parameters.
const (
	opCreateTask  = "POST /v1/tasks"
	opGetTask     = "GET /v1/tasks/{uuid}"
	opListTasks   = "GET /v1/tasks"
	opCancelTask  = "DELETE /v1/tasks/{uuid}"
	opTaskContext = "GET /v1/tasks/{uuid}/context"
	opTaskSummary = "GET /v1/tasks/{uuid}/summary"

	opListSteps = "GET /v1/tasks/{uuid}/workflow_steps"
	opGetStep   = "GET /v1/tasks/{uuid}/workflow_steps/{step_uuid}"
	opActOnStep = "PATCH /v1/tasks/{uuid}/workflow_steps/{step_uuid}"
	opStepAudit = "GET /v1/tasks/{uuid}/workflow_steps/{step_uuid}/audit"

	opListTemplates = "GET /v1/templates"
	opGetTemplate   = "GET /v1/templates/{namespace}/{name}/{version}"

	opHealth         = "GET /health"
	opHealthLive     = "GET /health/live"
	opHealthReady    = "GET /health/ready"
	opHealthDetailed = "GET /health/detailed"
	opConfig         = "GET /config"

	opPerformance = "GET /v1/analytics/performance"
	opBottlenecks = "GET /v1/analytics/bottlenecks"

	opListEntries        = "GET /v1/dlq"
	opEntryOfTask        = "GET /v1/dlq/task/{task_uuid}"
	opUpdateEntry        = "PATCH /v1/dlq/entry/{dlq_entry_uuid}"
	opEntryStats         = "GET /v1/dlq/stats"
	opInvestigationQueue = "GET /v1/dlq/investigation-queue"
	opStaleness          = "GET /v1/dlq/staleness"
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

// routes has every rpc of tasker.v1: the permissions of gRPC are those of its operations.
var routes = map[string]route{
	taskerv1.TaskService_CreateTask_FullMethodName: {operation: opCreateTask,
		codes: map[int]codes.Code{404: codes.InvalidArgument}}, // an unknown template
	taskerv1.TaskService_GetTask_FullMethodName: {operation: opGetTask,
		also: []string{opListSteps, opTaskContext}},
	taskerv1.TaskService_ListTasks_FullMethodName: {operation: opListTasks},
	taskerv1.TaskService_CancelTask_FullMethodName: {operation: opCancelTask,
		also: []string{opGetTask}},
	taskerv1.TaskService_GetTaskContext_FullMethodName:   {operation: opTaskContext},
	taskerv1.TaskService_GetTaskSummary_FullMethodName:   {operation: opTaskSummary},
	taskerv1.TaskService_StreamTaskStatus_FullMethodName: {operation: opGetTask},

	taskerv1.StepService_GetStep_FullMethodName:      {operation: opGetStep},
	taskerv1.StepService_ListSteps_FullMethodName:    {operation: opListSteps},
	taskerv1.StepService_ResolveStep_FullMethodName:  {operation: opActOnStep},
	taskerv1.StepService_GetStepAudit_FullMethodName: {operation: opStepAudit},

	taskerv1.TemplateService_ListTemplates_FullMethodName: {operation: opListTemplates},
	taskerv1.TemplateService_GetTemplate_FullMethodName:   {operation: opGetTemplate},

	taskerv1.HealthService_CheckHealth_FullMethodName:         {operation: opHealth},
	taskerv1.HealthService_CheckLiveness_FullMethodName:       {operation: opHealthLive},
	taskerv1.HealthService_CheckReadiness_FullMethodName:      {operation: opHealthReady},
	taskerv1.HealthService_CheckDetailedHealth_FullMethodName: {operation: opHealthDetailed},

	taskerv1.ConfigService_GetConfig_FullMethodName: {operation: opConfig},

	taskerv1.AnalyticsService_GetPerformanceMetrics_FullMethodName: {operation: opPerformance},
	taskerv1.AnalyticsService_GetBottleneckAnalysis_FullMethodName: {operation: opBottlenecks},

	taskerv1.DlqService_ListEntries_FullMethodName:            {operation: opListEntries},
	taskerv1.DlqService_GetEntryByTask_FullMethodName:         {operation: opEntryOfTask},
	taskerv1.DlqService_UpdateInvestigation_FullMethodName:    {operation: opUpdateEntry},
	taskerv1.DlqService_GetStats_FullMethodName:               {operation: opEntryStats},
	taskerv1.DlqService_GetInvestigationQueue_FullMethodName:  {operation: opInvestigationQueue},
	taskerv1.DlqService_GetStalenessMonitoring_FullMethodName: {operation: opStaleness},

	taskerv1.WorkerConfigService_GetConfig_FullMethodName: {operation: opConfig, absent: codes.NotFound},

	taskerv1.WorkerHealthService_CheckHealth_FullMethodName:         {operation: opHealth},
	taskerv1.WorkerHealthService_CheckLiveness_FullMethodName:       {operation: opHealthLive},
	taskerv1.WorkerHealthService_CheckReadiness_FullMethodName:      {operation: opHealthReady},
	taskerv1.WorkerHealthService_CheckDetailedHealth_FullMethodName: {operation: opHealthDetailed},

	taskerv1.WorkerTemplateService_ListTemplates_FullMethodName: {operation: opListTemplates},
	taskerv1.WorkerTemplateService_GetTemplate_FullMethodName:   {operation: opGetTemplate},
}
