package rest

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// named is a value and its name in the API, which has PascalCase where
// everything else has snake_case.
type named[T any] struct {
	name  string
	value T
}

var resolutions = []named[store.Resolution]{
	{client.ResolutionPending, store.ResolutionPending},
	{client.ResolutionManuallyResolved, store.ResolutionManuallyResolved},
	{client.ResolutionPermanentlyFailed, store.ResolutionPermanentlyFailed},
	{client.ResolutionCancelled, store.ResolutionCancelled},
}

var letterReasons = []named[workflow.DeadLetterReason]{
	{client.ReasonStalenessTimeout, workflow.DeadLetterStaleness},
	{client.ReasonMaxRetriesExceeded, workflow.DeadLetterExhausted},
	{client.ReasonDependencyCycleDetected, workflow.DeadLetterCycle},
	{client.ReasonWorkerUnavailable, workflow.DeadLetterWorkerUnavailable},
	{client.ReasonManualDLQ, workflow.DeadLetterManual},
}

// valueOf finds a value by its name, in either spelling; the empty name means nil.
func valueOf[T any](list []named[T], name string) (*T, error) {
	if name == "" {
		return nil, nil
	}
	names := make([]string, len(list))
	for i, n := range list {
		if n.name == name || snake(n.name) == name {
			return &n.value, nil
		}
		names[i] = n.name
	}
	return nil, fmt.Errorf("invalid value %q: want one of %s", clip(name, 64), strings.Join(names, ", "))
}

// snake spells a PascalCase name as everything else is spelled.
func snake(name string) string {
	var b strings.Builder
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}

func nameOf[T comparable](list []named[T], value T) string {
	for _, n := range list {
		if n.value == value {
			return n.name
		}
	}
	return "Unknown"
}

// dlqEntryOf is an entry for the API.
func dlqEntryOf(l *store.DeadLetter) client.DLQEntry {
	w := client.DLQEntry{
		DLQEntryUUID: l.UUID.String(), TaskUUID: l.TaskUUID.String(), OriginalState: l.OriginalState.String(),
		DLQReason: nameOf(letterReasons, l.Reason), DLQTimestamp: client.NaiveTime{Time: l.At},
		ResolutionStatus: nameOf(resolutions, l.Resolution), ResolutionTimestamp: naive(l.ResolvedAt), ResolutionNotes: l.Notes,
		ResolvedBy: l.ResolvedBy, TaskSnapshot: rawOr(l.Snapshot, "{}"), Metadata: rawOr(l.Metadata, "null"),
		CreatedAt: client.NaiveTime{Time: l.CreatedAt}, UpdatedAt: client.NaiveTime{Time: l.UpdatedAt}, Detail: l.Detail, ReplayedAs: textOf(l.ReplayedAs),
	}
	w.StepName, w.Error = failureIn(l.Snapshot)
	return w
}

// failureIn is the failed step of a task at the time of its entry.
func failureIn(snapshot json.RawMessage) (step string, failure *client.StepError) {
	var s struct {
		Step  string       `json:"step"`
		Error *storedError `json:"error"`
	}
	if json.Unmarshal(snapshot, &s) != nil || s.Error == nil {
		return s.Step, nil
	}
	failure = &client.StepError{Message: s.Error.Message, ErrorType: s.Error.Type, Retryable: s.Error.Retryable != nil && *s.Error.Retryable}
	if json.Unmarshal(s.Error.Context, &failure.Context) != nil {
		failure.Context = nil // not an object: the message is enough
	}
	return s.Step, failure
}

func dlqStatsOf(s *store.DeadLetterStats) client.DLQStats {
	w := client.DLQStats{
		DLQReason: nameOf(letterReasons, s.Reason), TotalEntries: int64(s.Total), Pending: int64(s.Pending),
		ManuallyResolved: int64(s.ManuallyResolved), PermanentFailures: int64(s.PermanentlyFailed), Cancelled: int64(s.Cancelled),
		OldestEntry: naive(&s.Oldest), NewestEntry: naive(&s.Newest),
	}
	if s.AverageResolution != nil {
		w.AvgResolutionTimeMinutes = new(s.AverageResolution.Minutes())
	}
	return w
}

func queueEntryOf(e *store.QueueEntry) client.DLQQueueEntry {
	w := client.DLQQueueEntry{
		DLQEntryUUID: e.UUID.String(), TaskUUID: e.TaskUUID.String(), OriginalState: e.OriginalState.String(),
		DLQReason: nameOf(letterReasons, e.Reason), DLQTimestamp: client.NaiveTime{Time: e.At}, MinutesInDLQ: e.Minutes,
		NamespaceName: optional(e.Namespace), TaskName: optional(e.TaskName), PriorityScore: e.Score,
	}
	if e.CurrentState != 0 {
		w.CurrentState = optional(e.CurrentState.String())
	}
	if e.MinutesInState != nil {
		w.TimeInStateMinutes = new(int32Of(*e.MinutesInState))
	}
	return w
}

func stalenessOf(e *store.StalenessEntry) client.StalenessEntry {
	return client.StalenessEntry{
		TaskUUID: e.TaskUUID.String(), NamespaceName: optional(e.Namespace), TaskName: optional(e.Name), CurrentState: e.State.String(),
		TimeInStateMinutes: int32Of(e.MinutesInState), TaskAgeMinutes: int32Of(e.MinutesOld),
		StalenessThresholdMinutes: int32Of(e.ThresholdMinutes), HealthStatus: e.Health.String(), Priority: int32Of(e.Priority),
		Detail: e.Detail,
	}
}

// int32Of clamps a number to 32 bits.
func int32Of(n int) int32 { return int32(min(max(n, math.MinInt32), math.MaxInt32)) } // #nosec G115 -- bounded
