package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgtest"
)

// queueAnswer is the answer to a request of a story.
type queueAnswer struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// queueCaller sends the requests of a story.
type queueCaller interface {
	call(ctx context.Context, method, url, body string, headers map[string]string) (queueAnswer, error)
}

// curl sends each request with the program of that name.
type curl struct{}

func (curl) call(ctx context.Context, method, url, body string, headers map[string]string) (a queueAnswer, err error) {
	args := []string{"--silent", "--show-error", "--globoff", "--include", "--max-time", "120", "--request", method}
	for name, value := range headers {
		args = append(args, "--header", name+": "+value)
	}
	if body != "" {
		args = append(args, "--data-binary", body)
	}
	out, err := exec.CommandContext(ctx, "curl", append(args, url)...).CombinedOutput()
	if err != nil {
		return a, fmt.Errorf("%w: %s", err, out)
	}
	head, text, _ := strings.Cut(string(out), "\r\n\r\n")
	line, fields, _ := strings.Cut(head, "\r\n")
	if _, err := fmt.Sscanf(line, "HTTP/1.1 %d", &a.Status); err != nil {
		return a, fmt.Errorf("%w: %s", err, head)
	}
	a.Body, a.Headers = text, map[string]string{}
	for field := range strings.SplitSeq(fields, "\r\n") {
		name, value, _ := strings.Cut(field, ": ")
		a.Headers[strings.ToLower(name)] = value
	}
	return a, nil
}

// python sends all requests with testdata/queue_caller.py, one after another.
type python struct {
	to   io.Writer
	from *bufio.Reader
}

func newPython(t *testing.T) *python {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "python3", "testdata/queue_caller.py")
	cmd.Stderr = os.Stderr
	to, err := cmd.StdinPipe()
	require.NoError(t, err)
	from, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, to.Close())
		require.NoError(t, cmd.Wait())
	})
	return &python{to, bufio.NewReader(from)}
}

func (p *python) call(_ context.Context, method, url, body string, headers map[string]string) (a queueAnswer, err error) {
	asked, err := json.Marshal(map[string]any{"method": method, "url": url, "body": body, "headers": headers})
	if err != nil {
		return a, err
	}
	if _, err := fmt.Fprintf(p.to, "%s\n", asked); err != nil {
		return a, err
	}
	line, err := p.from.ReadBytes('\n')
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(line, &a)
}

// queueRow is a row of the story.
type queueRow struct {
	name, daemon string
	lines        []string
	first        int // the number of its first line
}

func queueRows(t *testing.T, file string) (rows []queueRow) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if name, is := strings.CutPrefix(line, "== "); is {
			name, daemon, _ := strings.Cut(name, " @ ")
			rows = append(rows, queueRow{name: name, daemon: daemon, first: i + 2})
		} else if len(rows) > 0 {
			rows[len(rows)-1].lines = append(rows[len(rows)-1].lines, line)
		}
	}
	return rows
}

// queueDaemons are those that rows name, each with what differs from the defaults.
var queueDaemons = map[string]string{
	"": "",
	"quick": "[orchestration.taskmaster]\nheartbeat = {stale_threshold_seconds = 3, dead_threshold_seconds = 10}\nreaper = {interval_ms = 100}\n" +
		"[orchestration.sweeps.deadlines]\ninterval_seconds = 1\n",
	"forgetful": "[orchestration.taskmaster]\nheartbeat = {stale_threshold_seconds = 3, dead_threshold_seconds = 10}\n" +
		"retention = {ttl_seconds = 2, interval_ms = 100, batch_size = 1}\n",
	"keeps":  "[orchestration.taskmaster.retention]\nttl_seconds = 0\n",
	"compat": "[orchestration.compat]\ndistributed_task_queue = true\ntask_queue_engine = true\n",
}

// TestTaskmaster plays the rows of Taskmaster's document, each with curl and with Python.
func TestTaskmaster(t *testing.T) {
	t.Parallel()
	playQueues(t, "../sdk/vectors/taskmaster.txt")
}

// TestQueuesOfOthers plays the requests that two other documents show.
func TestQueuesOfOthers(t *testing.T) {
	t.Parallel()
	playQueues(t, "../sdk/vectors/other-queues.txt")
}

