package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/telemetry"
)

func TestLoggerFormats(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"", "auto", "json", "JSON"} {
		var out bytes.Buffer
		log, err := telemetry.NewLogger("warn", format, &out)
		require.NoError(t, err)
		log.Info("too quiet")
		log.Warn("hello", zap.Duration("after", time.Second))
		var line map[string]any
		require.NoError(t, json.Unmarshal(out.Bytes(), &line), "%s: %s", format, out.String())
		require.Equal(t, "hello", line["message"])
		require.Equal(t, "warn", line["level"])
		require.Equal(t, "1s", line["after"])
		require.Contains(t, line, "timestamp")
	}
	var out bytes.Buffer
	log, err := telemetry.NewLogger("", "console", &out)
	require.NoError(t, err)
	log.Debug("too quiet")
	log.Info("hello", zap.String("who", "you"))
	require.Contains(t, out.String(), "INFO\thello")
	require.NotContains(t, out.String(), "\x1b", "no colour without a terminal")
	require.NotContains(t, out.String(), "quiet")
}

// TestAllowedRequestsAreWrittenTogether: not with a system call each; refusals are written at
// once.
func TestAllowedRequestsAreWrittenTogether(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := telemetry.NewLogger("info", "json", &out)
	require.NoError(t, err)
	audit := log.Named("rest").Named(telemetry.AuditLogger).With(zap.Int("of", 2))
	audit.Info("allowed")
	audit.Debug("too quiet")
	require.Empty(t, out.String())
	audit.Warn("refused")
	log.Info("other")
	require.Equal(t, 2, strings.Count(out.String(), "\n"))
	audit.Info("allowed again")
	require.NoError(t, log.Sync())
	var words []string
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields))
		words = append(words, fields["message"].(string))
		require.Equal(t, fields["message"] != "other", fields["of"] != nil, line)
	}
	require.Equal(t, []string{"refused", "other", "allowed", "allowed again"}, words)
}

func TestLoggerRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	_, err := telemetry.NewLogger("loud", "", &bytes.Buffer{})
	require.ErrorContains(t, err, "loud")
	_, err = telemetry.NewLogger("info", "xml", &bytes.Buffer{})
	require.ErrorContains(t, err, "xml")
}

func TestLoggerInAFileIsJSON(t *testing.T) {
	t.Parallel()
	f, err := os.Create(t.TempDir() + "/log")
	require.NoError(t, err)
	log, err := telemetry.NewLogger("info", "auto", f)
	require.NoError(t, err)
	log.Info("hello")
	require.NoError(t, f.Close())
	text, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	require.True(t, json.Valid(text), "%s", text)
}

// touch makes a series of every collector in the catalogue, so that Gather returns all of
// them.
func touch(t *testing.T, m *telemetry.Metrics) (collectors int) {
	t.Helper()
	fields := reflect.ValueOf(m).Elem()
	for i := range telemetry.Catalogue() {
		c, ok := fields.Field(i).Interface().(prometheus.Collector)
		if !ok {
			require.IsType(t, &prometheus.Desc{}, fields.Field(i).Interface())
			continue
		}
		collectors++
		descs := make(chan *prometheus.Desc, 1)
		c.Describe(descs)
		text := (<-descs).String()
		_, labels, ok := strings.Cut(text, "variableLabels: {")
		require.True(t, ok, text)
		n := 0
		if !strings.HasPrefix(labels, "}") {
			n = 1 + strings.Count(labels, ",")
		}
		values := strings.Split(strings.Repeat("x ", n), " ")[:n]
		switch c := c.(type) {
		case *prometheus.CounterVec:
			c.WithLabelValues(values...).Inc()
		case *prometheus.GaugeVec:
			c.WithLabelValues(values...).Set(1)
		case *prometheus.HistogramVec:
			c.WithLabelValues(values...).Observe(1)
		}
	}
	return collectors
}

func TestCatalogue(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	m := telemetry.NewMetrics(reg)
	n := touch(t, m)
	families, err := reg.Gather()
	require.NoError(t, err)
	require.Len(t, families, n)
	names := map[string]bool{}
	for _, f := range families {
		names[f.GetName()] = true
		for _, l := range f.GetMetric()[0].GetLabel() {
			require.NotRegexp(t, "(task|step|correlation|trace|request|worker)_?(id|uuid)", l.GetName())
		}
	}
	for _, want := range []string{
		"tasker_event_listener_active", "tasker_event_listener_lag_seconds", "tasker_polling_fallback_active",
		"tasker_mode_switches_total", "tasker_event_notifications_received_total", "tasker_listener_reconnections_total",
		"tasker_polling_cycles_total", "tasker_polling_messages_found_total", "tasker_polling_errors_total",
		"tasker_polling_duration_seconds", "tasker_event_processing_duration_seconds", "tasker_found_total",
		"tasker_empty_wakes_total", "tasker_catch_up_scans_total", "tasker_probe_lag_seconds", "mpsc_channel_saturation",
		"tasker_command_duration_seconds", "tasker_commands_total", "tasker_loop_restarts_total",
		"tasker_tasks_created_total", "tasker_tasks_completed_total", "tasker_steps_claimed_total",
		"tasker_step_results_total", "tasker_decision_steps_created_total", "tasker_batches_created_total", "tasker_stale_results_total", "tasker_leases_expired_total", "tasker_claims_unbegun_total",
		"tasker_leases_lost_total", "tasker_step_duration_seconds", "tasker_store_statement_seconds",
		"tasker_signals_sent_total", "tasker_signals_coalesced_total", "tasker_signals_failed_total",
		"tasker_signals_dropped_total", "tasker_worker_handlers_active", "tasker_worker_handlers_limit",
		"tasker_worker_handlers_zombie",
	} {
		require.True(t, names[want], want)
	}
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestMetricsAreSharedOnOneRegistry(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	telemetry.NewMetrics(reg).StaleResults.Inc()
	telemetry.NewMetrics(reg).StaleResults.Inc()
	require.InDelta(t, 2, testutil.ToFloat64(telemetry.NewMetrics(reg).StaleResults), 0)

	other := prometheus.NewRegistry()
	other.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "tasker_stale_results_total", Help: "Other."}))
	require.Panics(t, func() { telemetry.NewMetrics(other) })

	var none *telemetry.Metrics
	require.NotNil(t, none.OrDiscard())
	m := telemetry.Discard()
	require.Same(t, m, m.OrDiscard())
}

