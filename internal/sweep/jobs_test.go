package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/sweep"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// staleActions are the actions on a stale task.
type staleActions struct{ toError, deadLetters bool }

// fake is the store and the orchestrator in memory: findings are configured, changes are
// recorded.
type fake struct {
	uncounted int // rows of counts
	depths    []store.CallDepth
	leases
	liveness   func(limits store.LivenessLimits, dry bool) (store.Liveness, error)
	overdue    []uuid.UUID // past their deadline
	cancel     func(tasks []uuid.UUID) (int, error)
	cancelled  [][]uuid.UUID
	stale      []store.StaleTask
	endStale   func(stale []store.StaleTask) (int, error)
	endedStale [][]store.StaleTask
	thresholds store.StaleThresholds
	actions    staleActions
	stats      []store.DeadLetterStats
	stalled    []store.StalledStep
	retain     func(limits store.RetentionLimits, dry bool) (store.Retained, error)
	signals    []signal.Signal
	limits     int // whose removal was interrupted
	unmarked   int // keys, of which one look marks one
	idle, busy int // keys, likewise, and the one that cannot be forgotten
	published  []signal.Signal
	sends      bool
	stranded   []store.Stranded // of future looks
	died       []string         // workers of queues, until they are noted
	stuck      error            // of each removal of limits
	queues     []store.QueueRetained
	after      []uuid.UUID // of the looks of the retention of queues
	waiting    int         // steps that have waited for too long
	bound      time.Duration
	predicts   bool
}

func (f *fake) Learn(_ context.Context, _ time.Duration, seen map[uuid.UUID]int64) (store.Learned, error) {
	seen[uuid.Max]++
	return store.Learned{Samples: int(seen[uuid.Max]), Models: 2, Distrusted: 1}, nil
}

func (f *fake) Predicts() bool { return f.predicts }

func (f *fake) Age(_ context.Context, bound time.Duration, limit int, dry bool) (store.Aged, error) {
	n := min(limit, f.waiting)
	f.bound = bound
	found := store.Aged{Steps: map[string]int{"shop": n}, More: n == limit}
	if !dry {
		f.waiting -= n
		found.Signals = []signal.Signal{{Topic: signal.WorkerTopic("shop"), Payload: "1.-1"}}
	}
	return found, nil
}

func (f *fake) RatesToAddUp() bool { return f.uncounted > 0 }

func (f *fake) AddUpRates(_ context.Context, limit int) (added int, more bool, err error) {
	added = min(limit, f.uncounted)
	f.uncounted -= added
	return added, f.uncounted > 0, nil
}

func (f *fake) Depths(context.Context, int) ([]store.CallableLoad, error) {
	return []store.CallableLoad{{ID: 7, Waiting: 3, Running: 2, Oldest: time.Second}}, nil
}

func (f *fake) KeepDepths(_ context.Context, depths []store.CallDepth) error {
	f.depths = append(f.depths, depths...)
	return nil
}

func (f *fake) NoteQueueDeaths(_ context.Context, limit int, dry bool) (store.QueueDeaths, error) {
	n := min(limit, len(f.died))
	found := store.QueueDeaths{Died: f.died[:n], More: n == limit}
	if !dry {
		f.died = f.died[n:]
	}
	return found, nil
}

func (f *fake) RetainQueues(_ context.Context, _ time.Duration, after uuid.UUID, _ int, _ bool) (gone store.QueueRetained, _ error) {
	f.after = append(f.after, after)
	if len(f.queues) > 0 {
		gone, f.queues = f.queues[0], f.queues[1:]
	}
	return gone, nil
}

func (f *fake) SweepDependencies(_ context.Context, _ store.DependencyPlace, _ int, dry bool) (found store.Stranded, _ error) {
	if len(f.stranded) > 0 {
		found = f.stranded[0]
		if !dry {
			f.stranded = f.stranded[1:]
		}
	}
	return found, nil
}

func (f *fake) SweepLiveness(_ context.Context, limits store.LivenessLimits, dry bool) (store.Liveness, error) {
	return f.liveness(limits, dry)
}

func (f *fake) PastDeadline(_ context.Context, limit int) ([]uuid.UUID, error) {
	return append([]uuid.UUID(nil), f.overdue[:min(limit, len(f.overdue))]...), nil
}

func (f *fake) CancelOverdue(_ context.Context, tasks []uuid.UUID) (int, error) {
	f.cancelled = append(f.cancelled, tasks)
	return f.cancel(tasks)
}

