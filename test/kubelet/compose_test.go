//go:build image

package kubelet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/pgtest"
)

// TestTheImageRunsByCompose starts the services of production.yaml one by one, the worker
// first and the database last, and completes a workflow through the published port. Their
// signals go over a broker, as brokers.yaml says.
func TestTheImageRunsByCompose(t *testing.T) {
	db := pgtest.New(t)
	dsn := reachable(t, db)
	later, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(own(t), "0"))
	require.NoError(t, err)
	database := dsn.Host
	dsn.Host = later.Addr().String()
	require.NoError(t, later.Close()) // nothing answers there yet
	file := t.TempDir() + "/database-url"
	require.NoError(t, os.WriteFile(file, []byte(dsn.String()), 0o644))      // #nosec G306 -- for user 65532
	require.NoError(t, os.Chmod(file[:strings.LastIndex(file, "/")], 0o755)) // #nosec G302 -- the same
	// The image of RabbitMQ is not here; its configuration is.
	config, err := filepath.Abs("../../deploy/compose/rabbitmq.conf")
	require.NoError(t, err)
	nearby, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(own(t), "0"))
	require.NoError(t, err)
	broker := nearby.Addr().String()
	require.NoError(t, nearby.Close())
	relay(t, broker, brokertest.Configured(t, config, "RABBITMQ_DEFAULT_USER=tasker", "RABBITMQ_DEFAULT_PASS=chosen"))
	address := free(t)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	compose := func(args ...string) {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "podman-compose", append([]string{"--file", "../../deploy/compose/production.yaml", "--file", "../../deploy/compose/brokers.yaml", "--project-name", "tasker-test"}, args...)...) // #nosec G204 -- of this test
		cmd.Env = append(os.Environ(), "TASKER_IMAGE="+*image, "DATABASE_URL_FILE="+file, "TASKER_PORT="+port, "TASKER_WEB_ALLOW_ANONYMOUS=true", "TASKER_WEB_AUTH_ENABLED=false",
			"RABBITMQ_PASSWORD=chosen", "REDIS_PASSWORD=chosen", "RABBITMQ_HOST="+broker)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	defer compose("down")
	for _, service := range []string{"worker", "orchestrator", "migrate"} {
		compose("up", "--detach", service)
	}
	relay(t, dsn.Host, database)
	body := `{"namespace": "examples", "name": "diamond", "version": "1.0.0", "context": {"even_number": 4}, "initiator": "test", "source_system": "test", "reason": "test"}`
	pgtest.Eventually(t, 2*time.Minute, func() (bool, string) {
		res, err := http.Post("http://127.0.0.1:"+port+"/v1/tasks?wait=10s", "application/json", strings.NewReader(body))
		if err != nil {
			return false, err.Error()
		}
		answer, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		done := db.QueryInt(t, `select case when to_regclass('tasker.tasks') is null then 0 else 1 end`) == 1 &&
			db.QueryInt(t, `select count(*) from tasker.v_tasks where state = 'complete'`) == 1
		return done, fmt.Sprint(res.Status, string(answer), err)
	})
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		res, err := http.Get("http://127.0.0.1:" + port + "/metrics")
		require.NoError(t, err)
		metrics, err := io.ReadAll(res.Body)
		require.NoError(t, errors.Join(err, res.Body.Close()))
		return strings.Contains(string(metrics), `tasker_broker_up{connection="signals"} 1`), "no signal went over the broker"
	})
}

// reachable is the database for programs without the server's socket.
func reachable(t *testing.T, db *pgtest.DB) *url.URL {
	t.Helper()
	dsn, err := url.Parse(db.DSN)
	require.NoError(t, err)
	// The socket of the server is for this user alone; others have a password and TCP.
	role := fmt.Sprintf("image_%s", strings.ReplaceAll(strings.TrimPrefix(dsn.Path, "/"), "-", "_"))
	db.Exec(t, fmt.Sprintf(`create role %s login superuser password 'image'`, role))
	t.Cleanup(func() {
		db.Exec(t, fmt.Sprintf(`reassign owned by %s to current_user`, role))
		db.Exec(t, `drop role `+role)
	})
	dsn.User, dsn.Host = url.UserPassword(role, "image"), "127.0.0.1:"+dsn.Query().Get("port")
	dsn.RawQuery = "sslmode=disable"
	return dsn
}

// relay passes connections on from one address to another until the test ends.
func relay(t *testing.T, from, to string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", from)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg conc.WaitGroup
	t.Cleanup(func() {
		cancel()
		_ = l.Close() // ends Accept
		wg.Wait()
	})
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			wg.Go(func() { <-ctx.Done(); _ = client.Close(); _ = server.Close() })
			wg.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() }) // either end closes both
			wg.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
		}
	})
}

// own is an address of this machine that containers reach.
func own(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Fatal("this machine has no address but loopback")
	return ""
}
