package e2e

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/child"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgcluster"
	"github.com/tasker-go/tasker/internal/redistest"
)

// TestQuickStarts types what the READMEs of examples and packages and docs/use/first-steps.md say,
// and sees what they say it prints.
func TestQuickStarts(t *testing.T) {
	t.Parallel()
	bin := withCtl(t)
	var whole []string
	for _, name := range []string{"fulfillment", "jobs", "lanes", "mail", "restqueue"} {
		whole = append(whole, "../../examples/"+name+"/README.md")
	}
	for _, page := range append(whole, "../../docs/use/first-steps.md", "../../sdk/python/README.md", "../../sdk/typescript/README.md") {
		t.Run(filepath.Base(filepath.Dir(page)), func(t *testing.T) {
			text, err := os.ReadFile(page) // #nosec G304 -- our own
			require.NoError(t, err)
			(&desk{t: t, bin: bin}).follow(string(text))
		})
	}
}

var ctlBuilt sync.Once

// withCtl is the folder of the daemons, which has tasker-ctl too from the first call on.
func withCtl(t *testing.T) string {
	t.Helper()
	ctlBuilt.Do(func() { goBuild(t, "../..", "-o", binDir+"/", "./cmd/tasker-ctl") })
	return binDir
}

// besideDev is a page that is typed beside a `make dev`.
func besideDev(page string) string {
	return "```sh\n# terminal 1\nmake dev\n```\n\n```text\nCtrl-C ends it.\n```\n\n" + page
}

// TestSampleWorkflows types what the READMEs of the workflows of `make dev` say, one after the other.
func TestSampleWorkflows(t *testing.T) {
	t.Parallel()
	bin := withCtl(t)
	samples, err := filepath.Glob("../../examples/*/template.yaml")
	require.NoError(t, err)
	require.Greater(t, len(samples), 8)
	var all strings.Builder
	for _, sample := range samples {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(sample), "README.md"))
		require.NoError(t, err)
		require.Contains(t, string(text), "```sh\n# terminal 3\n", sample)
		all.Write(text)
	}
	(&desk{t: t, bin: bin}).follow(besideDev(all.String()))
}

// TestPagesOfUse types the commands of the other pages of docs/use, each in an empty folder beside one
// `make dev`, and sees what the pages say they print.
func TestPagesOfUse(t *testing.T) {
	t.Parallel()
	bin := withCtl(t)
	pages, err := filepath.Glob("../../docs/use/*.md")
	require.NoError(t, err)
	typed := 0
	for _, page := range pages {
		text, err := os.ReadFile(page) // #nosec G304 -- our own
		require.NoError(t, err)
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		if !strings.Contains(string(text), "```sh\n") || name == "first-steps" || name == "migrating" {
			continue // the quick starts type these two
		}
		typed++
		t.Run(name, func(t *testing.T) {
			(&desk{t: t, bin: bin}).follow(besideDev(string(text)))
		})
	}
	require.Positive(t, typed)
}

// TestQuickStartsOverBrokers types what docs/use/migrating.md says to those who have messages in
// RabbitMQ, or jobs in Redis: the quick starts of their queues, with messages in their form.
func TestQuickStartsOverBrokers(t *testing.T) {
	t.Parallel()
	bin := withCtl(t)
	page, err := os.ReadFile("../../docs/use/migrating.md")
	require.NoError(t, err)
	sections := map[string]string{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		sections[title] = body
	}
	t.Run("RabbitMQ", func(t *testing.T) {
		t.Parallel()
		host := brokertest.New(t)
		(&desk{t: t, bin: bin, env: []string{"RABBITMQ_URL=" + host.URL}, addresses: []string{"amqp://guest:guest@localhost:5672/%2F", host.URL,
			"localhost:15672/api/queues/%2F", host.Management}}).follow(sections["From distributed-task-queue"])
		var queues []struct {
			Name      string
			Durable   bool
			Arguments map[string]any
		}
		host.Call(t, http.MethodGet, "/queues/%s", nil, &queues)
		retries := map[string]any{}
		for _, q := range queues {
			if q.Durable {
				retries[q.Name] = q.Arguments["x-dead-letter-exchange"]
			}
		}
		require.Equal(t, map[string]any{"tasks.default": "tasks.dlx", "tasks.high": "tasks.dlx", "tasks.dlq": nil, "tasks.retry.default": "tasks.direct", "tasks.retry.high": "tasks.direct"}, retries)
	})
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		port, err := pgcluster.FreePort(t.Context())
		require.NoError(t, err)
		redistest.Start(t, "--port", strconv.Itoa(port), "--bind", "127.0.0.1")
		url := "redis://127.0.0.1:" + strconv.Itoa(port)
		(&desk{t: t, bin: bin, env: []string{"REDIS_URL=" + url}, addresses: []string{"redis://localhost:6379", url}}).follow(sections["From Distributed-Task-Queue-Engine"])
	})
}

// filed is a block with the name of the file that readers keep it in.
var filed = regexp.MustCompile("(?s)\n`~/([\\w./-]+)`:\n\n```\\w+\n(.*?)```")

// dialogue is a block of commands for a terminal with the block of what they print, in this order; …
// stands for any text.
var dialogue = regexp.MustCompile("(?s)```sh\n# terminal (\\d)\n(.*?)```\n\n```text\n(.*?)```")

// keepFiles writes such blocks of a page into the home of its reader.
func keepFiles(t *testing.T, page, home string) {
	t.Helper()
	for _, file := range filed.FindAllStringSubmatch(page, -1) {
		name := filepath.Join(home, file[1])
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(file[2]), 0o600))
	}
}

