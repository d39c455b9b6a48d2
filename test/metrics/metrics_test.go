//go:build metricstest

package metrics

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/redistest"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/test/fleet"
)

const deploy = "../../deploy/"

var binDir string

func TestMain(m *testing.M) {
	os.Exit(fleet.Main("../..", func(dir string) int {
		binDir = dir
		return brokertest.With(pgtest.With(m)).Run()
	}, "orchestrator", "worker"))
}

// TestRules: each alert has a case that fires it and one that does not.
func TestRules(t *testing.T) {
	promtool(t, nil, "check", "rules", deploy+"prometheus/rules.yml")
	promtool(t, nil, "test", "rules", deploy+"prometheus/rules_test.yml")
	promtool(t, nil, "check", "config", "--syntax-only", deploy+"prometheus/prometheus.yml")
}

// promtool runs it, and requires that it finds nothing.
func promtool(t *testing.T, in []byte, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "promtool %s:\n%s", strings.Join(args, " "), out)
	return string(out)
}

// TestFleet: every query of every panel has data while a fleet works; what the daemons expose
// is the catalogue, and keeps the conventions of Prometheus.
func TestFleet(t *testing.T) {
	db := enginetest.Migrated(t)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })) // the spans are tested elsewhere
	t.Cleanup(collector.Close)
	traced := fmt.Sprintf("[common.telemetry.tracing]\nenabled = true\nendpoint = %q\nsample_ratio = 0.5\n", collector.URL)
	host, jobs := brokertest.New(t), redistest.Start(t)
	traced += fmt.Sprintf("[common.signals]\nevent_source = \"amqp\"\n[common.queues.rabbitmq]\nurl = %q\nqueues = [\"default\"]\n", host.URL)
	orchestrator := start(t, db, fleet.Orchestrator, traced+fmt.Sprintf("[orchestration.bridge.rabbitmq_queue]\nenabled = true\n"+
		"[orchestration.bridge.redis_queue]\nenabled = true\nurl = %q\n", jobs.URL))
	worker := start(t, db, fleet.Worker, traced)
	prometheus := scrape(t, orchestrator, worker)
	w := &workload{t: t, url: orchestrator.URL, client: client.New(client.Config{BaseURL: orchestrator.URL, Timeout: 30 * time.Second}),
		host: host, jobs: jobs.Client(t)}
	w.begin()

	missing := panels(t)
	all := len(missing)
	var constant []string
	for _, q := range missing {
		if strings.Contains(q.expr, "vector(") {
			constant = append(constant, q.where)
		}
	}
	pgtest.Eventually(t, 3*time.Minute, func() (bool, string) {
		w.round()
		missing = slices.DeleteFunc(missing, func(q query) bool { return hasData(t, prometheus, q.expr) })
		return len(missing) == 0, fmt.Sprintf("no data for %d of %d queries: %v", len(missing), all, missing)
	})
	t.Logf("%d queries of panels have data after %d rounds; with a constant where nothing happened: %v", all, w.rounds, constant)
	require.False(t, hasData(t, prometheus, `ALERTS{alertstate="firing",severity="critical"}`), "a critical alert fires over a healthy fleet")

	for _, name := range []string{"tasker_step_duration_seconds", "tasker_api_request_duration_seconds"} {
		exemplars(t, prometheus, name+"_bucket")
	}

	shown := map[string]bool{}
	for _, p := range []*fleet.Process{orchestrator, worker} {
		text := get(t, p.URL+"/metrics")
		require.Empty(t, promtool(t, text, "check", "metrics"), p.Name)
		check(t, string(text), shown)
		aliases(t, string(text), string(get(t, p.URL+"/actuator/prometheus")))
	}
	var quiet []string
	for _, e := range telemetry.Catalogue() {
		if shown[e.Name] {
			continue
		}
		quiet = append(quiet, e.Name)
		require.True(t, slices.ContainsFunc(e.Values, func(v []string) bool { return v == nil }) || e.Kind != "counter" && len(e.Labels) > 0,
			"%s is exposed by no daemon", e.Name)
	}
	t.Logf("%d metrics are exposed; without an event, since their labels are open: %v", len(shown), quiet)
}

