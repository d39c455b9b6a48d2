package workflow

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/tasker-go/tasker/internal/enum"
	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/limitrule"
)

// StepKind says how a step of a template is created and what its result may create. The zero
// value is not a kind.
type StepKind uint8

// The step kinds. The names on the wire are those of String; "decision_point"
// and "deferred" are accepted as aliases when a template is read.
const (
	KindStandard            StepKind = iota + 1 // created with the task
	KindDecision                                // its result names the steps to create next
	KindDeferredConvergence                     // joins its existing parents
	KindBatchable                               // its result describes batches
	KindBatchWorker                             // a template, cloned once per batch
	KindCompensation                            // undoes another step, when the task fails or is cancelled
	KindSleep                                   // waits until its time has come; this one and those below are run by the engine
	KindWaitForEvent                            // waits for an event from outside
	KindApproval                                // waits for a decision of an approver
	KindTask                                    // is a task of its own
)

// Template is one version of a task template after its file has been read,
// checked and (by Resolve) merged with the overrides of one environment.
//
// The JSON form of a Template uses the keys of the YAML format and is what the
// plan registry stores; reading it back yields an equal value. In its
// free-form parts (metadata, initialization) every number is a json.Number,
// and embedded JSON texts are in one canonical spelling, so equal templates
// have equal bytes even after a jsonb column has rewritten them.
type Template struct {
	Name               string                         `json:"name"`
	Namespace          string                         `json:"namespace_name"`
	Version            string                         `json:"version"`
	Description        string                         `json:"description,omitempty"`
	Metadata           map[string]any                 `json:"metadata,omitempty"`
	SystemDependencies *SystemDependencies            `json:"system_dependencies,omitempty"`
	DomainEvents       []DomainEventDeclaration       `json:"domain_events,omitempty"`
	InputSchema        json.RawMessage                `json:"input_schema,omitempty"` // a JSON Schema, nil when absent
	Steps              []StepTemplate                 `json:"steps"`
	Environments       map[string]EnvironmentOverride `json:"environments,omitempty"`
	Lifecycle          *Lifecycle                     `json:"lifecycle,omitempty"`
	// OnFailure is the policy of a task that can no longer move because of a failed
	// step: OnFailureFail (the default) ends it in error, OnFailureBlock leaves it
	// blocked_by_failures until an operator acts.
	OnFailure OnFailure `json:"on_failure,omitempty"`
	// Identity is the policy for duplicates; nil: the same context, for ever.
	Identity *IdentityPolicy `json:"identity,omitempty"`
	// Priority is the default for requests without one, -100 to 100;
	// nil: 0.
	Priority *int `json:"priority,omitempty"`
	// Submission bounds how often tasks are submitted, by a throttle and a debounce.
	Submission json.RawMessage `json:"submission,omitempty"`
}

// OnFailure is the policy of a task that can no longer move by itself.
type OnFailure string

// The values of OnFailure; the empty string means OnFailureFail.
const (
	OnFailureFail  OnFailure = "fail"
	OnFailureBlock OnFailure = "block"
)

// SystemDependencies names the outside systems that a template relies on. It is
// informational.
type SystemDependencies struct {
	Primary   string   `json:"primary,omitempty"`
	Secondary []string `json:"secondary,omitempty"`
}

// DomainEventDeclaration declares an event that the steps may publish.
type DomainEventDeclaration struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
}