// follow runs the dialogues of a page from the root of the repository, one after the other.
func (d *desk) follow(text string) {
	d.t.Helper()
	dialogues := dialogue.FindAllStringSubmatch(text, -1)
	require.Len(d.t, dialogues, strings.Count(text, "```sh\n"), "each block of commands is for a terminal, and followed by what it prints")
	require.NotEmpty(d.t, dialogues)
	toolsOf(d.t, text)
	root, err := filepath.Abs("../..")
	require.NoError(d.t, err)
	d.addresses = append(d.addresses, "~/tasker/", root+"/") // before ~/
	d.database, d.temporary, d.terminals = enginetest.Migrated(d.t).DSN, d.t.TempDir(), map[string]*shell{}
	keepFiles(d.t, text, d.temporary)
	d.dev(dialogues[0])
	keepFiles(d.t, d.here(text), d.temporary) // with the addresses of this server
	for _, d1 := range dialogues[1:] {
		s := d.enter(d1[1], d1[2])
		s.says(printed(d.here(d1[3])))
		if m := taskUUID.FindStringSubmatch(s.output()); m != nil {
			d.task = m[1]
		}
	}
}

// taskUUID is what tasker-ctl says of a task that it has created.
var taskUUID = regexp.MustCompile(`created task ([0-9a-f-]+)`)

// here replaces the addresses of a page by those of the desk.
func (d *desk) here(text string) string { return strings.NewReplacer(d.addresses...).Replace(text) }

// toolsOf leaves out a page whose tools are not installed.
func toolsOf(t *testing.T, page string) {
	t.Helper()
	var named []needs.Name
	for program, tool := range map[string]needs.Name{"curl": needs.Curl, "psql": needs.Psql, "python3": needs.Python, "node": needs.Node, "npm install": needs.TypeScript,
		"redis-cli": needs.RedisCLI, ".tools/typescript/lib/tsc.js": needs.TypeScript} {
		if strings.Contains(page, program) {
			named = append(named, tool)
		}
	}
	slices.Sort(named)
	needs.Tool(t, named...)
}

// printed is the pattern of what a block shows.
func printed(text string) string {
	return "(?s)" + strings.NewReplacer("…", ".*?", "\n", ".*?").Replace(regexp.QuoteMeta(strings.TrimSpace(text)))
}

// desk is what the reader of a page works at.
type desk struct {
	t         *testing.T
	bin       string // has tasker-ctl
	database  string
	temporary string   // TMPDIR, and the reader's home
	task      string   // the one created last
	env       []string // of all terminals
	addresses []string // those of the page, each followed by the one here
	api       string   // the address of the orchestrator; empty until it runs
	terminals map[string]*shell
}

// dev starts `make dev` with the test's database and any free ports.
func (d *desk) dev(block []string) {
	d.t.Helper()
	require.Regexp(d.t, `(?m)^([A-Z_]+='?[\w*~/.]+'? )?make dev\n$`, block[2], "a page begins with it")
	line := "export DATABASE_URL='…'\n" + strings.Replace(block[2], "make dev",
		"bin/tasker-ctl dev --orchestrator-address 127.0.0.1:0 --worker-address 127.0.0.1:0", 1)
	dev := d.enter(block[1], line)
	d.api = dev.says(`(?m)^orchestrator +http://(\S+)$`)
	d.addresses = append(d.addresses, "localhost:8080", d.api, "localhost:8082", dev.says(`(?m)^worker +http://(\S+)$`))
	dev.says(printed(block[3]))
}

// enter types lines in a terminal. What runs there is ended before.
func (d *desk) enter(terminal, lines string) *shell {
	d.t.Helper()
	if before := d.terminals[terminal]; before != nil {
		before.interrupt()
	}
	lines = strings.ReplaceAll(lines, "export DATABASE_URL='…'", "export DATABASE_URL='"+d.database+"'")
	lines = strings.ReplaceAll(lines, "bin/tasker-ctl", filepath.Join(d.bin, "tasker-ctl"))
	lines = strings.NewReplacer(append(d.addresses, "~/", d.temporary+"/", " TASK ", " "+d.task+" ")...).Replace(lines)
	s := &shell{t: d.t, dir: "../..", out: &screen{}}
	cmd := s.command(context.WithoutCancel(d.t.Context()), lines)                                   // ended below
	cmd.Env = append(append(cmd.Env, d.env...), "PYTHONDONTWRITEBYTECODE=1", "TMPDIR="+d.temporary, // nothing beside the sources
		"PYTHONUSERBASE="+filepath.Join(d.temporary, ".local"),
		"TASKER_WEB_BIND_ADDRESS=127.0.0.1:0", "TASKER_WORKER_GRPC_BIND_ADDRESS=127.0.0.1:0")
	if d.api != "" {
		cmd.Env = append(cmd.Env, "TASKER_ORCHESTRATION_URL=http://"+d.api)
	}
	cmd.Stdout, cmd.Stderr = s.out, s.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // go run starts the program that Ctrl-C ends
	var err error
	s.child, err = child.Start(cmd, syscall.SIGKILL)
	require.NoError(d.t, err)
	d.terminals[terminal] = s
	d.t.Cleanup(func() {
		s.interrupt()
		if d.t.Failed() {
			d.t.Logf("terminal %s: %s\n%s", terminal, lines, s.output())
		}
	})
	return s
}

// interrupt is Ctrl-C: everything in the terminal gets SIGINT.
func (s *shell) interrupt() {
	s.t.Helper()
	const patience = time.Minute
	_ = syscall.Kill(-s.child.PID(), syscall.SIGINT) // it may have ended
	select {
	case <-s.child.Done():
	case <-time.After(patience):
		_ = syscall.Kill(-s.child.PID(), syscall.SIGKILL)
		<-s.child.Done()
		s.t.Errorf("Ctrl-C did not end it within %v:\n%s", patience, s.output())
	}
}
