// Package wire holds the bodies of requests and answers of the REST API that calls of client
// neither take nor return: what servers, and fakes of them in tests, read and write.
//
// What may not enter: types that programs see, which are client's.
package wire

import (
	"encoding/json"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/admission"
	"github.com/tasker-go/tasker/internal/limitrule"
)

// ErrorBody is the body of a failure on the routes of Tasker's own API.
type ErrorBody struct {
	Error client.ErrorDetail `json:"error"`
}

// DeploymentMode is the body of /v1/admin/deployment-mode.
type DeploymentMode struct {
	Mode string `json:"mode" doc:"PollingOnly, EventDrivenOnly, Hybrid or Disabled" enum:"PollingOnly,EventDrivenOnly,Hybrid,Disabled"`
}

// LogLevelsRequest is the body of PUT /v1/log-levels.
type LogLevelsRequest struct {
	Levels json.RawMessage `json:"levels" doc:"A JSON object of levels by room, as GET answers it. What it does not name stays; an empty level returns a room to that of all"`
}

// LogLevels is the answer of /v1/log-levels.
type LogLevels struct {
	Levels map[string]string `json:"levels" doc:"Levels (debug, info, warn, error) of the rooms that have their own, and of all others as \"all\""`
}

// BreakerForce is the body of PUT /v1/admin/breakers/{name}.
type BreakerForce struct {
	State string `json:"state" doc:"Hold it open or closed, or let it decide again" enum:"forced_open,forced_closed,automatic"`
}

// TaskBatchRequest is the body of POST /v1/tasks/batch.
type TaskBatchRequest struct {
	Tasks []client.TaskRequest `json:"tasks" minItems:"1" maxItems:"10000" doc:"Created each separately: an invalid one does not affect the others"`
}

// EventMetrics count the domain events of a worker since its start, in the form of GET
// /metrics/events. The names rust and ffi come from the protocol: the worker's own
// subscribers, and events from other replicas.
type EventMetrics struct {
	Router     EventRouterStats `json:"router"`
	Bus        EventBusStats    `json:"in_process_bus"`
	CapturedAt client.Time      `json:"captured_at" format:"date-time"`
	WorkerID   string           `json:"worker_id"`
}

// EventRouterStats count events once the ends of their steps were accepted.
type EventRouterStats struct {
	TotalRouted        uint64 `json:"total_routed"`
	DurableRouted      uint64 `json:"durable_routed"`
	FastRouted         uint64 `json:"fast_routed"`
	BroadcastRouted    uint64 `json:"broadcast_routed"`
	FastDeliveryErrors uint64 `json:"fast_delivery_errors" doc:"Fast events that were lost before they reached the bus"`
	RoutingErrors      uint64 `json:"routing_errors" doc:"Durable events that were not published for a failure"`
}

// EventBusStats count the events for subscribers in the process.
type EventBusStats struct {
	TotalEventsDispatched  uint64 `json:"total_events_dispatched"`
	RustHandlerDispatches  uint64 `json:"rust_handler_dispatches" doc:"Handled by subscribers of this process"`
	FFIChannelDispatches   uint64 `json:"ffi_channel_dispatches" doc:"0: no other language runs in this process"`
	RustHandlerErrors      uint64 `json:"rust_handler_errors"`
	FFIChannelDrops        uint64 `json:"ffi_channel_drops" doc:"Lost because the buffer of a subscriber was full"`
	RustSubscriberPatterns int    `json:"rust_subscriber_patterns"`
	RustHandlerCount       int    `json:"rust_handler_count"`
	FFISubscriberCount     int    `json:"ffi_subscriber_count"`
}

// Approvals is the answer to GET /v1/approvals.
type Approvals struct {
	Approvals []client.Approval `json:"approvals"`
	// NextCursor is the cursor of the approvals that follow.
	NextCursor string `json:"next_cursor,omitempty" doc:"The cursor of the approvals that follow; absent after the last one. A page may be short of its limit, or empty, though more follow"`
	// Unreadable are the tasks of approvals that are left out.
	Unreadable []string `json:"unreadable,omitempty" doc:"UUIDs of the tasks of approvals that the database cannot read; they are left out"`
}

