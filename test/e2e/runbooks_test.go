package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgcluster"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/redistest"
	"github.com/tasker-go/tasker/worker"
)

// shopTemplates are the workflows that the pages are about.
var shopTemplates = []string{`
name: order
namespace_name: shop
version: 1.0.0
steps:
  - {name: check, handler: {callable: shop.check}}
  - {name: charge, depends_on: [check], handler: {callable: shop.charge}}
`, `
name: lost
namespace_name: shop
version: 1.0.0
steps:
  - {name: charge, handler: {callable: elsewhere.charge}}
`, `
name: refund
namespace_name: shop
version: 1.0.0
steps:
  - {name: approve, type: approval, wait: {prompt: May it be refunded?}}
  - {name: paid, type: wait_for_event, depends_on: [approve], wait: {event: refund.paid, key: "7"}}
`}

// pageFleet is a fleet with a worker whose handlers do what the context of a task says,
// for the commands of a page.
type pageFleet struct {
	t      *testing.T
	dir    string
	env    string
	db     *pgtest.DB
	client *client.Client
	host   *brokertest.Host
	jobs   *redis.Client
}

// TestRunbooks runs the commands of docs/operate/upgrading.md and of each section of the runbooks
// against real daemons, and sees what the pages say they print.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	f := startPageFleet(t)
	sections := map[string]func(*pageFleet) []string{
		"Tasks do not start": func(f *pageFleet) []string { return []string{"TASK", f.task("lost", `{}`, "charge", "enqueued")} },
		"Tasks are stuck in process": func(f *pageFleet) []string {
			return []string{"TASK", f.task("order", `{"slow": true}`, "charge", "in_progress")}
		},
		"Dead letters grow": func(f *pageFleet) []string {
			return []string{"TASK", f.failed("dead letter"), "OTHER", f.failed("another dead letter")}
		},
		"A queue grows":              func(f *pageFleet) []string { return []string{"TASK", f.task("lost", `{"n": 2}`, "charge", "enqueued")} },
		"A bad handler was deployed": func(f *pageFleet) []string { return []string{"TASK", f.failed("bad handler")} },
		"A decision or an approval waits for ever": func(f *pageFleet) []string {
			task := f.task("refund", `{}`, "approve", "in_progress")
			return []string{"TOKEN", find(t, `"token": ?"([^"]+)"`, f.shell("tasker-ctl -o json approval list --task "+task))}
		},
		"A task must be repaired by hand": func(f *pageFleet) []string {
			return []string{"TASK", f.failed("repair"), "OTHER", f.failed("repair another"), "ALIVE", f.task("lost", `{"n": 3}`, "charge", "enqueued")}
		},
		"A bridge holds messages": func(f *pageFleet) []string {
			f.shell("tasker-ctl quota set office --max-tasks 0 -r 'no room'")
			f.send(`{"id": "held", "type": "FAX", "payload": {}}`)
			f.metric(`tasker_bridge_jobs_total{bridge="rabbitmq",outcome="parked"} 1`)
			return []string{"BRIDGED", "office"}
		},
		"Dead letters arrive in a broker": func(f *pageFleet) []string {
			const job = `{"id": "letter", "type": "TELEX", "payload": {}}`
			f.send(job)
			require.NoError(f.t, f.jobs.RPush(f.t.Context(), "tq:queue:high", job).Err())
			for _, bridge := range []string{"redis", "rabbitmq"} {
				f.metric(`tasker_bridge_jobs_total{bridge="` + bridge + `",outcome="refused"} 1`)
			}
			return []string{"BRIDGED", "office", "KIND", "TELEX"}
		},
		"The topology of the broker differs": func(f *pageFleet) []string {
			f.host.Call(f.t, http.MethodDelete, "/queues/%s/tasker.retry.default", nil, nil)
			return nil
		},
		"The disk fills with WAL": func(f *pageFleet) []string {
			return []string{"SLOT", f.db.QueryString(t, "select slot_name::text from pg_create_logical_replication_slot('left_over_' || current_database(), 'pgoutput')")}
		},
	}
	f.follow("../../docs/operate/upgrading.md", nil)
	f.follow("../../docs/operate/runbooks.md", sections)
}

// startPageFleet runs `tasker-ctl dev`, and a worker for shop.
func startPageFleet(t *testing.T) *pageFleet {
	t.Helper()
	needs.Tool(t, needs.Curl, needs.Psql, needs.Python, needs.RedisCLI, needs.RabbitMQ, needs.Redis)
	dir := t.TempDir()
	goBuild(t, "../..", "-o", dir+"/", "./cmd/tasker-ctl")
	f := &pageFleet{t: t, dir: dir, db: enginetest.Migrated(t), host: brokertest.New(t)}
	port, err := pgcluster.FreePort(t.Context())
	require.NoError(t, err)
	f.jobs = redistest.Start(t, "--port", strconv.Itoa(port), "--bind", "127.0.0.1").Client(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bridges.toml"), []byte("[common.queues.rabbitmq]\nqueues = [\"default\"]\n"+
		"[orchestration.bridge.rabbitmq_queue]\nenabled = true\n[orchestration.bridge.redis_queue]\nenabled = true\n"), 0o600))
	f.env = "export DATABASE_URL='" + f.db.DSN + "' RABBITMQ_URL=" + f.host.URL + " REDIS_URL=redis://127.0.0.1:" + strconv.Itoa(port) +
		" TASKER_CONFIG_PATH=\"$PWD/bridges.toml\" PATH=\"$PWD:$PATH\"; "
	dev := run(t, dir, f.env+"exec tasker-ctl dev --orchestrator-address 127.0.0.1:0 --worker-address 127.0.0.1:0")
	base := dev.says(`(?m)^orchestrator +(http://\S+)$`)
	f.env += "export TASKER_ORCHESTRATION_URL=" + base + " TASKER_WORKER_URL=" + dev.says(`(?m)^worker +(http://\S+)$`) + "; "
	dev.says(`(?m)^Ctrl-C ends it`)
	f.client = client.New(client.Config{BaseURL: base})
	w, err := worker.New(worker.Config{DatabaseURL: f.db.DSN, Namespaces: []string{"shop"}})
	require.NoError(t, err)
	require.NoError(t, errors.Join(enginetest.RegisterTemplates(w, shopTemplates...), registerShop(w)))
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() { _ = w.Stop(t.Context()) }) // handlers end with the test's context
	_, err = f.client.PutTaskType(t.Context(), "FAX", client.TaskTypeRequest{Namespace: "office"})
	require.NoError(t, err)
	return f
}

