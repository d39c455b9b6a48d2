package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/internal/store"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	answered := func(status int) error { return fmt.Errorf("create: %w", &client.Error{Status: status}) }
	for name, tt := range map[string]struct {
		err  error
		want int
	}{
		"failure":           {failure("ended in error"), exitFailed},
		"any other error":   {errors.New("disk full"), exitFailed},
		"usage":             {usagef("wrong"), exitUsage},
		"hinted usage":      {hinted{usagef("wrong"), "do it right"}, exitUsage},
		"configuration":     {fmt.Errorf("load: %w", &config.ValidationError{}), exitFailed},
		"400":               {answered(http.StatusBadRequest), exitUsage},
		"401":               {answered(http.StatusUnauthorized), exitPermission},
		"403":               {answered(http.StatusForbidden), exitPermission},
		"404":               {answered(http.StatusNotFound), exitNotFound},
		"408":               {answered(http.StatusRequestTimeout), exitUnavailable},
		"409":               {answered(http.StatusConflict), exitConflict},
		"413":               {answered(http.StatusRequestEntityTooLarge), exitUsage},
		"415":               {answered(http.StatusUnsupportedMediaType), exitUsage},
		"422":               {answered(http.StatusUnprocessableEntity), exitUsage},
		"429":               {answered(http.StatusTooManyRequests), exitUnavailable},
		"500":               {answered(http.StatusInternalServerError), exitFailed},
		"502":               {answered(http.StatusBadGateway), exitUnavailable},
		"503":               {answered(http.StatusServiceUnavailable), exitUnavailable},
		"504":               {answered(http.StatusGatewayTimeout), exitUnavailable},
		"no answer":         {fmt.Errorf("get: %w", &url.Error{Op: "Get", URL: "http://x", Err: errors.New("refused")}), exitUnavailable},
		"too late":          {fmt.Errorf("get: %w", context.DeadlineExceeded), exitUnavailable},
		"database away":     {fmt.Errorf("migrate: %w", store.ErrUnavailable), exitUnavailable},
		"cancel after end":  {coded{answered(http.StatusBadRequest), exitConflict}, exitConflict},
		"unknown to server": {hinted{answered(http.StatusNotFound), "look elsewhere"}, exitNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, exitCode(tt.err))
		})
	}
}

// TestImportedTasksKeepEveryField: a line of an import is a request as the API
// takes it.
func TestImportedTasksKeepEveryField(t *testing.T) {
	t.Parallel()
	var full client.TaskRequest
	for field, value := range reflect.ValueOf(&full).Elem().Fields() {
		filled := map[reflect.Type]any{
			reflect.TypeFor[string](): field.Name, reflect.TypeFor[json.RawMessage](): json.RawMessage(`{"n":1.000000000000000001}`),
			reflect.TypeFor[[]string](): []string{field.Name}, reflect.TypeFor[*string](): &field.Name, reflect.TypeFor[*int](): new(7),
			reflect.TypeFor[*float64](): new(1.5), reflect.TypeFor[*client.Time](): &client.Time{Time: time.Unix(1e9, 0).UTC()},
		}[field.Type]
		require.NotNil(t, filled, "this test does not know the type of %s", field.Name)
		value.Set(reflect.ValueOf(filled))
	}
	line, err := json.Marshal(full)
	require.NoError(t, err)
	err = eachBatch(bytes.NewReader(line), func(f importFailure) { t.Errorf("line %d: %s", f.Line, f.Message) }, func(tasks []client.TaskRequest, _ []int) error {
		require.Equal(t, []client.TaskRequest{full}, tasks)
		return nil
	})
	require.NoError(t, err)
}

// Foreign text cannot break the one line of an error or steer the terminal.
func TestErrorsAreOneLine(t *testing.T) {
	t.Parallel()
	line := errorLine(&client.Error{Status: 500, Code: "X", Message: "one\n\x1b[2Jtwo", RequestID: "r"}, exitFailed)
	require.Equal(t, "one [2Jtwo (X, request id r)", line)
}

