package rest_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/orchestration"
)

// bodies returns a valid body for every route with one.
func bodies() map[string]string {
	step, task, letter := leftStep.String(), taskID.String(), letterID.String()
	return map[string]string{
		"POST /v1/tasks": goodBody + "}",
		"POST /v1/tasks?all": goodBody + `,"idempotency_key":"k","conflict_policy":"use_existing","start_at":"2026-03-21T10:11:12Z","priority_level":3,` +
			`"max_attempts":3,"retry_delays":["10s","1d"],"deadline":"9999-12-31T23:59:59Z"}`,
		"PUT /v1/task-types/email.send": `{"namespace":"mail","version":"2","description":"d","handler":"mail.send","payload_schema":{"type":"object"},"priority_level":2,` +
			`"retry":{"retryable":true,"max_attempts":3,"backoff":"list","backoff_base_ms":1,"max_backoff_ms":2,"backoff_delays_ms":[1]},"timeout_seconds":5,` +
			`"tags":["gpu"],"identity":{"strategy":"strict","calendar":"day","time_zone":"UTC","key_lifetime":"7d"},"reason":"r","actor":"a"}`,
		"POST /v1/enqueue": `{"type":"email.send","payload":{"n":1},"queue":"mail","max_attempts":3,"idempotency_key":"k","retry_delays":["10s"],"priority":5,` +
			`"delay_seconds":1,"tags":["a"],"initiator":"i"}`,
		"POST /v1/tasks/batch":            batchOf(goodBody + "}"),
		"PATCH " + stepPath:               `{"action_type":"complete_manually","reason":"r","completed_by":"a","completion_data":{"result":{"n":1},"metadata":{"a":1}}}`,
		"POST " + actionsPath:             `{"action":"complete_manually","step_uuid":"` + step + `","reason":"r","actor":"a","result":{"n":1}}`,
		"POST " + actionsPath + "#replay": `{"action":"replay","reason":"r","actor":"a","context":{"n":1}}`,
		"POST " + actionsPath + "#order":  `{"action":"reprioritise","reason":"r","actor":"a","priority":5}`,
		"POST " + bulkPath: `{"filter":{"namespace":"n","name":"n","version":"1","states":["error"],"tag":"t","created_before":"2026-03-21T10:11:12Z",` +
			`"created_after":"2026-03-21T10:11:12Z"},"action":"cancel","reason":"r","actor":"a","dry_run":false,"limit":10}`,
		"PATCH " + entryPath: `{"resolution_status":"Cancelled","resolution_notes":"n","resolved_by":"a","metadata":{"a":1}}`,
		"POST " + addPath:    `{"task_uuid":"` + task + `","reason":"r","actor":"a","metadata":{"a":1}}`,
		"POST " + replayPath: `{"filter":{"resolution_status":"Pending","dlq_reason":"ManualDlq","namespace":"n","task_name":"t","since":"2026-03-21T10:11:12Z",` +
			`"until":"2026-03-21T10:11:12Z"},"reason":"r","actor":"a","per_second":10,"limit":10,"dry_run":false}`,
		"POST " + replayPath + "#one":  `{"dlq_entry_uuid":"` + letter + `","reason":"r","actor":"a","context":{"n":1},"dry_run":false}`,
		"POST " + purgePath:            `{"older_than_seconds":3600,"reason":"r","actor":"a","limit":10,"dry_run":false}`,
		"PUT " + pausePath:             `{"reason":"r","actor":"a"}`,
		"DELETE " + pausePath:          `{"reason":"r","actor":"a"}`,
		"DELETE /v1/tasks/" + task:     `{"reason":"r","actor":"a"}`,
		"POST " + sweepPath:            `{"dry_run":true}`,
		"PUT " + breakersPath + "/web": `{"state":"automatic"}`,
		"PUT " + modePath:              `{"mode":"Hybrid"}`,
		"POST " + schedulesPath: `{` + goodSchedule + `,"time_zone":"Europe/Berlin","context":{"n":1},"priority":5,"tags":["t"],"catch_up":"all",` +
			`"max_catch_up":5,"overlap":"skip","jitter_seconds":7,"max_attempts":4,"retry_delays":["10s"],"reason":"r","actor":"a","dry_run":false}`,
		"PATCH " + schedulePath: `{"template":"diamond","version":"1.0.0","cron":"@daily","time_zone":"UTC","context":{"n":1},"priority":5,"tags":["t"],` +
			`"catch_up":"all","max_catch_up":5,"overlap":"skip","jitter_seconds":7,"max_attempts":4,"retry_delays":["10s"],"reason":"r","actor":"a","dry_run":false}`,
		"DELETE " + schedulePath:           `{"reason":"r","actor":"a"}`,
		"POST " + schedulePath + "/pause":  `{"reason":"r","actor":"a"}`,
		"POST /v1/event-consumers":         `{"name":"c","namespace":"b","patterns":["a.*"],"from":"now","actor":"a","reason":"r"}`,
		"POST /v1/event-consumers/c/claim": `{"worker":"h","limit":1,"lease_seconds":30}`,
		"POST /v1/event-consumers/c/ack":   `{"token":1,"position":1,"release":true}`,
		"POST /v1/event-consumers/c/reset": `{"to":"beginning","actor":"a","reason":"r"}`,
		"POST " + eventsPath:               `{"name":"n","namespace":"n","key":"k","payload":{"n":1},"id":"i"}`,
		"POST " + eventsPath + "#task":     `{"name":"n","task_uuid":"` + task + `","payload":{"n":1}}`,
		"POST " + approvalPath:             `{"approved":true,"actor":"a","comment":"c","data":{"n":1}}`,
		"POST " + isolatedPath + "/replay": `{"reason":"r","actor":"a","worker_step":"left","batch":"left_001","retryable":true,"again":true,"limit":7,"dry_run":true}`,
	}
}

