package telemetry_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/telemetry"
)

var update = flag.Bool("update", false, "write the generated files anew")

// TestGeneratedFilesAreUpToDate: what an operator reads and runs follows from the catalogue,
// the alerts and the panels.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"docs/reference/metrics.md":        referencePage(),
		"deploy/prometheus/rules.yml":      rulesFile(),
		"deploy/prometheus/rules_test.yml": rulesCases(),
	}
	for _, d := range dashboards {
		files["deploy/grafana/"+d.file+".json"] = d.json(t)
	}
	for name, want := range files {
		path := filepath.Join("..", "..", filepath.FromSlash(name))
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(want), 0o600))
			continue
		}
		got, err := os.ReadFile(path) // #nosec G304 -- of the repository
		require.NoError(t, err)
		require.Equal(t, want, string(got), "%s is out of date: run go test ./internal/telemetry -run Generated -args -update", name)
	}
	kept, err := filepath.Glob("../../deploy/grafana/*.json")
	require.NoError(t, err)
	require.Len(t, kept, len(dashboards), "a dashboard that is not generated")
}

const generated = "go test ./internal/telemetry -run Generated -args -update"

func rulesFile() string {
	var b strings.Builder
	b.WriteString("# Generated: " + generated + "\ngroups:\n  - name: tasker-records\n    rules:\n")
	for _, r := range records {
		fmt.Fprintf(&b, "      - record: %s\n        expr: %q\n", r.name, r.expr)
	}
	b.WriteString("  - name: tasker-alerts\n    rules:\n")
	for i := range alerts {
		a := &alerts[i]
		fmt.Fprintf(&b, "      - alert: %s\n        expr: %q\n        for: %s\n        labels: {severity: %s}\n        annotations:\n          summary: %q\n          description: %q\n",
			a.name, a.expr, a.hold, a.severity, a.summary, a.do)
	}
	return b.String()
}

func rulesCases() string {
	var b strings.Builder
	b.WriteString("# Generated: " + generated + "\n# Each alert has a case that fires it and one that does not.\nrule_files: [rules.yml]\nevaluation_interval: 1m\ntests:\n")
	for i := range alerts {
		a := &alerts[i]
		for _, fires := range []bool{true, false} {
			series, name := a.fires, a.name+" fires"
			if !fires {
				series, name = a.silent, a.name+" is silent"
			}
			fmt.Fprintf(&b, "  - name: %s\n    interval: 1m\n    input_series:\n", name)
			for _, s := range series {
				at := strings.LastIndex(s, "} ") + 1
				fmt.Fprintf(&b, "      - {series: '%s', values: '%s'}\n", s[:at], s[at+1:])
			}
			wait := a.wait
			if wait == "" {
				wait = "9m"
			}
			fmt.Fprintf(&b, "    alert_rule_test:\n      - eval_time: %s\n        alertname: %s\n", wait, a.name)
			if !fires {
				b.WriteString("        exp_alerts: []\n")
				continue
			}
			fmt.Fprintf(&b, "        exp_alerts:\n          - exp_labels: {severity: %s", a.severity)
			for _, name := range slices.Sorted(maps.Keys(a.labels)) {
				fmt.Fprintf(&b, ", %s: %q", name, a.labels[name])
			}
			fmt.Fprintf(&b, "}\n            exp_annotations: {summary: %q, description: %q}\n", a.summary, a.do)
		}
	}
	return b.String()
}

