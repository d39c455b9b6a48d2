package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoad reads arbitrary files: the answer is a configuration or a
// ValidationError, never a panic, and a planted secret never comes back.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		"", tricky, secretive, "[common.database]\nurl = 1\n", "[worker]\nprefetch = \"${X:-3}\"\n",
		"[[worker.web.auth.api_keys]]\nkey = \"k\"\npermissions = []\n", "worker = [[]]", "[worker.web.auth]\napi_keys = [[1], {}]",
		"common.backoff.default_backoff_seconds = [1, 2.0]", "[orchestration.polling]\nbatch_size = \"${A}\"\n", "\xff", "[common", "a.b.c = {d = {}}",
		"worker._docs = 1", "[worker.x_docs]\ny = 1", "worker.event_systems.worker.deployment_mode = \"$${\"",
	} {
		f.Add(seed, "postgres://h/db")
	}
	for _, role := range []string{"common", "orchestration", "worker"} {
		f.Add(string(baseFile(role)), "")
	}
	f.Fuzz(func(t *testing.T, text, databaseURL string) {
		const secret = "pl4nted-s3cret"
		path := filepath.Join(t.TempDir(), "f.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		loaded, err := Load(Options{
			Path:      path,
			LookupEnv: environ("DATABASE_URL", databaseURL, "TASKER_API_KEY", secret, "REDIS_URL", "redis://:"+secret+"@h"),
		})
		if err != nil {
			var invalid *ValidationError
			if !errors.As(err, &invalid) {
				t.Fatalf("not a ValidationError: %v", err)
			}
			if strings.Contains(err.Error(), secret) {
				t.Fatalf("the error tells a secret: %v", err)
			}
			return
		}
		for _, s := range loaded.Show() {
			if strings.Contains(s.Value, secret) {
				t.Fatalf("%s tells a secret: %s", s.Key, s.Value)
			}
		}
	})
}

// FuzzLocate follows arbitrary text to its end.
func FuzzLocate(f *testing.F) {
	f.Add(tricky)
	f.Add("a = [[[[{b = '''")
	f.Fuzz(func(_ *testing.T, text string) { locate("f", text) })
}
