package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/worker"
)

// loadToo loads webOnly with more in the file.
func loadToo(t *testing.T, db *pgtest.DB, more string) *config.Loaded {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tasker.toml")
	require.NoError(t, os.WriteFile(file, []byte(webOnly+more), 0o600))
	loaded, err := config.Load(config.Options{Path: file, WorkerID: "worker-under-test", LookupEnv: func(name string) (string, bool) {
		if name == "DATABASE_URL" {
			return db.DSN, true
		}
		return "", false
	}})
	require.NoError(t, err)
	return loaded
}

func systemsOf(orchestration, readiness, worker string) string {
	return "[orchestration.event_systems.orchestration]\ndeployment_mode = \"" + orchestration + "\"\n" +
		"[orchestration.event_systems.task_readiness]\ndeployment_mode = \"" + readiness + "\"\n" +
		"[worker.event_systems.worker]\ndeployment_mode = \"" + worker + "\"\n"
}

// TestEachEventSystemFollowsItsOwnMode: those of one daemon may have different modes.
func TestEachEventSystemFollowsItsOwnMode(t *testing.T) {
	t.Parallel()
	db := enginetest.Migrated(t)
	loaded := loadToo(t, db, systemsOf("Hybrid", "PollingOnly", "Hybrid"))
	o, err := newOrchestrator(t.Context(), loaded, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, o.Start(t.Context()))
	defer func() { require.NoError(t, o.Stop(context.Background())) }()
	w, err := newWorker(t.Context(), loaded, func(*worker.Worker) error { return nil }, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, w.Start(t.Context()))
	defer func() { require.NoError(t, w.Stop(context.Background())) }()

	reload := func(more string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		next := loadToo(t, db, more)
		require.NoError(t, o.reload(ctx, next))
		require.NoError(t, w.reload(ctx, next))
	}
	requireModes := func(orchestration, readiness, worker deploymode.Mode) {
		t.Helper()
		systems := o.engine.Health()
		require.Equal(t, []deploymode.Mode{orchestration, readiness, worker},
			[]deploymode.Mode{systems["orchestration"].Mode, systems["task_readiness"].Mode, w.worker.Mode()})
	}
	requireModes("Hybrid", "PollingOnly", "Hybrid")
	reload(systemsOf("Hybrid", "PollingOnly", "Hybrid"))
	requireModes("Hybrid", "PollingOnly", "Hybrid")
	reload(systemsOf("EventDrivenOnly", "PollingOnly", "Hybrid"))
	requireModes("EventDrivenOnly", "PollingOnly", "Hybrid")
	reload(systemsOf("EventDrivenOnly", "Hybrid", "PollingOnly"))
	requireModes("EventDrivenOnly", "Hybrid", "PollingOnly")
}

// TestPollIntervalsFollow: they come from the file.
func TestPollIntervalsFollow(t *testing.T) {
	t.Parallel()
	db := enginetest.Migrated(t)
	next := loadToo(t, db, `
[orchestration.event_systems.task_readiness.poller]
interval_ms = 250
[orchestration.event_systems.orchestration.timing]
fallback_polling_interval_seconds = 7
`)
	for _, c := range loadFor(t, db).Changes(next) {
		require.True(t, c.Reloadable, c.Key)
	}
	systems := next.Orchestration.EventSystems
	require.Equal(t, 7*time.Second, systemSettings(systems.Orchestration).RelaxedPollInterval)
	require.Equal(t, coordinator.Settings{Mode: deploymode.Hybrid, PollInterval: 250 * time.Millisecond,
		RelaxedPollInterval: systems.TaskReadiness.Poller.RelaxedInterval}, systemSettings(systems.TaskReadiness))
}

// TestBackPressureFollowsTheThresholds: its tiers are shares of the threshold up to which steps
// are counted. Of a smaller one alone no queue would ever be full.
func TestBackPressureFollowsTheThresholds(t *testing.T) {
	t.Parallel()
	db := enginetest.Migrated(t)
	const refusing = "[orchestration.backpressure]\nrefuse_tasks = true\n"
	o, err := newOrchestrator(t.Context(), loadToo(t, db, refusing), nil, zap.NewNop())
	require.NoError(t, err)
	o.depth.count = func(_ context.Context, limit int) (map[string]int, error) {
		return map[string]int{"shop": min(600, limit)}, nil
	}
	require.NoError(t, o.Start(t.Context()))
	defer func() { require.NoError(t, o.Stop(context.Background())) }()
	refuses := func() bool {
		_, ok := o.admission.AdmitTask("shop")
		return !ok
	}
	require.False(t, refuses())
	for _, overflow := range []int{500, 5000} {
		require.NoError(t, o.reload(t.Context(), loadToo(t, db, refusing+
			fmt.Sprintf("[common.queues.pgmq.queue_depth_thresholds]\ncritical_threshold = 400\noverflow_threshold = %d\n", overflow))))
		pgtest.Eventually(t, 30*time.Second, func() (bool, string) { return refuses() == (overflow == 500), fmt.Sprint(overflow) })
	}
}