func (d *dashboard) json(t *testing.T) string {
	t.Helper()
	source := map[string]string{"type": "prometheus", "uid": "${datasource}"}
	var list []map[string]any
	x, y := 0, 0
	for i, p := range d.panels {
		const width, height = 8, 8
		if x == 3*width || len(p.queries) == 0 && x > 0 {
			x, y = 0, y+height
		}
		if len(p.queries) == 0 {
			list = append(list, map[string]any{"id": i + 1, "type": "row", "title": p.title, "collapsed": false, "panels": []any{},
				"gridPos": map[string]int{"w": 3 * width, "h": 1, "x": 0, "y": y}})
			y++
			continue
		}
		var targets []map[string]any
		for j, q := range p.queries {
			targets = append(targets, map[string]any{"refId": string(rune('A' + j)), "expr": q.expr, "legendFormat": q.legend, "datasource": source})
		}
		list = append(list, map[string]any{"id": i + 1, "type": "timeseries", "title": p.title, "datasource": source, "targets": targets,
			"gridPos":     map[string]int{"w": width, "h": height, "x": x, "y": y},
			"fieldConfig": map[string]any{"defaults": map[string]any{"unit": p.unit, "min": 0}, "overrides": []any{}}})
		x += width
	}
	text, err := json.MarshalIndent(map[string]any{
		"uid": d.file, "title": d.title, "tags": []string{"tasker"}, "schemaVersion": 39, "version": 1, "editable": true, "refresh": "30s",
		"description": "Generated: " + generated,
		"time":        map[string]string{"from": "now-1h", "to": "now"},
		"templating":  map[string]any{"list": []any{map[string]any{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}}},
		"panels":      list,
	}, "", "  ")
	require.NoError(t, err)
	return string(text) + "\n"
}

func referencePage() string {
	var b strings.Builder
	b.WriteString("# Metrics\n\n<!-- Generated: " + generated + " -->\n\nThe metrics at `/metrics` of each daemon; [operations](../operate/operations.md#metrics) says how to use them. Values of a label in braces are all it\n" +
		"has; the other labels have as many values as a fleet has of what they name ([what bounds them](#labels)). Alerts are in `deploy/prometheus/rules.yml`, dashboards\n" +
		"in `deploy/grafana`.\n\n| metric | kind | unit | labels | meaning | buckets | alerts | dashboards |\n|---|---|---|---|---|---|---|---|\n")
	for _, e := range telemetry.Catalogue() {
		var labels, alerted, shown []string
		for i, l := range e.Labels {
			l = "`" + l + "`"
			if e.Values[i] != nil {
				l += " {" + strings.Join(e.Values[i], ", ") + "}"
			}
			labels = append(labels, l)
		}
		for i := range alerts {
			if uses(expanded(alerts[i].expr), e.Name) {
				alerted = append(alerted, alerts[i].name)
			}
		}
		for _, d := range dashboards {
			for _, p := range d.panels {
				for _, q := range p.queries {
					if uses(expanded(q.expr), e.Name) && !slices.Contains(shown, d.title+": "+p.title) {
						shown = append(shown, d.title+": "+p.title)
					}
				}
			}
		}
		var bounds string
		if len(e.Buckets) > 0 {
			bounds = fmt.Sprintf("%g to %g", e.Buckets[0], e.Buckets[len(e.Buckets)-1])
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s | %s |\n", e.Name, e.Kind, e.Unit, strings.Join(labels, ", "), e.Help, bounds,
			strings.Join(alerted, ", "), strings.Join(shown, ", "))
	}
	b.WriteString("\nBesides those of the Go runtime and of the process (`go_*`, `process_*`).\n\n## Labels\n\n| label | bounded by |\n|---|---|\n")
	for _, l := range slices.Sorted(maps.Keys(bounded)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", l, bounded[l])
	}
	b.WriteString("\nA counter is 0 from the start of a daemon where all its labels are in braces, or name an event system, a circuit breaker, a command, a sweep, or a\n" +
		"namespace that a worker is configured for, so that `increase()` sees its first event. Counters by other labels (queues, namespaces at an orchestrator,\n" +
		"loops, subscribers) begin with their first event, because a daemon does not know the values before.\n\n" +
		"## Names in other products\n\nScrape `/actuator/prometheus` in place of `/metrics` to have these names as well, or set\n`common.telemetry.metric_aliases = true` to have them at `/metrics`. They are apart because some break the conventions of\n" +
		"Prometheus (`promtool check metrics`), and because who does not need them should not store them. No label is that of a task or a request there either,\n" +
		"so that `correlation_id` and the like are absent.\n")
	names := offered()
	for _, d := range documents {
		fmt.Fprintf(&b, "\n### %s\n\n| name | here |\n|---|---|\n", d.title)
		for name := range strings.FieldsSeq(d.names) {
			here := names[name]
			if here == "" {
				here = "not offered: " + d.without[name]
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", name, here)
		}
	}
	return b.String()
}

// bounded are the labels whose values are not listed, with what bounds their number.
var bounded = map[string]string{
	"system": "the event systems of a daemon", "channel": "the bounded channels of the program", "command": "the commands of the program",
	"batch": "the batches of the program", "loop": "the loops of the program", "flow": "the database flows of the program",
	"namespace": "the namespaces of templates, the first 1,000", "queue": "the queues, the first 1,000", "type": "the task types, the first 1,000", "component": "the circuit breakers", "sweep": "the sweeps",
	"action": "the actions of sweeps", "event_name": "the events that templates declare, the first 1,000", "subscriber": "the subscribers of a worker",
	"operation": "the operations of the API", "route": "the routes of the API", "rpc": "the rpcs of the API", "code": "the codes of gRPC", "answer": "the kinds of analytics",
}

// offered says of every name of a metric, and of every alias, what it is here.
func offered() map[string]string {
	names := map[string]string{}
	for _, e := range telemetry.Catalogue() {
		names[e.Name] = "the same"
		for _, alias := range e.Aliases {
			name, factor, scaled := strings.Cut(alias, "*")
			name, only, some := strings.Cut(strings.TrimSuffix(name, "}"), "{")
			if names[name] = "`" + e.Name; some {
				label, value, _ := strings.Cut(only, "=")
				operator := "="
				if strings.Contains(value, "|") {
					operator = "=~"
				}
				names[name] += fmt.Sprintf("{%s%s%q}", label, operator, strings.ReplaceAll(value, "|", "\\|"))
			}
			if names[name] += "`"; scaled {
				names[name] += ", times " + factor
			}
		}
	}
	return names
}

// TestEveryNameOfTheDocumentsIsOfferedOrRefused with a reason, and none is both.
func TestEveryNameOfTheDocumentsIsOfferedOrRefused(t *testing.T) {
	t.Parallel()
	here := offered()
	asked := map[string]bool{}
	for _, d := range documents {
		names := strings.Fields(d.names)
		for _, name := range names {
			asked[name] = true
			require.NotEqual(t, here[name] != "", d.without[name] != "", "%s: %s", d.title, name)
		}
		for name := range d.without {
			require.Contains(t, names, name, d.title)
		}
	}
	seen := map[string]bool{}
	for _, e := range telemetry.Catalogue() {
		for _, alias := range e.Aliases {
			name := regexp.MustCompile(`^\w+`).FindString(alias)
			require.False(t, seen[name], "%s is the alias of two metrics", name)
			seen[name] = true
			require.True(t, asked[name] || name == "tasker_staleness_detection_duration_milliseconds", "no document has %s", name)
		}
	}
}

var word = regexp.MustCompile(`[a-z_:0-9]+`)

// uses reports whether an expression has a metric.
func uses(expr, metric string) bool {
	for _, w := range word.FindAllString(expr, -1) {
		for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
			if w == metric+suffix {
				return true
			}
		}
	}
	return false
}