func TestInterruptedCommandsSaySo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := newSession(t)
	require.Equal(t, exitInterrupted, s.run(ctx, "", "task", "list").code)
	require.Equal(t, exitUsage, s.run(ctx, "", "task", "list", "--nothing").code)
}

// commands lists every command of the tree.
func commands(root *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{root}
	for _, sub := range root.Commands() {
		all = append(all, commands(sub)...)
	}
	return all
}

func testRoot() *cobra.Command {
	return newRootCommand(newApp(nil, nil, nil, func(string) (string, bool) { return "", false }))
}

// Each command explains itself, accepts --help, and no flag or letter means
// two things in it.
func TestEveryCommandIsComplete(t *testing.T) {
	t.Parallel()
	for _, cmd := range commands(testRoot()) {
		name := cmd.CommandPath()
		require.NotEmpty(t, cmd.Short, name)
		require.NotContains(t, cmd.Short, ".", name)
		letters := map[string]string{}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			require.NotEmpty(t, f.Usage, "%s --%s", name, f.Name)
			if f.Shorthand != "" {
				require.Empty(t, letters[f.Shorthand], "%s -%s", name, f.Shorthand)
				letters[f.Shorthand] = f.Name
			}
		})
	}
}

// The letters of global flags mean the command's own after it.
func TestLettersBelongToWhereTheyStand(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "client.toml")
	require.NoError(t, os.WriteFile(file, []byte("[profile.staging]\n"), 0o600))
	s := newSession(t)
	o := s.run(t.Context(), "", "-c", file, "-p", "staging", "-v", "task", "create", "--name", "diamond", "-n", "shapes",
		"-c", "019D1C5E-0c3e-7a41-9a0e-5b7b1b0a1f11", "-p", "-7", "-v", "2.0.0", "-d", "why", "-i", `{"b": 1.50, "a": 12345678901234567890}`,
		"--tag", "x,y", "--tag", "z", "--idempotency-key", "k", "--delay", "90s")
	require.Zero(t, o.code, o.stderr)
	require.Contains(t, o.stderr, "profile staging")
	require.Len(t, s.api.bodies, 1)
	require.Equal(t, `{"name":"diamond","namespace":"shapes","version":"2.0.0","context":{"b":1.50,"a":12345678901234567890},`+
		`"initiator":"tasker-ctl","source_system":"cli","reason":"why","tags":["x,y","z"],"priority":-7,`+
		`"correlation_id":"019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f11","idempotency_key":"k","delay_seconds":90}`, s.api.bodies[0])
}

func TestCreateDefaults(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	require.Zero(t, s.run(t.Context(), ` {"n": 1} `, "task", "create", "--name", "diamond", "-i", "-").code)
	require.JSONEq(t, `{"name":"diamond","namespace":"default","context":{"n":1},"initiator":"tasker-ctl",
		"source_system":"cli","reason":"CLI task creation"}`, s.api.bodies[0])
	o := s.run(t.Context(), strings.Repeat(" ", maxInput+1), "task", "create", "--name", "diamond", "-i", "-")
	require.Equal(t, exitUsage, o.code)
	require.Contains(t, o.stderr, "larger than")
}

