package rest_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/wire"
)

const modePath = "/v1/admin/deployment-mode"

func TestDeploymentMode(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	var mode wire.DeploymentMode
	h.get(modePath).into(t, &mode)
	require.Equal(t, "Hybrid", mode.Mode)
	h.do(http.MethodPut, modePath, `{"mode":"polling_only"}`).into(t, &mode)
	require.Equal(t, "PollingOnly", mode.Mode)
	require.Equal(t, deploymode.PollingOnly, h.engine.Mode())
	require.Len(t, h.logs.FilterMessage("the deployment mode was changed over the API").All(), 1)

	for body, want := range map[string]struct {
		status int
		says   string
	}{
		`{"mode":"push"}`: {422, `"push"`},
		`{}`:              {422, "missing field: mode"},
		`{"mode":1}`:      {422, "mode"},
		`{`:               {400, "not JSON"},
	} {
		require.Contains(t, h.do(http.MethodPut, modePath, body).problem(t, want.status), want.says, body)
	}
	h.do(http.MethodPut, modePath, `{}`, "Content-Type", "text/plain").problem(t, 415)
	h.do(http.MethodPut, modePath, `{"mode":"`+strings.Repeat("x", 3<<20)+`"}`).problem(t, 413)
	require.Equal(t, "PUT, GET, HEAD", sorted(h.do(http.MethodPost, modePath, "").Header.Get("Allow")))
	h.do(http.MethodPost, modePath, "").problem(t, 405)
	h.get("/v1/admin/nothing").problem(t, 404)
}

func TestLogLevels(t *testing.T) {
	t.Parallel()
	const path = "/v1/log-levels"
	h := newHouse(t)
	now := func(r reply) map[string]string {
		var body wire.LogLevels
		r.into(t, &body)
		return body.Levels
	}
	require.Equal(t, map[string]string{"all": "info", "store": "warn"}, now(h.get(path)))
	require.Equal(t, map[string]string{"all": "info", "worker": "debug"}, now(h.do(http.MethodPut, path, `{"levels":{"worker":"debug","store":""}}`)))
	require.Equal(t, map[string]string{"all": "error", "worker": "debug"}, now(h.do(http.MethodPut, path, `{"levels":{"all":"error"}}`)))
	logged := h.logs.FilterMessage("the levels of logging are changed over the API").All()
	require.Len(t, logged, 2)
	require.Equal(t, "store=, worker=debug", logged[0].ContextMap()["changed"])

	for body, want := range map[string]string{
		`{}`:                                "missing field: levels",
		`{"levels":{"kitchen":"debug"}}`:    `invalid room \"kitchen\": want one of admission, `,
		`{"levels":{"all":"loud"}}`:         `invalid log level \"loud\": want debug, info, warn, error`,
		`{"levels":{"all":"info","api":1}}`: "levels",
	} {
		r := h.do(http.MethodPut, path, body)
		require.Equal(t, 422, r.StatusCode, body)
		require.Contains(t, string(r.body), want, body)
	}
	require.Equal(t, map[string]string{"all": "error", "worker": "debug"}, now(h.get(path)), "what is refused changes nothing")
}

// sorted sorts the methods of an Allow header.
func sorted(allow string) string {
	out := []string{}
	for _, m := range []string{"PUT", "GET", "HEAD"} {
		if strings.Contains(allow, m) {
			out = append(out, m)
		}
	}
	return strings.Join(out, ", ")
}

func TestDeploymentModeThatCannotBe(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for text, c := range map[string]struct {
		err   error
		shown bool
	}{
		"no event source is configured": {errors.New("no event source is configured"), true},
		"dbhost-7":                      {fmt.Errorf("connect to dbhost-7: %w", store.ErrUnavailable), false},
		"tasker.secret":                 {fmt.Errorf("listen: %w", sqlError{}), false},
	} {
		h.engine.change(func(s *fakeStatus) { s.modeErr = c.err })
		detail := h.do(http.MethodPut, modePath, `{"mode":"EventDrivenOnly"}`).problem(t, 409)
		require.Contains(t, detail, "still Hybrid, not EventDrivenOnly")
		require.Equal(t, c.shown, strings.Contains(detail, text), detail)
	}
	require.Equal(t, deploymode.Hybrid, h.engine.Mode())
}

func TestFleet(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.get("/v1/admin/fleet").golden(t, "fleet")
	h.store.fleet[0].Mode = "Hybrid"
	var fleet client.Fleet
	h.get("/v1/admin/fleet").into(t, &fleet)
	require.Empty(t, fleet.Warning)
	h.store.fleet[0].HeartbeatAge = time.Minute
	h.get("/v1/admin/fleet").into(t, &fleet)
	require.False(t, fleet.Replicas[0].Live)
	require.Equal(t, "worker shapes: no live replica", fleet.Warning)
	before := len(fleet.Replicas)
	h.store.fleet[0].Stopped = true
	h.get("/v1/admin/fleet").into(t, &fleet)
	require.Len(t, fleet.Replicas, before, "a daemon that just signed off is shown")
	h.store.fleet[0].HeartbeatAge = 2 * time.Minute
	h.get("/v1/admin/fleet").into(t, &fleet)
	require.Len(t, fleet.Replicas, before-1, "and then forgotten")
	require.Empty(t, fleet.Warning)
	h.store.fails(store.ErrUnavailable)
	r := h.get("/v1/admin/fleet")
	r.problem(t, 503)
	require.Equal(t, "5", r.Header.Get("Retry-After"))
	h.store.fails(sqlError{})
	require.NotContains(t, h.get("/v1/admin/fleet").problem(t, 500), "secret")
}