func start(t *testing.T, db *pgtest.DB, kind fleet.Kind, config string) *fleet.Process {
	t.Helper()
	p, err := fleet.Start(fleet.Options{Kind: kind, BinDir: binDir, WorkDir: t.TempDir(), Name: string(kind), DatabaseURL: db.DSN, Config: config})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = p.Stop(ctx)
		if t.Failed() {
			t.Logf("log of %s:\n%s", p.Name, p.Log())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, p.WaitReady(ctx))
	return p
}

// scrape starts a Prometheus that scrapes the daemons every second and evaluates the rules.
func scrape(t *testing.T, orchestrator, worker *fleet.Process) (address string) {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs(deploy + "prometheus/rules.yml")
	require.NoError(t, err)
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n", rules)
	for _, p := range []*fleet.Process{orchestrator, worker} {
		config += fmt.Sprintf("  - {job_name: tasker-%s, static_configs: [{targets: [%q]}]}\n", p.Kind, strings.TrimPrefix(p.URL, "http://"))
	}
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listen := l.Addr().String()
	require.NoError(t, l.Close())
	var log bytes.Buffer
	cmd := exec.Command("prometheus", "--enable-feature=exemplar-storage", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+listen)
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		if t.Failed() {
			t.Logf("log of prometheus:\n%s", log.String())
		}
	})
	address = "http://" + listen
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		res, err := http.Get(address + "/-/ready")
		if err != nil {
			return false, err.Error()
		}
		return res.StatusCode == http.StatusOK && res.Body.Close() == nil, res.Status
	})
	return address
}

// query is one of a panel.
type query struct{ where, expr string }

// panels reads the dashboards as Grafana does.
func panels(t *testing.T) (queries []query) {
	t.Helper()
	files, err := filepath.Glob(deploy + "grafana/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		var d struct {
			Panels []struct {
				Title   string
				Type    string
				Targets []struct{ Expr string }
			}
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &d))
		require.NotEmpty(t, d.Panels)
		for _, p := range d.Panels {
			require.Equal(t, p.Type == "row", len(p.Targets) == 0, p.Title)
			for _, target := range p.Targets {
				queries = append(queries, query{p.Title, strings.ReplaceAll(target.Expr, "$__rate_interval", "1m")})
			}
		}
	}
	return queries
}

// hasData reports whether a query has a number now.
func hasData(t *testing.T, prometheus, expr string) bool {
	t.Helper()
	var a struct {
		Status, Error string
		Data          struct{ Result []struct{ Value []any } }
	}
	require.NoError(t, json.Unmarshal(get(t, prometheus+"/api/v1/query?query="+url.QueryEscape(expr)), &a))
	require.Equal(t, "success", a.Status, "%s: %s", expr, a.Error)
	for _, r := range a.Data.Result {
		if v, ok := r.Value[1].(string); ok && v != "NaN" {
			return true
		}
	}
	return false
}

// exemplars requires that a histogram has some, each with the id of a trace and no more.
func exemplars(t *testing.T, prometheus, name string) {
	t.Helper()
	var a struct {
		Data []struct {
			Exemplars []struct{ Labels map[string]string }
		}
	}
	now := time.Now()
	require.NoError(t, json.Unmarshal(get(t, fmt.Sprintf("%s/api/v1/query_exemplars?query=%s&start=%d&end=%d", prometheus, name, now.Add(-time.Hour).Unix(), now.Unix()+1)), &a))
	require.NotEmpty(t, a.Data, name)
	for _, series := range a.Data {
		for _, e := range series.Exemplars {
			require.Len(t, e.Labels, 1)
			require.Regexp(t, "^[0-9a-f]{32}$", e.Labels["trace_id"])
		}
	}
}

func get(t *testing.T, address string) []byte {
	t.Helper()
	res, err := http.Get(address)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }() // read to its end
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return text
}

var (
	typeLine = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
	series   = regexp.MustCompile(`(?m)^([a-z_]+)\{([^}]*)\}`)
	pair     = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
)

// check compares what a daemon exposes with the catalogue.
func check(t *testing.T, text string, shown map[string]bool) {
	t.Helper()
	entries := map[string]telemetry.Entry{}
	for _, e := range telemetry.Catalogue() {
		entries[e.Name] = e
	}
	for _, m := range typeLine.FindAllStringSubmatch(text, -1) {
		if strings.HasPrefix(m[1], "go_") || strings.HasPrefix(m[1], "process_") {
			continue
		}
		require.Equal(t, m[2], entries[m[1]].Kind, "%s is not in the catalogue as it is exposed", m[1])
		shown[m[1]] = true
	}
	for _, m := range series.FindAllStringSubmatch(text, -1) {
		e := entries[m[1]]
		for _, p := range pair.FindAllStringSubmatch(m[2], -1) {
			if i := slices.Index(e.Labels, p[1]); i >= 0 && e.Values[i] != nil {
				require.Contains(t, e.Values[i], p[2], "%s: %s", e.Name, p[1])
			}
		}
	}
}