// StaleTasks walks over the tasks in the order of their UUIDs.
func (f *fake) StaleTasks(_ context.Context, th store.StaleThresholds, after uuid.UUID, limit int) ([]store.StaleTask, uuid.UUID, error) {
	f.thresholds = th
	var found []store.StaleTask
	for _, s := range f.stale {
		if s.UUID.String() > after.String() {
			found = append(found, s)
		}
		if len(found) == limit {
			return found, s.UUID, nil
		}
	}
	return found, uuid.Nil, nil
}

func (f *fake) EndStale(_ context.Context, stale []store.StaleTask, toError, deadLetters bool) (int, error) {
	f.endedStale, f.actions = append(f.endedStale, stale), staleActions{toError, deadLetters}
	return f.endStale(stale)
}

func (f *fake) StalledSteps(_ context.Context, since time.Duration, _ int) (list []store.StalledStep, err error) {
	for _, s := range f.stalled {
		if s.SecondsSince >= since.Seconds() {
			list = append(list, s)
		}
	}
	return list, nil
}

func (f *fake) DeadLetterStats(context.Context) ([]store.DeadLetterStats, error) { return f.stats, nil }

func (f *fake) Retain(_ context.Context, limits store.RetentionLimits, dry bool) (store.Retained, error) {
	return f.retain(limits, dry)
}

func (f *fake) OverdueSignals(context.Context, time.Duration) ([]signal.Signal, error) {
	return f.signals, nil
}

// FinishLimits removes the configured limits, one after the other.
func (f *fake) FinishLimits(context.Context) (finished int, signals []signal.Signal, more bool, err error) {
	if f.limits == 0 {
		return 0, nil, false, f.stuck
	}
	f.limits--
	return 1, []signal.Signal{{Topic: signal.TopicControl}}, f.limits > 0, f.stuck
}

// MarkWaiting marks the configured keys, of which each look finds the next one.
func (f *fake) MarkWaiting(_ context.Context, after int32) (marked int, next int32, signals []signal.Signal, err error) {
	if int(after) >= f.unmarked {
		return 0, 0, nil, nil
	}
	return 1, after + 1, []signal.Signal{{Topic: signal.WorkerTopic("limited")}}, nil
}

// ForgetKeys forgets the configured keys, of which each look finds the next one.
func (f *fake) ForgetKeys(_ context.Context, after int32, _ bool) (forgotten int, next int32, err error) {
	switch next = after + 1; {
	case int(after) >= f.idle:
		return 0, 0, nil
	case int(next) == f.busy:
		return 0, next, errors.New("its callable is busy")
	}
	return 1, next, nil
}

func (f *fake) SendsSignals() bool { return f.sends }

func (f *fake) Publish(signals ...signal.Signal) { f.published = append(f.published, signals...) }

// configured are the sweeps with the defaults of the configuration, except that they end
// no task and keep everything.
func configured(t testing.TB) sweep.Config {
	t.Helper()
	defaults, err := config.Defaults()
	require.NoError(t, err)
	cfg := sweep.Config{Settings: defaults.Orchestration}
	act(&cfg, staleActions{})
	r := &cfg.Settings.Retention
	r.TTL, r.DeadLetterTTL, r.EventTTL, r.MinutesTTL, r.HoursTTL = 0, 0, 0, 0, 0
	return cfg
}

// act sets the actions on stale tasks.
func act(c *sweep.Config, a staleActions) {
	do := &c.Settings.DLQ.StalenessDetection.Actions
	do.AutoTransitionToError, do.AutoMoveToDLQ = a.toError, a.deadLetters
}

// runner returns the product's sweeps over the fake; settings may change their configuration.
func (f *fake) runner(t testing.TB, settings ...func(c *sweep.Config)) (*sweep.Runner, *telemetry.Metrics) {
	t.Helper()
	cfg := configured(t)
	cfg.Store, cfg.Tasks, cfg.Publisher, cfg.Holder, cfg.Metrics, cfg.Jitter = f, f, f, uuid.New(), telemetry.Discard(), -1
	for _, set := range settings {
		set(&cfg)
	}
	r, err := sweep.New(cfg)
	require.NoError(t, err)
	return r, cfg.Metrics
}

func run(t testing.TB, r *sweep.Runner, name string, dry bool) sweep.Run {
	t.Helper()
	out, err := r.RunNow(t.Context(), name, dry)
	require.NoError(t, err)
	return out
}

