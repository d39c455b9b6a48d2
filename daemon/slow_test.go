package daemon

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// TestSlowCreationsDoNotOpenTheBreaker: creations that time out while the database
// answers everything else say nothing about the database.
func TestSlowCreationsDoNotOpenTheBreaker(t *testing.T) {
	t.Parallel()
	db := enginetest.Migrated(t)
	o, err := newOrchestrator(t.Context(), loadToo(t, db, `
[common.database]
statement_timeout_ms = 1500
[common.circuit_breakers.component_configs.web]
failure_threshold = 2
[orchestration.event_systems.orchestration]
deployment_mode = "PollingOnly"
[orchestration.event_systems.orchestration.poller]
interval_ms = 100
`), nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, o.Start(t.Context()))
	defer func() { require.NoError(t, o.Stop(context.Background())) }()
	template, _, err := template.Parse("a.yaml", []byte("name: a\nnamespace_name: b\nversion: 1.0.0\nsteps:\n  - {name: s, handler: {callable: s}}\n"))
	require.NoError(t, err)
	_, err = o.store.RegisterTemplates(t.Context(), store.Registrant{ID: "test"}, []*workflow.Template{template.Resolve("test")})
	require.NoError(t, err)

	// No task can be created while this transaction is open.
	tx, err := db.Pool(t).Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
	_, err = tx.Exec(t.Context(), `lock table tasker.tasks in exclusive mode`)
	require.NoError(t, err)
	base := "http://" + o.Addr().String()
	for i := range 4 {
		body := fmt.Sprintf(`{"name":"a","namespace":"b","version":"1.0.0","context":{"i":%d},"initiator":"i","source_system":"s","reason":"r"}`, i)
		r := request(t, http.MethodPost, base+"/v1/tasks", body)
		require.Equal(t, http.StatusServiceUnavailable, r.status, r.body)
		require.NotEmpty(t, r.retryAfter)
	}
	require.Equal(t, breaker.Closed, o.breakers.Breaker(breaker.Web).State())
	r := request(t, http.MethodGet, base+"/v1/tasks", "")
	require.Equal(t, http.StatusOK, r.status, r.body)
}
