package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/worker"
)

const webOnly = `
[orchestration.web]
bind_address = "127.0.0.1:0"
[orchestration.grpc]
enabled = false
[worker]
namespaces = ["none"]
[worker.web]
bind_address = "127.0.0.1:0"
[worker.grpc]
enabled = false
`

func loadFor(t *testing.T, db *pgtest.DB) *config.Loaded {
	t.Helper()
	return loadToo(t, db, "")
}

func ask(t *testing.T, url string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(text)
}

// broken is a loop that dies whenever it runs.
func broken(s *shared) *lifecycle.Loop {
	return lifecycle.NewLoop(lifecycle.LoopConfig{Name: "broken", RestartBase: time.Hour, OnRestart: s.metrics.Restarted,
		Run: func(context.Context) error { panic("again") }})
}

func TestADeadLoopTurnsADaemonUnready(t *testing.T) {
	t.Parallel()
	loaded := loadFor(t, enginetest.Migrated(t))
	o, err := newOrchestrator(t.Context(), loaded, nil, zap.NewNop())
	require.NoError(t, err)
	o.counting = broken(o.shared)
	o.services[0] = o.counting
	require.NoError(t, o.Start(t.Context()))
	defer func() { require.NoError(t, o.Stop(context.Background())) }()
	w, err := newWorker(t.Context(), loaded, func(*worker.Worker) error { return nil }, nil, zap.NewNop())
	require.NoError(t, err)
	w.counting = broken(w.shared)
	w.services[0] = w.counting
	require.NoError(t, w.Start(t.Context()))
	defer func() { require.NoError(t, w.Stop(context.Background())) }()

	_, err = o.store.Execer().Exec(t.Context(), `insert into tasker.namespaces (name) values ('none')`)
	require.NoError(t, err)
	for name, d := range map[string]*shared{"orchestrator": o.shared, "worker": w.shared} {
		url := "http://" + d.Addr().String()
		pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
			status, body := ask(t, url+"/health/ready")
			return status == http.StatusServiceUnavailable && strings.Contains(body, "loop broken is not running"), name + ": " + body
		})
		status, body := ask(t, url+"/health/live")
		require.Equal(t, http.StatusOK, status, "it is being restarted: %s", body)
		pgtest.Eventually(t, 30*time.Second, func() (bool, string) { // counted after its state has changed
			n := testutil.ToFloat64(d.metrics.LoopRestarts.WithLabelValues("broken"))
			return n == 1, fmt.Sprint(name, ": ", n, " restarts are counted")
		})
		_, body = ask(t, url+"/health/detailed")
		require.Contains(t, body, "broken")
	}
	names := func(parts []part) (list []string) {
		for _, p := range parts {
			require.NotEmpty(t, p.Fields)
			list = append(list, p.Name)
		}
		return list
	}
	require.Subset(t, names(o.status()), []string{"orchestrator", "pool", "signal sender", "event system orchestration",
		"event system task_readiness", "loop broken", "loop partitions", "loop task-waiters"})
	require.Subset(t, names(w.status()), []string{"worker", "pool", "signal sender", "event system worker", "loop broken"})
}

// Both daemons have circuit breakers, list them and show them in their health.
func TestBothDaemonsShowTheirBreakers(t *testing.T) {
	t.Parallel()
	loaded := loadFor(t, enginetest.Migrated(t))
	o, err := newOrchestrator(t.Context(), loaded, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, o.Start(t.Context()))
	defer func() { require.NoError(t, o.Stop(context.Background())) }()
	w, err := newWorker(t.Context(), loaded, func(*worker.Worker) error { return nil }, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, w.Start(t.Context()))
	defer func() { require.NoError(t, w.Stop(context.Background())) }()
	for url, one := range map[string]string{"http://" + o.Addr().String(): "web", "http://" + w.Addr().String(): "report"} {
		status, body := ask(t, url+"/v1/admin/breakers")
		require.Equal(t, http.StatusOK, status, body)
		require.Contains(t, body, `"name":"`+one+`"`)
		_, body = ask(t, url+"/health/detailed")
		require.NotContains(t, body, "no such circuit breaker")
	}
	pgtest.Eventually(t, patience, func() (bool, string) {
		status, body := ask(t, "http://"+o.Addr().String()+"/health/ready")
		return status == http.StatusOK && strings.Contains(body, `"circuit_breaker_state":"Closed"`), body
	})
}

// A connection that is not released must not keep the process alive.
func TestStoppingDoesNotWaitForConnections(t *testing.T) {
	t.Parallel()
	o, err := newOrchestrator(t.Context(), loadFor(t, enginetest.Migrated(t)), nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, o.Start(t.Context()))
	held, err := o.store.Execer().Acquire(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	require.ErrorContains(t, o.Stop(ctx), "1 connections are in use")
	held.Release()
}

// stubborn is a system that changes to no mode but its own.
type stubborn struct{ mode deploymode.Mode }

func (s *stubborn) Mode() deploymode.Mode { return s.mode }

func (s *stubborn) SetMode(_ context.Context, mode deploymode.Mode) error {
	if mode != s.mode {
		return errors.New("no")
	}
	return nil
}

// pliant is a system that changes to every mode while its context lives.
type pliant struct{ stubborn }

func (p *pliant) SetMode(ctx context.Context, mode deploymode.Mode) error {
	p.mode = mode
	return ctx.Err()
}

// TestAModeIsChangedForAllSystemsOrNone: also where the request for it has ended by then.
func TestAModeIsChangedForAllSystemsOrNone(t *testing.T) {
	one, two := &pliant{stubborn{deploymode.Hybrid}}, &pliant{stubborn{deploymode.PollingOnly}}
	require.NoError(t, setModes(t.Context(), deploymode.EventDrivenOnly, []moded{one, two}))
	require.Equal(t, []deploymode.Mode{deploymode.EventDrivenOnly, deploymode.EventDrivenOnly}, []deploymode.Mode{one.mode, two.mode})
	one.mode = deploymode.Hybrid
	require.EqualError(t, setModes(t.Context(), deploymode.PollingOnly, []moded{one, two, &stubborn{deploymode.Disabled}}), "no")
	require.Equal(t, []deploymode.Mode{deploymode.Hybrid, deploymode.EventDrivenOnly}, []deploymode.Mode{one.mode, two.mode})
}