// Flags go over the environment and the profile.
func TestWhoIsAsked(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tasker.toml")
	require.NoError(t, os.WriteFile(file, []byte("[profile.other.worker]\nmax_retries = 1\nauth = { token = \"t\" }\n"), 0o600))
	env := map[string]string{"TASKER_WORKER_URL": "http://env:1", "TASKER_WORKER_TIMEOUT_MS": "250"}
	a := newApp(nil, nil, nil, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	a.global = globalOptions{config: file, profile: "other"}
	got, err := a.endpoint(worker)
	require.NoError(t, err)
	require.Equal(t, client.Config{BaseURL: "http://env:1", Timeout: 250 * time.Millisecond, MaxRetries: 1, Token: "t"}, got.Config)
	a.global.workerURL, a.global.timeout = "http://flag:1", time.Minute
	got, err = a.endpoint(worker)
	require.NoError(t, err)
	require.Equal(t, []any{"http://flag:1", time.Minute}, []any{got.BaseURL, got.Timeout})
	got, err = a.endpoint(orchestrator)
	require.NoError(t, err)
	require.Equal(t, "http://localhost:8080", got.BaseURL)
}

// A profile with the transport grpc has its effect.
func TestOverGRPC(t *testing.T) {
	t.Parallel()
	at, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	taskerv1.RegisterTemplateServiceServer(server, templatesOverGRPC{})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(at) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-ended)
	})
	s := newSession(t)
	s.env["TASKER_CLIENT_TRANSPORT"], s.env["TASKER_ORCHESTRATION_GRPC_URL"] = "grpc", "http://"+at.Addr().String()
	o := s.run(t.Context(), "", "-o", "json", "template", "list")
	require.Zero(t, o.code, o.stderr)
	require.Contains(t, o.stdout, `"over-grpc"`)
	o = s.run(t.Context(), "", "schedule", "list")
	require.Equal(t, exitUsage, o.code)
	require.Contains(t, o.stderr, "REST serves GET /v1/schedules")
	s.env["TASKER_CLIENT_TRANSPORT"] = "pigeon"
	o = s.run(t.Context(), "", "template", "list")
	require.Equal(t, exitUsage, o.code)
	require.Contains(t, o.stderr, "invalid transport")
}

// templatesOverGRPC has one template.
type templatesOverGRPC struct {
	taskerv1.UnimplementedTemplateServiceServer
}

// ListTemplates implements taskerv1.TemplateServiceServer.
func (templatesOverGRPC) ListTemplates(context.Context, *taskerv1.ListTemplatesRequest) (*taskerv1.ListTemplatesResponse, error) {
	return &taskerv1.ListTemplatesResponse{Templates: []*taskerv1.TemplateSummary{{Name: "over-grpc", Namespace: "n", Version: "1.0.0"}}}, nil
}

// What cannot be read is told without showing the line, which may hold a key.
func TestBadProfilesKeepTheirSecrets(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"[profile.default.orchestration.auth]\ntoken = \"hunter2\nx = 1\n",
		"[profile.default.orchestration]\nauth = \"hunter2\"\n",
		"[profile.default.orchestration]\nbase_url = \"ftp://u:hunter2@host\"\n",
		"[profile.default.orchestration]\nbase_url = \"http://u:hunter2@host:x\"\n",
	} {
		file := filepath.Join(t.TempDir(), "client.toml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		s := newSession(t)
		delete(s.env, "TASKER_ORCHESTRATION_URL")
		o := s.run(t.Context(), "", "-vv", "-c", file, "task", "list")
		require.Equal(t, exitUsage, o.code, o.stderr)
		require.NotContains(t, o.stderr, "hunter2")
	}
}

func TestVerboseTellsOfRequests(t *testing.T) {
	t.Parallel()
	o := newSession(t).run(t.Context(), "", "-vv", "system", "mode")
	require.Equal(t, "tasker-ctl: orchestrator at http://SERVER (profile default)\n"+
		"tasker-ctl: GET http://SERVER/v1/admin/deployment-mode answered 200 after 0s, request id req-1\n", o.stderr)
}