func playQueues(t *testing.T, file string) {
	t.Helper()
	needs.Tool(t, needs.Curl, needs.Python)
	rows, bases := queueRows(t, file), map[string]string{}
	require.Greater(t, len(rows), 5)
	for _, row := range rows {
		if bases[row.daemon] == "" {
			settings, known := queueDaemons[row.daemon]
			require.True(t, known, row.daemon)
			_, o := startedOrchestrator(t, loadToo(t, enginetest.Migrated(t), "\n"+settings))
			bases[row.daemon] = "http://" + o.Addr().String()
		}
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for name, caller := range map[string]func(*testing.T) queueCaller{
				"curl":   func(*testing.T) queueCaller { return curl{} },
				"python": func(t *testing.T) queueCaller { t.Helper(); return newPython(t) },
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					p := &queuePlay{T: t, base: bases[row.daemon], caller: caller, file: file, names: map[string]string{"queue": "q_" + uuid.NewString()[:8]}}
					p.to = caller(t)
					p.play(&row)
				})
			}
		})
	}
}

// queuePlay plays one row.
type queuePlay struct {
	*testing.T
	base, file, at string
	caller         func(*testing.T) queueCaller
	to             queueCaller
	names          map[string]string
	again          func() queueAnswer // asks for the answer anew, where the row waits for it
	last           queueAnswer
	waiting        chan queueAnswer
}

var queueName = regexp.MustCompile(`\$\{(\w+)\}`)

func (p *queuePlay) play(row *queueRow) {
	for i, line := range row.lines {
		p.at = fmt.Sprintf("%s:%d", p.file, row.first+i)
		line = queueName.ReplaceAllStringFunc(line, func(name string) string {
			switch name = name[2 : len(name)-1]; name {
			case "soon":
				return time.Now().Add(5 * time.Second).UTC().Format(time.RFC3339Nano)
			case "later":
				return time.Now().Add(20 * time.Second).UTC().Format(time.RFC3339Nano)
			case "tomorrow":
				return time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339Nano)
			}
			require.Contains(p, p.names, name, p.at)
			return p.names[name]
		})
		verb, rest, _ := strings.Cut(line, " ")
		switch verb {
		case "", "#":
		case "save":
			p.save(rest)
		case "<":
			p.expect(rest)
		case "until":
			p.again = func() queueAnswer { return p.ask(p.to, rest) }
			p.last = p.again()
		case "beat":
			p.beat(rest)
		case "waiting":
			p.waiting = make(chan queueAnswer, 1)
			other := p.caller(p.T)
			go func() { p.waiting <- p.ask(other, rest) }()
			pgtest.Eventually(p, time.Minute, func() (bool, string) {
				text := p.ask(p.to, "GET /metrics").Body
				return !strings.Contains(text, "tasker_queue_claims_waiting 0\n"), "no claim waits"
			})
		case "answered":
			p.again, p.last = nil, <-p.waiting
		default:
			p.again, p.last = nil, p.ask(p.to, line)
		}
	}
}

// ask sends a request: METHOD PATH [BODY] [Name: value].
func (p *queuePlay) ask(to queueCaller, line string) queueAnswer {
	headers := map[string]string{}
	if at := strings.Index(line, " X-Correlation-Id: "); at >= 0 {
		name, value, _ := strings.Cut(line[at+1:], ": ")
		headers[name], line = value, line[:at]
	}
	parts := strings.SplitN(line, " ", 3)
	body := ""
	if len(parts) == 3 {
		body, headers["Content-Type"] = parts[2], "application/json"
	}
	ctx, cancel := context.WithTimeout(p.Context(), 2*time.Minute)
	defer cancel()
	a, err := to.call(ctx, parts[0], p.base+parts[1], body, headers)
	if err != nil {
		p.Errorf("%s: %s: %v", p.at, line, err)
	}
	return a
}

// beat sends heartbeats of a worker until it is registered for a time, by the clock of the
// database.
func (p *queuePlay) beat(rest string) {
	span, worker, _ := strings.Cut(rest, " ")
	length, err := time.ParseDuration(span)
	require.NoError(p, err, p.at)
	pgtest.Eventually(p, time.Minute, func() (bool, string) {
		a := p.ask(p.to, "POST /workers/v1/"+worker+"/heartbeat")
		var w struct{ RegisteredAt, LastHeartbeat time.Time }
		require.NoError(p, json.Unmarshal([]byte(a.Body), &w))
		require.Equal(p, http.StatusOK, a.Status, a.Body)
		return w.LastHeartbeat.Sub(w.RegisteredAt) >= length, w.LastHeartbeat.String()
	})
}

// expect compares the last answer, which may become what is expected after a while.
func (p *queuePlay) expect(rest string) {
	p.Helper()
	wrong := p.compare(rest)
	if wrong != "" && p.again != nil {
		pgtest.Eventually(p, 90*time.Second, func() (bool, string) {
			p.last = p.again()
			wrong = p.compare(rest)
			return wrong == "", p.at + ": " + wrong
		})
	}
	require.Empty(p, wrong, "%s: %s", p.at, p.last.Body)
}

