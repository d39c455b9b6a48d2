package daemon

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow/template"
)

// TestASlowReadinessLookHoldsUpNoResults: the two event systems of an orchestrator share
// a command processor, and a hanging look of one must not keep the other from applying
// results.
func TestASlowReadinessLookHoldsUpNoResults(t *testing.T) {
	t.Parallel()
	db := enginetest.Migrated(t)
	loaded := loadToo(t, db, `
[common.database]
statement_timeout_ms = 120000
[orchestration.event_systems.task_readiness]
deployment_mode = "PollingOnly"
[orchestration.event_systems.task_readiness.poller]
interval_ms = 100
`)
	o, err := newOrchestrator(t.Context(), loaded, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, o.Start(t.Context()))
	defer func() { require.NoError(t, o.Stop(context.Background())) }()
	w, err := newWorker(t.Context(), loaded, func(w *worker.Worker) error {
		template, _, err := template.Parse("a.yaml",
			[]byte("name: a\nnamespace_name: none\nversion: 1.0.0\nsteps:\n  - {name: s, handler: {callable: s}}\n"))
		require.NoError(t, err)
		require.NoError(t, w.RegisterTemplate(template))
		return w.Register("s", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil }))
	}, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, w.Start(t.Context()))
	defer func() { require.NoError(t, w.Stop(context.Background())) }()

	// A look at due work reads the schedules, applying results does not.
	tx, err := db.Pool(t).Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
	_, err = tx.Exec(t.Context(), `lock table tasker.schedules in access exclusive mode`)
	require.NoError(t, err)
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		n := db.QueryInt(t, `select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()
			and application_name = 'tasker-orchestrator' and query not like '%tasker.processors%'`) // which is the heartbeat
		return n > 0, fmt.Sprintf("%d looks wait for the lock", n)
	})
	r := request(t, http.MethodPost, "http://"+o.Addr().String()+"/v1/tasks?wait=25s",
		`{"name":"a","namespace":"none","version":"1.0.0","context":{},"initiator":"i","source_system":"s","reason":"r"}`)
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Contains(t, r.body, `"status":"complete"`)
}
