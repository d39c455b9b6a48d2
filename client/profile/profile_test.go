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

// TestCredentialsGoToAddressesOfTheirOwner: a file of the current folder may be somebody else's.
func TestCredentialsGoToAddressesOfTheirOwner(t *testing.T) {
	const address, token = "base_url = \"https://folder:1\"\n", "auth = { token = \"of-file\" }\n"
	url, key := map[string]string{"TASKER_ORCHESTRATION_URL": "https://mine:1"}, map[string]string{"TASKER_API_KEY": "mine"}
	both := map[string]string{"TASKER_ORCHESTRATION_URL": "https://mine:1", "TASKER_AUTH_TOKEN": "mine"}
	const refusal = "is not sent to an address of tasker-client.toml, in the current folder"
	for name, tt := range map[string]struct {
		file, place, flag string
		env               map[string]string
		want, refused     string // the address and the credentials, or the error
	}{
		"both of the file":                  {file: address + token, want: "https://folder:1 of-file"},
		"both of the environment":           {file: address + token, env: both, want: "https://mine:1 mine"},
		"no credentials":                    {file: address, want: "https://folder:1 "},
		"my key to the file":                {file: address, env: key, refused: "TASKER_API_KEY " + refusal},
		"my key over its own":               {file: address + token, env: key, refused: "TASKER_API_KEY " + refusal},
		"my token to the file":              {file: address, env: map[string]string{"TASKER_AUTH_TOKEN": "mine"}, refused: "TASKER_AUTH_TOKEN " + refusal + ": whoever wrote the file would get it. Set TASKER_ORCHESTRATION_URL"},
		"my own token to the file":          {file: address, env: map[string]string{"TASKER_ORCHESTRATION_AUTH_TOKEN": "mine"}, refused: "TASKER_ORCHESTRATION_AUTH_TOKEN " + refusal},
		"its token to me":                   {file: token, env: url, refused: "the credentials of tasker-client.toml, in the current folder, go to its own addresses only"},
		"its token to my flag":              {file: address + token, flag: "https://flag:1", refused: "go to its own addresses only"},
		"my key to my flag":                 {file: address, flag: "https://flag:1", env: key, want: "https://flag:1 mine"},
		"my key to the usual address":       {file: "timeout_ms = 1\n", env: key, want: "http://localhost:8080 mine"},
		"its token to the usual address":    {file: token, want: "http://localhost:8080 of-file"},
		"my key to a file of mine":          {file: address, place: "home", env: key, want: "https://folder:1 mine"},
		"the token of my file to me":        {file: address + token, place: "home", env: url, want: "https://mine:1 of-file"},
		"my key to a file that I name":      {file: address, place: "named", env: key, want: "https://folder:1 mine"},
		"my key to a file, with me at home": {file: address, place: "at home", env: key, want: "https://folder:1 mine"},
	} {
		t.Run(name, func(t *testing.T) {
			folder, home := t.TempDir(), t.TempDir()
			path := filepath.Join(folder, "tasker-client.toml")
			o := profile.Options{URL: tt.flag}
			switch tt.place {
			case "home":
				path = filepath.Join(home, ".tasker", "client.toml")
			case "named":
				o.Path = path
			case "at home":
				folder, path = home, filepath.Join(home, "tasker-client.toml")
			}
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
			require.NoError(t, os.WriteFile(path, []byte("[profile.default.orchestration]\n"+tt.file), 0o600))
			t.Chdir(folder)
			o.Getenv = func(name string) string {
				if name == "HOME" {
					return home
				}
				return tt.env[name]
			}
			p, err := profile.Load(o)
			if tt.refused != "" {
				require.ErrorContains(t, err, tt.refused)
				require.NotContains(t, err.Error(), "mine\"")
				var mixed *profile.MixedError
				require.ErrorAs(t, err, &mixed)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, p.BaseURL+" "+p.Token+p.APIKey)
		})
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