// expanded replaces recording rules by what they record.
func expanded(expr string) string {
	for _, r := range records {
		expr = strings.ReplaceAll(expr, r.name, r.expr)
	}
	return expr
}

// TestRulesAndPanelsUseTheCatalogue: a typing error in a name would be a silent alert.
func TestRulesAndPanelsUseTheCatalogue(t *testing.T) {
	t.Parallel()
	entries := telemetry.Catalogue()
	check := func(where, expr string) {
		expr = regexp.MustCompile(`"[^"]*"|\[[^]]*\]`).ReplaceAllString(expanded(expr), "")
		for _, w := range word.FindAllString(expr, -1) {
			if !strings.HasPrefix(w, "task") && !strings.HasPrefix(w, "mpsc_") && !strings.HasPrefix(w, "workers_") {
				continue
			}
			require.True(t, slices.ContainsFunc(entries, func(e telemetry.Entry) bool { return uses(w, e.Name) }), "%s: %s", where, w)
		}
	}
	for i := range alerts {
		check(alerts[i].name, alerts[i].expr)
	}
	for _, d := range dashboards {
		for _, p := range d.panels {
			for _, q := range p.queries {
				check(p.title, q.expr)
			}
		}
	}
}

// TestLabelsAreBounded: each has its values listed, or what bounds them.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	for _, e := range telemetry.Catalogue() {
		for i, l := range e.Labels {
			require.True(t, e.Values[i] != nil || bounded[l] != "", "%s: what bounds %s?", e.Name, l)
		}
	}
}

