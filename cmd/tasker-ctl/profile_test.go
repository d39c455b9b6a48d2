package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file is made, added to and checked; what it held before stays as it was.
func TestProfilesAreWritten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "folder", "tasker.toml")
	s := newSession(t)
	run := func(args ...string) outcome {
		return s.run(t.Context(), "", append([]string{"-c", file, "profile"}, args...)...)
	}
	made := run("init")
	require.Zero(t, made.code, made.stderr)
	require.Equal(t, "wrote "+file+"\n", made.stdout)
	require.Equal(t, exitUsage, run("init").code, "it exists")
	require.NoError(t, os.WriteFile(file, []byte("# mine\n[cli]\nx = 1 # kept\n\n[profile.default.orchestration]\nauth = { token = \"hunter2\" }"), 0o644))
	o := run("validate")
	require.Zero(t, o.code, o.stderr)
	before, err := os.ReadFile(file)
	require.NoError(t, err)

	require.NoError(t, os.Chmod(file, 0o644))
	require.Contains(t, run("validate").stdout, "others may read it: want mode 0600, not 0644")
	o = run("add", "staging", "-d", "a \"quoted\"\nline", "-t", "grpc", "--orchestration-url", "https://a:1", "--worker-url", "https://a:2", "--tools", "a,b")
	require.Zero(t, o.code, o.stderr)
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(before)+"\n\n"+`[profile.staging]
description = "a \"quoted\"\nline"
transport = "grpc"
tools = ["a", "b"]

[profile.staging.orchestration]
base_url = "https://a:1"

[profile.staging.worker]
base_url = "https://a:2"
`, string(after))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing else is left behind")
	require.Equal(t, exitConflict, run("add", "staging").code)
	for _, args := range [][]string{{"list"}, {"show", "default"}, {"validate"}, {"check"}, {"-o", "json", "list"}} {
		o := run(args...)
		require.NotContains(t, o.stdout+o.stderr, "hunter2", "%v", args)
	}
	o = run("init", "--force")
	require.Zero(t, o.code, o.stderr)
}

// A link to a file stays one.
func TestWritingFollowsLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Symlink(file, link))
	require.NoError(t, writePrivate(link, []byte("x"), true))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "x", string(text))
	require.Error(t, writePrivate(link, []byte("y"), false))
}

// The profiles of a file are asked as they are written, the one in use as it is used.
func TestProfilesAreChecked(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	file := filepath.Join(t.TempDir(), "tasker.toml")
	require.NoError(t, os.WriteFile(file, []byte("[profile.good.orchestration]\nbase_url = \""+s.env["TASKER_WORKER_URL"]+"\"\n"+
		"[profile.away.orchestration]\nbase_url = \""+s.env["NOWHERE"]+"\"\nmax_retries = 0\n"), 0o600))
	for name, want := range map[string]int{"good": exitOK, "away": exitUnavailable, "unknown": exitUsage, "--all": exitUnavailable} {
		o := s.run(t.Context(), "", "-o", "yaml", "-c", file, "profile", "check", name)
		require.Equal(t, want, o.code, "%s: %s%s", name, o.stdout, o.stderr)
	}
	o := s.run(t.Context(), "", "-c", file, "-p", "away", "profile", "check")
	require.Zero(t, o.code, "the variable names a server that answers: %s", o.stderr)
}