// BreakerList is the circuit breakers of one daemon, by name.
type BreakerList struct {
	Breakers []client.Breaker `json:"breakers"`
}

// SweepList is the sweeps that some orchestrator has run, by name.
type SweepList struct {
	Sweeps []client.Sweep `json:"sweeps"`
}

// WorkerList are workers, latest heartbeat first.
type WorkerList struct {
	Workers []client.WorkerState `json:"workers"`
}

// Limit bounds what runs of a callable, key by key.
type Limit struct {
	Namespace string `json:"namespace" doc:"Of the callable"`
	Callable  string `json:"callable" doc:"What steps name as handler.callable"`
	LimitRequest
	ChangedAt client.Time `json:"changed_at" format:"date-time"`
	ChangedBy string      `json:"changed_by"`
	// DeclaredBy is a template with its version.
	DeclaredBy string `json:"declared_by,omitempty" doc:"The template or task type, with its version, that declares the limit; absent where an operator has set it"`
	Removing   bool   `json:"removing" doc:"It bounds nothing more, and its steps return to the others"`
	Running    int    `json:"running" doc:"Steps that run under it"`
	Waiting    int    `json:"waiting" doc:"Steps that wait for their keys, counted up to 10000"`
	Keys       int    `json:"keys" doc:"Keys with such steps"`
}

// LimitRequest is the body of PUT /v1/namespaces/{namespace}/limits/{callable}.
type LimitRequest struct {
	LimitedHandler
	limitrule.Rule
}

// LimitedHandler is what names a handler beside its callable, with a reason: the body of
// DELETE /v1/namespaces/{namespace}/limits/{callable}.
type LimitedHandler struct {
	Method   string `json:"method,omitempty" doc:"Of the handler, where steps name one" maxLength:"255"`
	Resolver string `json:"resolver,omitempty" doc:"Of the handler, where steps name one" maxLength:"255"`
	client.Why
}

// LimitList is the answer of GET /v1/limits.
type LimitList struct {
	Limits []Limit `json:"limits" nullable:"false"`
}

// Policy is how the steps of a callable are put in order.
type Policy struct {
	Namespace string      `json:"namespace"`
	Callable  string      `json:"callable" doc:"What steps name as handler.callable, with any method and resolver"`
	Policy    string      `json:"policy" enum:"priority,fifo,shortest_expected,deadline_aware"`
	Features  []string    `json:"features,omitempty" doc:"Paths of the context, by whose numbers and sizes the times of the handler are learned"`
	Class     string      `json:"class,omitempty" doc:"Path of the context with the class of a task, such as its tenant, whose times are learned apart"`
	ChangedAt client.Time `json:"changed_at" format:"date-time"`
	ChangedBy string      `json:"changed_by"`
}

// PolicyList is the answer of GET /v1/policies.
type PolicyList struct {
	Policies []Policy `json:"policies"`
}

// PolicyRequest is the body of PUT /v1/namespaces/{namespace}/policies/{callable}.
type PolicyRequest struct {
	Policy   string   `json:"policy" enum:"priority,fifo,shortest_expected,deadline_aware" doc:"Of steps that are put in line from now on"`
	Features []string `json:"features,omitempty" doc:"Paths of the context, by whose numbers the times of the handler are learned: a number (order.total), count: of a list or object, size: of a value in bytes; at most 8"`
	Class    string   `json:"class,omitempty" doc:"Path of the context with the class of a task, such as its tenant, whose times are learned apart"`
	client.Why
}

// Prediction is what is known of how long a step of a task takes.
type Prediction struct {
	Step     string    `json:"step_name"`
	Policy   string    `json:"policy"`
	Basis    string    `json:"basis" enum:"regression,class_median,step_median,unknown"`
	Expected float64   `json:"expected_seconds"`
	P50      float64   `json:"p50_seconds"`
	P90      float64   `json:"p90_seconds"`
	P99      float64   `json:"p99_seconds"`
	Learned  int       `json:"learned_from" doc:"Executions that the basis has seen"`
	Trusted  bool      `json:"trusted" doc:"False: of late it was no better than chance, and the step is put in line first in, first out"`
	Order    float64   `json:"order" doc:"How well it ordered the last executions: 1 perfectly, 0 by chance, -1 the wrong way round"`
	Class    string    `json:"class,omitempty"`
	Features []string  `json:"features,omitempty"`
	Values   []float64 `json:"values,omitempty" doc:"Of the features in the context of the task"`
	Weights  []float64 `json:"weights,omitempty" doc:"Of a regression of the logarithm of the time: of the constant, then of the logarithm of each value and 1"`
	Outside  *Outside  `json:"predictor,omitempty" doc:"What the predictor outside says; absent: none is asked"`
}

