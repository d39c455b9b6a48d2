package needs

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// watched is a test whose end is looked at.
type watched struct {
	testing.TB
	ctx             context.Context //nolint:containedctx // a test has one
	skipped, failed string
}

func (w *watched) Helper()                  {}
func (w *watched) Context() context.Context { return w.ctx }

func (w *watched) Skip(args ...any) {
	w.skipped, _ = args[0].(string)
	runtime.Goexit()
}

func (w *watched) Fatal(args ...any) {
	w.failed, _ = args[0].(string)
	runtime.Goexit()
}

// ends returns how a test with this body ends.
func ends(t *testing.T, body func(testing.TB)) *watched {
	t.Helper()
	w, done := &watched{ctx: t.Context()}, make(chan struct{})
	go func() {
		defer close(done)
		body(w)
	}()
	<-done
	return w
}

// loose has a test run as without CI, with a PATH of these programs alone.
func loose(t *testing.T, programs map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, prints := range programs {
		script := "#!/bin/sh\necho '" + prints + "'\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700)) // #nosec G306 -- a program
	}
	t.Setenv("PATH", dir)
	t.Setenv("CI", "")
	t.Setenv(EnvAll, "")
}

func TestAMissingToolLeavesATestOut(t *testing.T) {
	loose(t, map[string]string{"curl": "curl 8.1.2"})
	w := ends(t, func(t testing.TB) { Tool(t, Curl); Tool(t, Curl, Groff, RedisCLI) })
	require.Empty(t, w.failed)
	require.Equal(t, "left out: needs groff, redis-cli: groff is missing: scripts/require-clients installs it; "+
		"redis-cli is missing: scripts/require-clients installs it", w.skipped)
	missing, repeats := Reason("    some_test.go:12: " + w.skipped + "\n")
	require.Equal(t, []string{"groff", "redis-cli"}, missing)
	require.False(t, repeats)

	w = ends(t, func(t testing.TB) { All(t, "over every source") })
	require.Equal(t, "left out: run by make test-all: over every source", w.skipped)
	missing, repeats = Reason(w.skipped)
	require.Empty(t, missing)
	require.True(t, repeats)

	missing, repeats = Reason("no corpus beside the repository")
	require.Empty(t, missing)
	require.False(t, repeats)
}

func TestNothingIsLeftOutWhereAllIsAskedFor(t *testing.T) {
	for variable, value := range map[string]string{"CI": "true", EnvAll: "1"} {
		t.Run(variable, func(t *testing.T) {
			loose(t, nil)
			t.Setenv(variable, value)
			w := ends(t, func(t testing.TB) { Tool(t, Groff) })
			require.Empty(t, w.skipped)
			require.Equal(t, "groff is missing: scripts/require-clients installs it", w.failed)
			went := false
			ends(t, func(t testing.TB) { All(t, "over every source"); went = true })
			require.True(t, went)
		})
	}
}

func TestVersionsAreHeldToTheLeast(t *testing.T) {
	loose(t, map[string]string{"node": "v18.20.4", "python3": "Python 3.10.1", "redis-server": "Redis server v=7.0.15 sha=0:0"})
	_, err := Find(t.Context(), Node)
	require.EqualError(t, err, `invalid Node "18.20.4": want 20 or later, which scripts/require-node installs`)
	w := ends(t, func(t testing.TB) { require.NotEmpty(t, Path(t, Python)); Tool(t, Node) })
	missing, _ := Reason(w.skipped)
	require.Equal(t, []string{"Node 20 or later"}, missing)
	found := Found(t.Context())
	require.Contains(t, found, "Redis 7.0.15")
	require.Contains(t, found, "Python 3.10.1")
	require.NotContains(t, found, "Node")
	_, err = Find(t.Context(), "Perl")
	require.EqualError(t, err, `invalid tool "Perl": want one of the table`)
}

// TestTheTableIsWhole: what is to install a tool exists, and each can be asked for by its name.
func TestTheTableIsWhole(t *testing.T) {
	t.Parallel()
	root, err := sources()
	require.NoError(t, err)
	seen := map[Name]bool{}
	for _, tool := range table() {
		require.False(t, seen[tool.name], tool.name)
		seen[tool.name] = true
		require.FileExists(t, filepath.Join(root, tool.script), tool.name)
		require.NotContains(t, tool.name, ", ")
		require.NotContains(t, tool.name, ": ")
		require.True(t, tool.program != "" || len(tool.places) > 0, tool.name)
		require.False(t, tool.least != "" && len(tool.version) == 0, tool.name)
		require.False(t, strings.HasPrefix(tool.script, "/"))
	}
}
