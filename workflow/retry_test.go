package workflow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/limits"
)

func TestRetriesOfATaskTakeThePlaceOfTheTemplates(t *testing.T) {
	jitter := Rules{MaxCrashes: 9, Backoff: BackoffDefaults{Delays: []time.Duration{time.Second}, Multiplier: 2, Jitter: 1, Max: 2 * time.Second}}
	fails := func(p *Plan, o *RetryOverride, attempt int, in Reported) *Effects {
		t.Helper()
		progress := NewProgress(p)
		progress.Retry = o
		progress, _, err := Advance(p, TaskPending, progress, jitter, Created{})
		require.NoError(t, err)
		in.Attempt, in.Seed = attempt, 1<<63
		next, e, err := Advance(p, TaskStepsInProcess, progress, jitter, in)
		require.NoError(t, err)
		require.Equal(t, o, next.Retry, "it never changes")
		return e
	}
	plain := Reported{Retryable: true, RetryAfter: -1}
	p := graph(t, []string{"only"})
	o := override(0, []int64{10_000, 20_000, 30_000})
	for attempt, want := range []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second} {
		e := fails(p, o, attempt+1, plain)
		require.Equal(t, []RetryStep{{Outcome: OutcomeFailed, DueIn: want}}, e.Retry, "exactly: no jitter, no cap")
	}
	require.Equal(t, ReasonExhausted, fails(p, o, 4, plain).End[0].Reason, "as many retries as there are delays")

	more := override(6, o.DelaysMS)
	require.Equal(t, 30*time.Second, fails(p, more, 5, plain).Retry[0].DueIn, "the last one is reused")
	require.Equal(t, ReasonExhausted, fails(p, more, 6, plain).End[0].Reason)
	require.Equal(t, ReasonExhausted, fails(p, override(2, o.DelaysMS), 2, plain).End[0].Reason, "max_attempts has precedence over the delays")
	require.Equal(t, ReasonExhausted, fails(p, override(1, nil), 1, plain).End[0].Reason)
	require.Less(t, fails(p, override(9, nil), 8, plain).Retry[0].DueIn, 3*time.Second, "without delays the template's backoff applies")

	asked := plain
	asked.RetryAfter = 7 * time.Second
	require.Equal(t, 7*time.Second, fails(p, o, 1, asked).Retry[0].DueIn, "the handler's delay has precedence")

	p.Steps[0].Retry.Retryable = false
	require.Equal(t, ReasonPermanent, fails(p, o, 1, plain).End[0].Reason, "what must not be repeated is not")
	p.Steps[0].Retry.Retryable = true
	p.Steps[0].Kind = KindCompensation
	require.Equal(t, p.Steps[0].Retry, (&Progress{Retry: o}).PolicyOf(p.Steps[0].StepTemplate), "a compensation has its own retries")
	require.Equal(t, p.Steps[0].Retry.MaxAttempts, AttemptsOf(p.Steps[0].StepTemplate, 9))
}

func TestALostLeaseUsesUpTheAttemptsOfItsTask(t *testing.T) {
	p := graph(t, []string{"only"})
	progress := NewProgress(p)
	progress.Retry = override(0, []int64{10_000})
	rules := testRules
	rules.MaxCrashes = 9
	progress, _, err := Advance(p, TaskPending, progress, rules, Created{})
	require.NoError(t, err)
	progress, e, err := Advance(p, TaskStepsInProcess, progress, rules, LeaseLost{Attempt: 1})
	require.NoError(t, err)
	require.Equal(t, []RetryStep{{Outcome: OutcomeLeaseLost}}, e.Retry, "at once: the worker has failed, not the step")
	_, e, err = Advance(p, TaskStepsInProcess, progress, rules, LeaseLost{Attempt: 2})
	require.NoError(t, err)
	require.Equal(t, ReasonWorkerLost, e.End[0].Reason)
}

func genOverride() *rapid.Generator[*RetryOverride] {
	return rapid.Custom(func(t *rapid.T) *RetryOverride {
		delays := rapid.SliceOfN(rapid.Int64Range(0, limits.MaxRetryDelay.Milliseconds()), 0, limits.MaxRetryDelays).Draw(t, "delays")
		if len(delays) == 0 {
			delays = nil // as they are decoded
		}
		return override(rapid.IntRange(0, limits.MaxAttempts).Draw(t, "attempts"), delays)
	})
}

// The retries of a task survive encoding with any progress.
func TestRetriesSurviveTheProgress(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := &Progress{Retry: genOverride().Draw(t, "retry"), Ending: rapid.SampledFrom([]TaskState{0, TaskError, TaskCancelled}).Draw(t, "ending")}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			g.Steps = append(g.Steps, StepProgress{Status: StatusWaiting, Attempts: uint16(rapid.IntRange(0, 9).Draw(t, "attempts")), Remaining: 1})
		}
		for i := range rapid.IntRange(0, min(3, len(g.Steps))).Draw(t, "groups") {
			g.Groups = append(g.Groups, Group{Batchable: 0, Template: 0, First: i, Count: 1})
		}
		encoded := g.Encode()
		require.Len(t, encoded, g.encodedSize())
		back, err := DecodeProgress(encoded)
		require.NoError(t, err)
		require.Equal(t, g.Steps, back.Steps)
		require.Equal(t, g.Groups, back.Groups)
		require.Equal(t, g.Ending, back.Ending)
		require.Equal(t, g.Retry, back.Retry)
		require.Equal(t, encoded, back.Encode())
		if g.Retry != nil { // a claim reads it there
			n := len(encoded)
			require.EqualValues(t, progressRetry, encoded[0])
			require.Equal(t, g.Retry.MaxAttempts, int(encoded[n-2])<<8|int(encoded[n-1]))
		}
	})
}

func TestBrokenRetriesAreRefused(t *testing.T) {
	t.Parallel()
	for _, b := range [][]byte{
		{progressRetry, 0}, {progressRetry, 0, 0, 0}, {progressRetry, 0, 0, 0, 0, 0}, {progressRetry, 0, 0, 1, 0, 1},
		{progressRetry, 0, 0, 200, 0, 1}, {progressRetry, 0, 3, 0, 0, 1}, {progressRetry, 9, 0, 0, 0, 1},
	} {
		_, err := DecodeProgress(b)
		require.Error(t, err, "%v", b)
	}
}

// override has one attempt more than delays where attempts is 0; nil without both.
func override(attempts int, delaysMS []int64) *RetryOverride {
	if attempts == 0 && len(delaysMS) == 0 {
		return nil
	}
	if attempts == 0 {
		attempts = len(delaysMS) + 1
	}
	return &RetryOverride{MaxAttempts: attempts, DelaysMS: delaysMS}
}
