package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	daemons "github.com/tasker-go/tasker/daemon"
	"github.com/tasker-go/tasker/internal/enginetest"
	taskworker "github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow/template"
)

// commandsRun are the commands and flags of Tasker's tool that have run, as "task get" and
// "task list --limit".
type commandsRun map[string]bool

// note adds what stands in a command line.
func (c commandsRun) note(tasker []taskerCommand, words []string) {
	line, best := " "+strings.Join(words, " ")+" ", taskerCommand{}
	for _, command := range tasker {
		if strings.Contains(line, " "+command.path+" ") && len(command.path) > len(best.path) {
			best = command
		}
	}
	before, after, _ := strings.Cut(line, " "+best.path+" ")
	c[best.path] = true
	c.flags(tasker[0], before)
	c.flags(best, after)
	if strings.Contains(line, " --format ") && best.flags["format"] == "" {
		c[" --format"] = true
	}
}

func (c commandsRun) flags(of taskerCommand, line string) {
	words := strings.Fields(line)
	for name, letter := range of.flags {
		if slices.Contains(words, "--"+name) || letter != "" && slices.Contains(words, "-"+letter) {
			c[of.path+" --"+name] = true
		}
	}
}

// lacks lists what has not run.
func (c commandsRun) lacks(tasker []taskerCommand) (names []string) {
	for _, command := range tasker {
		if command.path != "" && !c[command.path] {
			names = append(names, command.path)
		}
		for _, flag := range slices.Sorted(maps.Keys(command.flags)) {
			if name := command.path + " --" + flag; !c[name] {
				names = append(names, name)
			}
		}
	}
	return names
}

// TestEveryCommandAgainstRealDaemons runs every command of Tasker's tool with each of its
// flags against an orchestrator and a worker, over REST and over gRPC; what is not here has
// to be refused.
func TestEveryCommandAgainstRealDaemons(t *testing.T) {
	t.Parallel()
	tasker, ran := readTaskerCLI(t), commandsRun{}
	r := startReal(t)
	for _, over := range []string{"rest", "grpc"} {
		r.prepare(t, over)
		r.play(t, "daemons.txt", func(words []string) { ran.note(tasker, words) })
	}
	r.play(t, "local.txt", func(words []string) { ran.note(tasker, words) })
	r.refused(t, tasker, ran)
	require.Empty(t, ran.lacks(tasker), "in testdata/tasker-cli.txt and run by no script in testdata/real")
	delete(ran, "task cancel")
	delete(ran, "worker health --all")
	require.Equal(t, []string{"task cancel", "worker health --all"}, ran.lacks(tasker))
}

// realPair is a pair of daemons and what scripts know of them.
type realPair struct {
	api   *client.Client
	env   map[string]string
	names map[string]string
	over  string
}

func startReal(t *testing.T) *realPair {
	t.Helper()
	db := enginetest.Migrated(t)
	loaded, err := config.Load(config.Options{WorkerID: "worker-under-test", LookupEnv: func(name string) (string, bool) {
		if name == "DATABASE_URL" {
			return db.DSN, true
		}
		return "", false
	}})
	require.NoError(t, err)
	for _, address := range []*string{&loaded.Orchestration.Web.BindAddress, &loaded.Worker.Web.BindAddress,
		&loaded.Orchestration.GRPC.BindAddress, &loaded.Worker.GRPC.BindAddress} {
		*address = "127.0.0.1:0"
	}
	loaded.Orchestration.GRPC.Enabled, loaded.Worker.GRPC.Enabled = true, true
	o, w, err := daemons.NewEmbedded(t.Context(), loaded, registerDiamond, zap.NewNop())
	require.NoError(t, err)
	for _, d := range []interface {
		Start(context.Context) error
		Stop(context.Context) error
	}{o, w} {
		require.NoError(t, d.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, d.Stop(context.Background())) })
	}
	at := func(a net.Addr) string { return "http://" + a.String() }
	r := &realPair{api: client.New(client.Config{BaseURL: at(o.Addr())}), names: map[string]string{"dir": t.TempDir()}, env: map[string]string{
		"TASKER_ORCHESTRATION_URL": at(o.Addr()), "TASKER_ORCHESTRATION_GRPC_URL": at(o.GRPCAddr()),
		"TASKER_WORKER_URL": at(w.Addr()), "TASKER_WORKER_GRPC_URL": at(w.GRPCAddr()), "DATABASE_URL": db.DSN,
	}}
	r.writeProfiles(t)
	return r
}

func (r *realPair) writeProfiles(t *testing.T) {
	t.Helper()
	text := fmt.Sprintf(`[profile.default.orchestration]
base_url = %q
[profile.default.worker]
base_url = %[2]q
[profile.rest]
transport = "rest"
[profile.grpc]
transport = "grpc"
[profile.grpc.orchestration]
base_url = %[3]q
[profile.grpc.worker]
base_url = %[4]q
`, r.env["TASKER_ORCHESTRATION_URL"], r.env["TASKER_WORKER_URL"], r.env["TASKER_ORCHESTRATION_GRPC_URL"], r.env["TASKER_WORKER_GRPC_URL"])
	require.NoError(t, os.WriteFile(filepath.Join(r.names["dir"], "client.toml"), []byte(text), 0o600))
}

