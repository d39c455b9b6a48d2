package profile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/profile"
)

const profiles = `
[profile.default]
transport = "rest"
[profile.default.orchestration]
base_url = "http://default:1"
timeout_ms = 1000
max_retries = 1
auth = { token = "of-default" }
[profile.default.worker]
base_url = "http://default:2"

[profile.staging]
namespaces = ["orders"]
tools = ["tier1"]
[profile.staging.orchestration]
base_url = "http://staging:1"
[profile.staging.orchestration.auth.method]
type = "ApiKey"
value = { key = "of-staging", header_name = "X-Key" }

[profile.token.orchestration.auth.method]
type = "BearerToken"
value = "of-token"

[profile.fast]
transport = "grpc"
[profile.fast.orchestration]
base_url = "http://fast:9190"
max_retries = 0

[cli]
default-language = "ruby"
`

// The environment goes over the named profile, that over the default one.
func TestLoad(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tasker.toml")
	require.NoError(t, os.WriteFile(file, []byte(profiles), 0o600))
	base := client.Config{BaseURL: "http://default:1", Timeout: time.Second, MaxRetries: 1, Token: "of-default"}
	with := func(change func(*client.Config)) client.Config {
		c := base
		change(&c)
		return c
	}
	staging := with(func(c *client.Config) {
		c.BaseURL, c.Token, c.APIKey, c.APIKeyHeader = "http://staging:1", "", "of-staging", "X-Key"
	})
	for name, tt := range map[string]struct {
		options profile.Options
		env     map[string]string
		want    client.Config
		grpc    bool
	}{
		"default profile":            {want: base},
		"worker":                     {options: profile.Options{Worker: true}, want: client.Config{BaseURL: "http://default:2", Timeout: 30 * time.Second, MaxRetries: 3}},
		"named profile":              {options: profile.Options{Name: "staging"}, want: staging},
		"profile of the environment": {env: map[string]string{"TASKER_CLIENT_PROFILE": "staging"}, want: staging},
		"name before that": {options: profile.Options{Name: "token"}, env: map[string]string{"TASKER_CLIENT_PROFILE": "staging"},
			want: with(func(c *client.Config) { c.Token = "of-token" })},
		"environment over profile": {
			env: map[string]string{"TASKER_ORCHESTRATION_URL": "http://env:1", "TASKER_ORCHESTRATION_TIMEOUT_MS": "250", "TASKER_API_KEY": "k", "TASKER_API_KEY_HEADER": "X-K"},
			want: with(func(c *client.Config) {
				c.BaseURL, c.Timeout, c.Token, c.APIKey, c.APIKeyHeader = "http://env:1", 250*time.Millisecond, "", "k", "X-K"
			})},
		"own token before the common one before the key": {
			env:  map[string]string{"TASKER_ORCHESTRATION_AUTH_TOKEN": "own", "TASKER_AUTH_TOKEN": "common", "TASKER_API_KEY": "k"},
			want: with(func(c *client.Config) { c.Token = "own" })},
		"the common token": {env: map[string]string{"TASKER_WORKER_AUTH_TOKEN": "other", "TASKER_AUTH_TOKEN": "common", "TASKER_API_KEY": "k"},
			want: with(func(c *client.Config) { c.Token = "common" })},
		"gRPC by profile": {options: profile.Options{Name: "fast"}, grpc: true, want: with(func(c *client.Config) { c.BaseURL, c.MaxRetries = "http://fast:9190", -1 })},
		"gRPC by environment": {
			env:  map[string]string{"TASKER_CLIENT_TRANSPORT": "grpc", "TASKER_ORCHESTRATION_GRPC_URL": "http://env:9", "TASKER_ORCHESTRATION_URL": "http://env:8"},
			grpc: true, want: with(func(c *client.Config) { c.BaseURL = "http://env:9" })},
		"REST over a profile": {options: profile.Options{Name: "fast"}, env: map[string]string{"TASKER_CLIENT_TRANSPORT": "rest", "TASKER_ORCHESTRATION_URL": "http://env:8"},
			want: with(func(c *client.Config) { c.BaseURL, c.MaxRetries = "http://env:8", -1 })},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.options.Path, tt.options.Getenv = file, func(name string) string { return tt.env[name] }
			got, err := profile.Load(tt.options)
			require.NoError(t, err)
			require.Equal(t, tt.want, got.Config)
			require.Equal(t, tt.grpc, got.GRPC)
		})
	}
	require.Equal(t, []string{"default", "fast", "staging", "token"}, profile.Names(profile.Options{Path: file}))
}

// The first of the usual places that has a file is read.
func TestFilesAreFound(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	t.Chdir(dir)
	o := profile.Options{Getenv: func(name string) string { return map[string]string{"HOME": home}[name] }}
	for worker, want := range map[bool]string{false: "http://localhost:8080", true: "http://localhost:8081"} {
		p, err := profile.Load(profile.Options{Worker: worker, Getenv: o.Getenv})
		require.NoError(t, err)
		require.Equal(t, []string{want, "", "default"}, []string{p.BaseURL, p.Path, p.Name}, "without any file")
	}
	paths := []string{filepath.Join(home, ".tasker", "client.toml"), filepath.Join(home, ".config", "tasker", "client.toml"),
		"tasker-client.toml", filepath.Join(".config", "tasker-client.toml"), filepath.Join(".config", "tasker.toml")}
	for i, path := range paths {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		at := fmt.Sprintf("http://file:%d", i)
		require.NoError(t, os.WriteFile(path, []byte("[profile.default.orchestration]\nbase_url = \""+at+"\"\n"), 0o600))
		p, err := profile.Load(o)
		require.NoError(t, err)
		require.Equal(t, []string{at, path}, []string{p.BaseURL, p.Path})
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "client.toml")
	for want, tt := range map[string]struct {
		text, name string
		env        map[string]string
	}{
		"unknown profile \"x\"; " + file + " has default, y": {text: "[profile.y]\n[profile.default]\n", name: "x"},
		"malformed TOML":                          {text: "[profile.default.orchestration.auth]\ntoken = \"hunter2\nx = 1\n"},
		"a value has the wrong type":              {text: "[profile.default.orchestration]\nauth = \"hunter2\"\n"},
		"timeout_ms of the profile":               {text: "[profile.default.orchestration]\ntimeout_ms = -1\n"},
		"TASKER_ORCHESTRATION_TIMEOUT_MS must be": {env: map[string]string{"TASKER_ORCHESTRATION_TIMEOUT_MS": "soon"}},
		"invalid transport \"pigeon\"":            {text: "[profile.default]\ntransport = \"pigeon\"\n"},
	} {
		require.NoError(t, os.WriteFile(file, []byte(tt.text), 0o600))
		_, err := profile.Load(profile.Options{Path: file, Name: tt.name, Getenv: func(name string) string { return tt.env[name] }})
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, err := profile.Load(profile.Options{Path: filepath.Join(t.TempDir(), "absent")})
	require.ErrorContains(t, err, "read the client configuration")
}