// neverGood are bodies that no route can take.
func neverGood() []string {
	return []string{`{`, `[]`, `"x"`, `7`, `true`, `nul`, `{"a":}`, `{"a":1,}`, "{\"reason\":\"\xff\"}", "\x00", `{} {}`, `{"reason":"` + "\n" + `"}`,
		strings.Repeat("[", 20_000), `{"reason":"` + strings.Repeat("x", 3<<20) + `"}`, strings.Repeat(`{"a":`, 20_000)}
}

// instead are values of other types.
func instead() []json.RawMessage {
	list := []json.RawMessage{}
	for _, text := range []string{`null`, `7`, `-1`, `1.5`, `99999999999999999999`, `1e400`, `true`, `""`, `"x"`, `" "`, `"\u0000"`, `"a\u0000b"`, `"\ud800"`, `[]`, `[1]`, `[null]`, `{}`,
		`{"\u0000":1}`, `{"a":"\udfff"}`, `"` + strings.Repeat("x", 20_000) + `"`, strings.Repeat("[", 30) + strings.Repeat("]", 30),
		`[` + strings.Repeat("1,", 2000) + `1]`, `"0000-00-00T00:00:00Z"`, `"9999-12-31T23:59:59Z"`, `"019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f1"`} {
		list = append(list, json.RawMessage(text))
	}
	return list
}

// odd returns body with one value, at two levels of depth, replaced by each of the odd
// ones, removed, or doubled in another case.
func odd(t testing.TB, body string) (all []string) {
	t.Helper()
	var object map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(body), &object))
	encoded := func(o map[string]json.RawMessage) string {
		text, err := json.Marshal(o)
		require.NoError(t, err)
		return string(text)
	}
	for key, value := range object {
		without := maps.Clone(object)
		delete(without, key)
		all = append(all, encoded(without))
		without[strings.ToUpper(key)] = value
		all = append(all, encoded(without), `{"unknown":{"a":[null]},`+body[1:])
		for _, v := range instead() {
			changed := maps.Clone(object)
			changed[key] = v
			all = append(all, encoded(changed))
		}
		if value[0] == '{' {
			for _, inner := range odd(t, string(value)) {
				changed := maps.Clone(object)
				changed[key] = json.RawMessage(inner)
				all = append(all, encoded(changed))
			}
		}
	}
	return all
}

// guarded is a house with all parts that fails the test if a log shows an internal error.
func guarded(t testing.TB) (*house, *fakeOperator) {
	o := &fakeOperator{}
	h := newHouse(t, operated(o), func(c *rest.Config, _ *rest.Orchestrator) { c.MaxBodyBytes = 2 << 20 })
	t.Cleanup(func() {
		for _, line := range h.logs.All() {
			require.NotContains(t, line.ContextMap(), "stack", line.Message)
			require.Less(t, line.Level, zap.ErrorLevel, line.Message)
		}
	})
	return h, o
}

func serve(h *house, o *fakeOperator, route, body string) (status int, reached []acted) {
	method, target, _ := strings.Cut(strings.Split(route, "#")[0], " ") // # tells bodies of one route apart
	w := record(h, request(method, target, body))
	if len(w.Header().Get("X-Request-Id")) != 36 {
		return 0, nil
	}
	return w.Code, o.taken()
}

// An invalid body is rejected with an id, reaches no engine and leaves no stack in the
// log.
func TestBadBodiesCostNothing(t *testing.T) {
	t.Parallel()
	h, o := guarded(t)
	for route, body := range bodies() {
		status, _ := serve(h, o, route, body)
		require.Contains(t, []int{http.StatusOK, http.StatusCreated}, status, "%s %s", route, body)
		for _, bad := range neverGood() {
			status, reached := serve(h, o, route, bad)
			require.True(t, status >= 400 && status < 500, "%d: %s %.60q", status, route, bad)
			require.Empty(t, reached, "%s %.60q", route, bad)
		}
		method, target, _ := strings.Cut(strings.Split(route, "#")[0], " ") // # tells bodies of one route apart
		if method == http.MethodDelete {
			continue // its body is optional
		}
		require.Equal(t, http.StatusUnsupportedMediaType, record(h, request(method, target, body, "Content-Type", "text/plain")).Code, route)
	}
	require.Len(t, h.engine.created, 4)
}

