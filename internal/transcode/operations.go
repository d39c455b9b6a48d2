package transcode

import taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"

// Reflection is the operation that has the access of gRPC's reflection, and answers 204 to those
// who may discover the services.
const Reflection = "GET /api-docs/grpc"

// Operations are the operations of REST that rpcs stand for, by the full name of the rpc: a
// method, and a path with its parameters.
var Operations = map[string]string{
	taskerv1.TaskService_CreateTask_FullMethodName:       "POST /v1/tasks",
	taskerv1.TaskService_GetTask_FullMethodName:          "GET /v1/tasks/{uuid}",
	taskerv1.TaskService_ListTasks_FullMethodName:        "GET /v1/tasks",
	taskerv1.TaskService_CancelTask_FullMethodName:       "DELETE /v1/tasks/{uuid}",
	taskerv1.TaskService_GetTaskContext_FullMethodName:   "GET /v1/tasks/{uuid}/context",
	taskerv1.TaskService_GetTaskSummary_FullMethodName:   "GET /v1/tasks/{uuid}/summary",
	taskerv1.TaskService_GetTaskLogs_FullMethodName:      "GET /v1/tasks/{uuid}/logs",
	taskerv1.TaskService_StreamTaskStatus_FullMethodName: "GET /v1/tasks/{uuid}",

	taskerv1.StepService_GetStep_FullMethodName:      "GET /v1/tasks/{uuid}/workflow_steps/{step_uuid}",
	taskerv1.StepService_ListSteps_FullMethodName:    "GET /v1/tasks/{uuid}/workflow_steps",
	taskerv1.StepService_ResolveStep_FullMethodName:  "PATCH /v1/tasks/{uuid}/workflow_steps/{step_uuid}",
	taskerv1.StepService_GetStepAudit_FullMethodName: "GET /v1/tasks/{uuid}/workflow_steps/{step_uuid}/audit",

	taskerv1.TemplateService_ListTemplates_FullMethodName: "GET /v1/templates",
	taskerv1.TemplateService_GetTemplate_FullMethodName:   "GET /v1/templates/{namespace}/{name}/{version}",

	taskerv1.HealthService_CheckHealth_FullMethodName:         "GET /health",
	taskerv1.HealthService_CheckLiveness_FullMethodName:       "GET /health/live",
	taskerv1.HealthService_CheckReadiness_FullMethodName:      "GET /health/ready",
	taskerv1.HealthService_CheckDetailedHealth_FullMethodName: "GET /health/detailed",

	taskerv1.ConfigService_GetConfig_FullMethodName: "GET /config",

	taskerv1.AnalyticsService_GetPerformanceMetrics_FullMethodName: "GET /v1/analytics/performance",
	taskerv1.AnalyticsService_GetBottleneckAnalysis_FullMethodName: "GET /v1/analytics/bottlenecks",

	taskerv1.DlqService_ListEntries_FullMethodName:            "GET /v1/dlq",
	taskerv1.DlqService_GetEntryByTask_FullMethodName:         "GET /v1/dlq/task/{task_uuid}",
	taskerv1.DlqService_UpdateInvestigation_FullMethodName:    "PATCH /v1/dlq/entry/{dlq_entry_uuid}",
	taskerv1.DlqService_GetStats_FullMethodName:               "GET /v1/dlq/stats",
	taskerv1.DlqService_GetInvestigationQueue_FullMethodName:  "GET /v1/dlq/investigation-queue",
	taskerv1.DlqService_GetStalenessMonitoring_FullMethodName: "GET /v1/dlq/staleness",

	taskerv1.WorkerConfigService_GetConfig_FullMethodName: "GET /config",

	taskerv1.WorkerHealthService_CheckHealth_FullMethodName:         "GET /health",
	taskerv1.WorkerHealthService_CheckLiveness_FullMethodName:       "GET /health/live",
	taskerv1.WorkerHealthService_CheckReadiness_FullMethodName:      "GET /health/ready",
	taskerv1.WorkerHealthService_CheckDetailedHealth_FullMethodName: "GET /health/detailed",

	taskerv1.WorkerTemplateService_ListTemplates_FullMethodName: "GET /v1/templates",
	taskerv1.WorkerTemplateService_GetTemplate_FullMethodName:   "GET /v1/templates/{namespace}/{name}/{version}",
}