// Completion asks the server, briefly, and offers nothing when it is away.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args []string
		want []string
	}{
		"commands":   {[]string{"task", "can"}, []string{"cancel\tCancel a task that has not ended"}},
		"names":      {[]string{"task", "create", "--name", ""}, []string{"chain", "diamond"}},
		"namespaces": {[]string{"task", "create", "--namespace", ""}, []string{"lines", "shapes"}},
		"versions":   {[]string{"task", "create", "--version", ""}, []string{"1.0.0", "2.1.0"}},
		"templates":  {[]string{"template", "info", "shapes/d"}, []string{"shapes/diamond:1.0.0"}},
		"statuses":   {[]string{"task", "list", "--status", "can"}, []string{"cancelled"}},
		"tasks": {[]string{"task", "get", "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f1"},
			[]string{runningTask + "\tshapes/diamond:1.0.0 steps_in_process"}},
		"task of a flag": {[]string{"approval", "list", "--task", "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f3"},
			[]string{completeTask + "\tshapes/diamond:1.0.0 complete"}},
		"entries": {[]string{"dlq", "replay", "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a2f1"},
			[]string{pendingEntry + "\tMaxRetriesExceeded of task " + failedTask}},
		"steps of a beginning": {[]string{"task", "step", "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f1", "l"}, []string{"left"}},
		"steps":                {[]string{"task", "step", runningTask, ""}, []string{"start", "left", "right", "join"}},
		"schedules":            {[]string{"schedule", "show", ""}, []string{"shapes/nightly", "shapes/weekly"}},
		"consumers":            {[]string{"events", "consumers", "show", ""}, []string{"ledger", "mailer"}},
		"formats":              {[]string{"task", "list", "-o", "y"}, []string{"yaml"}},
		"root flags":           {[]string{"-o", "j"}, []string{"json"}},
		"modes":                {[]string{"system", "mode", "P"}, []string{"PollingOnly"}},
		"daemons":              {[]string{"system", "mode", "--daemon", "w"}, []string{"worker"}},
		"keys":                 {[]string{"config", "explain", "common.database.pool.max_c"}, []string{"common.database.pool.max_connections"}},
		"contexts":             {[]string{"config", "generate", "--context", "wo"}, []string{"worker"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			o := s.run(t.Context(), "", append([]string{"__complete"}, tt.args...)...)
			require.Zero(t, o.code, o.stderr)
			var got []string
			for line := range strings.Lines(o.stdout) {
				line = strings.TrimSuffix(line, "\n")
				if strings.HasPrefix(line, ":") {
					break
				}
				if strings.HasPrefix(line, tt.args[len(tt.args)-1]) { // the shell filters what functions offer
					got = append(got, line)
				}
			}
			require.Equal(t, tt.want, got)
			s.env["TASKER_ORCHESTRATION_URL"] = s.env["NOWHERE"]
			require.Zero(t, s.run(t.Context(), "", append([]string{"__complete"}, tt.args...)...).code)
		})
	}
}

func TestGenerateWritesAFileThatLoads(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "worker.toml")
	s := newSession(t)
	o := s.run(t.Context(), "", "config", "generate", "-c", "worker", "-e", "production", "-o", file, "--validate")
	require.Zero(t, o.code, o.stderr)
	require.Empty(t, o.stdout)
	o = s.run(t.Context(), "", "config", "validate", "-c", file, "-t", "worker", "--strict", "-e", "production")
	require.Zero(t, o.code, o.stdout+o.stderr)
	o = s.run(t.Context(), "", "config", "generate", "-c", "worker", "-e", "test", "-o", filepath.Join(file, "x"))
	require.Equal(t, exitFailed, o.code)
}

// What is written is refused where config validate refuses it: files that load may still keep
// a daemon from starting.
func TestGenerateRefusesWhatValidateRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for file, text := range map[string]string{
		"common.toml":        "[common.database]\nurl = \"postgresql://localhost/tasker\"\n",
		"orchestration.toml": "[orchestration.web.auth]\nenabled = true\n",
		"worker.toml":        "[worker]\nlease_seconds = 5\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "base"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "base", file), []byte(text), 0o600))
	}
	s := newSession(t)
	for role, says := range map[string]string{
		"orchestration": "a daemon does not start: ", "worker": "worker.lease_seconds", "common": "",
	} {
		file := filepath.Join(dir, role+".toml")
		generate := []string{"config", "generate", "-c", role, "-e", "test", "-s", dir, "--validate"}
		written := s.run(t.Context(), "", append(generate, "-o", file)...)
		require.Empty(t, written.stdout, role)
		shown := s.run(t.Context(), "", generate...)
		require.Contains(t, shown.stdout, "[common.database]", role)
		checked := s.run(t.Context(), "", "config", "validate", "-c", file, "-t", role, "-e", "test")
		require.Equal(t, says != "", checked.code == exitFailed, checked.stdout)
		require.Equal(t, []int{checked.code, checked.code}, []int{written.code, shown.code}, role)
		for _, o := range []outcome{{stderr: checked.stdout}, written, shown} {
			require.Contains(t, o.stderr, says, role)
		}
	}
}

