package codegen

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/workflow"
)

const root = "../.."

// allTemplates are those of the examples, the one with every feature, and the real ones
// beside the repository, where they are.
func allTemplates(t *testing.T) map[string]*workflow.Template {
	t.Helper()
	all := map[string]*workflow.Template{}
	for _, pattern := range []string{"testdata/*.yaml", root + "/examples/*/template.yaml", root + "/../shared/corpus/templates/*.yaml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		if len(files) == 0 {
			t.Logf("%s: no templates are here", pattern)
		}
		for _, file := range files {
			all["t"+strconv.Itoa(len(all))] = parse(t, file)
		}
	}
	require.Greater(t, len(all), 8)
	return all
}

// generateAll writes each template into a folder of its own.
func generateAll(t *testing.T, dir, language string) (folders []string) {
	t.Helper()
	for name, template := range allTemplates(t) {
		folder := filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(folder, 0o750))
		files, err := Generate(template, Options{Language: language})
		require.NoError(t, err, template.Name)
		for _, f := range []File{files.Types, files.Handlers, files.Tests} {
			require.NoError(t, os.WriteFile(filepath.Join(folder, f.Name), f.Text, 0o600))
		}
		folders = append(folders, folder)
	}
	return folders
}

// command runs a program of another language, which must succeed.
func command(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=mod", "GOWORK=off", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %v in %s:\n%s", name, args, dir, out)
}

// TestGo compiles all handlers in a module of their own, and runs the tests of some.
func TestGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	generateAll(t, dir, "go")
	here, err := filepath.Abs(root)
	require.NoError(t, err)
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	text := strings.Replace(string(module), "module github.com/tasker-go/tasker", "module generated", 1) +
		"\nrequire github.com/tasker-go/tasker v0.0.0\nreplace github.com/tasker-go/tasker => " + here + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
	command(t, dir, "go", "vet", "./...")
	command(t, dir, "go", "test", "-vet=off", "./t0", "./t1")
}

func TestPython(t *testing.T) {
	t.Parallel()
	needs.Tool(t, needs.Python)
	dir := t.TempDir()
	for _, folder := range generateAll(t, dir, "python") {
		command(t, folder, "python3", "-W", "error", "-m", "unittest", "-q")
	}
	command(t, dir, "python3", "-W", "error", "-m", "compileall", "-q", dir)
}

// TestTypeScript compiles all files in one run of the compiler, and runs their tests with
// node.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	needs.Tool(t, needs.Node, needs.TypeScript)
	dir := t.TempDir()
	generateAll(t, dir, "typescript")
	compileTypeScript(t, dir)
	command(t, dir, "node", "--test")
}

// compileTypeScript checks what is in a folder with the compiler that
// scripts/require-typescript installs, and writes JavaScript beside it.
func compileTypeScript(t *testing.T, dir string) {
	t.Helper()
	needs.Tool(t, needs.Node, needs.TypeScript)
	for name, text := range map[string]string{
		"package.json": `{"type":"module"}`,
		// The modules of node, as tests use them.
		"node.d.ts": "declare module 'node:test' { export const test: any; }\n" +
			"declare module 'node:assert/strict' { const assert: any; export default assert; }\n",
		"tsconfig.json": `{"compilerOptions": {"strict": true, "target": "es2022", "module": "nodenext", "types": [], "lib": ["es2022"],
			"rewriteRelativeImportExtensions": true}}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	command(t, dir, "node", needs.Path(t, needs.TypeScript), "-p", ".")
}
