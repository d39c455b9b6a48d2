//go:build image

package kubelet_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/pgtest"
)

var image = flag.String("image", "", "the image to run")

func podman(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "podman", args...).CombinedOutput() // #nosec G204 -- of this test
	if err != nil {
		err = fmt.Errorf("podman %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := podman(t, args...)
	require.NoError(t, err)
	return out
}

// without are the rights that the image is run without.
var without = []string{"--network=host", "--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges", "--memory=256m"}

// start runs a program of the image until the test ends.
func start(t *testing.T, name string, env []string, command ...string) {
	t.Helper()
	args := append([]string{"run", "--detach", "--name", name}, without...)
	for _, e := range env {
		args = append(args, "--env", e)
	}
	must(t, append(append(args, *image), command...)...)
	t.Cleanup(func() { must(t, "rm", "--force", name) })
}

// TestTheImageHoldsWhatItSays: what is in it, who runs it, and what it is made of.
func TestTheImageHoldsWhatItSays(t *testing.T) {
	var inspected []struct {
		Config struct {
			User   string
			Labels map[string]string
			Env    []string
		}
		RootFS struct{ Layers []string }
	}
	require.NoError(t, json.Unmarshal([]byte(must(t, "image", "inspect", *image)), &inspected))
	user, _, _ := strings.Cut(inspected[0].Config.User, ":")
	uid, err := strconv.Atoi(user)
	require.NoError(t, err, "a number, or Kubernetes cannot know that it is not root")
	require.NotZero(t, uid)
	for _, label := range []string{"title", "description", "licenses", "source", "version", "revision", "created"} {
		require.NotEmpty(t, inspected[0].Config.Labels["org.opencontainers.image."+label], label)
	}
	id := must(t, "create", *image)
	t.Cleanup(func() { must(t, "rm", id) })
	dir := t.TempDir()
	must(t, "export", "--output", dir+"/files.tar", id)
	list, err := exec.CommandContext(t.Context(), "tar", "--list", "--file", dir+"/files.tar").Output() // #nosec G204 -- of this test
	require.NoError(t, err)
	for _, file := range []string{"usr/local/bin/orchestrator", "usr/local/bin/worker", "usr/local/bin/tasker-ctl", "etc/ssl/certs/ca-certificates.crt"} {
		require.Contains(t, string(list), file)
	}
	require.NotContains(t, string(list), "bin/sh", "an image from scratch has no shell")
	must(t, "cp", id+":/usr/share/tasker/sbom.cdx.json", dir+"/sbom.json")
	file, err := os.ReadFile(filepath.Join(dir, "sbom.json"))
	require.NoError(t, err)
	var sbom struct {
		BOMFormat  string `json:"bomFormat"`
		Components []struct {
			Name, Version string
		}
	}
	require.NoError(t, json.Unmarshal(file, &sbom))
	require.Equal(t, "CycloneDX", sbom.BOMFormat)
	require.Contains(t, fmt.Sprint(sbom.Components), "github.com/jackc/pgx/v5 v")
	version := must(t, append(append([]string{"run", "--rm"}, without...), *image, "tasker-ctl", "version")...)
	require.Contains(t, version, inspected[0].Config.Labels["org.opencontainers.image.revision"], "the binaries name their commit")
}

// TestTheImageRunsWithoutRights migrates, runs both daemons, and ends them under load.
func TestTheImageRunsWithoutRights(t *testing.T) {
	db := pgtest.New(t)
	dsn := reachable(t, db)
	database := "DATABASE_URL=" + dsn.String()
	t.Log(must(t, append(append([]string{"run", "--rm", "--env", database}, without...), *image, "tasker-ctl", "migrate", "up", "--wait", "1m")...))
	address, workers := free(t), free(t)
	run := fmt.Sprintf("tasker-%d", os.Getpid())
	start(t, run+"-orchestrator", []string{database, "TASKER_WEB_BIND_ADDRESS=" + address, "TASKER_ORCHESTRATION_GRPC_BIND_ADDRESS=127.0.0.1:0"}, "orchestrator")
	start(t, run+"-worker", []string{database, "TASKER_WEB_BIND_ADDRESS=" + workers, "TASKER_WORKER_GRPC_BIND_ADDRESS=127.0.0.1:0"}, "worker")
	for _, kind := range []string{"orchestrator", "worker"} {
		pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
			out, err := podman(t, "exec", run+"-"+kind, kind, "healthcheck", "ready")
			return err == nil, out
		})
		pid := must(t, "inspect", "--format", "{{.State.Pid}}", run+"-"+kind)
		status, err := os.ReadFile("/proc/" + pid + "/status")
		require.NoError(t, err)
		require.Regexp(t, `(?m)^Uid:\s+65532\s`, string(status))
		require.Regexp(t, `(?m)^CapEff:\s+0+$`, string(status))
		require.Regexp(t, `(?m)^NoNewPrivs:\s+1$`, string(status))
	}
	create := func(n int64) error {
		body := fmt.Sprintf(`{"namespace": "examples", "name": "diamond", "version": "1.0.0", "context": {"even_number": %d}, "initiator": "load", "source_system": "test", "reason": "load"}`, 2*n)
		res, err := http.Post("http://"+address+"/v1/tasks", "application/json", strings.NewReader(body))
		if err != nil {
			return err
		}
		if res.StatusCode/100 != 2 {
			err = fmt.Errorf("answered %s", res.Status)
		}
		_ = res.Body.Close()
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	var created atomic.Int64
	var clients sync.WaitGroup
	for client := range int64(4) {
		clients.Go(func() {
			for n := client << 32; ctx.Err() == nil; n++ {
				if create(n) == nil { // it ends under this load
					created.Add(1)
				} else {
					_ = lifecycle.Pause(ctx, 10*time.Millisecond)
				}
			}
		})
	}
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) { return created.Load() > 500, fmt.Sprint(created.Load(), " tasks") })
	for _, kind := range []string{"worker", "orchestrator"} {
		grace := must(t, "exec", run+"-"+kind, kind, "grace")
		begin := time.Now()
		must(t, "stop", "--time", grace, run+"-"+kind) // it kills after the grace
		require.Equal(t, "0", must(t, "inspect", "--format", "{{.State.ExitCode}}", run+"-"+kind), "%s", kind)
		t.Logf("%s ended with 0 after %s; its grace is %s s", kind, time.Since(begin).Round(time.Millisecond), grace)
	}
	cancel()
	clients.Wait()
	done := db.QueryInt(t, `select count(*) from tasker.v_tasks where state = 'complete'`)
	require.Positive(t, done, "the worker runs handlers")
	require.GreaterOrEqual(t, db.QueryInt(t, `select count(*) from tasker.tasks`), int(created.Load()), "no answered task is lost")
	t.Logf("%d tasks created, %d complete", created.Load(), done)
}

func free(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().String()
}