func TestReferenceOfKeys(t *testing.T) {
	t.Parallel()
	o := newSession(t).run(t.Context(), "", "config", "reference")
	require.Equal(t, string(config.ReferenceMarkdown()), o.stdout)
}

// The corpus, where it is at hand, is checked as a user would check it.
func TestCorpusIsValid(t *testing.T) {
	t.Parallel()
	const corpus = "../../../shared/corpus/templates"
	if _, err := os.Stat(corpus); err != nil {
		t.Skip("the corpus of templates is not here")
	}
	o := newSession(t).run(t.Context(), "", "-o", "json", "template", "validate", corpus)
	require.Zero(t, o.code, o.stdout)
	var report templateReport
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &report))
	require.Len(t, report.Templates, 25)
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := newSession(t)
	s.env["DATABASE_URL"] = db.DSN
	newest := int64(store.SchemaVersion)

	status := func() (rows []migrationRow) {
		o := s.run(t.Context(), "", "-o", "json", "migrate", "status")
		require.Zero(t, o.code, o.stderr)
		require.NoError(t, json.Unmarshal([]byte(o.stdout), &rows))
		return rows
	}
	known := status()
	for _, row := range known {
		require.False(t, row.Applied)
		require.Nil(t, row.AppliedAt)
	}
	o := s.run(t.Context(), "", "migrate", "plan")
	require.Zero(t, o.code, o.stderr)
	require.Contains(t, o.stdout, "106 00106_failed_plans.sql (expand)\n    The plan of tasks that failed")
	require.Contains(t, o.stdout, "then, without a lock for long: fill rows in batches; create index step_attempts_failed_by_plan concurrently")
	require.NotZero(t, s.run(t.Context(), "", "migrate", "verify").code)
	o = s.run(t.Context(), "", "migrate", "up", "--wait", "1s")
	require.Zero(t, o.code, o.stderr)
	require.Equal(t, len(known), strings.Count(o.stdout, "applied migration"))
	require.Equal(t, "the schema is up to date\n", s.run(t.Context(), "", "migrate", "up").stdout)
	for _, row := range status() {
		require.True(t, row.Applied)
		require.NotNil(t, row.AppliedAt)
	}
	require.Equal(t, "the schema is up to date\n", s.run(t.Context(), "", "migrate", "plan").stdout)
	o = s.run(t.Context(), "", "migrate", "verify")
	require.Zero(t, o.code, o.stderr)
	require.Equal(t, fmt.Sprintf("the schema is that of version %d\n", newest), o.stdout)
	db.Exec(t, `drop index tasker.board_due`)
	o = s.run(t.Context(), "", "migrate", "verify")
	require.Equal(t, exitFailed, o.code)
	require.Contains(t, o.stdout, "missing: CREATE INDEX board_due")
	require.Equal(t, exitUsage, s.run(t.Context(), "", "migrate", "down").code)
	o = s.run(t.Context(), "", "migrate", "down", "--yes")
	require.Zero(t, o.code, o.stderr)
	require.Equal(t, fmt.Sprintf("rolled back migration %d\n", newest), o.stdout)
	rows := status()
	require.False(t, rows[len(rows)-1].Applied)

	// The configuration names the database where the environment does not.
	file := filepath.Join(t.TempDir(), "tasker.toml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "[common.database]\nurl = %q\n", db.DSN), 0o600))
	delete(s.env, "DATABASE_URL")
	o = s.run(t.Context(), "", "migrate", "up", "--config-file", file)
	require.Zero(t, o.code, o.stderr)
	require.Contains(t, s.run(t.Context(), "", "migrate", "status", "--database-url", db.DSN).stdout, "VERSION")
}

