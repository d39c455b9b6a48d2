package rest

import (
	"context"
	"crypto/sha1" // #nosec G505 -- of names, see namedStep
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/execution"
	"github.com/tasker-go/tasker/internal/priorities"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// taskFor is taskOf for the sender of a request, who may not be one who reads contexts.
func taskFor(ctx context.Context, t *store.Task, steps bool) *client.Task {
	w := taskOf(t, steps)
	w.Context = shownInput(ctx, w.Context)
	return w
}

// taskOf is a task for the API; in lists without steps.
func taskOf(t *store.Task, steps bool) *client.Task {
	counts := t.Counts()
	condition := execution.Derive(counts)
	w := &client.Task{
		TaskUUID: t.UUID.String(), Name: t.Plan.Template.Name, Namespace: t.Plan.Template.Namespace,
		Version: t.Plan.Template.Version, Status: execution.VisibleState(t.State, counts).String(),
		CreatedAt: client.Time{Time: t.RequestedAt}, UpdatedAt: client.Time{Time: t.UpdatedAt}, CompletedAt: instant(t.CompletedAt),
		Context: rawOr(t.Context, "null"), Initiator: known(t.Initiator), SourceSystem: known(t.SourceSystem), Reason: known(t.Reason),
		Priority: &t.Priority, PriorityLevel: priorities.LevelOf(t.Priority), StartAt: instant(t.StartAt), Tags: append([]string{}, t.Tags...), CorrelationID: t.CorrelationID.String(),
		ParentCorrelationID: textOf(t.ParentCorrelationID),
		TotalSteps:          int64(counts.Total), PendingSteps: int64(counts.Pending), InProgressSteps: int64(counts.InProgress),
		CompletedSteps: int64(counts.Complete), FailedSteps: int64(counts.Failed), ReadySteps: int64(counts.Ready),
		ExecutionStatus: condition.Status, RecommendedAction: condition.RecommendedAction,
		CompletionPercentage: condition.Percentage, HealthStatus: condition.Health, Steps: []client.StepReadiness{},
	}
	if t.State.Terminal() && t.State != workflow.TaskError { // a failed task has recommendations
		w.RecommendedAction = "none"
	}
	if p := t.Parent; p != nil {
		w.ParentTaskUUID, w.ParentStepUUID = new(p.Task.String()), new(store.StepUUID(p.Task, p.Step).String())
	}
	for _, id := range t.DependsOn {
		w.DependsOn = append(w.DependsOn, id.String())
	}
	if t.ContinuesTask != nil {
		w.ContinuesTaskUUID = t.ContinuesTask.String()
	}
	for _, id := range t.ContinuedBy {
		w.ContinuedBy = append(w.ContinuedBy, id.String())
	}
	if t.Progress != nil && t.Progress.Retry != nil {
		w.MaxAttempts = t.Progress.Retry.MaxAttempts
		w.RetryDelays = durationsOf(t.Progress.Retry.Delays())
	}
	if steps {
		w.Steps = make([]client.StepReadiness, 0, len(t.Steps))
		for i := range t.Steps {
			w.Steps = append(w.Steps, readinessOf(t, &t.Steps[i], w.TaskUUID))
		}
	}
	return w
}

// durationsOf formats durations; nil if there are none.
func durationsOf(list []time.Duration) (texts []string) {
	for _, d := range list {
		texts = append(texts, d.String())
	}
	return texts
}

// each converts the entries of a list; what it returns is never nil.
func each[S, T any](list []S, of func(*S) T) []T {
	shown := make([]T, len(list))
	for i := range list {
		shown[i] = of(&list[i])
	}
	return shown
}

func known(text *string) string {
	if text == nil {
		return "unknown"
	}
	return *text
}

// textOf is a UUID for the API; nil without one.
func textOf(id *uuid.UUID) *string {
	if id == nil {
		return nil
	}
	return new(id.String())
}

func instant(t *time.Time) *client.Time {
	if t == nil {
		return nil
	}
	return &client.Time{Time: *t}
}

func naive(t *time.Time) *client.NaiveTime {
	if t == nil {
		return nil
	}
	return &client.NaiveTime{Time: *t}
}

// namedStepSpace is where the UUIDs of named steps are derived; we have no
// rows for them.
var namedStepSpace = uuid.NewSHA1(uuid.NameSpaceOID, []byte("tasker.named_step"))

// namedStep is uuid.NewSHA1 of the name of a step, without its allocations: it is computed for
// each step of each new task.
func namedStep(t *workflow.Template, step string) (id uuid.UUID) {
	name := make([]byte, 0, 256)
	name = append(append(append(name, namedStepSpace[:]...), t.Namespace...), '/')
	name = append(append(append(name, t.Name...), '/'), step...)
	sum := sha1.Sum(name) // #nosec G401 -- a name, not a secret
	copy(id[:], sum[:])
	id[6], id[8] = id[6]&0x0f|0x50, id[8]&0x3f|0x80 // version 5 of RFC 9562
	return id
}

// readinessOf is a step of the task with this UUID for the API.
func readinessOf(t *store.Task, s *store.Step, task string) client.StepReadiness {
	policy := retryPolicy(t, s)
	return client.StepReadiness{
		WorkflowStepUUID: s.UUID.String(), TaskUUID: task, NamedStepUUID: namedStep(t.Plan.Template, s.Name).String(),
		Name: s.Name, CurrentState: s.State.String(), DependenciesSatisfied: s.ParentsDone >= s.Parents,
		RetryEligible: retryEligible(policy, s), ReadyForExecution: s.Ready,
		LastFailureAt: naive(s.LastFailureAt), NextRetryAt: naive(nextRetry(s)),
		TotalParents: s.Parents, CompletedParents: s.ParentsDone, Attempts: s.Attempts,
		MaxAttempts: policy.MaxAttempts, LastAttemptedAt: naive(s.LastAttemptAt), Waiting: waitingOf(s),
	}
}

func retryPolicy(t *store.Task, s *store.Step) workflow.RetryPolicy {
	if step := t.Plan.Step(t.Progress, s.No); step != nil {
		return t.Progress.PolicyOf(step.StepTemplate)
	}
	return workflow.RetryPolicy{}
}

// retryEligible reports whether another execution is allowed; the first always is.
func retryEligible(policy workflow.RetryPolicy, s *store.Step) bool {
	return s.Attempts == 0 || policy.Retryable && s.Attempts < policy.MaxAttempts
}

// nextRetry excludes the due time of a delayed first execution.
func nextRetry(s *store.Step) *time.Time {
	if s.Attempts == 0 {
		return nil
	}
	return s.NextRetryAt
}

// timelineOf is the history of a task for the API, with what was changed of its context for those
// who may read it.
func timelineOf(t *store.Task, h store.Timeline, inputs bool) *client.Timeline {
	w := &client.Timeline{
		TaskUUID: t.UUID.String(), Start: client.Time{Time: t.RequestedAt}, Seconds: happened(h.Completed),
		Events: make([]client.TimelineEvent, len(h.Events)), Attempts: make([]client.StepAttempt, len(h.Attempts)),
	}
	for i, e := range h.Events {
		shown := client.TimelineEvent{Seconds: e.Seconds, From: e.From, To: e.To, Actor: e.Actor, Reason: e.Reason, ContextEdited: e.ContextEdited}
		if inputs {
			shown.ContextChanges, shown.MoreContextChanges, _ = contextChanges(e.ContextBefore, e.ContextAfter) // JSON of the ledger
		}
		w.Events[i] = shown
	}
	for i, a := range h.Attempts {
		w.Attempts[i] = client.StepAttempt{StepUUID: store.BatchUUID(t.UUID, a.Step, a.Run).String(), Attempt: a.Attempt, Outcome: a.Outcome,
			Enqueued: happened(a.Enqueued), Claimed: happened(a.Claimed), Reported: happened(a.Reported), Applied: happened(a.Applied)}
		if w.Attempts[i].StepName = a.Batch; a.Batch == "" {
			w.Attempts[i].StepName = t.StepName(a.Step)
		}
		if a.Step < len(t.Plan.Steps) && t.Plan.Steps[a.Step].Kind.ByEngine() {
			w.Attempts[i].WaitsFor = t.Plan.Steps[a.Step].Kind.String()
		}
	}
	return w
}

// happened turns the mark of what has not happened into null.
func happened(seconds float64) *float64 {
	if seconds < 0 || math.IsNaN(seconds) {
		return nil
	}
	return &seconds
}
