package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
)

func send(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(answer)
}

func put(t *testing.T, url, body string) {
	t.Helper()
	status, answer := send(t, http.MethodPut, url, body)
	require.Equal(t, http.StatusOK, status, answer)
}

// rewrite edits the configuration of a process.
func (r *running) rewrite(p *fleet.Process, old, replacement string) {
	r.t.Helper()
	file := filepath.Join(r.dir, p.Name+".toml")
	text, err := os.ReadFile(file)
	require.NoError(r.t, err)
	require.NoError(r.t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), old, replacement)), 0o600))
}

func TestBadRequestsCostNothing(t *testing.T) {
	r := pair(t, "Hybrid", "")
	url := r.all[0].URL
	body := func(context string) string {
		return `{"name":"diamond","namespace":"examples","version":"1.0.0","context":` + context + `,"initiator":"e2e","source_system":"test","reason":"bad"}`
	}
	const unknown = "01a1fd20-7425-7e99-acc2-ebeca1fc18d1"
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		code                     string
	}{
		{"malformed JSON", "POST", "/v1/tasks", `{"name":`, 400, ""},
		{"no body", "POST", "/v1/tasks", ``, 400, ""},
		{"wrong type", "POST", "/v1/tasks", strings.Replace(body(`{}`), `"diamond"`, `7`, 1), 422, ""},
		{"missing field", "POST", "/v1/tasks", `{"name":"diamond"}`, 422, ""},
		{"empty name", "POST", "/v1/tasks", strings.Replace(body(`{}`), `"diamond"`, `""`, 1), 400, "BAD_REQUEST"},
		{"unknown template", "POST", "/v1/tasks", strings.Replace(body(`{}`), `"diamond"`, `"nothing"`, 1), 404, "NOT_FOUND"},
		{"schema violated", "POST", "/v1/tasks", body(`{"even_number":"six"}`), 400, "BAD_REQUEST"},
		{"context is no object", "POST", "/v1/tasks", body(`[1]`), 0, ""},
		{"hostile text", "POST", "/v1/tasks", body(`{"even_number":2,"x":"\u0000"}`), 400, "BAD_REQUEST"},
		{"5 MB body", "POST", "/v1/tasks", body(`{"even_number":2,"x":"` + strings.Repeat("x", 5<<20) + `"}`), 413, ""},
		{"bad UUID", "GET", "/v1/tasks/not-a-uuid", "", 400, "INVALID_UUID"},
		{"unknown task", "GET", "/v1/tasks/" + unknown, "", 404, "NOT_FOUND"},
		{"cancel an unknown task", "DELETE", "/v1/tasks/" + unknown, "", 404, "NOT_FOUND"},
		{"unknown step", "GET", "/v1/tasks/" + unknown + "/workflow_steps/" + unknown, "", 404, "NOT_FOUND"},
		{"page 0", "GET", "/v1/tasks?page=0", "", 400, ""},
		{"per_page 101", "GET", "/v1/tasks?per_page=101", "", 400, ""},
		{"unknown status", "GET", "/v1/tasks?status=happy", "", 400, ""},
		{"wrong method", "PATCH", "/v1/tasks", "{}", 405, ""},
		{"unknown route", "GET", "/v1/nothing", "", 404, ""},
		{"unknown mode", "PUT", "/v1/admin/deployment-mode", `{"mode":"Sometimes"}`, 0, ""},
	} {
		status, answer := send(t, c.method, url+c.path, c.body)
		if c.status != 0 {
			require.Equal(t, c.status, status, "%s: %s", c.name, answer)
		}
		require.GreaterOrEqual(t, status, 400, "%s: %s", c.name, answer)
		require.Less(t, status, 500, "%s: %s", c.name, answer)
		for _, secret := range []string{"goroutine", "SQLSTATE", ".go:", "select ", "panic"} {
			require.NotContains(t, answer, secret, c.name)
		}
		if c.code != "" {
			var e struct {
				Error struct{ Code, Message string }
			}
			require.NoError(t, json.Unmarshal([]byte(answer), &e), "%s: %s", c.name, answer)
			require.Equal(t, c.code, e.Error.Code, c.name)
			require.NotEmpty(t, e.Error.Message, c.name)
		}
	}
	require.Zero(t, r.db.QueryInt(t, `select count(*) from tasker.tasks`), "no task was created")
	require.NotContains(t, r.all[0].Log(), "goroutine ")
	require.Equal(t, "complete", r.run("diamond", `{"even_number":6}`).Status, "and all is well")
}

func TestDatabaseAwayAnswers503(t *testing.T) {
	server := pgtest.Private(t, nil)
	r := newFleet(t, server.New(t))
	r.start(fleet.Orchestrator, "Hybrid", "")
	r.ready()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, server.StopImmediate(ctx))
	status, answer := send(t, "GET", r.all[0].URL+"/v1/tasks/01a1fd20-7425-7e99-acc2-ebeca1fc18d1", "")
	require.Equal(t, http.StatusServiceUnavailable, status, answer)
	require.Contains(t, answer, "SERVICE_UNAVAILABLE")
	status, _ = send(t, "GET", r.all[0].URL+"/health/live", "")
	require.Equal(t, http.StatusOK, status, "an absent database kills no pod")
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		status, answer := send(t, "GET", r.all[0].URL+"/health/ready", "")
		return status == http.StatusServiceUnavailable, fmt.Sprint(status, answer)
	})
	require.NoError(t, server.Restart(ctx))
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		status, answer := send(t, "GET", r.all[0].URL+"/health/ready", "")
		return status == http.StatusOK, fmt.Sprint(status, answer)
	})
}

func TestBadConfigurationIsExplained(t *testing.T) {
	db := pgtest.New(t)
	for _, c := range []struct{ name, toml, want string }{
		{"malformed", "[common\n", "bad.toml:"},
		{"unknown key", "[common.database]\nulr = \"x\"\n", "url"},
		{"out of range", "[orchestration.apply]\nbatch_size = 0\n", "orchestration.apply.batch_size"},
		{"wrong type", "[orchestration.apply]\nbatch_size = \"many\"\n", "orchestration.apply.batch_size"},
		{"no mode", "[orchestration.event_systems.orchestration]\ndeployment_mode = \"Sometimes\"\n", "deployment_mode"},
	} {
		p, err := fleet.Start(fleet.Options{Kind: fleet.Orchestrator, BinDir: binDir, WorkDir: t.TempDir(), Name: "bad",
			DatabaseURL: db.DSN, Raw: c.toml})
		require.NoError(t, err)
		<-p.Done()
		require.Equal(t, 2, p.ExitCode(), "%s: %s", c.name, p.Log())
		require.Contains(t, p.Log(), c.want, c.name)
		require.Contains(t, p.Log(), "bad.toml", c.name)
		require.NotContains(t, p.Log(), "goroutine ", c.name)
	}
}
