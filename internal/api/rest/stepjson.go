package rest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// stepOf is a step with its result for the API.
func stepOf(t *store.Task, s *store.Step) (client.Step, error) {
	policy := retryPolicy(t, s)
	w := client.Step{
		StepUUID: s.UUID.String(), TaskUUID: t.UUID.String(), Name: s.Name,
		CreatedAt: client.Time{Time: s.CreatedAt}, UpdatedAt: client.Time{Time: lastChange(s)}, CompletedAt: instant(s.CompletedAt),
		CurrentState: s.State.String(), DependenciesSatisfied: s.ParentsDone >= s.Parents,
		RetryEligible: retryEligible(policy, s), ReadyForExecution: s.Ready,
		TotalParents: s.Parents, CompletedParents: s.ParentsDone, Attempts: s.Attempts, MaxAttempts: policy.MaxAttempts,
		LastFailureAt: instant(s.LastFailureAt), NextRetryAt: instant(nextRetry(s)), LastAttemptedAt: instant(s.LastAttemptAt), Waiting: waitingOf(s),
	}
	w.Progress = progressOf(s)
	result := resultOf(t, s)
	if result == nil {
		return w, nil
	}
	var err error
	if w.Results, err = json.Marshal(result); err != nil {
		return w, fmt.Errorf("encode the result of step %s: %w", s.UUID, err)
	}
	return w, nil
}

// checkpointOf is the saved progress of a step; nil without any.
func checkpointOf(s *store.Step) (*client.Checkpoint, error) {
	if s.Checkpoint == nil {
		return nil, nil //nolint:nilnil // no checkpoint is an answer
	}
	c := client.Checkpoint{History: []client.CheckpointCursor{}}
	if err := json.Unmarshal(s.Checkpoint, &c); err != nil {
		return nil, fmt.Errorf("read the checkpoint of step %s: %w", s.UUID, err)
	}
	return &c, nil
}

func lastChange(s *store.Step) time.Time {
	last := s.CreatedAt
	for _, t := range []*time.Time{s.LastAttemptAt, s.LastFailureAt, s.CompletedAt} {
		if t != nil && t.After(last) {
			last = *t
		}
	}
	return last
}

// resultOf wraps the result, or the newest failure, in the envelope that clients know;
// nil without either.
func resultOf(t *store.Task, s *store.Step) *client.StepResult {
	r := &client.StepResult{
		StepUUID: s.UUID.String(),
		Metadata: client.StepMetadata{StartedAt: instant(s.StartedAt), Custom: map[string]any{}, Context: map[string]any{},
			Retryable: retryPolicy(t, s).Retryable},
	}
	if s.WorkerUUID != nil {
		r.Metadata.WorkerID = optional(s.WorkerUUID.String())
	}
	switch {
	case s.State == workflow.StepComplete:
		r.Success, r.Status, r.Result = true, "completed", rawOr(s.Result, "null")
		r.Metadata.CompletedAt = instant(s.CompletedAt)
		switch {
		case s.Manual != nil:
			r.Metadata.Custom = customOf(s.Manual)
		case s.Metadata != nil:
			r.Metadata.Custom = objectOf(s.Metadata)
		}
	case (s.Error != nil || s.Reason != nil) && s.State != workflow.StepResolvedManually:
		setFailure(r, s)
	default:
		return nil
	}
	if from, to := s.StartedAt, s.ReportedAt; from != nil && to != nil && to.After(*from) {
		r.Metadata.ExecutionTimeMS = to.Sub(*from).Milliseconds()
	}
	return r
}

// objectOf are the members of a stored object.
func objectOf(doc json.RawMessage) map[string]any {
	members := map[string]json.RawMessage{}
	custom := map[string]any{}
	if json.Unmarshal(doc, &members) == nil { // of an object that was checked when it was reported
		for name, value := range members {
			custom[name] = value
		}
	}
	return custom
}

// customOf is the metadata of a result set by hand, with actor and reason.
func customOf(m *store.Manual) map[string]any {
	custom := map[string]any{}
	var object map[string]json.RawMessage
	switch err := json.Unmarshal(m.Metadata, &object); {
	case m.Metadata == nil || err == nil && object == nil: // nothing, or null
	case err != nil:
		custom["operator_metadata"] = m.Metadata
	default:
		for name, value := range object {
			custom[name] = value
		}
	}
	custom["manually_completed"], custom["completed_by"], custom["completion_reason"] = true, m.Actor, m.Reason
	return custom
}

// storedError is how a worker writes down a failure.
type storedError struct {
	Message   string          `json:"message"`
	Type      string          `json:"error_type"`
	Code      string          `json:"error_code"`
	Retryable *bool           `json:"retryable"`
	Context   json.RawMessage `json:"context"`
}

func setFailure(r *client.StepResult, s *store.Step) {
	var e storedError
	if s.Error != nil && json.Unmarshal(s.Error, &e) != nil {
		e.Message = "the record of the failure cannot be read"
	}
	if e.Message == "" && s.Reason != nil {
		e.Message = *s.Reason
	}
	if e.Type == "" && s.Reason != nil {
		e.Type, _, _ = strings.Cut(*s.Reason, ":")
	}
	retryable := s.State == workflow.StepWaitingForRetry
	if e.Retryable != nil {
		retryable = *e.Retryable
	}
	r.Status, r.Result = "failed", json.RawMessage("{}")
	if s.State == workflow.StepError {
		r.Status = "error"
	}
	r.Metadata.CompletedAt, r.Metadata.Retryable = instant(s.LastFailureAt), retryable
	r.Metadata.ErrorCode, r.Metadata.ErrorType = optional(e.Code), optional(e.Type)
	r.Error = &client.StepError{Message: e.Message, ErrorType: e.Type, Retryable: retryable}
	if json.Unmarshal(e.Context, &r.Error.Context) != nil {
		r.Error.Context = nil // not an object: the message is enough
	}
}
