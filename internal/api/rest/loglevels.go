package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/wire"
)

// allRooms stands for the rooms without their own level.
const allRooms = "all"

// levelRoutes show and change what the daemon logs.
type levelRoutes struct {
	*api
	levels *telemetry.Levels
}

func (r *levelRoutes) add() {
	const path = "/v1/log-levels"
	op := operation{tag: "administration", unguarded: true}
	add(r.api, op.at(http.MethodGet, path, "get-log-levels", "Show the levels of logging"), r.show)
	addBody(r.api, op.at(http.MethodPut, path, "set-log-levels", "Change the levels of logging of this daemon, until it restarts or reads its configuration again"), r.change)
}

func (r *levelRoutes) show(context.Context, *struct{}) (*wire.LogLevels, error) {
	all, rooms := r.levels.Now()
	rooms[allRooms] = all
	return &wire.LogLevels{Levels: rooms}, nil
}

func (r *levelRoutes) change(ctx context.Context, _ *struct{}, body *request[wire.LogLevelsRequest]) (*wire.LogLevels, error) {
	body.need("levels")
	if err := body.err(); err != nil {
		return nil, err
	}
	var levels map[string]string
	if err := json.Unmarshal(body.body.Levels, &levels); err != nil {
		return nil, unprocessable("levels must be a JSON object of texts")
	}
	rooms, changed := map[string]string{}, []string{}
	for room, level := range levels {
		changed = append(changed, room+"="+level)
		if room != allRooms {
			rooms[room] = level
		}
	}
	slices.Sort(changed)
	x := exchangeOf(ctx)
	err := r.levels.Change(levels[allRooms], rooms, func() {
		r.audit.Warn("the levels of logging are changed over the API", zap.String("request_id", x.id), zap.String("principal", x.who.Subject),
			zap.String("changed", strings.Join(changed, ", ")))
	})
	if err != nil {
		return nil, unprocessable(clip(err.Error(), 300))
	}
	return r.show(ctx, nil)
}
