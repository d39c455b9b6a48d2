package daemon

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
)

// mainWith runs a daemon that ends after reading its configuration. A test that calls it
// is not parallel: the environment belongs to the process.
func mainWith(t *testing.T, text string, env ...string) (code int, stderr string) {
	t.Helper()
	for _, name := range []string{"DATABASE_URL", "DATABASE_URL_FILE", "TASKER_CONFIG_ROOT", "TASKER_ENV"} {
		t.Setenv(name, "")
	}
	for i := 0; i < len(env); i += 2 {
		t.Setenv(env[i], env[i+1])
	}
	file := filepath.Join(t.TempDir(), "tasker.toml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	p := OrchestratorProgram()
	p.New = func(context.Context, *config.Loaded, *zap.Logger) (process, error) {
		return nil, errors.New("far enough")
	}
	var out bytes.Buffer
	code = Main(p, []string{"--config", file}, &out)
	return code, out.String()
}

func TestADaemonWithoutADatabaseSaysSoAtOnce(t *testing.T) {
	code, stderr := mainWith(t, "")
	require.Equal(t, exitConfig, code)
	require.Equal(t, "orchestrator: invalid configuration: no database is configured: set DATABASE_URL, "+
		"for example to postgresql://tasker@localhost:5432/tasker, or common.database.url in a file\n", stderr)
}

// A daemon that could not tell its clients apart does not start.
func TestAnOpenDoorIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"[orchestration.web.auth]\nenabled = true\n":             "web.auth.enabled = true without anything to verify",
		"[orchestration.web]\nbind_address = \"0.0.0.0:8080\"\n": "tasker.toml:2:1: orchestration.web.bind_address (\"0.0.0.0:8080\", ",
		"[orchestration.web]\nbind_address = \"0.0.0.0:8080\"\nauth.enabled = true\nauth.enforcement = \"log\"\nauth.api_key = \"k\"\n": "orchestration.web.auth.allow_anonymous = true where something else protects it",
		"[orchestration.web]\ntls_enabled = true\n": "orchestration.web.tls_enabled = true needs orchestration.web.tls_cert_path and orchestration.web.tls_key_path",
	} {
		code, stderr := mainWith(t, text, "DATABASE_URL", "postgresql://nowhere/tasker")
		require.Equal(t, exitConfig, code, text)
		require.Contains(t, stderr, want)
	}
	code, stderr := mainWith(t, "", "DATABASE_URL", "postgresql://nowhere/tasker", "TASKER_WEB_BIND_ADDRESS", "0.0.0.0:8080")
	require.Equal(t, exitConfig, code)
	require.Contains(t, stderr, "orchestration.web.auth.enabled = true")
}

// The keys that are set without effect are named in one line.
func TestSettingsWithoutEffectAreNamedOnce(t *testing.T) {
	code, stderr := mainWith(t, "[orchestration.grpc]\nmax_frame_size = 32768\n[common.cache]\nenabled = true\nbackend = \"redis\"\n",
		"DATABASE_URL", "postgresql://nowhere/tasker")
	require.Equal(t, exitFailure, code, stderr)
	require.Equal(t, 1, strings.Count(stderr, "without effect"), stderr)
	for _, want := range []string{`"count":3`, `"orchestration.grpc.max_frame_size","common.cache.enabled","common.cache.backend"`} {
		require.Contains(t, strings.ReplaceAll(stderr, " ", ""), want)
	}

	_, stderr = mainWith(t, "", "DATABASE_URL", "postgresql://nowhere/tasker")
	require.NotContains(t, stderr, "without effect")
}