// aliases requires the other names of what is exposed.
func aliases(t *testing.T, text, also string) {
	t.Helper()
	for _, e := range telemetry.Catalogue() {
		for _, alias := range e.Aliases {
			name := regexp.MustCompile(`^\w+`).FindString(alias)
			require.NotContains(t, text, "# TYPE "+name+" ")
			if strings.Contains(text, "# TYPE "+e.Name+" ") && !strings.Contains(alias, "{") {
				require.Contains(t, also, "# TYPE "+name+" ", e.Name)
			}
		}
	}
}

// workload has a fleet do of everything a little: tasks that succeed, are tried again and
// fail, tasks of a queue, and a schedule.
type workload struct {
	t      *testing.T
	url    string
	client *client.Client
	host   *brokertest.Host
	jobs   *redis.Client
	rounds int
}

func (w *workload) begin() {
	w.t.Helper()
	_, err := w.client.CreateSchedule(w.t.Context(), client.ScheduleRequest{Namespace: "examples", Name: "often", Template: "mathematical_sequence",
		Version: "1.0.0", Cron: "@every 1s", Context: json.RawMessage(`{"even_number": 2}`)})
	require.NoError(w.t, err)
	_, err = w.client.PutTaskType(w.t.Context(), "EMAIL", client.TaskTypeRequest{Namespace: "jobs"})
	require.NoError(w.t, err)
	w.post("/workers/v1/register", `{"workerId": "mailer", "queue": "mail"}`)
	w.post("/tasks/v1", `{"queue": "mail", "delaySeconds": 3600, "payload": {}}`)
	w.post("/tasks/v1", `{"queue": "parked", "payload": {}}`) // waits for ever, so that there is a depth
}

func (w *workload) round() {
	w.t.Helper()
	w.rounds++
	for _, n := range []int{2 * w.rounds, 2*w.rounds + 1} { // odd ones fail
		_, err := w.client.CreateTask(w.t.Context(), client.TaskRequest{Name: "mathematical_sequence", Namespace: "examples", Version: "1.0.0",
			Context: fmt.Appendf(nil, `{"even_number": %d}`, n), Initiator: "metrics", SourceSystem: "test", Reason: "metrics"})
		require.NoError(w.t, err)
	}
	job := fmt.Sprintf(`{"id": "job-%d", "type": "EMAIL", "payload": {}}`, w.rounds)
	require.NoError(w.t, w.jobs.RPush(w.t.Context(), "tq:queue:high", job).Err())
	w.host.Call(w.t, http.MethodPost, "/exchanges/%s/tasker.direct/publish", map[string]any{"routing_key": "default", "payload": job,
		"payload_encoding": "string", "properties": struct{}{}}, nil)
	w.post("/v1/enqueue", `{"type": "EMAIL", "payload": {}}`)
	for range 3 {
		w.post("/tasks/v1", `{"queue": "mail", "payload": {"round": `+strconv.Itoa(w.rounds)+`}}`)
	}
	var claimed struct{ Tasks []struct{ ID string } }
	require.NoError(w.t, json.Unmarshal(w.post("/tasks/v1/claim", `{"workerId": "mailer", "limit": 3}`), &claimed))
	ends := []string{"/complete", "/fail", "/fail"}
	for i, task := range claimed.Tasks {
		body := `{"workerId": "mailer", "result": {}}`
		if i > 0 {
			body = fmt.Sprintf(`{"workerId": "mailer", "error": "no", "retryable": %t}`, i == 1)
		}
		w.post("/tasks/v1/"+task.ID+ends[i], body)
	}
}

func (w *workload) post(path, body string) []byte {
	w.t.Helper()
	res, err := http.Post(w.url+path, "application/json", strings.NewReader(body))
	require.NoError(w.t, err)
	defer func() { _ = res.Body.Close() }() // read to its end
	text, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	require.Less(w.t, res.StatusCode, 300, "%s: %s", path, text)
	return text
}