// registerDiamond adds the template of the transcripts; right fails for good where the
// context says so.
func registerDiamond(w *taskworker.Worker) error {
	source, err := os.ReadFile("testdata/templates/diamond.yaml")
	if err != nil {
		return err
	}
	diamond, _, err := template.Parse("diamond.yaml", source)
	if err != nil {
		return err
	}
	for _, step := range diamond.Steps {
		err := w.Register(step.Handler.Callable, taskworker.HandlerFunc(func(ctx *taskworker.StepContext) (any, error) {
			var asked struct {
				Fail bool `json:"fail"`
			}
			if err := json.Unmarshal(ctx.Input(), &asked); err != nil {
				return nil, err
			}
			if asked.Fail && ctx.StepName() == "right" {
				return nil, taskworker.Permanent(errors.New("no such order"))
			}
			return map[string]any{"n": 36}, nil
		}))
		if err != nil {
			return err
		}
	}
	return w.RegisterTemplate(diamond)
}

// prepare makes the tasks of a script.
func (r *realPair) prepare(t *testing.T, over string) {
	t.Helper()
	r.over, r.names["over"], r.env["TASKER_CLIENT_TRANSPORT"] = over, over, over
	create := func(name, input string, delay float64) {
		task, err := r.api.CreateTask(t.Context(), client.TaskRequest{Name: "diamond", Namespace: "shapes", Version: "1.0.0", Context: json.RawMessage(input),
			Initiator: "test", SourceSystem: "test", Reason: "test", IdempotencyKey: over + name, DelaySeconds: &delay})
		require.NoError(t, err)
		r.names[name] = task.TaskUUID
	}
	ended := func(name, status string) {
		task, err := r.api.Task(t.Context(), r.names[name], 20*time.Second)
		require.NoError(t, err)
		require.Equal(t, status, task.Status)
	}
	failed := []string{"failed1", "failed2", "failed3", "failed4"}
	create("done", `{}`, 0)
	create("waiting", `{}`, 3600)
	for _, name := range failed {
		create(name, `{"fail":true}`, 0)
	}
	ended("done", "complete")
	for _, name := range failed {
		ended(name, "error")
	}
	entry, err := r.api.AddDLQEntry(t.Context(), client.DLQAdd{TaskUUID: r.names["failed4"], Reason: "look", Actor: "ana"})
	require.NoError(t, err)
	r.names["entry"] = entry.DLQEntryUUID
}

// play runs the commands of a script.
func (r *realPair) play(t *testing.T, script string, note func(words []string)) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/real", script))
	require.NoError(t, err)
	for _, block := range strings.Split("\n"+string(text), "\n$ ")[1:] {
		lines := strings.Split(r.replace(block), "\n")
		words := split(t, lines[0])
		note(words)
		got := r.run(t, words...)
		r.check(t, lines, got)
		r.names["out"] = strings.TrimSpace(got.stdout)
	}
}

func (r *realPair) replace(text string) string {
	for name, value := range r.names {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

func (r *realPair) check(t *testing.T, lines []string, got outcome) {
	t.Helper()
	output := got.stdout + got.stderr
	about := fmt.Sprintf("over %s: %s\n%s", r.over, lines[0], output)
	if slices.Contains(lines, "[rest only]") && r.over == "grpc" {
		require.Equal(t, exitUsage, got.code, about)
		require.Contains(t, got.stderr, "REST serves", about)
		return
	}
	code := 0
	for _, line := range lines[1:] {
		if n, err := fmt.Sscanf(line, "[exit %d]", &code); err == nil && n == 1 || line == "[rest only]" {
			continue
		}
		require.Contains(t, output, line, about)
	}
	require.Equal(t, code, got.code, about)
}

func (r *realPair) run(t *testing.T, words ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, words, strings.NewReader(""), &stdout, &stderr, func(name string) (string, bool) {
		value, ok := r.env[name]
		return value, ok
	})
	return outcome{stdout.String(), stderr.String(), code}
}

// refused runs what the table of differences calls none.
func (r *realPair) refused(t *testing.T, tasker []taskerCommand, ran commandsRun) {
	t.Helper()
	none := differences(t)
	for _, command := range tasker {
		group, _, _ := strings.Cut(command.path, " ")
		whole := none[command.path] || none[group]
		if whole {
			got := r.run(t, strings.Fields(command.path)...)
			require.Equal(t, exitUsage, got.code, command.path)
			require.Contains(t, got.stderr, "there is no", command.path)
			ran[command.path] = true
		}
		for flag := range command.flags {
			name := command.path + " --" + flag
			if !whole && !none[name] {
				continue
			}
			got := r.run(t, append(strings.Fields(command.path), "--"+flag, "x")...)
			require.Equal(t, exitUsage, got.code, name)
			require.NotEmpty(t, got.stderr, name)
			ran[name] = true
		}
	}
}