// send publishes a message to the queue of the bridge.
func (f *pageFleet) send(message string) {
	f.t.Helper()
	f.host.Call(f.t, http.MethodPost, "/exchanges/%s/tasker.direct/publish", map[string]any{"routing_key": "default", "payload": message,
		"payload_encoding": "string", "properties": struct{}{}}, nil)
}

// metric waits until the orchestrator exposes a line.
func (f *pageFleet) metric(line string) {
	f.t.Helper()
	pgtest.Eventually(f.t, time.Minute, func() (bool, string) {
		text := f.shell("curl -s $TASKER_ORCHESTRATION_URL/metrics | grep '^tasker_b'")
		return strings.Contains(text, line), text
	})
}

// registerShop gives a worker handlers that the context of a task controls.
func registerShop(w *worker.Worker) error {
	type order struct {
		Slow bool   `json:"slow"`
		Fail string `json:"fail"`
	}
	return errors.Join(
		worker.Handle(w, "shop.check", func(*worker.StepContext, order) (bool, error) { return true, nil }),
		worker.Handle(w, "shop.charge", func(ctx *worker.StepContext, o order) (bool, error) {
			if o.Slow {
				<-ctx.Done()
				return false, ctx.Err()
			}
			if o.Fail != "" {
				return false, worker.Permanent(errors.New("gateway is down"))
			}
			return true, nil
		}),
	)
}

// task creates a task and waits until a step of it is in a state.
func (f *pageFleet) task(template, input, step, state string) string {
	f.t.Helper()
	task, err := f.client.CreateTask(f.t.Context(), client.TaskRequest{Name: template, Namespace: "shop", Version: "1.0.0",
		Context: json.RawMessage(input), Initiator: "test", SourceSystem: "runbooks", Reason: "to be looked at"})
	require.NoError(f.t, err)
	pgtest.Eventually(f.t, time.Minute, func() (bool, string) {
		steps, err := f.client.Steps(f.t.Context(), task.TaskUUID)
		if err != nil {
			return false, err.Error()
		}
		for _, s := range steps {
			if s.Name == step {
				return s.CurrentState == state, step + " is " + s.CurrentState
			}
		}
		return false, "no step " + step
	})
	return task.TaskUUID
}

// failed creates a task whose payment has failed for good.
func (f *pageFleet) failed(why string) string {
	f.t.Helper()
	return f.task("order", `{"fail": "`+why+`"}`, "charge", "error") // its entry is in the same transaction
}

// shell runs lines of bash in the fleet's environment, up to the first that fails.
func (f *pageFleet) shell(lines string) string {
	f.t.Helper()
	cmd := (&shell{t: f.t, dir: f.dir}).command(f.t.Context(), "set -e\n"+f.env+"\n"+strings.ReplaceAll(lines, "~/", f.dir+"/"))
	out, err := cmd.CombinedOutput()
	require.NoError(f.t, err, "%s\n%s", lines, out)
	return string(out)
}

// said is a block of commands with the block of what they print.
var said = regexp.MustCompile("(?s)```sh\n(.*?)```\n\n```text\n(.*?)```")

// follow runs the blocks of each section of a page with the values that it names.
func (f *pageFleet) follow(page string, sections map[string]func(*pageFleet) []string) {
	text, err := os.ReadFile(page) // #nosec G304 -- our own
	require.NoError(f.t, err)
	keepFiles(f.t, string(text), f.dir)
	known := 0
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		blocks := said.FindAllStringSubmatch(body, -1)
		require.Len(f.t, blocks, strings.Count(body, "```sh\n"), "%s: each block of commands is followed by what it prints", title)
		require.NotEmpty(f.t, blocks, title)
		own := sections[title]
		if own != nil {
			known++
		}
		f.t.Run(title, func(t *testing.T) {
			f := *f
			f.t = t
			values := []string{"NAMESPACE", "shop", "CALLABLE", "shop.charge", "TEMPLATE", "order", "STEP", "charge"}
			if own != nil {
				values = append(values, own(&f)...)
			}
			for _, b := range blocks {
				out := f.shell(named(b[1], values))
				require.Regexp(t, printed(named(b[2], values)), out, b[1])
			}
		})
	}
	require.Equal(f.t, len(sections), known, "a section is renamed")
}

// named puts values in the place of the words in capitals that stand for them.
func named(text string, values []string) string {
	for i := 0; i < len(values); i += 2 {
		text = regexp.MustCompile(`\b`+values[i]+`\b`).ReplaceAllLiteralString(text, values[i+1])
	}
	return text
}
