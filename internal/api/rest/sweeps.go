package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/sweep"
	"github.com/tasker-go/tasker/internal/wire"
)

// sweepRoutes show the sweeps of the fleet, and run them.
type sweepRoutes struct {
	*orchestratorAPI
	runNow func(ctx context.Context, name string, dry bool) (sweep.Run, error) // nil: no runs
}

func (r *sweepRoutes) add() {
	op := operation{tag: "sweeps"}
	add(r.api, op.at(http.MethodGet, "/v1/sweeps", "list-sweeps", "List the sweeps and their last runs"), r.list)
	if r.runNow != nil {
		addBody(r.api, op.at(http.MethodPost, "/v1/sweeps/{name}/run", "run-sweep", "Run a sweep now, or preview it"), r.run)
	}
}

func (r *sweepRoutes) list(ctx context.Context, _ *struct{}) (*wire.SweepList, error) {
	states, err := r.store.Sweeps(ctx)
	return &wire.SweepList{Sweeps: each(states, sweepOf)}, err
}

func sweepOf(s *store.SweepState) client.Sweep {
	return client.Sweep{Name: s.Name, Running: s.Running, Holder: s.Holder.String(), NextAt: client.Time{Time: s.NextAt},
		StartedAt: client.Time{Time: s.StartedAt}, FinishedAt: instant(s.FinishedAt), Runs: s.Runs, Result: rawOr(s.Result, "null")}
}

func (r *sweepRoutes) run(ctx context.Context, in *struct {
	Name string `path:"name"`
}, body *request[client.SweepRequest]) (*client.SweepRun, error) {
	run, err := r.runNow(ctx, in.Name, body.body.DryRun)
	switch {
	case errors.Is(err, sweep.ErrUnknown):
		return nil, notFound(fmt.Sprintf("Sweep not found: %q", clip(in.Name, 64)))
	case errors.Is(err, sweep.ErrRunning):
		return nil, conflict("The sweep is running already")
	case err != nil:
		return nil, err
	}
	r.log.Info("a sweep was run over the API", zap.String("request_id", exchangeOf(ctx).id),
		zap.String("sweep", run.Sweep), zap.Bool("dry_run", run.DryRun), zap.Any("items", run.Items))
	return sweepRunOf(&run), nil
}

func sweepRunOf(run *sweep.Run) *client.SweepRun {
	w := &client.SweepRun{Sweep: run.Sweep, Outcome: string(run.Outcome), DryRun: run.DryRun, TookMS: run.TookMS,
		Items: run.Items, Findings: make([]client.SweepFinding, len(run.Findings)), More: run.More}
	if w.Items == nil {
		w.Items = map[string]int{}
	}
	for i, f := range run.Findings {
		w.Findings[i] = client.SweepFinding{Subject: f.Subject, Action: f.Action, Detail: f.Detail}
	}
	return w
}
