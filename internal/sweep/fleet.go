package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/store"
)

// The longest runs of the sweeps of daemons, signals and expired rows.
const (
	livenessLease  = 30 * time.Second
	signalsLease   = 30 * time.Second
	ageingLease    = time.Minute
	learningLease  = 30 * time.Second
	retentionLease = 5 * time.Minute
)

// The actions on workers and their claims, and on work without a signal.
var (
	markStale   = action{"marked_stale", "would_mark_stale"}
	markActive  = action{"marked_active", "would_mark_active"}
	markDead    = action{"marked_dead", "would_mark_dead"}
	releaseStep = action{"released_steps", "would_release_steps"}
	signalAgain = action{"signalled", "would_signal"}
	ageStep     = action{"aged_steps", "would_age_steps"}
)

// liveness finds workers without heartbeats. The claims of a dead one are released at once,
// and it must register anew if it comes back.
func liveness(cfg *Config) Job {
	l := cfg.Settings.Sweeps.Liveness
	limits := store.LivenessLimits{Stale: l.StaleAfter, Dead: max(l.DeadAfter, l.StaleAfter), Batch: l.BatchSize}
	begin := func(dry bool) look {
		return func(ctx context.Context, res *Result) (more bool, err error) {
			found, err := cfg.Store.SweepLiveness(ctx, limits, dry)
			if !dry { // they have died, whatever failed behind that
				cfg.Metrics.WorkersDied.Add(float64(len(found.Dead)))
			}
			if err != nil {
				return false, err
			}
			for _, g := range []struct {
				action  action
				workers []store.WorkerRef
			}{{markStale, found.Stale}, {markActive, found.Recovered}, {markDead, found.Dead}} {
				res.count(g.action.name(dry), len(g.workers))
				for _, w := range g.workers {
					res.show(w.UUID.String(), g.action.name(dry),
						fmt.Sprintf("%s on %s, silent for %s", w.ID, w.Hostname, w.HeartbeatAge.Round(time.Second)))
				}
			}
			res.count(releaseStep.name(dry), found.Released)
			if !dry {
				cfg.publish(found.Signals)
			}
			return found.More, nil
		}
	}
	return Job{Name: "liveness", Interval: l.Interval, Lease: livenessLease, Run: inBatches(livenessLease, false, begin)}
}

// signals sends the signals of work that waits although nothing blocks it: the process that
// enqueued it may have died before it sent them. It is one statement, with at most one signal
// per topic. It also goes on with removals of limits whose process has died, and marks keys of
// limits in whose lines steps wait although nothing says so.
func signals(cfg *Config) Job {
	s := cfg.Settings.Sweeps.Signals
	begin := func(dry bool) look {
		line := int32(0) // the last one that was looked at
		return func(ctx context.Context, res *Result) (more bool, err error) {
			overdue, err := cfg.Store.OverdueSignals(ctx, s.Overdue)
			if err != nil {
				return false, err
			}
			res.count(signalAgain.name(dry), len(overdue))
			for _, o := range overdue {
				res.show(string(o.Topic), signalAgain.name(dry), "")
			}
			if !dry && len(overdue) > 0 {
				cfg.Publisher.Publish(overdue...) // with every event source: no transaction carries them
			}
			if dry {
				return false, nil
			}
			finished, changed, more, err := cfg.Store.FinishLimits(ctx)
			res.count(removedLimits, finished)
			cfg.publish(changed)
			if final(ctx, err) {
				return false, err
			}
			marked, next, waiting, failure := cfg.Store.MarkWaiting(ctx, line)
			res.count(markedKeys, marked)
			cfg.publish(waiting)
			line = next
			return more || line != 0, errors.Join(err, failure)
		}
	}
	return Job{Name: "signals", Interval: s.Interval, Lease: signalsLease, Run: inBatches(signalsLease, false, begin)}
}

// ageing brings forward steps that have waited for longer than the bound behind others. Its
// interval is a tenth of the bound, from a second to a minute.
func ageing(cfg *Config) Job {
	a := cfg.Settings.Sweeps.Ageing
	begin := func(dry bool) look {
		return func(ctx context.Context, res *Result) (more bool, err error) {
			found, err := cfg.Store.Age(ctx, a.Bound, a.BatchSize, dry)
			if err != nil {
				return false, err
			}
			cfg.publish(found.Signals)
			for namespace, steps := range found.Steps {
				res.count(ageStep.name(dry), steps)
				if !dry {
					cfg.Metrics.StepsAged.WithLabelValues(cfg.Metrics.Named("namespace", namespace)).Add(float64(steps))
				}
			}
			return found.More, nil
		}
	}
	return Job{Name: "ageing", Interval: min(max(a.Bound/10, time.Second), time.Minute), Lease: ageingLease, Run: inBatches(ageingLease, false, begin)}
}

