//go:build kubelet

package kubelet_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
	"github.com/tasker-go/tasker/test/kubelet"
)

// binDir is where TestMain puts the programs.
var binDir string

func TestMain(m *testing.M) {
	if os.Getenv(executions) != "" {
		os.Exit(runWorker())
	}
	os.Exit(fleet.Main("../..", func(dir string) int {
		binDir = dir
		return pgtest.With(m).Run()
	}))
}

// manifests is the render that is run.
func manifests(t *testing.T) string {
	t.Helper()
	file, err := os.ReadFile("../../deploy/helm/testdata/kubelet.golden.yaml")
	require.NoError(t, err)
	return string(file)
}

// nodes makes the fleet of manifests on two nodes, and runs the Jobs; it is stopped with the test.
func nodes(t *testing.T, manifests, bin, dsn string) *kubelet.Kubelet {
	t.Helper()
	k := loaded(t, manifests, bin, dsn)
	require.NoError(t, k.RunJobs(t.Context()))
	return k
}

// loaded returns a kubelet of two nodes that has not run anything yet.
func loaded(t *testing.T, manifests, bin, dsn string) *kubelet.Kubelet {
	t.Helper()
	objects, err := kubelet.Parse([]byte(manifests))
	require.NoError(t, err)
	k := &kubelet.Kubelet{BinDir: bin, Dir: t.TempDir(), Secrets: map[string]map[string]string{"tasker-database": {"url": dsn}},
		Deadline: 40 * time.Second, Lag: 500 * time.Millisecond, Nodes: 2}
	k.Load(objects)
	t.Cleanup(func() { _ = k.Stop() }) // what went wrong has been reported
	return k
}

// rollOut starts the pods, and returns once the Service knows them.
func rollOut(t *testing.T, k *kubelet.Kubelet) error {
	t.Helper()
	if err := k.Roll(t.Context()); err != nil {
		return err
	}
	return lifecycle.Pause(t.Context(), k.Lag)
}

// outcome is what a rolling restart under load has shown.
type outcome struct {
	books
	err      error // of roll-outs and ends of pods
	failures []request
}

func (o outcome) String() string { return fmt.Sprintf("%v; roll-out: %v", o.books, o.err) }

func (o outcome) green() bool { return o.err == nil && o.failed == 0 && o.wasted == 0 && o.whole() }

// restart runs the rendered fleet and restarts all of it under load.
func restart(t *testing.T, plant func(manifests string) string, clients ...client) (o outcome) {
	t.Helper()
	planted := manifests(t)
	if plant != nil {
		planted = plant(planted)
		require.NotEqual(t, manifests(t), planted, "nothing was planted")
	}
	db := pgtest.New(t)
	k := nodes(t, planted, binDir, db.DSN)
	if o.err = rollOut(t, k); o.err != nil {
		return o
	}
	all, err := under(t.Context(), k, clients, func(*load) error { return k.Roll(t.Context()) })
	if err == nil && k.Restarts() != 0 {
		err = fmt.Errorf("%d containers were restarted", k.Restarts())
	}
	o.books, o.failures = settle(t, db.DSN, all), failed(all)
	o.err = errors.Join(err, k.Stop())
	return o
}

// several are like clients.
func several(n int, c client) (list []client) {
	for i := range n {
		c := c
		c.name = fmt.Sprintf("%s%d", c.name, i)
		list = append(list, c)
	}
	return list
}

// always has a connection for each request, kept keeps it, and calls does so with gRPC. Idle
// keeps a connection for longer than the delay of a shutdown without a request.
var (
	always = several(4, client{name: "always", pause: 10 * time.Millisecond})
	kept   = several(4, client{name: "kept", keep: true, pause: 10 * time.Millisecond})
	calls  = append(several(3, client{name: "calls", grpc: true, keep: true, pause: 10 * time.Millisecond}), client{name: "dials", grpc: true, pause: 20 * time.Millisecond})
	idle   = []client{{name: "idle5", keep: true, pause: 5 * time.Second}, {name: "idle4", keep: true, pause: 4 * time.Second}, {name: "idle4g", grpc: true, keep: true, pause: 4 * time.Second}}
)

