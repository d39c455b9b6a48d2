package submission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/workflow"
)

func TestWhatPeopleGive(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	before, after := now.Add(-time.Minute), now.Add(time.Minute)
	short, huge, negative := 1.5, 1e300, -0.1
	for name, tt := range map[string]struct {
		at    *time.Time
		delay *float64
		want  time.Duration
		wrong string
	}{
		"nothing": {}, "past": {at: &before}, "future": {at: &after}, "seconds": {delay: &short, want: 1500 * time.Millisecond},
		"too many": {delay: &huge, want: maxDelaySeconds * time.Second}, "negative": {delay: &negative, wrong: "negative"}, "both": {at: &after, delay: &short, wrong: "not both"},
	} {
		var r Request
		err := r.Start(tt.at, tt.delay, now)
		if tt.wrong != "" {
			var invalid *InvalidError
			require.ErrorAs(t, err, &invalid, name)
			require.ErrorContains(t, err, tt.wrong, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, tt.want, r.StartIn, name)
		if tt.at == nil {
			require.Nil(t, r.StartAt, name)
		} else {
			require.Equal(t, *tt.at, *r.StartAt, name)
		}
	}
	in, err := DeadlineIn(nil, now)
	require.NoError(t, err)
	require.Zero(t, in)
	in, err = DeadlineIn(&after, now)
	require.NoError(t, err)
	require.Equal(t, time.Minute, in)
	_, err = DeadlineIn(&now, now)
	require.ErrorContains(t, err, "passed")
	id, err := OptionalUUID("x", nil)
	require.NoError(t, err)
	require.Nil(t, id)
}

func TestUrgencyIsAPriorityOrALevel(t *testing.T) {
	t.Parallel()
	of := func(n int) *int { return &n }
	for name, tt := range map[string]struct {
		priority, level, want *int
		wrong                 string
	}{
		"nothing": {}, "priority": {priority: of(7), want: of(7)}, "first": {level: of(1), want: of(80)}, "usual": {level: of(5), want: of(0)},
		"last": {level: of(10), want: of(-100)}, "both": {priority: of(0), level: of(5), wrong: "not both"},
		"zero": {level: of(0), wrong: "between 1"}, "eleven": {level: of(11), wrong: "and 10"},
	} {
		var r Request
		err := r.Urgency(tt.priority, tt.level)
		if tt.wrong != "" {
			require.ErrorContains(t, err, tt.wrong, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, tt.want, r.Priority, name)
	}
}

func TestRetriesAsPeopleGiveThem(t *testing.T) {
	t.Parallel()
	of := func(n int) *int { return &n }
	for name, tt := range map[string]struct {
		attempts *int
		delays   []string
		want     *workflow.RetryOverride
		wrong    string
	}{
		"nothing":       {},
		"attempts":      {attempts: of(7), want: &workflow.RetryOverride{MaxAttempts: 7, DelaysMS: []int64{}}},
		"delays":        {delays: []string{"10s", "1m30s", "2d"}, want: &workflow.RetryOverride{MaxAttempts: 4, DelaysMS: []int64{10_000, 90_000, 172_800_000}}},
		"both":          {attempts: of(9), delays: []string{"0s"}, want: &workflow.RetryOverride{MaxAttempts: 9, DelaysMS: []int64{0}}},
		"rounded up":    {delays: []string{"1ns"}, want: &workflow.RetryOverride{MaxAttempts: 2, DelaysMS: []int64{1}}},
		"longest":       {delays: []string{"30d"}, want: &workflow.RetryOverride{MaxAttempts: 2, DelaysMS: []int64{30 * 86_400_000}}},
		"too long":      {delays: []string{"30d", "721h"}, wrong: "retry_delays[1] must be between"},
		"no unit":       {delays: []string{"10"}, wrong: `retry_delays[0] is "10"`},
		"negative":      {delays: []string{"-1s"}, wrong: `retry_delays[0] is "-1s"`},
		"too many":      {delays: make([]string, 33), wrong: "at most 32"},
		"none at all":   {attempts: of(0), wrong: "max_attempts must be between 1 and 32767"},
		"more than can": {attempts: of(32_768), wrong: "max_attempts must be between 1 and 32767"},
	} {
		r := valid()
		err := r.Retries(tt.attempts, tt.delays)
		if err == nil {
			err = r.Check()
		}
		if tt.wrong != "" {
			var invalid *InvalidError
			require.ErrorAs(t, err, &invalid, name)
			require.ErrorContains(t, err, tt.wrong, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, tt.want, r.Override(), name)
	}
}

func TestStartsAndConflicts(t *testing.T) {
	t.Parallel()
	at := func(in time.Duration) *time.Time { t := time.Now().Add(in); return &t }
	for name, tt := range map[string]struct {
		change func(r *Request)
		wrong  string
	}{
		"long ago":         {change: func(r *Request) { r.StartAt = &time.Time{} }},
		"next week":        {change: func(r *Request) { r.StartAt = at(7 * 24 * time.Hour) }},
		"in two years":     {change: func(r *Request) { r.StartAt = at(2 * maxStartDelay) }, wrong: "within the next 366 days"},
		"before its start": {change: func(r *Request) { r.StartAt, r.DeadlineIn = at(time.Hour), time.Minute }, wrong: "deadline must be after the start"},
		"after its start":  {change: func(r *Request) { r.StartAt, r.DeadlineIn = at(time.Hour), 2*time.Hour }},
		"two starts":       {change: func(r *Request) { r.StartAt, r.StartIn = at(time.Hour), time.Hour }, wrong: "not both"},
		"use existing":     {change: func(r *Request) { r.Conflict, r.IdempotencyKey = ConflictUseExisting, "k" }},
		"of whom":          {change: func(r *Request) { r.Conflict = ConflictUseExisting }, wrong: "needs an idempotency_key"},
		"unknown policy":   {change: func(r *Request) { r.Conflict = "replace" }, wrong: "must be fail or use_existing"},
	} {
		r := valid()
		tt.change(&r)
		err := r.Check()
		if tt.wrong == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, tt.wrong, name)
	}
}

func TestARequestWithoutRetriesOverridesNone(t *testing.T) {
	t.Parallel()
	require.Nil(t, retryOverride(0, nil))
	require.Equal(t, 3, retryOverride(0, []int64{1, 2}).MaxAttempts, "one more than the delays")
	require.Equal(t, 2, retryOverride(2, []int64{1, 2}).MaxAttempts)
}
