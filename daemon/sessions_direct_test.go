package daemon

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/remote"
	"github.com/tasker-go/tasker/internal/wire"
	sessionv1 "github.com/tasker-go/tasker/proto/tasker/session/v1"
)

// TestSessionsWithTheOrchestrator: without a worker daemon, over REST and gRPC, until it stops.
func TestSessionsWithTheOrchestrator(t *testing.T) {
	t.Parallel()
	loaded := loadToo(t, enginetest.Migrated(t), "")
	loaded.Orchestration.GRPC.Enabled, loaded.Orchestration.GRPC.BindAddress = true, "127.0.0.1:0"
	own := &loaded.Orchestration.Sessions
	own.Enabled, own.Namespaces, own.ReclaimGrace = true, []string{"none"}, longGrace
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	p := &pair{t: t, ctx: ctx}
	var err error
	p.orchestrator, err = newOrchestrator(ctx, loaded, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, p.orchestrator.Start(ctx))
	p.over = p.dial(p.orchestrator.GRPCAddr().String())
	p.ofWork, p.rest = p.over, "http://"+p.orchestrator.Addr().String()

	s := p.sessionAt(t, p.rest, 2, "extract", "load")
	task := p.workflow("direct", "extract", "load")
	s.succeed(s.step(), `{"rows":[1,2]}`)
	second := s.step()
	require.JSONEq(t, `{"rows":[1,2]}`, string(second.DependencyResults["extract_step"]))
	s.succeed(second, `null`)
	p.ended(t, task, "complete")

	streamed := p.overGRPC(ctx, t, offers(1, "by_stream"))
	task = p.workflow("direct_stream", "by_stream")
	step := streamed.step()
	streamed.succeed(step.GetFence(), `1`)
	p.ended(t, task, "complete")
	require.NoError(t, streamed.stream.CloseSend())

	require.Contains(t, string(p.get("/health/detailed")), "step_processing")
	require.Contains(t, string(p.get("/metrics")), "tasker_worker_sessions ")
	var workers wire.WorkerList
	require.NoError(t, json.Unmarshal(p.get("/v1/workers"), &workers))
	require.Len(t, workers.Workers, 1, "it is a worker of the fleet")

	r := request(t, http.MethodPut, p.rest+"/v1/admin/deployment-mode", `{"mode":"PollingOnly"}`)
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Equal(t, deploymode.PollingOnly, p.orchestrator.lending.worker.Health().Events.Mode, "its steps follow the mode")
	require.Equal(t, deploymode.PollingOnly, p.orchestrator.queues.Health().Mode, "and so do claims of queues")

	p.workflow("last", "extract")
	held := s.step()
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		stopped <- p.orchestrator.Stop(ctx)
	}()
	pgtest.Eventually(t, time.Minute, func() (bool, string) { return s.poll("1s").Draining, "not draining" })
	s.call(http.MethodPost, s.all, remote.Open{Protocol: 1, Callables: []remote.Callable{{Callable: "x"}}}, http.StatusServiceUnavailable, nil)
	s.succeed(held, `"in time"`)
	require.NoError(t, await(t, stopped))
}

// TestNoSessionsByDefault with an orchestrator.
func TestNoSessionsByDefault(t *testing.T) {
	t.Parallel()
	p := newPair(t, "", func(l *config.Loaded) { require.False(t, l.Orchestration.Sessions.Enabled) })
	require.Equal(t, http.StatusNotFound, request(t, http.MethodPost, p.rest+"/v1/sessions", `{}`).status)
	stream, err := sessionv1.NewSessionServiceClient(p.over).Run(p.ctx)
	require.NoError(t, err)
	_, err = stream.Recv()
	require.ErrorContains(t, err, "Unimplemented")
}
