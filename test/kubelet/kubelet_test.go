package kubelet_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/test/kubelet"
)

// shells is a Deployment of what the chart does not use: an init container, probes that are
// programs, and a preStop hook. Each leaves a line in the file LOG.
const shells = `
kind: ConfigMap
metadata: {name: words}
data: {word: planned}
---
kind: Deployment
metadata: {name: shells}
spec:
  replicas: 2
  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
  template:
    spec:
      terminationGracePeriodSeconds: 1
      initContainers:
        - name: first
          command: [sh]
          args: [-c, 'echo init >> LOG']
      containers:
        - name: shell
          command: [sh]
          args: [-c, 'trap "echo ended >> LOG; exit 0" TERM; echo "started $(cat $WORDS) $SECRET" >> LOG; touch LOG.up; while :; do sleep 0.05; done']
          env: [{name: PATH, value: /usr/bin:/bin}, {name: WORDS, value: /etc/words/word}, {name: SECRET, valueFrom: {secretKeyRef: {name: secrets, key: word}}}]
          startupProbe: {exec: {command: [test, -f, LOG.up]}, periodSeconds: 1, failureThreshold: 5}
          readinessProbe: {exec: {command: [test, -f, LOG.up]}, periodSeconds: 1}
          lifecycle: {preStop: {exec: {command: [sh, -c, 'echo hook >> LOG']}}}
          volumeMounts: [{name: words, mountPath: /etc/words}]
      volumes: [{name: words, configMap: {name: words}}]
`

// run rolls the shells out twice and stops them; it returns their lines.
func run(t *testing.T, manifests string) (lines map[string]int, err error) {
	t.Helper()
	log := t.TempDir() + "/log"
	objects, err := kubelet.Parse([]byte(strings.ReplaceAll(manifests, "LOG", log)))
	require.NoError(t, err)
	k := &kubelet.Kubelet{BinDir: "/bin", Dir: t.TempDir(), Deadline: 4 * time.Second, Secrets: map[string]map[string]string{"secrets": {"word": "hidden"}}}
	k.Load(objects)
	if err = k.Roll(t.Context()); err == nil {
		err = k.Roll(t.Context())
	}
	if stopped := k.Stop(); err == nil {
		err = stopped
	}
	file, readErr := os.ReadFile(log) // #nosec G304 -- of this test
	if err == nil {
		require.NoError(t, readErr)
	}
	lines = map[string]int{}
	for line := range strings.Lines(string(file)) {
		lines[strings.TrimSpace(line)]++
	}
	return lines, err
}

// TestPodsLiveAsInKubernetes: init containers, files, variables, probes and hooks, in two roll-outs of two pods.
func TestPodsLiveAsInKubernetes(t *testing.T) {
	t.Parallel()
	lines, err := run(t, shells)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"init": 4, "started planned hidden": 4, "hook": 4, "ended": 4}, lines)
}

// TestWhatKeepsPodsFromRunningIsReported names a fault of each part.
func TestWhatKeepsPodsFromRunningIsReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ old, by, says string }{
		"an init container that fails":  {"echo init >> LOG", "echo init >> LOG; exit 3", "first of shells"},
		"a start that is never probed":  {"startupProbe: {exec: {command: [test, -f, LOG.up]}", "startupProbe: {exec: {command: [test, -f, LOG.down]}", "of 2 pods are ready"},
		"a pod that does not end":       {`exit 0" TERM`, `while :; do sleep 0.05; done" TERM`, "was killed: it had not ended after its grace"},
		"a pod that ends with a fault":  {`exit 0" TERM`, `exit 7" TERM`, "ended with 7"},
		"a volume without its contents": {"configMap: {name: words}", "configMap: {name: others}", `no such Secret or ConfigMap "others"`},
		"a variable without a Secret":   {"key: word}", "key: number}", `no key "number" in a Secret "secrets"`},
		"a hook that uses up the grace": {"[sh, -c, 'echo hook >> LOG']", "[sleep, '60']", "was killed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := strings.Replace(shells, c.old, c.by, 1)
			require.NotEqual(t, shells, broken, "nothing was planted")
			_, err := run(t, broken)
			require.ErrorContains(t, err, c.says)
		})
	}
}
