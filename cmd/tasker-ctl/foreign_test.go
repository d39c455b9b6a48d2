package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOutputsDeceiveNobody in any format, and neither do errors.
func TestOutputsDeceiveNobody(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/v1/namespaces" {
			_, _ = w.Write([]byte(`{"namespaces":[{"name":"shop\u202e\u0080\u2066evil","paused":false,"paused_at":null,"paused_by":null,"pause_reason":null}]}`))
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":{"code":"BAD_REQUEST","message":"no shop\u202e\u0080\u2066evil"}}`))
	}))
	t.Cleanup(server.Close)
	s := newSession(t)
	s.env["TASKER_ORCHESTRATION_URL"] = server.URL
	for _, args := range [][]string{{"namespace", "list"}, {"-o", "json", "namespace", "list"}, {"-o", "yaml", "namespace", "list"}, {"task", "list"}} {
		o := s.run(t.Context(), "", args...)
		require.Contains(t, o.stdout+o.stderr, `shop\u202e\u0080\u2066evil`, "%v", args)
		require.NotContains(t, o.stdout+o.stderr, "\u202e", "%v", args)
	}
}

// TestCredentialsStayWithTheirOwner: the server of a file in the current folder never gets a key of
// the environment, by whatever command, and the user is told why.
func TestCredentialsStayWithTheirOwner(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"))
		_, _ = w.Write([]byte(`{"namespaces":[]}`))
	}))
	t.Cleanup(server.Close)
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll(".config", 0o750))
	text := "[profile.default.orchestration]\nbase_url = \"" + server.URL + "\"\n[profile.default.worker]\nbase_url = \"" + server.URL + "\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(".config", "tasker.toml"), []byte(text), 0o600))
	s := newSession(t)
	clear(s.env)
	s.env["HOME"] = t.TempDir()
	for _, variable := range []string{"TASKER_AUTH_TOKEN", "TASKER_API_KEY"} {
		s.env[variable] = "hunter2"
		for _, args := range [][]string{{"task", "list"}, {"system", "health"}, {"worker", "health"}, {"top", "--once"}, {"profile", "check"}, {"profile", "show"}} {
			o := s.run(t.Context(), "", args...)
			require.Equal(t, exitUsage, o.code, "%v: %s", args, o.stdout)
			require.Contains(t, o.stderr, variable+" is not sent to an address of .config/tasker.toml, in the current folder", "%v", args)
			require.NotContains(t, o.stdout+o.stderr, "hunter2")
		}
		require.Empty(t, seen)
		o := s.run(t.Context(), "", "-c", filepath.Join(".config", "tasker.toml"), "namespace", "list")
		require.Zero(t, o.code, o.stderr)
		require.Contains(t, seen[0], "hunter2", "the user has named the file")
		seen = nil
		delete(s.env, variable)
	}
	o := s.run(t.Context(), "", "namespace", "list")
	require.Zero(t, o.code, o.stderr)
	require.Equal(t, []string{""}, seen, "without credentials nothing changes")
}