func ids(n int) []uuid.UUID {
	list := make([]uuid.UUID, n)
	for i := range list {
		list[i] = uuid.Must(uuid.NewV7())
	}
	return list
}

func without(list, gone []uuid.UUID) []uuid.UUID {
	var left []uuid.UUID
	for _, id := range list {
		keep := true
		for _, g := range gone {
			keep = keep && g != id
		}
		if keep {
			left = append(left, id)
		}
	}
	return left
}

func TestSweepsThatAreOffAreNotThere(t *testing.T) {
	t.Parallel()
	r, _ := (&fake{}).runner(t)
	require.Equal(t, []string{"liveness", "signals", "predictions", "rates", "depths", "deadlines", "dependencies", "staleness", "retention", "queue_workers", "queue_retention"}, r.Sweeps())
	r, _ = (&fake{}).runner(t, func(c *sweep.Config) {
		c.Settings.Sweeps.Deadlines.Enabled, c.Settings.DLQ.Enabled, c.Settings.Taskmaster.Retention.TTL = false, false, 0
	})
	require.Equal(t, []string{"liveness", "signals", "predictions", "rates", "depths", "dependencies", "retention", "queue_workers"}, r.Sweeps())
	_, err := sweep.New(sweep.Config{Store: &fake{}, Tasks: &fake{}, Holder: uuid.New()})
	require.ErrorContains(t, err, "publisher")
}

// Defaults come from package config: missing values are rejected.
func TestNoBoundOfASweepIsInvented(t *testing.T) {
	t.Parallel()
	f := &fake{}
	_, err := sweep.New(sweep.Config{Store: f, Tasks: f, Publisher: f, Holder: uuid.New()})
	for _, field := range []string{"Liveness.Interval", "Liveness.StaleAfter", "Liveness.DeadAfter", "Liveness.BatchSize", "Deadlines.Interval",
		"Deadlines.BatchSize", "Dependencies.Interval", "Dependencies.BatchSize", "StalenessDetection.DetectionInterval",
		"StalenessDetection.BatchSize", "Retention.Interval", "Retention.BatchSize", "Taskmaster.Reaper.Interval",
		"Taskmaster.Retention.Interval", "Taskmaster.Retention.BatchSize", "Signals.Interval", "Signals.Overdue", "Ageing.BatchSize", "Predictions.Interval"} {
		require.ErrorContains(t, err, "invalid "+field+" 0")
	}
}

// Deaths are counted once; a dry run counts none.
func TestQueueWorkersDie(t *testing.T) {
	t.Parallel()
	f := &fake{died: []string{"a", "b"}}
	r, m := f.runner(t)
	require.Equal(t, map[string]int{"would_note_death": 2}, run(t, r, "queue_workers", true).Items)
	require.Zero(t, testutil.ToFloat64(m.QueueWorkersDied))
	require.Equal(t, map[string]int{"died": 2}, run(t, r, "queue_workers", false).Items)
	require.Empty(t, run(t, r, "queue_workers", false).Items)
	require.InDelta(t, 2, testutil.ToFloat64(m.QueueWorkersDied), 0)
}

// Each look at old tasks begins where the one before it ended.
func TestQueueRetentionGoesOn(t *testing.T) {
	t.Parallel()
	next := uuid.Must(uuid.NewV7())
	f := &fake{queues: []store.QueueRetained{{Tasks: 2, Workers: 1, Next: next, More: true}, {Tasks: 1, Next: next}}}
	r, m := f.runner(t)
	require.Equal(t, map[string]int{"deleted_tasks": 3, "deleted_workers": 1}, run(t, r, "queue_retention", false).Items)
	require.Equal(t, []uuid.UUID{uuid.Nil, next}, f.after)
	require.InDelta(t, 3, testutil.ToFloat64(m.QueueCleaned), 0)
	require.InDelta(t, 1, testutil.ToFloat64(m.QueueWorkersGone), 0)
}

