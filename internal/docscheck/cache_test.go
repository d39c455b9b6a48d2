package docscheck_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUsersModulesReuseTheBuildCache: a program in a module beside the sources, which requires them
// through a replace directive, is compiled from the packages that `make demo` and the tests have
// compiled. The build ID begins with the key of Go's build cache.
func TestUsersModulesReuseTheBuildCache(t *testing.T) {
	t.Parallel()
	here, err := filepath.Abs(root)
	require.NoError(t, err)
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": "package main\n\nimport (\n\t_ \"github.com/tasker-go/tasker/daemon\"\n\t_ \"github.com/tasker-go/tasker/worker\"\n)\n\nfunc main() {}\n",
		"go.sum":  string(sums),
		"go.mod":  "module example\n\ngo 1.26.0\n\nrequire github.com/tasker-go/tasker v0.0.0\n\nreplace github.com/tasker-go/tasker => " + here + "\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	ours := keys(t, here, "./daemon", "./worker")
	require.Greater(t, len(ours), 300)
	theirs := keys(t, dir, "-mod=mod", ".")
	delete(theirs, "example")
	for path, key := range ours {
		require.Equal(t, key, theirs[path], path)
	}
	require.Len(t, theirs, len(ours))
	const span = "github.com/tasker-go/tasker/internal/span"
	require.NotEqual(t, ours[span], keys(t, here, "-gcflags=-l", "./internal/span")[span], "flags are part of a key")
}

// keys are those of the build cache, by package, of packages and all that they import.
func keys(t *testing.T, dir string, args ...string) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.BuildID}}"}, args...)...) // #nosec G204 -- the arguments are made here
	cmd.Dir = dir
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	require.NoError(t, err, complaints.String())
	found := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		found[path], _, _ = strings.Cut(id, "/")
	}
	return found
}
