package daemon

import (
	"bytes"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/config"
)

// sub runs a sub-command with a configuration.
func sub(t *testing.T, p Program, text string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tasker.toml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	opts := config.Options{Context: p.Context, Path: file, LookupEnv: func(name string) (string, bool) {
		if name != "DATABASE_URL" {
			return "", false
		}
		return "postgresql://nowhere/tasker", true
	}}
	var out, failure bytes.Buffer
	code, done := command(p, opts, args, &out, &failure)
	require.True(t, done)
	return code, out.String(), failure.String()
}

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	ready := true
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/health/live" || r.URL.Path == "/health/ready" && ready:
			_, _ = w.Write([]byte("{\"status\":\n  \"healthy\"}"))
		case r.URL.Path == "/health/ready":
			http.Error(w, `{"status":"draining"}`, http.StatusServiceUnavailable)
		default:
			http.NotFound(w, r)
		}
	})
	plain := httptest.NewServer(handler)
	t.Cleanup(plain.Close)
	port := plain.URL[strings.LastIndex(plain.URL, ":"):]
	text := "[orchestration.web]\nbind_address = \"127.0.0.1" + port + "\"\n"

	code, _, said := sub(t, OrchestratorProgram(), text, "healthcheck")
	require.Zero(t, code, said)
	require.Equal(t, "orchestrator is ready: {\"status\": \"healthy\"}\n", said)
	ready = false
	code, _, said = sub(t, OrchestratorProgram(), text, "healthcheck", "ready")
	require.Equal(t, exitFailure, code)
	require.Equal(t, "orchestrator is not ready: 503 Service Unavailable: {\"status\":\"draining\"}\n", said)
	code, _, said = sub(t, OrchestratorProgram(), text, "healthcheck", "live")
	require.Zero(t, code, said)

	code, _, said = sub(t, OrchestratorProgram(), text, "healthcheck", "well")
	require.Equal(t, exitConfig, code)
	require.Contains(t, said, "want healthcheck [ready|live|accepting]")
	code, _, said = sub(t, OrchestratorProgram(), "[orchestration.web]\nbind_address = \"127.0.0.1:0\"\n", "healthcheck")
	require.Equal(t, exitFailure, code)
	require.Contains(t, said, "want a port that is known beforehand")
	code, _, said = sub(t, OrchestratorProgram(), "[orchestration.web]\nenabled = false\n", "healthcheck")
	require.Equal(t, exitFailure, code)
	require.Contains(t, said, "there is no server to ask")
	plain.Close()
	code, _, said = sub(t, OrchestratorProgram(), text, "healthcheck")
	require.Equal(t, exitFailure, code)
	require.Contains(t, said, "connection refused")
}

// TestHealthcheckOverTLS: the certificate has other names than the loopback address, and the server
// wants to see one of its clients'.
func TestHealthcheckOverTLS(t *testing.T) {
	t.Parallel()
	own, other := newCertificate(t), newCertificate(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert, Certificates: []tls.Certificate{own.pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	text := "[worker.web]\nbind_address = \"127.0.0.1" + server.URL[strings.LastIndex(server.URL, ":"):] + "\"\ntls_enabled = true\n" +
		"tls_cert_path = \"" + own.cert + "\"\ntls_key_path = \"" + own.key + "\"\n"
	worker := WorkerProgram("mailer", nil)
	code, _, said := sub(t, worker, text, "healthcheck")
	require.Zero(t, code, said)
	require.Equal(t, "mailer is ready: \n", said)

	code, _, said = sub(t, worker, strings.NewReplacer(own.cert, other.cert, own.key, other.key).Replace(text), "healthcheck")
	require.Equal(t, exitFailure, code)
	require.Contains(t, said, "the server shows another certificate")
}

// TestGrace: the seconds that a supervisor should wait cover the delay, the time to stop, and the
// moment in which a daemon that exceeds it ends itself.
func TestGrace(t *testing.T) {
	t.Parallel()
	code, seconds, said := sub(t, OrchestratorProgram(), "[common.shutdown]\ndelay_ms = 2500\n[orchestration]\nshutdown_timeout_ms = 20000\n", "grace")
	require.Zero(t, code, said)
	require.Equal(t, "29\n", seconds) // 2.5 + 20 + 5 + 1
	code, seconds, said = sub(t, WorkerProgram("worker", nil), "[common.shutdown]\ndelay_ms = 0\n[worker.mpsc_channels.handler_dispatch]\nhandler_timeout_ms = 60000\n", "grace")
	require.Zero(t, code, said)
	require.Equal(t, "71\n", seconds) // 60 + 5 + 5 + 1
	code, _, _ = sub(t, OrchestratorProgram(), "", "grace", "now")
	require.Equal(t, exitConfig, code)
}