// predictions learns the times of handlers from what workers tell, while a policy orders by
// them. A replica that takes over learns from the last samples once more.
func predictions(cfg *Config) Job {
	seen := map[uuid.UUID]int64{}
	run := func(ctx context.Context, dry bool) (res Result, err error) {
		if dry {
			return res, nil
		}
		found, err := cfg.Store.Learn(ctx, cfg.Settings.Sweeps.Liveness.StaleAfter, seen)
		if err == nil {
			res.count("learned_samples", found.Samples)
			cfg.Metrics.PredictionSamples.Add(float64(found.Samples))
			cfg.Metrics.PredictionsDistrusted.Set(float64(found.Distrusted))
			cfg.Metrics.PredictorDistrusted.Set(float64(found.Outside))
		}
		return res, err
	}
	return Job{Name: "predictions", Interval: cfg.Settings.Sweeps.Predictions.Interval, Lease: learningLease, Run: run, Wanted: cfg.Store.Predicts}
}

// The actions on expired partitions, and on keys of limits.
var (
	dropDay      = action{"dropped_days", "would_drop_days"}
	dropEventDay = action{"dropped_event_days", "would_drop_event_days"}
	forgetKeys   = action{"deleted_limit_keys", "would_delete_limit_keys"}
)

// removedLimits counts limits whose interrupted removal the sweep has ended, and markedKeys keys of
// limits whose steps it has let be claimed.
const (
	removedLimits = "removed_limits"
	markedKeys    = "marked_keys"
)

// busyDays counts days that could not be dropped because they were in use.
const busyDays = "busy_days"

// retention deletes expired rows, and idle keys of limits.
func retention(cfg *Config) Job {
	r := cfg.Settings.Retention
	limits := store.RetentionLimits{TTL: max(r.TTL, 0), DeadLetterTTL: max(r.DeadLetterTTL, 0), EventTTL: max(r.EventTTL, 0),
		MinutesTTL: r.MinutesTTL, HoursTTL: r.HoursTTL, Batch: r.BatchSize}
	looked := int32(0) // the line of the last key; the next run goes on behind it
	begin := func(dry bool) look {
		return func(ctx context.Context, res *Result) (more bool, err error) {
			gone, err := cfg.Store.Retain(ctx, limits, dry)
			countGone(res, &gone, dry)
			if !dry {
				cfg.Metrics.TasksCleaned.Add(float64(gone.Tasks))
				cfg.Metrics.WorkersCleaned.Add(float64(gone.Workers))
			}
			if final(ctx, err) {
				return false, err
			}
			keys, next, failure := cfg.Store.ForgetKeys(ctx, looked, dry)
			res.count(forgetKeys.name(dry), keys)
			if !dry {
				looked = next
			}
			return gone.More || next != 0, errors.Join(err, failure)
		}
	}
	return Job{Name: "retention", Interval: r.Interval, Lease: retentionLease, DryRun: r.DryRun, Run: inBatches(retentionLease, false, begin)}
}

func countGone(res *Result, gone *store.Retained, dry bool) {
	for _, day := range gone.Days {
		res.show(day, dropDay.name(dry), "")
	}
	for _, day := range gone.EventDays {
		res.show(day, dropEventDay.name(dry), "")
	}
	res.count(dropDay.name(dry), len(gone.Days))
	res.count(dropEventDay.name(dry), len(gone.EventDays))
	res.count(busyDays, gone.Busy)
	for what, n := range map[string]int{"events": gone.Events, "tasks": gone.Tasks, "daemons": gone.Workers, "identities": gone.Identities,
		"received_events": gone.Received, "submission_keys": gone.SubmissionKeys, "dead_letters": gone.DeadLetters, "operator_actions": gone.Actions,
		"browser_sessions": gone.Sessions, "attempt_logs": gone.Logs, "rates": gone.Rates} {
		res.count(action{"deleted_" + what, "would_delete_" + what}.name(dry), n)
	}
}
