//go:build apiserver

package kubelet_test

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
)

// judge has the server say what it finds in one object, and store nothing.
func (s *server) judge(t *testing.T, namespace, manifest string) error {
	t.Helper()
	var o struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string `yaml:"kind"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(manifest), &o))
	_, err := s.do(t.Context(), http.MethodPost, s.path(t, o.APIVersion, o.Kind, namespace)+"?dryRun=All&fieldValidation=Strict", "application/yaml", []byte(manifest))
	return err
}

// plain is the way without Helm: a dry run, and the real one.
func (c *cluster) plain(t *testing.T) {
	const namespace, file = "plain", "../../deploy/kubernetes/tasker.yaml"
	db := pgtest.New(t)
	c.namespace(t, namespace, db.DSN)
	_, err := c.kubectl(t, "", "--namespace", namespace, "apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename", file)
	require.NoError(t, err)
	require.Empty(t, c.stored(t, namespace))
	c.runJobs(t, namespace)
	_, err = c.kubectl(t, "", "--namespace", namespace, "apply", "--validate=strict", "--filename", file)
	require.NoError(t, err)
	manifests, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Len(t, c.stored(t, namespace), len(parse(t, string(manifests))))
	_, err = c.kubectl(t, "", "--namespace", namespace, "wait", "--for=condition=Complete", "--timeout=1m", "job/tasker-migrate")
	require.NoError(t, err)
	require.True(t, db.QueryBool(t, `select to_regclass('tasker.tasks') is not null`))
}

// rights: the pods of every set hold the strictest standard of pod security, which a planted
// right breaks.
func (c *cluster) rights(t *testing.T) {
	const namespace = "rights"
	c.namespace(t, namespace, "postgresql://unused")
	c.create(t, "v1", "ServiceAccount", namespace, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: tasker}}`)
	create := func(o object) error {
		template, ok := field(o, "spec", "template").(object)
		require.True(t, ok)
		template["apiVersion"], template["kind"] = "v1", "Pod"
		field(template, "metadata").(object)["name"] = "pod"
		body, err := json.Marshal(template)
		require.NoError(t, err)
		_, err = c.do(t.Context(), http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods?dryRun=All&fieldValidation=Strict", "application/json", body)
		return err
	}
	pods := 0
	for _, set := range valueSets(t) {
		manifests, err := os.ReadFile(renders + "/" + set + ".golden.yaml")
		require.NoError(t, err)
		for _, o := range parse(t, string(manifests)) {
			if o["kind"] == "Deployment" || o["kind"] == "Job" {
				require.NoError(t, create(o), "%s of %s", nameOf(o), set)
				pods++
			}
		}
		for old, by := range map[string]string{"runAsNonRoot: true": "runAsNonRoot: false", "drop: [ALL]": "add: [NET_ADMIN]", "type: RuntimeDefault": "type: Unconfined",
			"allowPrivilegeEscalation: false": "allowPrivilegeEscalation: true", "enableServiceLinks: false": "hostNetwork: true"} {
			planted := strings.ReplaceAll(string(manifests), old, by)
			for _, o := range parse(t, planted) {
				if o["kind"] == "Deployment" || o["kind"] == "Job" {
					require.ErrorContains(t, create(o), `violates PodSecurity "restricted`, "%s of %s", by, nameOf(o))
				}
			}
		}
	}
	t.Logf("%d pods are admitted", pods)
}