// TestMigrateWaits: the database of a new deployment comes later than the job that migrates it.
func TestMigrateWaits(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	target, err := url.Parse(db.TCPDSN)
	require.NoError(t, err)
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	server := target.Host
	target.Host = address
	s := newSession(t)
	s.env["DATABASE_URL"] = target.String()
	o := s.run(t.Context(), "", "migrate", "up")
	require.Equal(t, exitUnavailable, o.code, o.stderr)
	done := make(chan outcome, 1)
	go func() { done <- s.run(t.Context(), "", "migrate", "up", "--wait", "1m") }()
	forward(t, address, server)
	o = <-done
	require.Zero(t, o.code, o.stderr)
	require.Contains(t, o.stdout, "applied migration 100")
}

// forward passes connections to an address on to a server.
func forward(t *testing.T, address, server string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server)
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	}()
}

func TestDropSlot(t *testing.T) {
	t.Parallel()
	db, other := pgtest.New(t), pgtest.New(t)
	slot := "ctl_" + db.Name
	db.Exec(t, `select pg_create_logical_replication_slot($1, 'pgoutput')`, slot)
	slots := func() int {
		return db.QueryInt(t, `select count(*) from pg_replication_slots where slot_name = $1`, slot)
	}
	s := newSession(t)
	s.env["DATABASE_URL"] = other.DSN

	o := s.run(t.Context(), "", "system", "drop-slot", slot, "--database-url", db.DSN)
	require.Equal(t, exitUsage, o.code)
	require.Contains(t, o.stderr, "--yes")
	o = s.run(t.Context(), "", "system", "drop-slot", slot, "--yes")
	require.Equal(t, exitNotFound, o.code, "of another database: %s", o.stderr)
	require.Equal(t, 1, slots())

	// The connection of the listeners wins over that of the pool.
	file := filepath.Join(t.TempDir(), "tasker.toml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "[common.database]\nurl = %q\nlistener_url = %q\n", other.DSN, db.DSN), 0o600))
	delete(s.env, "DATABASE_URL")
	o = s.run(t.Context(), "", "-o", "json", "system", "drop-slot", slot, "--yes", "--config-file", file)
	require.Zero(t, o.code, o.stderr)
	require.JSONEq(t, `{"dropped":"`+slot+`"}`, o.stdout)
	require.Zero(t, slots())
	o = s.run(t.Context(), "", "system", "drop-slot", slot, "--yes", "--database-url", db.DSN)
	require.Equal(t, exitNotFound, o.code, o.stderr)
}

func TestDropSlotInUse(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, nil).New(t) // a slot waits for all transactions of a server
	slot := "ctl_" + db.Name
	source, err := wal.New(wal.Config{DSN: db.DSN, Slot: slot}, wal.NewTransport(db.Pool(t)))
	require.NoError(t, err)
	reader, err := source.Connect(t.Context(), nil)
	require.NoError(t, err)
	s := newSession(t)
	s.env["DATABASE_URL"] = db.DSN
	o := s.run(t.Context(), "", "system", "drop-slot", slot, "--yes")
	require.Equal(t, exitConflict, o.code)
	require.Contains(t, o.stderr, "stop its reader")
	require.NoError(t, reader.Close(t.Context()))
	o = s.run(t.Context(), "", "system", "drop-slot", slot, "--yes")
	require.Zero(t, o.code, o.stderr)
	require.Equal(t, "dropped the slot "+slot+"\n", o.stdout)
}

