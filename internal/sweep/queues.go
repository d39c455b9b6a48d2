package sweep

import (
	"context"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/plainqueue"
)

var (
	queueWorkerDied = action{"died", "would_note_death"}
	deleteTasks     = action{"deleted_tasks", "would_delete_tasks"}
	deleteWorkers   = action{"deleted_workers", "would_delete_workers"}
)

// queueDeaths counts the workers of queues that died, each once. Nothing waits for it: the
// leases of a worker's claims end with it.
func queueDeaths(cfg *Config) Job {
	begin := func(dry bool) look {
		return func(ctx context.Context, res *Result) (more bool, err error) {
			found, err := cfg.Store.NoteQueueDeaths(ctx, cfg.Settings.Taskmaster.Retention.BatchSize, dry)
			if err != nil {
				return false, err
			}
			res.count(queueWorkerDied.name(dry), len(found.Died))
			for _, id := range found.Died {
				res.show(plainqueue.ShownWorker(id), queueWorkerDied.name(dry), "")
			}
			if !dry {
				cfg.Metrics.QueueWorkersDied.Add(float64(len(found.Died)))
			}
			return found.More, nil
		}
	}
	return Job{Name: "queue_workers", Interval: cfg.Settings.Taskmaster.Reaper.Interval, Lease: livenessLease, Run: inBatches(livenessLease, false, begin)}
}

// queueRetention deletes ended tasks of queues and dead workers of them.
func queueRetention(cfg *Config) Job {
	r := cfg.Settings.Taskmaster.Retention
	begin := func(dry bool) look {
		var after uuid.UUID
		return func(ctx context.Context, res *Result) (more bool, err error) {
			gone, err := cfg.Store.RetainQueues(ctx, r.TTL, after, r.BatchSize, dry)
			if err != nil {
				return false, err
			}
			after = gone.Next
			res.count(deleteTasks.name(dry), gone.Tasks)
			res.count(deleteWorkers.name(dry), gone.Workers)
			if !dry {
				cfg.Metrics.QueueCleaned.Add(float64(gone.Tasks))
				cfg.Metrics.QueueWorkersGone.Add(float64(gone.Workers))
			}
			return gone.More || !dry && gone.Workers >= r.BatchSize, nil
		}
	}
	return Job{Name: "queue_retention", Interval: r.Interval, Lease: retentionLease, Run: inBatches(retentionLease, true, begin)}
}