// refused plants one mistake after the other, each of which passes a schema, or belongs to
// an object that has none in Kubernetes.
func (c *cluster) refused(t *testing.T) {
	const namespace = "refused"
	c.namespace(t, namespace, "postgresql://unused")
	for name, p := range map[string]struct{ set, old, by, says string }{
		"a field that is none":          {"default", "terminationGracePeriodSeconds:", "terminationGraceSeconds:", `unknown field "spec.template.spec.terminationGraceSeconds"`},
		"a selector of other pods":      {"default", "      tasker.dev/group: polling\n  strategy:", "      tasker.dev/group: others\n  strategy:", "`selector` does not match template `labels`"},
		"no pod during a roll-out":      {"default", "{maxSurge: 1, maxUnavailable: 0}", "{maxSurge: 0, maxUnavailable: 0}", "may not be 0 when `maxSurge` is 0"},
		"a port beyond the last":        {"default", "containerPort: 9190", "containerPort: 91900", "must be between 1 and 65535"},
		"a port of a long name":         {"default", "{name: http, containerPort", "{name: the-http-port-of-it, containerPort", "must be no more than 15 characters"},
		"two ports of a name":           {"default", "{name: grpc, containerPort", "{name: http, containerPort", "Duplicate value"},
		"a mount of no volume":          {"default", "{name: database, mountPath", "{name: databases, mountPath", `Not found: "databases"`},
		"two mounts at a path":          {"default", "mountPath: /etc/tasker,", "mountPath: /run/secrets/tasker/database,", "must be unique"},
		"a probe that succeeds twice":   {"default", "          livenessProbe:\n", "          livenessProbe:\n            successThreshold: 2\n", "must be 1"},
		"a probe of no time":            {"default", "timeoutSeconds: 3", "timeoutSeconds: -3", "must be greater than or equal to 0"},
		"a request above its limit":     {"default", "memory: 144Mi", "memory: 1440Mi", "must be less than or equal to memory limit"},
		"an amount that is none":        {"default", "memory: 144Mi", "memory: -144Mi", "must be greater than or equal to 0"},
		"a file outside its volume":     {"default", "path: base/common.toml", "path: ../common.toml", "must not contain '..'"},
		"a key that is none":            {"default", "  common.toml: |", "  common/toml: |", "a valid config key must consist of"},
		"a name that is none":           {"default", "name: tasker-worker-default\n  labels", "name: Tasker_worker\n  labels", "a lowercase RFC 1123 subdomain must consist of"},
		"a label that is none":          {"default", "tasker.dev/group: polling", "tasker.dev/group: -polling", "a valid label must be"},
		"a variable that is none":       {"default", "name: TASKER_ENV", `name: "TASKER=ENV"`, "a valid environment variable name must consist"},
		"a Job that never ends":         {"default", "restartPolicy: OnFailure", "restartPolicy: Always", `Required value: valid values: "OnFailure", "Never"`},
		"a root that is none":           {"default", "runAsUser: 65532", "runAsUser: -1", "must be between 0 and"},
		"both rights and none":          {"default", "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: false\n            privileged: true", "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"},
		"a budget of both":              {"default", "  maxUnavailable: 1\n", "  maxUnavailable: 1\n  minAvailable: 1\n", "minAvailable and maxUnavailable cannot be both set"},
		"a Service of a type":           {"tokens", "type: LoadBalancer", "type: Balancer", `Unsupported value: "Balancer"`},
		"a Service's port twice":        {"tokens", "port: 9190, targetPort", "port: 8080, targetPort", "Duplicate value"},
		"a Service's target":            {"tokens", "targetPort: grpc", "targetPort: g_r_p_c", "must contain only alpha-numeric characters"},
		"a toleration with a value":     {"tokens", "operator: Exists", "operator: Exists\n          value: x", "value must be empty when `operator` is 'Exists'"},
		"a policy for no port":          {"default", "{port: 53, protocol: UDP}", "{port: 53, protocol: ICMP}", `Unsupported value: "ICMP"`},
		"a skew of none":                {"default", "maxSkew: 1", "maxSkew: 0", "must be greater than zero"},
		"fewer at most than at least":   {"hpa", "maxReplicas: 12", "maxReplicas: 1", "must be greater than or equal to `minReplicas`"},
		"a target that is none":         {"hpa", "averageUtilization: 70", "averageUtilization: 0", "must be greater than 0"},
		"an average of nothing":         {"hpa", `averageValue: "20"`, `averageValue: "-20"`, "must be positive"},
		"KEDA: a text for a number":     {"keda", "maxReplicaCount: 6", "maxReplicaCount: many", "spec.maxReplicaCount in body must be of type integer"},
		"KEDA: a trigger without kind":  {"keda", "- type: prometheus", "- name: prometheus", "spec.triggers[1].type: Required value"},
		"KEDA: nothing to scale":        {"keda", "  scaleTargetRef: {name: tasker-worker-default}\n", "", "spec.scaleTargetRef"},
		"KEDA: a metric of a kind":      {"keda", "metadata: {value: \"70\"}", "metadata: {value: [70]}", "metadata.value"},
		"Prometheus: an interval":       {"keda", "interval: 30s", "interval: often", "spec.podMetricsEndpoints[0].interval"},
		"Prometheus: no selector":       {"keda", "podMetricsEndpoints", "endpoints", "endpoints"},
		"Prometheus: a rule's duration": {"keda", "for: 1m", "for: long", "spec.groups[0].rules[0].for"},
	} {
		t.Run(name, func(t *testing.T) {
			manifests, err := os.ReadFile(renders + "/" + p.set + ".golden.yaml")
			require.NoError(t, err)
			var says []string
			planted := false
			for _, sound := range strings.Split(string(manifests), "\n---\n") {
				broken := strings.ReplaceAll(sound, p.old, p.by)
				if broken == sound {
					continue
				}
				planted = true
				require.NoError(t, c.judge(t, namespace, sound))
				if err := c.judge(t, namespace, broken); err != nil {
					says = append(says, err.Error())
				}
			}
			require.True(t, planted, "nothing was broken")
			require.True(t, slices.ContainsFunc(says, func(s string) bool { return strings.Contains(s, p.says) }), "%s: %v", p.says, says)
		})
	}
}