func TestLiveness(t *testing.T) {
	t.Parallel()
	worker := store.WorkerRef{UUID: uuid.New(), ID: "worker-7", Hostname: "north", HeartbeatAge: 150 * time.Second}
	calls := 0
	f := &fake{liveness: func(limits store.LivenessLimits, dry bool) (store.Liveness, error) {
		calls++
		require.Equal(t, store.LivenessLimits{Stale: 30 * time.Second, Dead: 2 * time.Minute, Batch: 2}, limits)
		if dry {
			return store.Liveness{Dead: []store.WorkerRef{worker}, More: true}, nil
		}
		if calls == 2 {
			return store.Liveness{Dead: []store.WorkerRef{worker}}, nil
		}
		return store.Liveness{Stale: []store.WorkerRef{worker, worker}, Recovered: []store.WorkerRef{worker}, Released: 5, More: true,
			Signals: []signal.Signal{{Topic: signal.TopicDue}}}, nil
	}}
	r, metrics := f.runner(t, func(c *sweep.Config) { c.Settings.Sweeps.Liveness.BatchSize = 2 })
	got := run(t, r, "liveness", true)
	require.Equal(t, map[string]int{"would_mark_dead": 1}, got.Items)
	require.Equal(t, []sweep.Finding{{Subject: worker.UUID.String(), Action: "would_mark_dead", Detail: "worker-7 on north, silent for 2m30s"}}, got.Findings)
	require.True(t, got.More)
	require.Equal(t, 1, calls)
	require.Zero(t, testutil.ToFloat64(metrics.WorkersDied))
	calls = 0
	got = run(t, r, "liveness", false)
	require.Equal(t, 2, calls, "a full batch is followed by another")
	require.Equal(t, map[string]int{"marked_stale": 2, "marked_active": 1, "marked_dead": 1, "released_steps": 5}, got.Items)
	require.Equal(t, []signal.Signal{{Topic: signal.TopicDue}}, f.published)
	require.InDelta(t, 1, testutil.ToFloat64(metrics.WorkersDied), 0)

	f.published, f.sends, calls = nil, true, 0
	run(t, r, "liveness", false)
	require.Empty(t, f.published, "the transaction has sent them")
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	all := ids(25)
	f := &fake{overdue: all}
	f.cancel = func(tasks []uuid.UUID) (int, error) {
		f.overdue = without(f.overdue, tasks)
		return len(tasks), nil
	}
	r, _ := f.runner(t, func(c *sweep.Config) { c.Settings.Sweeps.Deadlines.BatchSize = 10 })
	got := run(t, r, "deadlines", true)
	require.Equal(t, map[string]int{"would_cancel": 25}, got.Items)
	require.Empty(t, f.cancelled)
	got = run(t, r, "deadlines", false)
	require.Equal(t, map[string]int{"cancelled": 25}, got.Items)
	require.Equal(t, [][]uuid.UUID{all[:10], all[10:20], all[20:]}, f.cancelled)
	require.False(t, got.More)
}

// Tasks that cannot be cancelled stay first in line. They are tried once per run and hide
// no other task.
func TestDeadlinesPassByWhatIsStuck(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{nil, errors.New("a plan that cannot be read")} {
		all := ids(40)
		stuck := all[:15]
		f := &fake{overdue: all}
		f.cancel = func(tasks []uuid.UUID) (int, error) {
			free := without(tasks, stuck)
			f.overdue = without(f.overdue, free)
			if len(free) < len(tasks) {
				return len(free), failure
			}
			return len(free), nil
		}
		r, _ := f.runner(t, func(c *sweep.Config) { c.Settings.Sweeps.Deadlines.BatchSize = 10 })
		got, err := r.RunNow(t.Context(), "deadlines", false)
		require.Equal(t, 25, got.Items["cancelled"])
		if failure == nil {
			require.NoError(t, err)
			require.Equal(t, 15, got.Items["skipped"])
		} else {
			require.ErrorIs(t, err, failure)
			require.Equal(t, sweep.OutcomeError, got.Outcome)
			require.Equal(t, 15, got.Items["failed"])
		}
		require.Equal(t, stuck, f.overdue)
		seen := map[uuid.UUID]int{}
		for _, batch := range f.cancelled {
			require.LessOrEqual(t, len(batch), 10)
			for _, id := range batch {
				seen[id]++
				require.Equal(t, 1, seen[id], "tried once per run")
			}
		}
	}
}

func TestARunGivesUpWithoutADatabase(t *testing.T) {
	t.Parallel()
	f := &fake{overdue: ids(40), cancel: func([]uuid.UUID) (int, error) { return 0, fmt.Errorf("cancel: %w", store.ErrUnavailable) }}
	r, _ := f.runner(t, func(c *sweep.Config) { c.Settings.Sweeps.Deadlines.BatchSize = 10 })
	_, err := r.RunNow(t.Context(), "deadlines", false)
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.Len(t, f.cancelled, 1)
}

func TestARunIsBoundedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{overdue: ids(100)}
		f.cancel = func(tasks []uuid.UUID) (int, error) {
			time.Sleep(10 * time.Second)
			f.overdue = without(f.overdue, tasks)
			return len(tasks), nil
		}
		r, _ := f.runner(t, func(c *sweep.Config) { c.Settings.Sweeps.Deadlines.BatchSize = 1 })
		got := run(t, r, "deadlines", false)
		require.True(t, got.More)
		require.Equal(t, 3, got.Items["cancelled"], "half of the lease")
	})
}

func staleTasks(n int) []store.StaleTask {
	list := make([]store.StaleTask, n)
	for i, id := range ids(n) {
		list[i] = store.StaleTask{UUID: id, State: workflow.TaskWaitingForRetry, Namespace: "shop", Name: "order", Reason: "waiting_for_retry",
			MinutesInState: 45, MinutesOld: 60, ThresholdMinutes: 30}
	}
	return list
}

func TestStalenessActions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		actions     staleActions
		done, would string
	}{
		{staleActions{toError: true, deadLetters: true}, "transitioned_to_dlq_and_error", "would_transition_to_dlq_and_error"},
		{staleActions{deadLetters: true}, "moved_to_dlq_only", "would_move_to_dlq_only"},
		{staleActions{toError: true}, "transitioned_to_error_only", "would_transition_to_error_only"},
		{staleActions{}, "detected_only", "detected_only"},
	} {
		f := &fake{stale: staleTasks(25), endStale: func(stale []store.StaleTask) (int, error) { return len(stale) - 1, nil }}
		r, metrics := f.runner(t, func(c *sweep.Config) {
			c.Settings.DLQ.StalenessDetection.BatchSize = 10
			act(c, tt.actions)
		})
		got := run(t, r, "staleness", true)
		require.Equal(t, map[string]int{tt.would: 25}, got.Items)
		require.Equal(t, sweep.Finding{Subject: f.stale[0].UUID.String(), Action: tt.would,
			Detail: "shop/order, waiting_for_retry for 45 min, 60 min old; waiting_for_retry is limited to 30 min"}, got.Findings[0])
		require.Empty(t, f.endedStale)
		require.Equal(t, store.StaleThresholds{WaitingForDependencies: time.Hour, WaitingForRetry: 30 * time.Minute,
			StepsInProcess: 30 * time.Minute, MaxLifetime: 24 * time.Hour, Checkpoint: 15 * time.Minute}, f.thresholds)

		got = run(t, r, "staleness", false)
		require.Equal(t, tt.done, got.Findings[0].Action)
		if tt.actions == (staleActions{}) {
			require.Equal(t, map[string]int{tt.done: 25}, got.Items)
			require.Empty(t, f.endedStale)
		} else {
			require.Equal(t, map[string]int{tt.done: 22, "skipped": 3}, got.Items)
			require.Len(t, f.endedStale, 3)
			require.Equal(t, tt.actions, f.actions)
		}
		require.InDelta(t, 50, testutil.ToFloat64(metrics.StalenessDetected), 0)
		require.InDelta(t, 2, testutil.ToFloat64(metrics.StalenessRuns), 0)
		toError := 0.0
		if tt.actions.toError {
			toError = 22
		}
		require.InDelta(t, toError, testutil.ToFloat64(metrics.StalenessToError), 0)
		require.Equal(t, 1, testutil.CollectAndCount(metrics.StalenessDuration))
	}
}

// The next run continues where the last one stopped.
func TestStalenessGoesOnWhereItEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{stale: staleTasks(5), endStale: func(stale []store.StaleTask) (int, error) {
			time.Sleep(30 * time.Second)
			return len(stale), errors.New("they cannot be ended")
		}}
		r, _ := f.runner(t, func(c *sweep.Config) {
			c.Settings.DLQ.StalenessDetection.BatchSize = 1
			act(c, staleActions{toError: true})
		})
		for range 3 {
			got, err := r.RunNow(t.Context(), "staleness", false)
			require.ErrorContains(t, err, "they cannot be ended")
			require.Equal(t, len(f.endedStale) < 5, got.More)
			require.Equal(t, 5, run(t, r, "staleness", true).Items["would_transition_to_error_only"], "a dry run sees all and moves nothing")
		}
		seen := map[uuid.UUID]bool{}
		for _, batch := range f.endedStale {
			seen[batch[0].UUID] = true
		}
		require.Len(t, seen, 5)
	})
}

func TestStalenessWatchesTheDeadLetterQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{stats: []store.DeadLetterStats{{Pending: 2}, {Pending: 3}}}
		r, metrics := f.runner(t)
		start(t, r)
		time.Sleep(10 * time.Second)
		stop(t, r)
		require.InDelta(t, 5, testutil.ToFloat64(metrics.DLQPending), 0)
	})
}

// TestStalledStepsAreOnlyShown: they are not changed.
func TestStalledStepsAreOnlyShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent := store.StalledStep{TaskUUID: uuid.New(), Namespace: "ns", Name: "import", StepName: "load", Items: 500, MinutesSince: 20, SecondsSince: 1200}
		f := &fake{stalled: []store.StalledStep{silent, {SecondsSince: 600}}}
		r, metrics := f.runner(t, func(c *sweep.Config) {
			act(c, staleActions{toError: true, deadLetters: true})
		})
		got := run(t, r, "staleness", false)
		require.Equal(t, map[string]int{"checkpoint_stalled": 1}, got.Items)
		require.Equal(t, []sweep.Finding{{Subject: silent.TaskUUID.String(), Action: "checkpoint_stalled",
			Detail: "ns/import, step load: no checkpoint for 20 min, after 500 items"}}, got.Findings)
		require.Empty(t, f.endedStale)
		start(t, r)
		time.Sleep(10 * time.Second)
		stop(t, r)
		require.InDelta(t, 1, testutil.ToFloat64(metrics.CheckpointsStalled), 0)
	})
}

func TestRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		f := &fake{retain: func(limits store.RetentionLimits, dry bool) (store.Retained, error) {
			require.Equal(t, store.RetentionLimits{TTL: time.Hour, Batch: 500}, limits)
			calls++
			if dry {
				return store.Retained{Days: []string{"20260101"}, Tasks: 7, More: true}, nil
			}
			return store.Retained{Tasks: 500, Workers: 1, Identities: 2, DeadLetters: 3, Actions: 1, Busy: 1, More: calls < 4}, nil
		}}
		r, metrics := f.runner(t, func(c *sweep.Config) { c.Settings.Retention.TTL = time.Hour })
		got := run(t, r, "retention", true)
		require.Equal(t, 1, calls)
		require.True(t, got.More)
		require.Equal(t, map[string]int{"would_drop_days": 1, "would_delete_tasks": 7}, got.Items)
		require.Zero(t, testutil.ToFloat64(metrics.TasksCleaned))

		got = run(t, r, "retention", false)
		require.Equal(t, map[string]int{"deleted_tasks": 1500, "deleted_daemons": 3, "deleted_identities": 6,
			"deleted_dead_letters": 9, "deleted_operator_actions": 3, "busy_days": 3}, got.Items)
		require.False(t, got.More)
		require.InDelta(t, 1500, testutil.ToFloat64(metrics.TasksCleaned), 0)
		require.InDelta(t, 3, testutil.ToFloat64(metrics.WorkersCleaned), 0)

		f.retain = func(store.RetentionLimits, bool) (store.Retained, error) {
			time.Sleep(time.Second)
			return store.Retained{Tasks: 1, More: true}, nil
		}
		got = run(t, r, "retention", false)
		require.True(t, got.More)
		require.Equal(t, 150, got.Items["deleted_tasks"], "half of the lease")

		f.retain = func(store.RetentionLimits, bool) (store.Retained, error) { return store.Retained{}, nil }
		f.idle = 3
		require.Equal(t, map[string]int{"would_delete_limit_keys": 1}, run(t, r, "retention", true).Items)
		require.Equal(t, map[string]int{"deleted_limit_keys": 3}, run(t, r, "retention", false).Items)
		f.busy = 2
		got, err := r.RunNow(t.Context(), "retention", false)
		require.ErrorContains(t, err, "its callable is busy")
		require.Equal(t, map[string]int{"deleted_limit_keys": 2}, got.Items, "it goes on behind those that are busy")

		f.busy, f.retain = 0, func(store.RetentionLimits, bool) (store.Retained, error) {
			return store.Retained{Tasks: 1}, errors.New("a view uses the day")
		}
		got, err = r.RunNow(t.Context(), "retention", false)
		require.ErrorContains(t, err, "a view uses the day")
		require.Equal(t, 3, got.Items["deleted_limit_keys"], "a day that stays holds up no keys")
	})
}