// StepTemplate is one step as the template declares it.
type StepTemplate struct {
	Name             string             `json:"name"`
	Description      string             `json:"description,omitempty"`
	Kind             StepKind           `json:"type"`
	Handler          HandlerReference   `json:"handler,omitzero"` // empty for a kind that the engine runs
	SystemDependency string             `json:"system_dependency,omitempty"`
	Dependencies     []string           `json:"dependencies,omitempty"`
	Retry            RetryPolicy        `json:"retry"`
	TimeoutSeconds   int                `json:"timeout_seconds,omitempty"` // 0: the worker's default
	PublishesEvents  []EventPublication `json:"publishes_events,omitempty"`
	Batch            *BatchSettings     `json:"batch_config,omitempty"`
	ResultSchema     json.RawMessage    `json:"result_schema,omitempty"`
	Composition      json.RawMessage    `json:"composition,omitempty"` // opaque to the engine
	Tags             []string           `json:"tags,omitempty"`        // a worker must carry all of them to claim the step
	// Join is how the step waits for its parents; the zero value is JoinAll
	// except for KindDeferredConvergence, which is always JoinExisting.
	Join Join `json:"join,omitempty"`
	// Compensation is the step of KindCompensation that undoes this one, should
	// the task fail or be cancelled after it has completed.
	Compensation string `json:"compensation,omitempty"`
	// Limit is a limit of the step's callable, in force unless an operator or another
	// template has set one.
	Limit *Limit `json:"limit,omitempty"`
	// Wait is of KindSleep, KindWaitForEvent and KindApproval, Task of KindTask.
	Wait *WaitSettings `json:"wait,omitempty"`
	Task *TaskSettings `json:"task,omitempty"`
}

// Limit bounds what runs of a callable in the whole fleet, key by key.
type Limit = limitrule.Rule

// Join is how a step waits for its parents.
type Join string

// The values of Join; the empty string means JoinAll.
const (
	JoinAll      Join = "all"      // every declared parent must be satisfied
	JoinExisting Join = "existing" // every declared parent that exists must be satisfied
)

// HandlerReference addresses the code of a step.
type HandlerReference struct {
	Callable       string         `json:"callable"`           // 1–500 characters, free form
	Method         string         `json:"method,omitempty"`   // entry method; empty means "call"
	Resolver       string         `json:"resolver,omitempty"` // bypasses the resolver chain
	Initialization map[string]any `json:"initialization,omitempty"`
}

// The names of the built-in resolvers, for HandlerReference.Resolver.
const (
	// ResolverByName finds a handler by its exact name.
	ResolverByName = "explicit_mapping"
	// ResolverBySpelling finds the handler whose name is another spelling of the callable
	// (CanonicalCallable).
	ResolverBySpelling = "class_constant"
)

// ResolverName returns the name of the resolver that a template means, which it may write as
// the class of another engine; empty if it names none.
func (h HandlerReference) ResolverName() string {
	switch h.Resolver {
	case "ExplicitMappingResolver":
		return ResolverByName
	case "ClassConstantResolver", "ClassLookupResolver", "class_lookup":
		return ResolverBySpelling
	}
	return h.Resolver
}

// BuiltIn reports whether it names a resolver that every worker has.
func (h HandlerReference) BuiltIn() bool {
	name := h.ResolverName()
	return name == ResolverByName || name == ResolverBySpelling
}

// CanonicalCallable maps the spellings of a callable to one: the class path
// "Payments::ChargeCardHandler" and the names "payments.charge_card" and
// "payments.charge_card_handler" are the same.
func CanonicalCallable(callable string) string {
	parts := strings.FieldsFunc(strings.ReplaceAll(callable, "::", "."), func(r rune) bool { return r == '.' || r == '/' })
	for i := range parts {
		parts[i] = snakeCase(parts[i])
	}
	if n := len(parts); n > 0 {
		if short := strings.TrimSuffix(parts[n-1], "_handler"); short != "handler" {
			parts[n-1] = short
		}
	}
	return strings.Join(parts, ".")
}