// A line that is too long fails alone; the last needs no end.
func TestLongLinesOfAnImport(t *testing.T) {
	t.Parallel()
	long := `{"name":"` + strings.Repeat("x", maxInput) + `"}`
	for name, text := range map[string]string{"first": long + "\n{\"name\":\"a\"}\n\n{\"name\":\"b\"}", "last": "{\"name\":\"a\"}\n{\"name\":\"b\"}\n" + long} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var failed []importFailure
			var names []string
			require.NoError(t, eachBatch(strings.NewReader(text), func(f importFailure) { failed = append(failed, f) },
				func(tasks []client.TaskRequest, _ []int) error {
					for i := range tasks {
						names = append(names, tasks[i].Name)
					}
					return nil
				}))
			require.Equal(t, []string{"a", "b"}, names)
			require.Len(t, failed, 1)
			require.Equal(t, map[string]int{"first": 1, "last": 3}[name], failed[0].Line)
			require.Equal(t, invalidLine, failed[0].Code)
		})
	}
}

// A letter stands for the same flag in the help of all commands, and what a flag is called
// is called so in all of them.
func TestALetterIsOneFlag(t *testing.T) {
	t.Parallel()
	letters := map[string]string{}
	for _, cmd := range commands(testRoot()) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Shorthand == "" || f.Name == "follow" { // -f as in tail and kubectl logs
				return
			}
			if other, known := letters[f.Shorthand]; known {
				require.Equal(t, other, f.Name, "%s: -%s", cmd.CommandPath(), f.Shorthand)
			}
			letters[f.Shorthand] = f.Name
		})
	}
	require.Equal(t, map[string]string{"c": "config", "p": "profile", "v": "verbose", "t": "template"},
		map[string]string{"c": letters["c"], "p": letters["p"], "v": letters["v"], "t": letters["t"]})
}

// Each other name of a flag, as those that it had before, gives the flag its value, and no
// help shows it.
func TestOtherNamesOfFlags(t *testing.T) {
	t.Parallel()
	others := 0
	for _, cmd := range commands(testRoot()) {
		var text bytes.Buffer
		require.NoError(t, writeUsage(&text, cmd))
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			of := f.Annotations[byAnotherName]
			if of == nil {
				return
			}
			others++
			name := cmd.CommandPath() + " --" + f.Name
			require.NotContains(t, text.String(), "--"+f.Name+" ", name)
			main := cmd.Flags().Lookup(of[0])
			require.NotNil(t, main, name)
			value := map[string]string{"int": "7", "duration": "7s", "bool": "true"}[f.Value.Type()]
			if value == "" {
				value = "7"
			}
			require.NoError(t, cmd.Flags().Set(f.Name, value), name)
			require.True(t, main.Changed, name)
			require.Contains(t, main.Value.String(), value, name)
		})
	}
	require.Greater(t, others, 60)
}

// What only shows what would be done needs no reason, and what does it needs one.
func TestReasonsAreForChanges(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"task run-again " + runningTask + " right", "task replay " + runningTask, "task reset-step " + runningTask + " right",
		"task action cancel --name diamond", "task batches replay " + runningTask, "dlq purge --older-than 1h", "dlq replay --all",
	} {
		o := newSession(t).run(t.Context(), "", append(strings.Fields(line), "--dry-run")...)
		require.Zero(t, o.code, line+o.stderr)
		o = newSession(t).run(t.Context(), "", strings.Fields(line)...)
		require.Equal(t, exitUsage, o.code, line)
		require.Contains(t, o.stderr, `required flag(s) "reason" not set`, line)
	}
}

// TestTimesOfFlagsNeedAZone: a time without a zone is another moment for each of its readers.
func TestTimesOfFlagsNeedAZone(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	for flag, args := range map[string][]string{
		"--until": {"task", "list"}, "--since": {"dlq", "replay", "-r", "why"},
		"--start-at": {"task", "create", "--name", "diamond", "-n", "shapes", "-i", "{}"},
	} {
		o := s.run(t.Context(), "", append(args, flag, "2126-01-31T09:00:00")...)
		require.Equal(t, exitUsage, o.code, flag)
		require.Contains(t, o.stderr, "invalid "+flag+` "2126-01-31T09:00:00": want a time such as 2026-03-21T10:00:00Z`)
		require.NotContains(t, s.run(t.Context(), "", append(args, flag, "2126-01-31t09:00:00z")...).stderr, "invalid "+flag)
	}
}