func TestSignals(t *testing.T) {
	t.Parallel()
	f := &fake{signals: []signal.Signal{{Topic: signal.TopicOrchestration}, {Topic: signal.WorkerTopic("shop")}}}
	r, _ := f.runner(t)
	require.Equal(t, map[string]int{"would_signal": 2}, run(t, r, "signals", true).Items)
	require.Empty(t, f.published)
	require.Equal(t, map[string]int{"signalled": 2}, run(t, r, "signals", false).Items)
	require.Equal(t, f.signals, f.published)
	f.signals, f.limits, f.unmarked = nil, 2, 3
	require.Empty(t, run(t, r, "signals", true).Items)
	require.Equal(t, map[string]int{"removed_limits": 2, "marked_keys": 3}, run(t, r, "signals", false).Items)
	f.limits, f.stuck = 2, errors.New("a limit that cannot be removed")
	got, err := r.RunNow(t.Context(), "signals", false)
	require.ErrorIs(t, err, f.stuck)
	require.Equal(t, map[string]int{"removed_limits": 2, "marked_keys": 3}, got.Items)
}

// It goes on while batches are full, and sends the signals of each.
func TestAgeing(t *testing.T) {
	t.Parallel()
	f := &fake{waiting: 25}
	r, m := f.runner(t, func(c *sweep.Config) {
		c.Settings.Sweeps.Ageing.Bound, c.Settings.Sweeps.Ageing.BatchSize = time.Minute, 10
	})
	require.Contains(t, r.Sweeps(), "ageing")
	require.Equal(t, map[string]int{"would_age_steps": 10}, run(t, r, "ageing", true).Items)
	require.Empty(t, f.published)
	require.Equal(t, map[string]int{"aged_steps": 25}, run(t, r, "ageing", false).Items)
	require.Len(t, f.published, 3)
	require.Equal(t, time.Minute, f.bound)
	require.InDelta(t, 25, testutil.ToFloat64(m.StepsAged.WithLabelValues("shop")), 0)
}

// It goes on where it was, and is counted; without a policy that wants it the sweep is not
// even taken.
func TestPredictionsAreLearned(t *testing.T) {
	t.Parallel()
	f := &fake{predicts: true}
	r, m := f.runner(t, func(*sweep.Config) {})
	require.Empty(t, run(t, r, "predictions", true).Items)
	require.Equal(t, map[string]int{"learned_samples": 1}, run(t, r, "predictions", false).Items)
	require.Equal(t, map[string]int{"learned_samples": 2}, run(t, r, "predictions", false).Items)
	require.InDelta(t, 3, testutil.ToFloat64(m.PredictionSamples), 0)
	require.InDelta(t, 1, testutil.ToFloat64(m.PredictionsDistrusted), 0)
}

func TestDependencies(t *testing.T) {
	t.Parallel()
	due := []signal.Signal{{Topic: signal.TopicDue}}
	f := &fake{stranded: []store.Stranded{{Tasks: ids(2), Signals: due}}}
	r, _ := f.runner(t)
	require.Equal(t, map[string]int{"would_look_at_again": 2}, run(t, r, "dependencies", true).Items)
	require.Equal(t, map[string]int{"looked_at_again": 2}, run(t, r, "dependencies", false).Items)
	require.Empty(t, run(t, r, "dependencies", false).Items)
	require.Contains(t, f.published, due[0])
}

// TestRatesAreAddedUp: all counts in batches, and none by a dry run; what waits is counted as often.
func TestRatesAreAddedUp(t *testing.T) {
	t.Parallel()
	f := &fake{uncounted: 12}
	r, _ := f.runner(t, func(c *sweep.Config) { c.Settings.Sweeps.Rates.BatchSize = 5 })
	require.Empty(t, run(t, r, "rates", true).Items)
	require.Equal(t, map[string]int{"added_up": 12}, run(t, r, "rates", false).Items)
	require.False(t, f.RatesToAddUp())
	run(t, r, "depths", true)
	require.Empty(t, f.depths)
	run(t, r, "depths", false)
	require.Equal(t, []store.CallDepth{{Callable: 7, Waiting: 3, Running: 2, Oldest: time.Second}}, f.depths)
}
