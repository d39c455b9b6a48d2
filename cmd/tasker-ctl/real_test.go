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

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	daemons "github.com/tasker-go/tasker/daemon"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/telemetry"
	taskworker "github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/batch"
	"github.com/tasker-go/tasker/workflow"
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
		r.prepare(t, over, over)
		r.play(t, "daemons.txt", func(words []string) { ran.note(tasker, words) })
	}
	r.play(t, "local.txt", func(words []string) { ran.note(tasker, words) })
	r.prepareMore(t)
	r.play(t, "usage.txt", func([]string) {})
	require.Empty(t, r.unused(t), "usage lines of docs/reference/cli.md that no script in testdata/real runs")
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
	lines [][]string // that have run
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
	levels, err := telemetry.NewLevels("error", nil)
	require.NoError(t, err)
	o, w, err := daemons.NewEmbedded(t.Context(), loaded, registerShapes, levels.Over(zap.NewNop()))
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

// registerShapes adds two templates of the transcripts: one of them makes batches; right, a
// step of the other, fails for good where the context says so, and left holds on.
func registerShapes(w *taskworker.Worker) error {
	for _, name := range []string{"diamond.yaml", "rows.yaml"} {
		source, err := os.ReadFile(filepath.Join("testdata/templates", name))
		if err != nil {
			return err
		}
		t, _, err := template.Parse(name, source)
		if err != nil {
			return err
		}
		if err := registerShape(w, t); err != nil {
			return err
		}
	}
	return nil
}

func registerShape(w *taskworker.Worker, shape *workflow.Template) error {
	for _, step := range shape.Steps {
		err := w.Register(step.Handler.Callable, taskworker.HandlerFunc(func(ctx *taskworker.StepContext) (any, error) {
			var asked struct {
				Fail bool `json:"fail"`
				Hold bool `json:"hold"`
			}
			if err := json.Unmarshal(ctx.Input(), &asked); err != nil {
				return nil, err
			}
			if asked.Fail && ctx.StepName() == "right" {
				return nil, taskworker.Permanent(errors.New("no such order"))
			}
			if asked.Hold && ctx.StepName() == "left" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			if ctx.StepName() == "split" {
				return batch.Create("rows", batch.Split(10, 5, 2), 10), nil
			}
			return map[string]any{"n": 36}, nil
		}))
		if err != nil {
			return err
		}
	}
	return w.RegisterTemplate(shape)
}

// prepareMore makes what only usage.txt needs.
func (r *realPair) prepareMore(t *testing.T) {
	t.Helper()
	r.prepare(t, "rest", "usage-")
	held, err := r.api.CreateTask(t.Context(), client.TaskRequest{Name: "diamond", Namespace: "shapes", Version: "1.0.0",
		Context: json.RawMessage(`{"hold":true}`), Initiator: "test", SourceSystem: "test", Reason: "test"})
	require.NoError(t, err)
	r.names["held"] = held.TaskUUID
	rows, err := r.api.CreateTask(t.Context(), client.TaskRequest{Name: "rows", Namespace: "shapes", Version: "1.0.0",
		Context: json.RawMessage(`{}`), Initiator: "test", SourceSystem: "test", Reason: "test"})
	require.NoError(t, err)
	rows, err = r.api.Task(t.Context(), rows.TaskUUID, 20*time.Second)
	require.NoError(t, err)
	require.Equal(t, "complete", rows.Status)
	r.names["rows"] = rows.TaskUUID
	require.Eventually(t, func() bool {
		task, err := r.api.Task(t.Context(), held.TaskUUID, 0)
		return err == nil && slices.ContainsFunc(task.Steps, func(s client.StepReadiness) bool {
			return s.Name == "left" && s.CurrentState == "in_progress"
		})
	}, 20*time.Second, 10*time.Millisecond)
	r.names["spare"] = enginetest.Migrated(t).DSN
	for name, text := range map[string]string{
		"tasks.jsonl": `{"name":"diamond","namespace":"shapes","version":"1.0.0","context":{"imported":true}}`,
		"broker.toml": "[common.queues]\nbackend = \"rabbitmq\"\nrabbitmq.url = \"amqp://" + closedPort(t) + "\"\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(r.names["dir"], name), []byte(text), 0o600))
	}
}

// unused lists the usage lines of docs/reference/cli.md that no line of a script is. Groups, which
// show their help, run here.
func (r *realPair) unused(t *testing.T) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	root := testRoot()
	all := 0
	for _, part := range strings.Split(string(text), "\nUsage:\n")[1:] {
		for line := range strings.Lines(part) {
			line, indented := strings.CutPrefix(strings.TrimRight(line, "\n"), "  tasker-ctl ")
			if !indented {
				break
			}
			all++
			path, _, _ := strings.Cut(strings.TrimSuffix(line, " [flags]"), " [")
			words := strings.FieldsFunc(path, func(c rune) bool { return c == ' ' })
			words = slices.DeleteFunc(words, func(word string) bool { return strings.ToUpper(word) == word })
			if strings.HasSuffix(line, " COMMAND") {
				cmd, _, err := root.Find(words)
				require.NoError(t, err)
				if cmd.Runnable() && len(cmd.Commands()) > 0 {
					words = append(words, "--help")
				}
				got := r.run(t, words...)
				require.Zero(t, got.code, line+got.stderr)
				require.Contains(t, got.stdout, "Commands:", line)
				continue
			}
			if !slices.ContainsFunc(r.lines, func(ran []string) bool { return runs(root, ran, words) }) {
				lines = append(lines, line)
			}
		}
	}
	require.Greater(t, all, 150)
	return lines
}

// runs reports whether a command line is one of a command.
func runs(root *cobra.Command, line, command []string) bool {
	cmd, _, err := root.Traverse(line)
	return err == nil && cmd.CommandPath() == strings.Join(append([]string{"tasker-ctl"}, command...), " ")
}

// prepare makes the tasks of a script; label is the beginning of their idempotency keys.
func (r *realPair) prepare(t *testing.T, over, label string) {
	t.Helper()
	r.over, r.names["over"], r.names["label"], r.env["TASKER_CLIENT_TRANSPORT"] = over, over, label, over
	create := func(name, input string, delay float64) {
		task, err := r.api.CreateTask(t.Context(), client.TaskRequest{Name: "diamond", Namespace: "shapes", Version: "1.0.0", Context: json.RawMessage(input),
			Initiator: "test", SourceSystem: "test", Reason: "test", IdempotencyKey: label + name, DelaySeconds: &delay})
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
		if slices.Contains(lines, "[soon]") {
			got = r.soon(t, lines, words)
		}
		r.check(t, lines, got)
		r.lines = append(r.lines, words)
		r.names["out"] = strings.TrimSpace(got.stdout)
		last := strings.Fields(r.names["out"][strings.LastIndexByte(r.names["out"], '\n')+1:])
		r.names["last"] = strings.Join(last[:min(len(last), 1)], "")
	}
}

// soon runs a command until its output has the texts of a script.
func (r *realPair) soon(t *testing.T, lines, words []string) (got outcome) {
	t.Helper()
	require.Eventually(t, func() bool {
		got = r.run(t, words...)
		return !slices.ContainsFunc(lines[1:], func(line string) bool { return line != "[soon]" && !strings.Contains(got.stdout, line) })
	}, 20*time.Second, 10*time.Millisecond, lines)
	return got
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
		if n, err := fmt.Sscanf(line, "[exit %d]", &code); err == nil && n == 1 || line == "[rest only]" || line == "[soon]" {
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