// noDelay replaces what makes a preStop hook unnecessary.
var noDelay = [2]string{"common.shutdown.delay_ms = 3000", "common.shutdown.delay_ms = 0"}

// TestARollingRestartIsNotNoticed: every pod of the mixed fleet is replaced under load.
func TestARollingRestartIsNotNoticed(t *testing.T) {
	for name, clients := range map[string][]client{
		"a connection for each request": always, "connections that are kept": append(slices.Clone(kept), idle...), "gRPC": calls,
	} {
		t.Run(name, func(t *testing.T) {
			o := restart(t, nil, clients...)
			t.Log(o)
			require.True(t, o.green(), "%s\n%v", o, firsts(o.failures))
		})
	}
	t.Run("a preStop hook in place of the delay", func(t *testing.T) {
		o := restart(t, func(manifests string) string {
			return strings.NewReplacer(noDelay[0], noDelay[1], "          readinessProbe:", "          lifecycle: {preStop: {sleep: {seconds: 3}}}\n          readinessProbe:").Replace(manifests)
		}, always...)
		t.Log(o)
		require.True(t, o.green(), "%s\n%v", o, firsts(o.failures))
	})
}

// TestPlantedFaultsAreSeen: what breaks roll-outs in a cluster turns this red as well.
func TestPlantedFaultsAreSeen(t *testing.T) {
	replace := func(old, by string) func(string) string {
		return func(manifests string) string { return strings.ReplaceAll(manifests, old, by) }
	}
	t.Run("a probe of a path that is not there", func(t *testing.T) {
		o := restart(t, replace("path: /health/accepting", "path: /health/accept"), always...)
		t.Log(o)
		require.ErrorContains(t, o.err, "0 of 1 pods are ready")
	})
	t.Run("no delay before the end, and no preStop", func(t *testing.T) {
		o := restart(t, replace(noDelay[0], noDelay[1]), always...)
		t.Log(o)
		require.NotEmpty(t, o.failures)
	})
	t.Run("too short a grace", func(t *testing.T) {
		o := restart(t, func(manifests string) string {
			return strings.NewReplacer("terminationGracePeriodSeconds: 19", "terminationGracePeriodSeconds: 1").Replace(manifests)
		}, always...)
		t.Log(o)
		require.ErrorContains(t, o.err, "was killed")
	})
}

// TestThePodsGraceIsThatOfTheDaemons: the chart computes what the daemons print.
func TestThePodsGraceIsThatOfTheDaemons(t *testing.T) {
	renders, err := os.ReadDir("../../deploy/helm/testdata")
	require.NoError(t, err)
	for _, r := range renders {
		if r.IsDir() {
			continue
		}
		file, err := os.ReadFile("../../deploy/helm/testdata/" + r.Name())
		require.NoError(t, err)
		objects, err := kubelet.Parse(file)
		require.NoError(t, err)
		secrets := map[string]map[string]string{
			"tasker-database": {"url": "postgresql://localhost/tasker"}, "tasker-jwt": {"jwt-public-key.pem": ""}, "broker-ca": {"ca.crt": ""},
			"tasker-rabbitmq": {"uri": "amqps://tasker:secret@broker:5671/tasker"}, "tasker-redis": {"url": "rediss://:secret@redis:6379"},
		}
		k := &kubelet.Kubelet{BinDir: binDir, Dir: t.TempDir(), Secrets: secrets}
		k.Load(objects)
		printed, err := k.Exec(t.Context(), "grace")
		require.NoError(t, err)
		for _, o := range objects {
			if o.Kind != "Deployment" {
				continue
			}
			grace, err := strconv.Atoi(strings.TrimSpace(printed[o.Metadata.Name]))
			require.NoError(t, err)
			assert.Equal(t, grace, *o.Spec.Template.Spec.Grace, "%s of %s", o.Metadata.Name, r.Name())
		}
	}
}
