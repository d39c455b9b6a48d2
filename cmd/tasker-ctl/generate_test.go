package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/workflow"
)

const orderFile = "testdata/templates/order.yaml"

func names(t *testing.T, dir string) (files []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		files = append(files, e.Name())
	}
	return files
}

func TestScaffoldOverwritesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	s := newSession(t)
	scaffold := []string{"generate", "scaffold", "-t", orderFile, "-l", "python", "-o", dir}
	o := s.run(t.Context(), "", scaffold...)
	require.Zero(t, o.code, o.stderr)
	files := []string{"order_handlers.py", "order_types.py", "test_order_handlers.py"}
	require.Equal(t, files, names(t, dir))

	mine := filepath.Join(dir, files[0])
	require.NoError(t, os.WriteFile(mine, []byte("mine"), 0o600))
	require.NoError(t, os.Remove(filepath.Join(dir, files[1])))
	o = s.run(t.Context(), "", scaffold...)
	require.Equal(t, exitUsage, o.code)
	require.Contains(t, o.stderr, "order_handlers.py is there already; overwrite it with --force")
	require.Equal(t, []string{files[0], files[2]}, names(t, dir), "nothing is written where one file is there")

	o = s.run(t.Context(), "", append(scaffold, "--force")...)
	require.Zero(t, o.code, o.stderr)
	text, err := os.ReadFile(mine)
	require.NoError(t, err)
	require.Contains(t, string(text), "edit freely")
}

func TestHandlersWithTestsBesideThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	handler := []string{"generate", "handler", "-t", orderFile, "-l", "typescript", "-s", "charge", "--with-tests", "-o", filepath.Join(dir, "charge.ts")}
	o := newSession(t).run(t.Context(), "", handler...)
	require.Zero(t, o.code, o.stderr)
	require.Equal(t, []string{"charge.test.ts", "charge.ts"}, names(t, dir))
	text, err := os.ReadFile(filepath.Join(dir, "charge.test.ts"))
	require.NoError(t, err)
	require.Contains(t, string(text), `from "./charge.ts"`)
	require.Equal(t, exitUsage, newSession(t).run(t.Context(), "", handler...).code)
}

// TestManualPages: every command has a page, and man finds nothing wrong with it.
func TestManualPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := newSession(t).run(t.Context(), "", "man", "-o", dir)
	require.Zero(t, o.code, o.stderr)
	written := names(t, dir)
	for _, cmd := range commands(testRoot()) {
		if cmd.IsAvailableCommand() && cmd.Name() != "help" {
			require.Contains(t, written, pageName(cmd)+".1")
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "tasker-ctl-task-list.1"))
	require.NoError(t, err)
	require.Contains(t, string(text), ".B \\-l, \\-\\-limit int\n")
	require.Equal(t, "\\&.a \\e\\-b\n\\&'c", roff(".a \\-b\n'c"))
	t.Run("formatted", func(t *testing.T) {
		groff := needs.Path(t, needs.Groff)
		for _, name := range written {
			out, err := exec.CommandContext(t.Context(), groff, "-k", "-Tutf8", "-man", "-ww", "-z", filepath.Join(dir, name)).CombinedOutput()
			require.NoError(t, err)
			require.Empty(t, strings.TrimSpace(string(out)), name)
		}
	})
}

// TestChartOfInstances: what exists is drawn as what it was made of, and no name breaks
// the picture.
func TestChartOfInstances(t *testing.T) {
	t.Parallel()
	odd := "a\"]; click n0 <b>`#\\\n|"
	template := &workflow.Template{Steps: []workflow.StepTemplate{
		{Name: "split", Kind: workflow.KindBatchable}, {Name: "work", Kind: workflow.KindBatchWorker, Dependencies: []string{"split"}},
		{Name: odd, Kind: workflow.KindDeferredConvergence, Dependencies: []string{"work"}},
	}}
	steps := []client.StepReadiness{{Name: "split", CurrentState: "complete"}, {Name: "work_001", CurrentState: "error"}, {Name: "stranger"}}
	c := newChart("", template, drawGraph(template, steps))
	require.Equal(t, `flowchart TD
  n0[["split"]]
  n1["stranger"]
  n2[/"work_001"/]
  n3(["a#quot;]; click n0 #lt;b#gt;#96;#35;#92; |"])
  n0 -.-> n2
  n2 -.-> n3
`, c.mermaid())
	c.Title = "t"
	require.Contains(t, c.markdown(), "| a\"]; click n0 &lt;b>`#\\ \\| | deferred_convergence |  | work_001 |")
}