func TestRunCheck(t *testing.T) {
	t.Parallel()
	good := telemetry.RunCheck(t.Context(), func(context.Context) error { return nil })
	bad := telemetry.RunCheck(t.Context(), func(context.Context) error { return errors.New("no pool") })
	require.Equal(t, deploymode.Healthy, good.Status)
	require.Equal(t, deploymode.Unhealthy, bad.Status)

	bad.Duration = 1500 * time.Millisecond
	text, err := json.Marshal(bad)
	require.NoError(t, err)
	require.JSONEq(t, `{"status":"unhealthy","message":"no pool","duration_ms":1500}`, string(text))
}

// TestExemplarsAreOfTraces: a measurement without a trace has none, and keeps that of an
// earlier one.
func TestExemplarsAreOfTraces(t *testing.T) {
	t.Parallel()
	m := telemetry.Discard()
	took := m.StepDuration.WithLabelValues("shop")
	read := func() (ids []string) {
		var series dto.Metric
		require.NoError(t, took.(prometheus.Metric).Write(&series))
		for _, b := range series.GetHistogram().GetBucket() {
			for _, l := range b.GetExemplar().GetLabel() {
				ids = append(ids, l.GetName()+"="+l.GetValue())
			}
		}
		return ids
	}
	telemetry.Observe(took, .001, "")
	require.Empty(t, read())
	telemetry.Observe(took, .001, "0af7651916cd43dd8448eb211c80319c")
	telemetry.Observe(took, .001, "")
	require.Equal(t, []string{"trace_id=0af7651916cd43dd8448eb211c80319c"}, read())
}

// TestMetricsUnderTheNamesOfTasker: all that the metrics reference of Tasker records are there
// under its names once a daemon has worked, with the units that they have there.
func TestMetricsUnderTheNamesOfTasker(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := telemetry.NewMetrics(registry)
	m.TasksCreated.WithLabelValues("shop").Inc()
	m.TasksCompleted.WithLabelValues("shop", "complete").Inc()
	m.TasksCompleted.WithLabelValues("shop", "error").Inc()
	m.StepsReady.WithLabelValues("shop").Inc()
	m.StepsClaimed.WithLabelValues("shop").Inc()
	m.StepResults.WithLabelValues("shop", "success").Inc()
	m.StepResults.WithLabelValues("shop", "error").Inc()
	m.StepDuration.WithLabelValues("shop").Observe(.002)
	m.DomainEventsPublished.WithLabelValues("paid", "shop").Inc()
	for _, flow := range []string{"create", "claim", "report", "apply", "settle"} {
		m.StoreStatement.WithLabelValues(flow).Observe(.002)
	}
	families, err := telemetry.Aliased(registry).Gather()
	require.NoError(t, err)
	there := map[string]*dto.MetricFamily{}
	for _, f := range families {
		require.Nil(t, there[f.GetName()], "%s is there twice", f.GetName())
		there[f.GetName()] = f
	}
	for name, series := range map[string]int{
		"tasker_tasks_requests_total": 1, "tasker_tasks_completions_total": 1, "tasker_tasks_failures_total": 1, "tasker_steps_enqueued_total": 1,
		"tasker_step_results_processed_total": 2, "tasker_task_initialization_duration_milliseconds": 1, "tasker_task_finalization_duration_milliseconds": 2,
		"tasker_step_result_processing_duration_milliseconds": 2, "tasker_steps_executions_total": 1, "tasker_steps_successes_total": 1,
		"tasker_steps_failures_total": 1, "tasker_steps_claimed_total": 1, "tasker_steps_results_submitted_total": 2,
		"tasker_step_execution_duration_milliseconds": 1, "tasker_step_claim_duration_milliseconds": 1,
		"tasker_step_result_submission_duration_milliseconds": 2, "tasker_domain_events_published_total": 1,
	} {
		require.Len(t, there[name].GetMetric(), series, name)
		if h := there[name].GetMetric()[0].GetHistogram(); h != nil {
			require.InDelta(t, 2, h.GetSampleSum(), 1e-9, "%s is in milliseconds", name)
		}
	}
}