func (p *queuePlay) compare(rest string) (wrong string) {
	status, rest, _ := strings.Cut(rest, " ")
	if strconv.Itoa(p.last.Status) != status {
		return fmt.Sprintf("the status is %d", p.last.Status)
	}
	for _, want := range expectations(rest) {
		if text, is := strings.CutPrefix(want, "~"); is {
			if !strings.Contains(p.last.Body, text) {
				return "the answer has no " + text
			}
			continue
		}
		if text, is := strings.CutPrefix(want, "^"); is {
			if strings.Contains(p.last.Body, text) {
				return "the answer has " + text
			}
			continue
		}
		if path, is := strings.CutSuffix(want, "!"); is {
			if found, there := p.value(path); there {
				return path + " is " + found
			}
			continue
		}
		path, value, _ := strings.Cut(want, "=")
		found, there := p.value(path)
		switch {
		case !there:
			return path + " is not there"
		case value != "*" && found != value:
			return path + " is " + found
		}
	}
	return ""
}

// expectations splits at spaces between expectations; values and texts may have some.
func expectations(rest string) (list []string) {
	start := regexp.MustCompile(`^([~^]|[\w.-]+(=|!$|! ))`)
	for _, word := range strings.Split(rest, " ") {
		if start.MatchString(word) || start.MatchString(word+" ") || len(list) == 0 {
			list = append(list, word)
		} else {
			list[len(list)-1] += " " + word
		}
	}
	if rest == "" {
		return nil
	}
	return list
}

// value is that at a path of the answer, or a header, as compact JSON.
func (p *queuePlay) value(path string) (string, bool) {
	if name, is := strings.CutPrefix(path, "header."); is {
		value, there := p.last.Headers[strings.ToLower(name)]
		return strconv.Quote(value), there
	}
	var doc any
	if err := json.Unmarshal([]byte(p.last.Body), &doc); err != nil {
		return err.Error(), false
	}
	for _, name := range strings.Split(path, ".") {
		switch in := doc.(type) {
		case map[string]any:
			next, there := in[name]
			if !there {
				return "", false
			}
			doc = next
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(in) {
				return "", false
			}
			doc = in[i]
		default:
			return "", false
		}
	}
	text, err := json.Marshal(doc)
	return string(text), err == nil
}

// save keeps values of the last answer under names.
func (p *queuePlay) save(rest string) {
	for _, one := range strings.Fields(rest) {
		name, path, _ := strings.Cut(one, "=")
		value, there := p.value(path)
		require.True(p, there, "%s: %s: %s", p.at, path, p.last.Body)
		p.names[name] = strings.Trim(value, `"`)
	}
}

// TestTaskmastersProperties: each property has its default, and Spring's variable where its
// values are numbers.
func TestTaskmastersProperties(t *testing.T) {
	t.Parallel()
	for _, p := range []struct{ property, key, byDefault, variable, value, then string }{
		{"taskmaster.heartbeat.stale-threshold-seconds", "heartbeat.stale_threshold_seconds", "30", "TASKMASTER_HEARTBEAT_STALE_THRESHOLD_SECONDS", "31", "31"},
		{"taskmaster.heartbeat.dead-threshold-seconds", "heartbeat.dead_threshold_seconds", "120", "TASKMASTER_HEARTBEAT_DEAD_THRESHOLD_SECONDS", "121", "121"},
		{"taskmaster.reaper.interval-ms", "reaper.interval_ms", "15000", "TASKMASTER_REAPER_INTERVAL_MS", "500", "500"},
		{"taskmaster.retry.base-delay-seconds", "retry.base_delay_seconds", "1", "TASKMASTER_RETRY_BASE_DELAY_SECONDS", "2", "2"},
		{"taskmaster.retention.ttl", "retention.ttl_seconds", "604800", "", "", "604800"},
		{"taskmaster.retention.interval-ms", "retention.interval_ms", "600000", "TASKMASTER_RETENTION_INTERVAL_MS", "1000", "1000"},
		{"taskmaster.retention.batch-size", "retention.batch_size", "500", "TASKMASTER_RETENTION_BATCH_SIZE", "7", "7"},
	} {
		t.Run(p.property, func(t *testing.T) {
			t.Parallel()
			for value, want := range map[string]string{"": p.byDefault, p.value: p.then} {
				loaded, err := config.Load(config.Options{LookupEnv: func(name string) (string, bool) {
					if name == p.variable && value != "" {
						return value, true
					}
					return onlyDatabase(name)
				}})
				require.NoError(t, err)
				shown, known := loaded.Setting("orchestration.taskmaster." + p.key)
				require.True(t, known)
				require.Equal(t, want, shown.Value)
			}
		})
	}
}
