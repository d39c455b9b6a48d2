package daemon

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow/template"
)

func TestShutdownDelay(t *testing.T) {
	t.Parallel()
	public, local := config.GRPC{Enabled: true, BindAddress: ":9190"}, config.GRPC{Enabled: true, BindAddress: "127.0.0.1:9190"}
	for name, c := range map[string]struct {
		web   config.Web
		grpc  config.GRPC
		delay time.Duration
		want  time.Duration
	}{
		"public":            {config.Web{Enabled: true, BindAddress: "0.0.0.0:8080"}, local, -time.Millisecond, 3 * time.Second},
		"all":               {config.Web{Enabled: true, BindAddress: ":8080"}, local, -time.Millisecond, 3 * time.Second},
		"named":             {config.Web{Enabled: true, BindAddress: "pod-1.example:8080"}, local, -time.Millisecond, 3 * time.Second},
		"loopback":          {config.Web{Enabled: true, BindAddress: "127.0.0.1:8080"}, local, -time.Millisecond, 0},
		"loopback, IPv6":    {config.Web{Enabled: true, BindAddress: "[::1]:8080"}, local, -time.Millisecond, 0},
		"localhost":         {config.Web{Enabled: true, BindAddress: "localhost:8080"}, local, -time.Millisecond, 0},
		"explicit":          {config.Web{Enabled: true, BindAddress: "127.0.0.1:8080"}, local, 250 * time.Millisecond, 250 * time.Millisecond},
		"explicitly none":   {config.Web{Enabled: true, BindAddress: "0.0.0.0:8080"}, local, 0, 0},
		"gRPC is public":    {config.Web{Enabled: true, BindAddress: "127.0.0.1:8080"}, public, -time.Millisecond, 3 * time.Second},
		"only gRPC":         {config.Web{}, local, 250 * time.Millisecond, 250 * time.Millisecond},
		"nothing is served": {config.Web{BindAddress: "0.0.0.0:8080"}, config.GRPC{}, 250 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, shutdownDelay(config.Shutdown{Delay: c.delay}, c.web, c.grpc))
		})
	}
}

// TestADaemonServesOnBeforeItStops: load balancers need a moment to notice that it is not
// ready.
func TestADaemonServesOnBeforeItStops(t *testing.T) {
	t.Parallel()
	o, err := newOrchestrator(t.Context(), loadToo(t, enginetest.Migrated(t), "[common.shutdown]\ndelay_ms = 300000\n"), nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, o.Start(t.Context()))
	base := "http://" + o.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- o.Stop(ctx) }()
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		status, body := ask(t, base+"/health/ready")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "draining"), body
	})
	status, body := ask(t, base+"/v1/tasks")
	require.Equal(t, http.StatusOK, status, body)
	status, body = ask(t, base+"/health/live")
	require.Equal(t, http.StatusOK, status, body)
	require.Empty(t, stopped)
	cancel() // the stop time is over
	<-stopped
}

// TestProbesAnswerUntilTheEnd: while a worker waits for its handlers it is live, not
// ready, and reports its status; and the fleet sees it drain.
func TestProbesAnswerUntilTheEnd(t *testing.T) {
	t.Parallel()
	loaded := loadToo(t, enginetest.Migrated(t), "")
	o, err := newOrchestrator(t.Context(), loaded, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, o.Start(t.Context()))
	defer func() { require.NoError(t, o.Stop(context.Background())) }()
	running, release := make(chan struct{}), make(chan struct{})
	w, err := newWorker(t.Context(), loaded, func(w *worker.Worker) error {
		template, _, err := template.Parse("hold.yaml",
			[]byte("name: hold\nnamespace_name: none\nversion: 1.0.0\nsteps:\n  - {name: s, handler: {callable: hold}}\n"))
		require.NoError(t, err)
		require.NoError(t, w.RegisterTemplate(template))
		return w.Register("hold", worker.HandlerFunc(func(*worker.StepContext) (any, error) {
			close(running)
			<-release
			return 1, nil
		}))
	}, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, w.Start(t.Context()))
	orchestrator, base := "http://"+o.Addr().String(), "http://"+w.Addr().String()
	r := request(t, http.MethodPost, orchestrator+"/v1/tasks",
		`{"name":"hold","namespace":"none","version":"1.0.0","context":{},"initiator":"i","source_system":"s","reason":"r"}`)
	require.Equal(t, http.StatusOK, r.status, r.body)
	await(t, running)

	stopped := make(chan error, 1)
	go func() { stopped <- w.Stop(context.Background()) }()
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		_, body := ask(t, orchestrator+"/v1/workers")
		return strings.Contains(body, `"draining":true`), body
	})
	status, body := ask(t, base+"/health/ready")
	require.Equal(t, http.StatusServiceUnavailable, status, body)
	for _, probe := range []string{"/health", "/health/live", "/health/detailed", "/metrics"} {
		status, body := ask(t, base+probe)
		require.Equal(t, http.StatusOK, status, "%s: %s", probe, body)
	}
	status, body = ask(t, base+"/v1/admin/deployment-mode")
	require.Equal(t, http.StatusServiceUnavailable, status, body)
	close(release)
	require.NoError(t, await(t, stopped))
	_, body = ask(t, orchestrator+"/v1/workers")
	require.NotContains(t, body, `"draining":true`, "it has stopped")
}
