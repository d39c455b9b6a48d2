package docscheck_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/workflow/template"
)

// block is a fenced piece of code.
type block struct {
	page     string
	line     int
	language string
	text     string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// blocks lists the fenced code of all pages in one language.
func blocks(t *testing.T, language string) (list []block) {
	t.Helper()
	for _, name := range pages(t) {
		for _, b := range blocksOf(name, page(t, name)) {
			if b.language == language {
				list = append(list, b)
			}
		}
	}
	return list
}

func blocksOf(name, text string) (list []block) {
	var open *block
	n := 0
	for line := range strings.Lines(text) {
		n++
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && open == nil:
			open = &block{page: name, line: n, language: fence}
		case isFence:
			list, open = append(list, *open), nil
		case open != nil:
			open.text += line
		}
	}
	return list
}

// Whole programs must compile against the packages of this repository.
func TestProgramsCompile(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	require.NoError(t, err)
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	var packages []string
	for _, b := range blocks(t, "go") {
		if !strings.HasPrefix(b.text, "package ") {
			continue
		}
		name := fmt.Sprintf("program%d", len(packages))
		file := filepath.Join(dir, name+".go")
		require.NoError(t, os.WriteFile(file, []byte(b.text), 0o600))
		overlay.Replace[filepath.Join(here, name, "main.go")] = file
		packages = append(packages, "./"+name)
	}
	require.NotEmpty(t, packages)
	list, err := json.Marshal(overlay)
	require.NoError(t, err)
	overlayFile := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlayFile, list, 0o600))
	// Compiled, not linked, and from the same build cache as the daemons of other tests.
	args := append([]string{"list", "-export", "-overlay", overlayFile}, packages...)
	cmd := exec.CommandContext(t.Context(), "go", args...) // #nosec G204 -- the arguments are made here
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// Whole templates must load without any complaint.
func TestTemplatesLoad(t *testing.T) {
	t.Parallel()
	loaded := 0
	for _, b := range blocks(t, "yaml") {
		if !strings.Contains(b.text, "namespace_name:") {
			continue
		}
		loaded++
		_, problems, err := template.Parse(b.String(), []byte(b.text))
		require.NoError(t, err)
		require.Empty(t, problems)
	}
	require.Positive(t, loaded)
}

var daemonTable = regexp.MustCompile(`(?m)^\[(common|orchestration|worker)\b`)

// Configurations of the daemons must load without errors and warnings.
func TestConfigurationsLoad(t *testing.T) {
	t.Parallel()
	loaded := 0
	for _, b := range blocks(t, "toml") {
		if !daemonTable.MatchString(b.text) {
			continue // client profiles
		}
		loaded++
		file := filepath.Join(t.TempDir(), "tasker.toml")
		require.NoError(t, os.WriteFile(file, []byte(b.text), 0o600))
		c, err := config.Load(config.Options{Path: file, LookupEnv: func(name string) (string, bool) {
			return map[string]string{"DATABASE_PASSWORD": "x"}[name], name == "DATABASE_PASSWORD"
		}})
		require.NoError(t, err, b)
		require.Empty(t, c.Warnings, b)
	}
	require.Positive(t, loaded)
}

func TestBlocksAreFound(t *testing.T) {
	t.Parallel()
	require.Equal(t, []block{{"p", 2, "go", "a\nb\n"}, {"p", 6, "", "c\n"}}, blocksOf("p", "x\n```go\na\nb\n```\n```\nc\n```\n"))
}
