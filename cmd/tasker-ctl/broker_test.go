package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/brokertest"
)

func TestMain(m *testing.M) { os.Exit(brokertest.With(m).Run()) }

// TestBroker: what is missing is shown, declared, shown with what waits in it, and not changed
// where it is something else.
func TestBroker(t *testing.T) {
	t.Parallel()
	host := brokertest.New(t)
	s := newSession(t)
	s.env["RABBITMQ_URL"] = host.URL
	run := func(verb string) outcome {
		return s.run(t.Context(), "", "broker", verb, "--config-file", "testdata/broker.toml")
	}
	got := run("status")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, "8 of 8 are missing: tasker-ctl broker init declares them")
	require.Contains(t, got.stdout, "missing")
	for range 2 {
		require.Equal(t, outcome{stdout: "the broker has the 8 exchanges and queues\n"}, run("init"))
	}
	host.Call(t, http.MethodPost, "/exchanges/%s/tasks.direct/publish", map[string]any{"routing_key": "high", "payload": "x", "payload_encoding": "string", "properties": struct{}{}}, nil)
	want := `KIND     NAME                 BOUND TO              MESSAGES  CONSUMERS
direct   tasks.direct         -                     -         -
fanout   tasks.dlx            -                     -         -
headers  tasks.delay          -                     -         -
queue    tasks.dlq            tasks.dlx             0         0
queue    tasks.default        tasks.direct default  0         0
queue    tasks.retry.default  -                     0         0
queue    tasks.high           tasks.direct high     1         0
queue    tasks.retry.high     -                     0         0
`
	require.Equal(t, outcome{stdout: want}, run("status"))

	host.Call(t, http.MethodDelete, "/queues/%s/tasks.high", nil, nil)
	host.Call(t, http.MethodPut, "/queues/%s/tasks.high", map[string]any{"durable": true, "arguments": map[string]any{"x-max-length": 7}}, nil)
	got = run("init")
	require.Equal(t, exitConflict, got.code)
	require.Contains(t, got.stderr, `declare "tasks.high"`)
	require.Contains(t, got.stderr, "delete it, or give it another name")

	there, err := url.Parse(host.URL)
	require.NoError(t, err)
	there.User = url.UserPassword("tasker", "secret")
	s.env["RABBITMQ_URL"] = there.String()
	got = run("status")
	require.Equal(t, exitPermission, got.code)
	require.Contains(t, got.stderr, "connect to the broker at "+there.Host)
	require.Contains(t, got.stderr, "see the user, the password")
	require.NotContains(t, got.stderr, "secret")

	s.env["RABBITMQ_URL"] = fmt.Sprintf("amqp://u:secret@%s/x", closedPort(t))
	got = run("status")
	require.Equal(t, exitUnavailable, got.code)
	require.NotContains(t, got.stderr, "secret")
}