// TestCountersBeginAtZero where their values are known.
func TestCountersBeginAtZero(t *testing.T) {
	t.Parallel()
	m := telemetry.Discard()
	require.Equal(t, 3, testutil.CollectAndCount(m.CheckpointsRefused))
	require.Equal(t, 10, testutil.CollectAndCount(m.EventStreamsEnded), "each of one label with each of another")
	require.Zero(t, testutil.CollectAndCount(m.StepResults))
	m.Known("namespace", "shop")
	require.Equal(t, 5, testutil.CollectAndCount(m.StepResults))
	require.Equal(t, 2, testutil.CollectAndCount(m.ResultSchemaViolations))
	require.Zero(t, testutil.CollectAndCount(m.DomainEventsPublished), "its events are not known")
	require.Zero(t, testutil.CollectAndCount(m.Found))
	m.Known("namespace", "shop")
	require.Equal(t, 5, testutil.CollectAndCount(m.StepResults))
}

// TestNamesOfRequestsAreBounded in labels.
func TestNamesOfRequestsAreBounded(t *testing.T) {
	t.Parallel()
	m := telemetry.Discard()
	for i := range 3000 {
		m.TasksCreated.WithLabelValues(m.Named("namespace", fmt.Sprint("n", i))).Inc()
	}
	require.Equal(t, 1001, testutil.CollectAndCount(m.TasksCreated))
	require.InDelta(t, 2000, testutil.ToFloat64(m.TasksCreated.WithLabelValues("other")), 0)
	require.Equal(t, "n7", m.Named("namespace", "n7"), "the first ones keep their names")
	require.Equal(t, "n2000", m.Named("queue", "n2000"), "each label has its own")
}

// TestAliased: whole metrics, parts of them, and other units.
func TestAliased(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	m := telemetry.NewMetrics(reg)
	m.TasksCompleted.WithLabelValues("shop", "complete").Add(3)
	m.TasksCompleted.WithLabelValues("shop", "error").Add(2)
	m.ListenerLag.WithLabelValues("worker", "hybrid").Set(.25)
	m.StepDuration.WithLabelValues("shop").Observe(.002)
	m.QueueSubmitted.WithLabelValues("mail").Inc()
	const want = `
# HELP taskqueue_jobs_submitted_total Tasks submitted to a queue. Another name of tasks_submitted_total.
# TYPE taskqueue_jobs_submitted_total counter
taskqueue_jobs_submitted_total{queue="mail"} 1
# HELP tasker_event_listener_lag_ms Round trip of the latest probe. Another name of tasker_event_listener_lag_seconds.
# TYPE tasker_event_listener_lag_ms gauge
tasker_event_listener_lag_ms{mode="hybrid",system="worker"} 250
# HELP tasker_tasks_completions_total Tasks that reached a terminal state, at the daemon that decided so: add those of workers and orchestrators. Another name of tasker_tasks_completed_total.
# TYPE tasker_tasks_completions_total counter
tasker_tasks_completions_total{namespace="shop"} 3
# HELP tasker_tasks_failures_total Tasks that reached a terminal state, at the daemon that decided so: add those of workers and orchestrators. Another name of tasker_tasks_completed_total.
# TYPE tasker_tasks_failures_total counter
tasker_tasks_failures_total{namespace="shop"} 2
`
	all := telemetry.Aliased(reg)
	require.NoError(t, testutil.GatherAndCompare(all, strings.NewReader(want), "taskqueue_jobs_submitted_total", "tasker_event_listener_lag_ms",
		"tasker_tasks_completions_total", "tasker_tasks_failures_total"))
	families, err := all.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != "tasker_step_execution_duration_milliseconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		require.InDelta(t, 2, h.GetSampleSum(), 1e-9)
		require.InDelta(t, .5, h.GetBucket()[0].GetUpperBound(), 1e-9)
		return
	}
	require.Fail(t, "no histogram in milliseconds")
}
