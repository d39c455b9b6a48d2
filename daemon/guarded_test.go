package daemon

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/enginetest"
)

// bodies are requests that get as far as the database, by operation.
var bodies = map[string]string{
	"create-api-key":        `{"name": "shop", "permissions": ["tasks:*", "steps:read"], "namespaces": ["shop"], "expires_in_seconds": 7776000, "reason": "the new shop"}`,
	"create-task":           `{"name":"a","namespace":"b","version":"1","context":{},"initiator":"i","source_system":"s","reason":"r"}`,
	"create-tasks":          `{"tasks":[{"name":"a","namespace":"b","version":"1","context":{},"initiator":"i","source_system":"s","reason":"r"}]}`,
	"act-on-task":           `{"action":"cancel","reason":"r","actor":"a"}`,
	"act-on-tasks":          `{"action":"cancel","reason":"r","actor":"a","filter":{"namespace":"b"}}`,
	"act-on-step":           `{"action_type":"resolve_manually","reason":"r","resolved_by":"a"}`,
	"update-dlq-entry":      `{"resolution_status":"Pending"}`,
	"add-dlq-entry":         `{"task_uuid":"` + someUUID + `","reason":"r","actor":"a"}`,
	"purge-dlq":             `{"older_than_seconds":1,"reason":"r","actor":"a"}`,
	"replay-dlq":            `{"filter":{"namespace":"b"},"reason":"r","actor":"a"}`,
	"set-policy":            `{"policy":"fifo","reason":"r","actor":"a"}`,
	"set-limit":             `{"max_running":1,"reason":"r","actor":"a"}`,
	"pause-namespace":       `{"reason":"r","actor":"a"}`,
	"create-schedule":       `{"name":"n","namespace":"b","template":"a","version":"1","cron":"0 0 * * *","reason":"r","actor":"a"}`,
	"update-schedule":       `{"cron":"0 0 * * *","reason":"r","actor":"a"}`,
	"pause-schedule":        `{"reason":"r","actor":"a"}`,
	"resume-schedule":       `{"reason":"r","actor":"a"}`,
	"run-schedule":          `{"reason":"r","actor":"a"}`,
	"delete-schedule":       `{"reason":"r","actor":"a"}`,
	"send-event":            `{"name":"e","namespace":"b","payload":{}}`,
	"decide-approval":       `{"approved":true,"actor":"a"}`,
	"create-event-consumer": `{"name":"c","namespace":"b","actor":"a","reason":"r"}`,
	"register-template":     `{"source":"name: t\nnamespace_name: b\nversion: 1.0.0\nsteps: [{name: a, handler: {callable: a}}]"}`,
	"reset-event-consumer":  `{"to":"beginning","to":"beginning","actor":"a","reason":"r"}`,
	"claim-events":          `{"worker":"h","limit":1,"lease_seconds":30}`,
	"preview-action":        `{"action":"cancel","reason":"r","actor":"a"}`,
	"run-sweep":             `{}`,
	"deprecate-template":    `{"reason":"r","actor":"a"}`,
	"ack-events":            `{"token":1,"position":1}`,
	"replay-isolated-items": `{"reason":"r","actor":"a"}`,
	"set-submission-limit":  `{"throttle":{"max":1,"period_ms":1000},"reason":"r","actor":"a"}`,
	"set-quota":             `{"max_tasks":1,"reason":"r","actor":"a"}`,
	"put-task-type":         `{"namespace":"b","handler":"h","reason":"r","actor":"a"}`,
	"enqueue":               `{"type":"a","queue":"b","payload":{}}`,

	"submit-queue-tasks":    `{"tasks":[{"payload":1}]}`,
	"submit-queue-task":     `{"payload":1}`,
	"claim-queue-tasks":     `{"workerId":"w"}`,
	"complete-queue-task":   `{"workerId":"w"}`,
	"complete-queue-tasks":  `{"tasks":[{"id":"` + someUUID + `","workerId":"w"}]}`,
	"fail-queue-task":       `{"workerId":"w"}`,
	"register-queue-worker": `{"workerId":"w"}`,
	"pause-queue":           `{"reason":"r","actor":"a"}`,
	"resume-queue":          `{"reason":"r","actor":"a"}`,
}

const someUUID = "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f10"

// pastTheBreaker need no answer of the database, or show its recovery.
var pastTheBreaker = []string{"health", "health-live", "health-ready", "health-accepting", "health-detailed", "list-breakers", "force-breaker",
	"get-deployment-mode", "set-deployment-mode", "get-log-levels", "set-log-levels", "get-fleet",
	"get-me", "login", "logout", "login-oidc", "login-oidc-callback"} // without access there is nothing to look up

// operations lists the routes of an API: "GET /v1/…" by their names.
func operations(t *testing.T, base string) map[string]string {
	t.Helper()
	r := request(t, http.MethodGet, base+"/api-docs/openapi.json", "")
	var doc struct {
		Paths map[string]map[string]struct {
			ID string `json:"operationId"`
		} `json:"paths"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.body), &doc))
	found := map[string]string{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			found[op.ID] = strings.ToUpper(method) + " " + path
		}
	}
	require.NotEmpty(t, found)
	return found
}

// reply is an answer, read to its end.
type reply struct {
	status     int
	retryAfter string
	body       string
}

func request(t *testing.T, method, target, body string) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	require.NoError(t, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, answer.Body.Close()) }()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return reply{answer.StatusCode, answer.Header.Get("Retry-After"), string(text)}
}

// TestAnOpenBreakerIsNoFailureOfOurs: while the breaker web is open every route that
// needs the database answers 503 with Retry-After.
func TestAnOpenBreakerIsNoFailureOfOurs(t *testing.T) {
	t.Parallel()
	o, err := newOrchestrator(t.Context(), loadToo(t, enginetest.Migrated(t), ""), nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, o.Start(t.Context()))
	defer func() { require.NoError(t, o.Stop(context.Background())) }()
	base := "http://" + o.Addr().String()
	routes := operations(t, base)
	o.breakers.Breaker(breaker.Web).Force(breaker.ForcedOpen)
	fill := strings.NewReplacer("{uuid}", someUUID, "{step_uuid}", someUUID, "{task_uuid}", someUUID, "{dlq_entry_uuid}", someUUID,
		"{id}", someUUID, "{token}", someUUID, "{namespace}", "b", "{version}", "1", "{name}", "a")
	for _, id := range slices.Sorted(maps.Keys(routes)) {
		if slices.Contains(pastTheBreaker, id) {
			continue
		}
		method, path, _ := strings.Cut(routes[id], " ")
		path = fill.Replace(path)
		if id == "find-task" {
			path += "?namespace=b&name=a&idempotency_key=k"
		}
		if r := request(t, method, base+path, bodies[id]); r.status != http.StatusServiceUnavailable || r.retryAfter == "" {
			t.Errorf("%s (%s): %d, Retry-After %q: %s", id, routes[id], r.status, r.retryAfter, r.body)
		}
	}
}
