package daemon

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/worker"
)

func TestShownAddress(t *testing.T) {
	t.Parallel()
	for bound, want := range map[string]string{
		"127.0.0.1:8080": "127.0.0.1:8080",
		"10.0.0.7:1":     "10.0.0.7:1",
		"[::1]:8080":     "[::1]:8080",
		"0.0.0.0:41837":  "pod-a:41837",
		"[::]:8081":      "pod-a:8081",
		":8081":          "pod-a:8081",
	} {
		addr, err := net.ResolveTCPAddr("tcp", bound)
		require.NoError(t, err)
		require.Equal(t, want, shownAddress(addr, "pod-a"), bound)
	}
	require.Equal(t, "0.0.0.0:8080", shownAddress(&net.TCPAddr{IP: net.IPv4zero, Port: 8080}, ""), "a host without a name")
}

// TestAPortInUseNamesItsKey: a daemon whose port another process has ends before it has begun
// to claim, and the error names the key to change.
func TestAPortInUseNamesItsKey(t *testing.T) {
	t.Parallel()
	db := enginetest.Migrated(t)
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, taken.Close()) })
	for key, change := range map[string]func(*config.Loaded) (of *string){
		"orchestration.web.bind_address":  func(l *config.Loaded) *string { return &l.Orchestration.Web.BindAddress },
		"orchestration.grpc.bind_address": func(l *config.Loaded) *string { return &l.Orchestration.GRPC.BindAddress },
		"worker.web.bind_address":         func(l *config.Loaded) *string { return &l.Worker.Web.BindAddress },
		"worker.grpc.bind_address":        func(l *config.Loaded) *string { return &l.Worker.GRPC.BindAddress },
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			loaded := loadToo(t, db, "")
			loaded.Orchestration.GRPC.Enabled, loaded.Worker.GRPC.Enabled = true, true
			for _, address := range []*string{&loaded.Orchestration.Web.BindAddress, &loaded.Worker.Web.BindAddress,
				&loaded.Orchestration.GRPC.BindAddress, &loaded.Worker.GRPC.BindAddress} {
				*address = "127.0.0.1:0"
			}
			*change(loaded) = taken.Addr().String()
			refused := startOne(t, loaded, strings.HasPrefix(key, "worker"))
			require.ErrorContains(t, refused, "open "+key+": listen on "+taken.Addr().String()+": another process uses this address")
		})
	}
}

// startOne starts a worker daemon, or an orchestrator.
func startOne(t *testing.T, loaded *config.Loaded, ofWorker bool) error {
	t.Helper()
	if !ofWorker {
		d, err := newOrchestrator(t.Context(), loaded, nil, zap.NewNop())
		require.NoError(t, err)
		return d.Start(t.Context())
	}
	d, err := newWorker(t.Context(), loaded, func(*worker.Worker) error { return nil }, nil, zap.NewNop())
	require.NoError(t, err)
	return d.Start(t.Context())
}

// TestTheFleetShowsWhereDaemonsListen: with the port that was bound, and long before
// the next regular heartbeat.
func TestTheFleetShowsWhereDaemonsListen(t *testing.T) {
	t.Parallel()
	db := enginetest.Migrated(t)
	loaded := loadToo(t, db, "")
	loaded.Worker.Web.BindAddress, loaded.Worker.Web.Auth.AllowAnonymous = ":0", true
	loaded.Orchestration.HeartbeatInterval, loaded.Worker.HeartbeatInterval = time.Hour, time.Hour
	loaded.Worker.Lease = 6 * time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o, err := newOrchestrator(ctx, loaded, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, o.Start(ctx))
	defer func() { require.NoError(t, o.Stop(context.Background())) }()
	w, err := newWorker(ctx, loaded, func(*worker.Worker) error { return nil }, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, w.Start(ctx))
	defer func() { require.NoError(t, w.Stop(context.Background())) }()
	host, err := os.Hostname()
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(w.Addr().String())
	require.NoError(t, err)
	want := map[string]string{"orchestrator": o.Addr().String(), "worker": net.JoinHostPort(host, port)}

	api := client.New(client.Config{BaseURL: "http://" + o.Addr().String()})
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		fleet, err := api.Fleet(ctx)
		require.NoError(t, err)
		got := map[string]string{}
		for _, r := range fleet.Replicas {
			got[r.Kind] = r.Address
		}
		return got["orchestrator"] == want["orchestrator"] && got["worker"] == want["worker"], "the fleet shows other addresses"
	})
	workers, err := api.Workers(ctx, client.WorkerListOptions{})
	require.NoError(t, err)
	require.Len(t, workers, 1)
	require.Equal(t, want["worker"], workers[0].Address)
}
