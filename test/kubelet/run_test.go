//go:build kubelet

package kubelet_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/kubelet"
)

// binDir is where TestMain puts the programs.
var binDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "tasker-kubelet-*")
	if err == nil {
		binDir = dir
		cmd := exec.CommandContext(context.Background(), "go", "build", "-o", dir+"/", "./cmd/...")
		cmd.Dir, cmd.Env, cmd.Stderr = "../..", append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
		err = cmd.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := pgtest.With(m).Run()
	_ = os.RemoveAll(dir) // a temporary directory
	os.Exit(code)
}

// load is what clients see, and the tasks that were created.
type load struct {
	mu       sync.Mutex
	requests int
	failures []string
}

// drive creates tasks and reads their lists through the Service until ctx ends. Every
// request has a connection of its own unless keep says otherwise.
func (l *load) drive(ctx context.Context, k *kubelet.Kubelet, client int, keep bool) {
	transport := &http.Transport{DialContext: k.Dial, DisableKeepAlives: !keep}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	for n := 0; ctx.Err() == nil; n++ {
		body := fmt.Sprintf(`{"namespace": "examples", "name": "diamond", "version": "1.0.0", "context": {"even_number": %d},
			"initiator": "load", "source_system": "test", "reason": "load", "idempotency_key": "%d-%d"}`, 2*n, client, n)
		req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, "http://tasker:80/v1/tasks", strings.NewReader(body))
		if err == nil {
			req.Header.Set("Content-Type", "application/json")
			var res *http.Response
			if res, err = c.Do(req); err == nil {
				answer, _ := io.ReadAll(res.Body) // the status says it all
				_ = res.Body.Close()
				if res.StatusCode/100 != 2 {
					err = fmt.Errorf("%s: %s", res.Status, answer)
				}
			}
		}
		l.mu.Lock()
		l.requests++
		if err != nil {
			l.failures = append(l.failures, err.Error())
		}
		l.mu.Unlock()
		_ = lifecycle.Pause(ctx, 10*time.Millisecond) // the loop notices the end of ctx
	}
}

// outcome is what a rolling restart under load has shown.
type outcome struct {
	err      error // of roll-outs and ends of pods
	requests int
	failures []string
	lost     int // tasks whose creation was answered
	unended  int // tasks
	failed   int // tasks
	wasted   int // executions beyond one for each step
}

func (o outcome) String() string {
	return fmt.Sprintf("%d requests, %d failed, %d tasks lost, %d have not ended, %d failed, %d attempts wasted; roll-out: %v", o.requests, len(o.failures), o.lost, o.unended, o.failed, o.wasted, o.err)
}

func (o outcome) green() bool {
	return o.err == nil && len(o.failures) == 0 && o.lost == 0 && o.unended == 0 && o.failed == 0 && o.wasted == 0 && o.requests > 0
}

// restart runs the rendered fleet and restarts all of it under load.
func restart(t *testing.T, plant func(manifests string) string, keep bool) (o outcome) {
	t.Helper()
	file, err := os.ReadFile("../../deploy/helm/testdata/kubelet.golden.yaml")
	require.NoError(t, err)
	manifests := string(file)
	if plant != nil {
		manifests = plant(manifests)
		require.NotEqual(t, string(file), manifests, "nothing was planted")
	}
	objects, err := kubelet.Parse([]byte(manifests))
	require.NoError(t, err)
	db := pgtest.New(t)
	k := &kubelet.Kubelet{BinDir: binDir, Dir: t.TempDir(), Secrets: map[string]map[string]string{"tasker-database": {"url": db.DSN}},
		Deadline: 40 * time.Second, Lag: 500 * time.Millisecond}
	k.Load(objects)
	stopped := false
	defer func() {
		if !stopped {
			_ = k.Stop() // what went wrong has been reported
		}
	}()
	require.NoError(t, k.RunJobs(t.Context()))
	if o.err = k.Roll(t.Context()); o.err != nil {
		return o
	}
	_ = lifecycle.Pause(t.Context(), k.Lag) // the Service knows the pods
	var l load
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() { l.drive(ctx, k, i, keep) })
	}
	o.err = k.Roll(t.Context())
	cancel()
	clients.Wait()
	o.requests, o.failures = l.requests, l.failures
	if o.err == nil && k.Restarts() != 0 {
		o.err = fmt.Errorf("%d containers were restarted", k.Restarts())
	}
	if o.err == nil {
		pgtest.Eventually(t, time.Minute, func() (bool, string) {
			o.unended = db.QueryInt(t, `select count(*) from tasker.board where slot = 0`)
			return o.unended == 0, fmt.Sprintf("%d tasks have not ended", o.unended)
		})
	}
	o.lost = o.requests - len(o.failures) - db.QueryInt(t, `select count(*) from tasker.tasks`)
	o.failed = db.QueryInt(t, `select count(*) from tasker.v_tasks where state <> 'complete'`)
	o.wasted = db.QueryInt(t, `select count(*) - count(distinct (task_uuid, step_no)) from tasker.step_attempts where claimed_at is not null`)
	stopped = true
	if err := k.Stop(); o.err == nil {
		o.err = err
	}
	return o
}

// noDelay replaces what makes a preStop hook unnecessary.
var noDelay = [2]string{"common.shutdown.delay_ms = 3000", "common.shutdown.delay_ms = 0"}

// TestARollingRestartIsNotNoticed: every pod of the mixed fleet is replaced under load.
func TestARollingRestartIsNotNoticed(t *testing.T) {
	for name, keep := range map[string]bool{"a connection for each request": false, "connections that are kept": true} {
		t.Run(name, func(t *testing.T) {
			o := restart(t, nil, keep)
			t.Log(o)
			require.True(t, o.green(), "%s\n%v", o, first(o.failures))
		})
	}
	t.Run("a preStop hook in place of the delay", func(t *testing.T) {
		o := restart(t, func(manifests string) string {
			return strings.NewReplacer(noDelay[0], noDelay[1], "          readinessProbe:", "          lifecycle: {preStop: {sleep: {seconds: 3}}}\n          readinessProbe:").Replace(manifests)
		}, false)
		t.Log(o)
		require.True(t, o.green(), "%s\n%v", o, first(o.failures))
	})
}

// TestPlantedFaultsAreSeen: what breaks roll-outs in a cluster turns this red as well.
func TestPlantedFaultsAreSeen(t *testing.T) {
	replace := func(old, by string) func(string) string {
		return func(manifests string) string { return strings.ReplaceAll(manifests, old, by) }
	}
	t.Run("a probe of a path that is not there", func(t *testing.T) {
		o := restart(t, replace("path: /health/ready", "path: /health/reddy"), false)
		t.Log(o)
		require.ErrorContains(t, o.err, "0 of 1 pods are ready")
	})
	t.Run("no delay before the end, and no preStop", func(t *testing.T) {
		o := restart(t, replace(noDelay[0], noDelay[1]), false)
		t.Log(o)
		require.NotEmpty(t, o.failures)
	})
	t.Run("too short a grace", func(t *testing.T) {
		o := restart(t, func(manifests string) string {
			return strings.NewReplacer("terminationGracePeriodSeconds: 19", "terminationGracePeriodSeconds: 1").Replace(manifests)
		}, false)
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
		secrets := map[string]map[string]string{"tasker-database": {"url": "postgresql://localhost/tasker"}, "tasker-jwt": {"jwt-public-key.pem": ""}}
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

func first(s []string) []string { return s[:min(len(s), 5)] }