// Outside is what a predictor outside says of a step.
type Outside struct {
	Expected *float64 `json:"expected_seconds,omitempty" doc:"Its answer; absent: there is none"`
	Missing  string   `json:"missing,omitempty" enum:"asked,full,unknown,invalid,late,failed,refused" doc:"Why there is none: learned times count"`
	Judged   int      `json:"judged" doc:"Executions that its answers were compared with"`
	Trusted  bool     `json:"trusted" doc:"False: of late it was no better than chance, and the step is put in line first in, first out"`
	Order    float64  `json:"order" doc:"How well it ordered them: 1 perfectly, 0 by chance, -1 the wrong way round"`
}

// PredictionList is the answer of GET /v1/tasks/{uuid}/predictions.
type PredictionList struct {
	TaskUUID    string       `json:"task_uuid"`
	Predictions []Prediction `json:"predictions"`
}

// NamespaceList is all namespaces by name.
type NamespaceList struct {
	Namespaces []client.Namespace `json:"namespaces"`
}

// MaxQuota bounds quotas.
const MaxQuota = 1_000_000_000

// QuotaList is all quotas by namespace.
type QuotaList struct {
	Quotas []Quota `json:"quotas"`
}

// Quota is how many tasks of a namespace may be alive before new ones are refused.
type Quota struct {
	Namespace string       `json:"namespace"`
	MaxTasks  int          `json:"max_tasks"`
	AppliesTo []string     `json:"applies_to,omitempty" doc:"What it rejects beside submissions: sub_tasks, next_tasks, schedules"`
	Tasks     *int64       `json:"tasks,omitempty" doc:"At most so many subject to the quota are alive; absent before the first creation"`
	CountedAt *client.Time `json:"counted_at,omitempty" doc:"When the tasks were last counted; since then only new ones are added"`
	ChangedAt client.Time  `json:"changed_at"`
	ChangedBy string       `json:"changed_by"`
}

// QuotaChange sets a quota.
type QuotaChange struct {
	MaxTasks int `json:"max_tasks" doc:"0 to 1000000000 tasks that have not ended"`
	// AppliesTo replaces what was set before.
	AppliesTo []string `json:"applies_to,omitempty" doc:"Also reject these, of sub_tasks, next_tasks and schedules; absent: only submissions"`
	Reason    string   `json:"reason,omitempty" maxLength:"500" doc:"Kept in the history"`
	Actor     string   `json:"actor,omitempty" maxLength:"255" doc:"Who acts"`
}

// SubmissionLimit has the rules for how often tasks of a template are submitted.
type SubmissionLimit struct {
	Namespace string `json:"namespace"`
	Template  string `json:"template" doc:"Its name"`
	Version   string `json:"version,omitempty" doc:"The highest version that declares the rules; absent: an operator has set them, for all"`
	admission.Rules
	ChangedAt client.Time `json:"changed_at"`
	ChangedBy string      `json:"changed_by"`
}

// SubmissionLimitList is all limits by namespace and template.
type SubmissionLimitList struct {
	Limits []SubmissionLimit `json:"submission_limits"`
}

// SubmissionLimitRequest is the body of PUT /v1/namespaces/{namespace}/submissions/{template}.
type SubmissionLimitRequest struct {
	admission.Rules
	client.Why
}

// TaskTypeList is one page of task types, by namespace and name.
type TaskTypeList struct {
	TaskTypes []client.TaskType `json:"task_types"`
}

// EventConsumerList is all consumers by name.
type EventConsumerList struct {
	Consumers []client.EventConsumer `json:"consumers"`
}
