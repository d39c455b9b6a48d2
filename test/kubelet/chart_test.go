//go:build chart || apiserver

package kubelet_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const chart = "../../deploy/helm/tasker"

// helm runs the one of scripts/require-helm.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../.tools/helm/helm", args...) // #nosec G204 -- of this test
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.String())
	}
	return string(out), err
}

func render(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return helm(t, append([]string{"template", "tasker", chart, "--namespace", "tasker"}, args...)...)
}

// TestTheChartIsClean: helm has nothing to complain about, with any of the values.
func TestTheChartIsClean(t *testing.T) {
	t.Parallel()
	out, err := helm(t, "lint", "--strict", chart)
	require.NoError(t, err, out)
}

// TestRenders holds what helm renders to the committed manifests; CHART_UPDATE=1 writes them.
func TestRenders(t *testing.T) {
	t.Parallel()
	sets, err := filepath.Glob(renders + "/values/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(sets), 6)
	for _, values := range sets {
		name := strings.TrimSuffix(filepath.Base(values), ".yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rendered, err := render(t, "--values", values)
			require.NoError(t, err)
			files := []string{renders + "/" + name + ".golden.yaml"}
			if name == "default" {
				files = append(files, "../../deploy/kubernetes/tasker.yaml")
			}
			for _, file := range files {
				if os.Getenv("CHART_UPDATE") != "" {
					require.NoError(t, os.WriteFile(file, []byte(rendered), 0o600))
				}
				golden, err := os.ReadFile(file)
				require.NoError(t, err)
				require.Equal(t, string(golden), rendered, "make chart CHART_UPDATE=1 writes %s", file)
			}
		})
	}
}

// TestWrongValuesAreRefused: nothing is rendered, and the message names the value.
func TestWrongValuesAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ set, says string }{
		"a value that is none":    {"replicas=3", "replicas"},
		"a mode that is none":     {"orchestrators.polling.mode=Poll", "/orchestrators/polling/mode"},
		"no orchestrator":         {"orchestrators=null", "orchestrators"},
		"a text for a number":     {"workers.default.replicas=many", "/workers/default/replicas"},
		"too many pods":           {"workers.default.replicas=1001", "/workers/default/replicas"},
		"no namespace":            {"workers.default.namespaces={}", "/workers/default/namespaces"},
		"a name that is none":     {"workers.Shop_1.replicas=1", "Shop_1"},
		"a key of no root":        {"config.database\\.url=x", "database.url"},
		"the chart's own key":     {"config.common\\.database\\.migrate_on_start=true", "migrate_on_start"},
		"a URL in the manifests":  {"config.common\\.database\\.url=postgresql://x", "url"},
		"a delay below its bound": {"config.common\\.shutdown\\.delay_ms=-2", "delay_ms"},
		"a key without a value":   {"config.common\\.shutdown\\.delay_ms=null", "delay_ms"},
		"who migrates":            {"migration.by=hand", "/migration/by"},
		"clients":                 {"auth.clients=some", "/auth/clients"},
		"a port":                  {"service.httpPort=70000", "/service/httpPort"},
		"what scales":             {"autoscaling.by=cron", "/autoscaling/by"},
		"no Secret":               {"database.secret=", "/database/secret"},
		"an interval":             {"serviceMonitor.interval=often", "/serviceMonitor/interval"},
		"too many connections":    {"database.maxConnections=50", "all pods at their most open up to"},
		"too many at the most":    {"autoscaling.by=hpa,workers.default.maxReplicas=40", "open up to 1434 connections, and database.maxConnections is 400"},
		"a bridge without a URL":  {"redis.bridge=true", "redis.bridge needs redis.secret"},
		"a bridge without queues": {"rabbitmq.secret=x,rabbitmq.bridge=true", "rabbitmq.bridge needs rabbitmq.queues"},
		"signals without a URL":   {"redis.secret=x,config.common\\.signals\\.event_source=amqp", "event_source amqp needs rabbitmq.secret"},
		"a port of a broker":      {"rabbitmq.port=0", "/rabbitmq/port"},
		"a prefix of a broker":    {"rabbitmq.namespace=a b", "/rabbitmq/namespace"},
		"a URL as a value":        {"redis.url=redis://x", "url"},
		"a most below the least":  {"autoscaling.by=hpa,workers.default.maxReplicas=1", "maxReplicas 1 is below replicas 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := render(t, "--set", c.set)
			require.Error(t, err)
			require.Contains(t, err.Error(), c.says)
			require.Empty(t, out)
		})
	}
}

// conform lists the objects that Kubernetes would refuse. Those of operators have no schema
// in Kubernetes.
func conform(t *testing.T, manifests string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../.tools/kubeconform/kubeconform", "-strict", "-summary", "-skip", "PodMonitor,PrometheusRule,ScaledObject",
		"-schema-location", "../../.tools/kubeconform/schemas/{{.ResourceKind}}{{.KindSuffix}}.json", "-")
	cmd.Stdin = strings.NewReader(manifests)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out)
	}
	require.NotContains(t, string(out), "Summary: 0 resources")
	return ""
}

// TestRendersConform holds every object to the schemas of Kubernetes.
func TestRendersConform(t *testing.T) {
	t.Parallel()
	for _, file := range goldens(t) {
		manifests, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Empty(t, conform(t, string(manifests)), file)
	}
}

// TestBrokenManifestsOfTheChartAreRefused plants one mistake after the other.
func TestBrokenManifestsOfTheChartAreRefused(t *testing.T) {
	t.Parallel()
	manifests, err := os.ReadFile(renders + "/hpa.golden.yaml")
	require.NoError(t, err)
	for name, c := range map[string]struct{ old, by string }{
		"a field that is none":      {"terminationGracePeriodSeconds:", "terminationGraceSeconds:"},
		"a probe's field":           {"failureThreshold: 60", "failures: 60"},
		"a text for a number":       {"periodSeconds: 2", "periodSeconds: often"},
		"a kind that is none":       {"kind: PodDisruptionBudget", "kind: PodBudget"},
		"a version that is none":    {"apiVersion: policy/v1", "apiVersion: policy/v9"},
		"no selector":               {"  selector:\n    matchLabels:\n      app.kubernetes.io/name: tasker\n      app.kubernetes.io/instance: tasker\n      app.kubernetes.io/component: orchestrator\n      tasker.dev/group: hybrid\n  strategy:", "  strategy:"},
		"a truth in quotes":         {"runAsNonRoot: true", `runAsNonRoot: "true"`},
		"a variable without a name": {"{name: TASKER_ENV, value: production}", "{value: production}"},
		"a variable with a number":  {"{name: TASKER_ENV, value: production}", "{name: TASKER_ENV, value: 1}"},
		"an amount that is none":    {"memory: 384Mi", "memory: much"},
		"a port without a number":   {"{name: http, containerPort: 8080}", "{name: http}"},
		"a mount without a path":    {"mountPath: /etc/tasker, ", ""},
		"a peer's field":            {"- podSelector: {}", "- podSelect: {}"},
		"a metric without a type":   {"- type: Resource", "- kind: Resource"},
		"a list for a text":         {"restartPolicy: OnFailure", "restartPolicy: [OnFailure]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := strings.ReplaceAll(string(manifests), c.old, c.by)
			require.NotEqual(t, string(manifests), broken, "nothing was broken")
			require.NotEmpty(t, conform(t, broken))
		})
	}
}