// A body with odd values is accepted or rejected, never an internal error.
func TestOddBodies(t *testing.T) {
	t.Parallel()
	h, o := guarded(t)
	sent, refused := 0, 0
	for route, body := range bodies() {
		for _, text := range odd(t, body) {
			status, reached := serve(h, o, route, text)
			require.True(t, status == http.StatusOK || status == http.StatusCreated || status >= 400 && status < 500, "%d: %s %.200q", status, route, text)
			sent++
			if status < 300 {
				checkReached(t, reached)
				continue
			}
			refused++
			require.Empty(t, slices.DeleteFunc(reached, func(a acted) bool { return a.what == "read" }), "%s %.200q", route, text)
		}
	}
	require.Greater(t, sent, 1000)
	require.Greater(t, refused, sent/2)
}

// checkReached checks what the engine must never receive.
func checkReached(t testing.TB, reached []acted) {
	t.Helper()
	text := func(what, s string, limit int) {
		if s == "" || len(s) > 4*limit || strings.ContainsRune(s, 0) {
			require.Fail(t, "invalid text reached the engine", "%s: %.100q", what, s)
		}
	}
	for _, a := range reached {
		if both, ok := a.with.([]any); ok && len(both) == 2 {
			a.with = both[1]
		}
		switch with := a.with.(type) {
		case orchestration.Action:
			text("actor", with.Actor, orchestration.MaxTextLength)
			text("reason", with.Reason, orchestration.MaxReasonLength)
		case orchestration.Bulk:
			text("actor", with.Action.Actor, orchestration.MaxTextLength)
			require.NotEqual(t, orchestration.TaskSelection{}, with.Select)
			require.True(t, with.Limit >= 1 && with.Limit <= 10_000)
		case orchestration.ReplayMany:
			text("actor", with.Actor, orchestration.MaxTextLength)
			require.True(t, with.Limit >= 1 && with.Limit <= 1000 && with.PerSecond > 0)
		case orchestration.ReplayIsolated:
			text("actor", with.Actor, orchestration.MaxTextLength)
			text("reason", with.Reason, orchestration.MaxReasonLength)
			require.True(t, with.Limit >= 1 && with.Limit <= limits.MaxIsolatedReplay)
		case orchestration.Replay:
			text("actor", with.Actor, orchestration.MaxTextLength)
		case orchestration.Verdict:
			text("actor", with.Actor, orchestration.MaxTextLength)
		case orchestration.Why:
			text("actor", with.Actor, orchestration.MaxTextLength)
			text("reason", with.Reason, orchestration.MaxReasonLength)
		}
	}
}

var parameter = regexp.MustCompile(`\{[^}]*\}`)

// Any path and query has an answer below 500.
func TestOddPathsAndQueries(t *testing.T) {
	t.Parallel()
	h, o := guarded(t)
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name, In string }
		}
	}
	require.NoError(t, json.Unmarshal(h.server.OpenAPI(), &doc))
	values := []string{"", "x", "%00", "%ff", "-1", "0", "99999999999999999999", "1e9", "%F0%9F%98%80", "..%2f..", strings.Repeat("x", 5000),
		taskID.String(), strings.ToUpper(taskID.String()), "%7B019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f10%7D", "urn:uuid:" + taskID.String(), "'%3B--", "null", "Pending"}
	for path, methods := range doc.Paths {
		if strings.HasPrefix(path, "/health") {
			continue // 503 is an answer there
		}
		if strings.HasSuffix(path, "/stream") {
			continue // it does not end
		}
		for method, op := range methods {
			for _, v := range values {
				target := parameter.ReplaceAllLiteralString(path, v)
				query := []string{}
				for _, p := range op.Parameters {
					if p.In == "query" {
						query = append(query, p.Name+"="+v)
					}
				}
				status, _ := serve(h, o, strings.ToUpper(method)+" "+target+"?"+strings.Join(query, "&"), "")
				require.True(t, status >= 200 && status < 500, "%d: %s %s %v", status, method, target, query)
			}
		}
	}
}

// FuzzOperators sends any body to any of the routes: the answer is never a 5xx, and the
// engine receives only valid requests.
func FuzzOperators(f *testing.F) {
	all := bodies()
	routes := slices.Sorted(maps.Keys(all))
	for i, route := range routes {
		f.Add(uint8(i), []byte(all[route]))
	}
	for i, bad := range neverGood()[:12] {
		f.Add(uint8(i), []byte(bad))
	}
	h, o := guarded(f)
	f.Fuzz(func(t *testing.T, route uint8, body []byte) {
		h.logs.TakeAll()
		status, reached := serve(h, o, routes[int(route)%len(routes)], string(body))
		if status < 200 || status >= 500 {
			t.Fatalf("%d: %s", status, routes[int(route)%len(routes)])
		}
		if status < 300 {
			checkReached(t, reached)
		}
	})
}
