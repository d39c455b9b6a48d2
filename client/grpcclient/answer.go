package grpcclient

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/transcode"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// answer is how an rpc's answer becomes that of REST.
type answer struct {
	field protoreflect.Name // that REST answers with; empty: all of them
	as    func(json.RawMessage) ([]byte, error)
}

// as writes an object as REST would: a T with all its keys.
func as[T any](raw json.RawMessage) ([]byte, error) {
	var value T
	if err := json.Unmarshal(raw, &value); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return json.Marshal(value)
}

// answers has the rpcs that stand for one operation each; specials has the others.
var answers = map[string]answer{
	taskerv1.TaskService_CreateTask_FullMethodName:     {"task", as[client.Task]},
	taskerv1.TaskService_GetTaskContext_FullMethodName: {"context", as[client.TaskContext]},
	taskerv1.TaskService_GetTaskSummary_FullMethodName: {"", as[client.TaskSummary]},
	taskerv1.TaskService_GetTaskLogs_FullMethodName:    {"", as[client.LogPage]},

	taskerv1.StepService_GetStep_FullMethodName:      {"step", as[client.Step]},
	taskerv1.StepService_ListSteps_FullMethodName:    {"steps", as[[]client.Step]},
	taskerv1.StepService_ResolveStep_FullMethodName:  {"step", as[client.Step]},
	taskerv1.StepService_GetStepAudit_FullMethodName: {"audit_records", as[[]client.StepAudit]},

	taskerv1.TemplateService_ListTemplates_FullMethodName: {"", as[client.TemplateList]},
	taskerv1.TemplateService_GetTemplate_FullMethodName:   {"template", as[client.TemplateDetail]},

	taskerv1.HealthService_CheckHealth_FullMethodName:         {"", as[client.Health]},
	taskerv1.HealthService_CheckLiveness_FullMethodName:       {"", as[client.Health]},
	taskerv1.HealthService_CheckReadiness_FullMethodName:      {"", as[client.DetailedHealth]},
	taskerv1.HealthService_CheckDetailedHealth_FullMethodName: {"", as[client.DetailedHealth]},

	taskerv1.ConfigService_GetConfig_FullMethodName: {"", as[client.OrchestratorConfig]},

	taskerv1.AnalyticsService_GetPerformanceMetrics_FullMethodName: {"", as[client.Performance]},
	taskerv1.AnalyticsService_GetBottleneckAnalysis_FullMethodName: {"", as[client.Bottlenecks]},

	taskerv1.DlqService_ListEntries_FullMethodName:            {"entries", as[[]client.DLQEntry]},
	taskerv1.DlqService_GetEntryByTask_FullMethodName:         {"entry", as[client.DLQEntry]},
	taskerv1.DlqService_UpdateInvestigation_FullMethodName:    {"", as[client.DLQUpdated]},
	taskerv1.DlqService_GetStats_FullMethodName:               {"stats", as[[]client.DLQStats]},
	taskerv1.DlqService_GetInvestigationQueue_FullMethodName:  {"entries", as[[]client.DLQQueueEntry]},
	taskerv1.DlqService_GetStalenessMonitoring_FullMethodName: {"entries", as[[]client.StalenessEntry]},

	taskerv1.WorkerConfigService_GetConfig_FullMethodName: {"", as[client.WorkerConfig]},

	taskerv1.WorkerHealthService_CheckHealth_FullMethodName:         {"", as[client.Health]},
	taskerv1.WorkerHealthService_CheckLiveness_FullMethodName:       {"", as[client.Health]},
	taskerv1.WorkerHealthService_CheckReadiness_FullMethodName:      {"", as[client.DetailedHealth]},
	taskerv1.WorkerHealthService_CheckDetailedHealth_FullMethodName: {"", as[client.DetailedHealth]},

	taskerv1.WorkerTemplateService_ListTemplates_FullMethodName: {"", as[client.WorkerTemplates]},
	taskerv1.WorkerTemplateService_GetTemplate_FullMethodName:   {"", workerTemplate},
}

// of converts an answer.
func (a answer) of(out proto.Message) ([]byte, error) {
	raw, err := a.content(out)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return a.as(raw)
}

func (a answer) content(out proto.Message) (json.RawMessage, error) {
	if a.field == "" {
		return transcode.Encode(out)
	}
	m := out.ProtoReflect()
	field := m.Descriptor().Fields().ByName(a.field)
	if field.IsList() {
		return transcode.EncodeList(out, a.field)
	}
	return transcode.Encode(m.Get(field).Message().Interface())
}

// workerTemplate puts the template of a worker into the keys of a template file.
func workerTemplate(raw json.RawMessage) ([]byte, error) {
	type step struct {
		Name        string         `json:"name"`
		Description *string        `json:"description,omitempty"`
		Retryable   bool           `json:"retryable,omitempty"`
		MaxAttempts int            `json:"max_attempts,omitempty"`
		Retry       map[string]any `json:"retry"`
	}
	var shown struct {
		client.WorkerTemplate
		Template struct {
			Name          string  `json:"name"`
			Namespace     string  `json:"namespace,omitempty"`
			NamespaceName string  `json:"namespace_name"`
			Version       string  `json:"version"`
			Description   *string `json:"description,omitempty"`
			Steps         []step  `json:"steps"`
		} `json:"template"`
	}
	if err := json.Unmarshal(raw, &shown); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	of := &shown.Template
	of.NamespaceName, of.Namespace = of.Namespace, ""
	for i := range of.Steps {
		s := &of.Steps[i]
		s.Retry = map[string]any{"retryable": s.Retryable, "max_attempts": s.MaxAttempts}
		s.Retryable, s.MaxAttempts = false, 0
	}
	text, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	shown.WorkerTemplate.Template.Template = text
	return json.Marshal(shown.WorkerTemplate)
}
