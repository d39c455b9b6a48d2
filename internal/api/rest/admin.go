package rest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/wire"
)

const (
	// fleetAge is how long a daemon is shown after its last sign of life.
	fleetAge = 10 * time.Minute
	// FleetLive is how old a sign of life may be: three missed heartbeats.
	FleetLive = 30 * time.Second
	// fleetStopped is how long a daemon that signed off is shown: a recent end explains
	// its effects.
	fleetStopped = time.Minute
)

// adminRoutes show and change how the daemon runs.
type adminRoutes struct {
	*api
	status   Status
	database Database
}

func (r *adminRoutes) add() {
	const path = "/v1/admin/deployment-mode"
	op := operation{tag: "administration", failure: shapeProblem, unguarded: true}
	add(r.api, op.at(http.MethodGet, path, "get-deployment-mode", "Show the deployment mode"), r.mode)
	addBody(r.api, op.at(http.MethodPut, path, "set-deployment-mode", "Change the deployment mode of this daemon"), r.setMode)
	if r.cfg.LogLevels != nil {
		(&levelRoutes{r.api, r.cfg.LogLevels}).add()
	}
}

func (r *adminRoutes) addFleet() {
	add(r.api, operation{tag: "administration", failure: shapeProblem, unguarded: true}.at(http.MethodGet, "/v1/admin/fleet", "get-fleet",
		"List the daemons with a recent heartbeat"), r.fleet)
}

func (r *adminRoutes) mode(context.Context, *struct{}) (*wire.DeploymentMode, error) {
	return &wire.DeploymentMode{Mode: string(r.status.Mode())}, nil
}

func (r *adminRoutes) setMode(ctx context.Context, _ *struct{}, body *request[wire.DeploymentMode]) (*wire.DeploymentMode, error) {
	body.need("mode")
	if err := body.err(); err != nil {
		return nil, err
	}
	mode, ok := deploymode.Parse(body.body.Mode)
	if !ok {
		return nil, unprocessable(fmt.Sprintf("invalid deployment mode %q: want PollingOnly, EventDrivenOnly, Hybrid or Disabled", clip(body.body.Mode, 64)))
	}
	before := r.status.Mode()
	if err := r.status.SetMode(ctx, mode); err != nil {
		return nil, r.refused(ctx, mode, err)
	}
	if now := r.status.Mode(); now != before {
		r.log.Info("the deployment mode was changed over the API", zap.String("request_id", exchangeOf(ctx).id),
			zap.String("from", string(before)), zap.String("to", string(now)))
	}
	return &wire.DeploymentMode{Mode: string(r.status.Mode())}, nil
}

// refused explains why the mode is unchanged.
func (r *adminRoutes) refused(ctx context.Context, mode deploymode.Mode, err error) error {
	if ctx.Err() != nil {
		return err
	}
	r.log.Warn("the deployment mode could not be changed", zap.String("request_id", exchangeOf(ctx).id),
		zap.String("to", string(mode)), zap.Error(err))
	why := "the log has the details under the request id"
	if tellable(err) {
		why = err.Error()
	}
	return &failure{status: http.StatusConflict, code: codeConflict,
		message: fmt.Sprintf("The mode is still %s, not %s: %s", r.status.Mode(), mode, why)}
}

func (r *adminRoutes) fleet(ctx context.Context, _ *struct{}) (*client.Fleet, error) {
	replicas, err := r.database.Fleet(ctx, fleetAge)
	if err != nil {
		return nil, err
	}
	return fleetOf(remembered(replicas)), nil
}

// remembered leaves out daemons that signed off a while ago.
func remembered(replicas []store.Replica) []store.Replica {
	return slices.DeleteFunc(slices.Clone(replicas), func(r store.Replica) bool { return r.Stopped && r.HeartbeatAge > fleetStopped })
}

func fleetOf(replicas []store.Replica) *client.Fleet {
	return &client.Fleet{Warning: fleetWarning(replicas), Replicas: each(replicas, func(r *store.Replica) client.Replica {
		return client.Replica{
			UUID: r.UUID.String(), ID: r.ID, Kind: r.Kind, Hostname: r.Hostname, Address: r.Address, Version: r.Version, Mode: r.Mode,
			Namespaces: append([]string{}, r.Namespaces...), StartedAt: client.Time{Time: r.StartedAt},
			HeartbeatAgeSeconds: r.HeartbeatAge.Seconds(), Live: live(*r), Stopped: r.Stopped,
			EventSource: r.Signals.Source, MovingFrom: r.Signals.MovingFrom, Unheard: r.Signals.Unheard,
		}
	})}
}

func live(r store.Replica) bool { return !r.Stopped && r.HeartbeatAge <= FleetLive }

// fleetWarning checks for a live poller among the orchestrators and for each namespace
// with workers.
func fleetWarning(replicas []store.Replica) string {
	var list []deploymode.Replica
	for _, r := range replicas {
		if r.Mode == store.ModeDraining {
			continue // it is stopping
		}
		mode, _ := deploymode.Parse(r.Mode)
		replica := deploymode.Replica{ID: r.ID, System: r.Kind, Mode: mode, Live: live(r)}
		if len(r.Namespaces) == 0 {
			list = append(list, replica)
		}
		for _, namespace := range r.Namespaces {
			replica.System = r.Kind + " " + namespace
			list = append(list, replica)
		}
	}
	warning, _ := deploymode.FleetWarning(list)
	return warning
}