// snakeCase turns ChargeCard and charge-card into charge_card. A run of capitals is one
// word: HTTPCall is http_call.
func snakeCase(s string) string {
	runes := []rune(s)
	var b strings.Builder
	for i, r := range runes {
		if r == '-' || r == '_' || r == ' ' {
			b.WriteByte('_')
			continue
		}
		if unicode.IsUpper(r) && i > 0 && runes[i-1] != '_' && runes[i-1] != '-' {
			lowerBefore := !unicode.IsUpper(runes[i-1])
			lowerAfter := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if lowerBefore || lowerAfter {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// BackoffStrategy names the growth of the delay between attempts.
type BackoffStrategy string

// The backoff strategies; the empty string means BackoffExponential.
const (
	BackoffExponential BackoffStrategy = "exponential"
	BackoffLinear      BackoffStrategy = "linear"
	BackoffFixed       BackoffStrategy = "fixed"
	BackoffFibonacci   BackoffStrategy = "fibonacci"
	BackoffList        BackoffStrategy = "list"
	BackoffNone        BackoffStrategy = "none"
)

// RetryPolicy says whether and when a failed step runs again. A step without a retry block
// has three attempts and an exponential backoff from 1 s to 30 s; in a present block, missing keys mean retryable, three attempts,
// exponential, and the configured delays.
type RetryPolicy struct {
	Retryable bool `json:"retryable"`
	// MaxAttempts counts all executions, the first included; at least 1 after
	// a template has been read (0 in a file means 1, with a warning).
	MaxAttempts int             `json:"max_attempts"`
	Backoff     BackoffStrategy `json:"backoff,omitempty"`
	BaseMS      int64           `json:"backoff_base_ms,omitempty"` // milliseconds; 0: the configured default
	MaxMS       int64           `json:"max_backoff_ms,omitempty"`  // milliseconds; 0: the configured default
	// DelaysMS is the list of BackoffList, in milliseconds; the last entry is
	// reused when the attempts outnumber the list.
	DelaysMS []int64 `json:"backoff_delays_ms,omitempty"`
}

// EventPublication is a domain event that a step publishes when it ends. After
// a file has been read, Condition and DeliveryMode are never empty.
type EventPublication struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	Condition    string          `json:"condition,omitempty"` // success, failure, retryable_failure, permanent_failure, always
	Schema       json.RawMessage `json:"schema,omitempty"`
	DeliveryMode string          `json:"delivery_mode,omitempty"` // durable, fast, broadcast
	Publisher    string          `json:"publisher,omitempty"`
	// Key is the path of names, joined by dots, to the part of the payload that
	// identifies the event: steps that wait for the name and that key get it. Empty:
	// no step can wait for it. It is for durable events.
	Key string `json:"key,omitempty"`
}

// BatchSettings belongs to a KindBatchWorker step.
type BatchSettings struct {
	BatchSize       int    `json:"batch_size"`       // 1–100,000 items
	Parallelism     int    `json:"parallelism"`      // 1–1,000 batches on the board at once
	CursorField     string `json:"cursor_field"`     // what the cursors count, such as id, for handlers; may be ""
	WorkerTemplate  string `json:"worker_template"`  // a step of this template; "": the step itself
	FailureStrategy string `json:"failure_strategy"` // FailFast, ContinueOnFailure, IsolateFailed
	// MaxFailedWorkers is how many batches may fail for good without blocking the steps
	// after them; nil: the strategy decides.
	MaxFailedWorkers *int `json:"max_failed_workers,omitempty"`
	// MinSuccessRatio is the share of batches that must succeed, 0–1; nil: the strategy
	// decides. Where both are set, both must hold.
	MinSuccessRatio *float64 `json:"min_success_ratio,omitempty"`
}

// WaitSettings say what a step of KindSleep, KindWaitForEvent or KindApproval
// waits for.
type WaitSettings struct {
	// For is how long a step of KindSleep waits: a duration or a reference.
	For string `json:"for,omitempty"`
	// Until is when a step of KindSleep ends: RFC 3339 or a reference. A time in the past
	// ends it at once.
	Until string `json:"until,omitempty"`
	// Event is the name of the event that a step of KindWaitForEvent waits for.
	Event string `json:"event,omitempty"`
	// Key identifies the event among those of one name: a text or a reference. Without
	// it the step waits for an event that is sent to its task.
	Key string `json:"key,omitempty"`
	// Prompt is the text for the approver.
	Prompt string `json:"prompt,omitempty"`
	// Timeout bounds the wait, as a duration; empty: no bound.
	Timeout string `json:"timeout,omitempty"`
	// OnTimeout and OnRejection decide the end of the step: WaitFails (the default) or
	// WaitContinues.
	OnTimeout   string `json:"on_timeout,omitempty"`
	OnRejection string `json:"on_rejection,omitempty"`
}

// The values of WaitSettings.OnTimeout and OnRejection; the empty string means
// WaitFails.
const (
	WaitFails     = "fail"     // the step fails; its retry block says whether it waits again
	WaitContinues = "continue" // the step completes, and its result says so
)

// TaskSettings describe the task that a step of KindTask runs.
type TaskSettings struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"` // empty: the template's
	// Version is empty for the highest that is not deprecated when the step begins.
	Version string `json:"version,omitempty"`
	// Context is the context of the task; texts in it may be references. Nil: the
	// context of the parent task.
	Context json.RawMessage `json:"context,omitempty"`
	// Priority is the priority of the task; nil: the parent's.
	Priority *int `json:"priority,omitempty"`
	// Timeout bounds the task, as a duration, after which it is cancelled and the step
	// fails; empty: none.
	Timeout string `json:"timeout,omitempty"`
}

// Lifecycle holds the age limits of a task, in minutes; 0 means the
// configured default.
type Lifecycle struct {
	MaxDurationMinutes               int    `json:"max_duration_minutes,omitempty"`
	MaxWaitingForDependenciesMinutes int    `json:"max_waiting_for_dependencies_minutes,omitempty"`
	MaxWaitingForRetryMinutes        int    `json:"max_waiting_for_retry_minutes,omitempty"`
	MaxStepsInProcessMinutes         int    `json:"max_steps_in_process_minutes,omitempty"`
	StalenessAction                  string `json:"staleness_action,omitempty"`
	AutoFailOnTimeout                bool   `json:"auto_fail_on_timeout,omitempty"`
	AutoDLQOnTimeout                 bool   `json:"auto_dlq_on_timeout,omitempty"`
}

// EnvironmentOverride replaces settings of steps in one environment.
type EnvironmentOverride struct {
	Steps []StepOverride `json:"steps,omitempty"`
}

// StepOverride is one entry of an environment's list; Name "ALL" addresses
// every step. Absent parts (nil, 0) leave the step as it is.
type StepOverride struct {
	Name           string         `json:"name"`
	Initialization map[string]any `json:"initialization,omitempty"`
	TimeoutSeconds int            `json:"timeout_seconds,omitempty"`
	Retry          *RetryPolicy   `json:"retry,omitempty"`
}

var stepKindNames = enum.Names[StepKind]{
	KindStandard:            "standard",
	KindDecision:            "decision",
	KindDeferredConvergence: "deferred_convergence",
	KindBatchable:           "batchable",
	KindBatchWorker:         "batch_worker",
	KindCompensation:        "compensation",
	KindSleep:               "sleep",
	KindWaitForEvent:        "wait_for_event",
	KindApproval:            "approval",
	KindTask:                "task",
}

// String is the name used in templates and on the wire.
func (k StepKind) String() string { return stepKindNames.Name(k) }

// ByEngine reports whether the engine itself runs steps of the kind: no worker claims them
// and no handler is needed.
func (k StepKind) ByEngine() bool {
	return k == KindSleep || k == KindWaitForEvent || k == KindApproval || k == KindTask
}

// parseStepKind reads the name of a step kind, the aliases "decision_point"
// and "deferred" included.
func parseStepKind(name string) (StepKind, bool) {
	switch name {
	case "decision_point":
		return KindDecision, true
	case "deferred":
		return KindDeferredConvergence, true
	}
	return stepKindNames.Parse(name)
}

// MarshalText writes the name; a value that is not a kind is an error.
func (k StepKind) MarshalText() ([]byte, error) {
	if !stepKindNames.Has(k) {
		return nil, fmt.Errorf("%d is not a step kind", k)
	}
	return []byte(k.String()), nil
}

// UnmarshalText reads what parseStepKind reads.
func (k *StepKind) UnmarshalText(text []byte) (err error) {
	kind, ok := parseStepKind(string(text))
	if *k = kind; !ok {
		err = fmt.Errorf("%q is not a step kind", text)
	}
	return err
}

// OverrideAll is the name of a StepOverride that addresses every step.
const OverrideAll = "ALL"

// Resolve returns the template as it holds in one environment: its overrides are applied in
// list order and the result has no Environments left. An environment the template does not
// mention, the empty name included, has no overrides. The receiver is not changed; what no
// override touches is shared with the result, so neither may be changed afterwards.
//
// Initialization is merged key by key on the first level; a timeout and a whole retry block
// replace those of the step.
func (t *Template) Resolve(environment string) *Template {
	out := *t
	out.Environments, out.Steps = nil, slices.Clone(t.Steps)
	for _, o := range t.Environments[environment].Steps {
		for i := range out.Steps {
			if o.Name == OverrideAll || o.Name == out.Steps[i].Name {
				out.Steps[i].override(&o)
			}
		}
	}
	return &out
}

func (s *StepTemplate) override(o *StepOverride) {
	if len(o.Initialization) > 0 {
		own := s.Handler.Initialization
		s.Handler.Initialization = make(map[string]any, len(own)+len(o.Initialization))
		maps.Copy(s.Handler.Initialization, own)
		maps.Copy(s.Handler.Initialization, o.Initialization)
	}
	if o.TimeoutSeconds > 0 {
		s.TimeoutSeconds = o.TimeoutSeconds
	}
	if o.Retry != nil {
		s.Retry = *o.Retry
	}
}

// ContentHash identifies the content of a template: two templates have the same hash exactly
// when their JSON forms are equal. It panics for a Template without a JSON form, which
// neither template.Parse nor UnmarshalJSON can produce.
func (t *Template) ContentHash() [sha256.Size]byte {
	data, err := json.Marshal(t)
	if err != nil {
		//nolint:forbidigo // a Template without a JSON form is a programming error
		panic(fmt.Sprintf("workflow: content hash of template %q: %v", t.Name, err))
	}
	return sha256.Sum256(data)
}

// rulesVersion is the version of the rules in this package. A program that writes templates
// with newer rules sets a higher rules_version, and older programs make no decision about
// their tasks.
const rulesVersion = 1

// UnmarshalJSON reads the JSON form of a template. It puts the numbers of its free-form parts
// in canonical spelling (see jsonscan.Number). Unknown keys are ignored, as a newer version
// may have written them; a newer version whose templates need other rules sets rules_version.
func (t *Template) UnmarshalJSON(data []byte) error {
	type plain Template
	var in struct {
		plain
		RulesVersion int `json:"rules_version"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&in); err != nil {
		return fmt.Errorf("read template: %w", err)
	}
	if in.RulesVersion > rulesVersion {
		return fmt.Errorf("read template %q: invalid rules_version %d: want at most %d, which this program knows: %w", in.Name, in.RulesVersion, rulesVersion, errors.ErrUnsupported)
	}
	*t = Template(in.plain)
	objects, texts := t.freeForm()
	for _, object := range objects {
		if jsonscan.Respell(*object); len(*object) == 0 {
			*object = nil
		}
	}
	for _, text := range texts {
		if err := canonical(text); err != nil {
			return fmt.Errorf("read template %q: %w", in.Name, err)
		}
	}
	return nil
}

// freeForm returns the parts of a template that hold any JSON.
func (t *Template) freeForm() (objects []*map[string]any, texts []*json.RawMessage) {
	objects, texts = append(objects, &t.Metadata), append(texts, &t.InputSchema)
	for i := range t.DomainEvents {
		texts = append(texts, &t.DomainEvents[i].Schema)
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		objects, texts = append(objects, &s.Handler.Initialization), append(texts, &s.ResultSchema, &s.Composition)
		if s.Task != nil {
			texts = append(texts, &s.Task.Context)
		}
		for e := range s.PublishesEvents {
			texts = append(texts, &s.PublishesEvents[e].Schema)
		}
	}
	for _, environment := range t.Environments {
		for i := range environment.Steps {
			objects = append(objects, &environment.Steps[i].Initialization)
		}
	}
	return objects, texts
}

// canonical rewrites a JSON text: no spaces, sorted keys, canonical numbers. Null becomes nil.
func canonical(text *json.RawMessage) error {
	if len(*text) == 0 {
		return nil
	}
	v, err := jsonscan.Decode(*text)
	if *text = nil; err == nil && v != nil {
		*text, err = json.Marshal(v)
	}
	return err
}
