package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/config"
)

// A configuration is the same document in every format, without its secrets.
func TestDumps(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.env["DATABASE_URL"] = "postgresql://tasker:hunter2@db/tasker"
	dump := func(format string, read func(text []byte, into any) error) (document map[string]any) {
		o := s.run(t.Context(), "", "config", "dump", "-c", "common", "-e", "production", "-s", "testdata/config", "-f", format)
		require.Zero(t, o.code, o.stderr)
		require.NotContains(t, o.stdout, "hunter2")
		require.NoError(t, read([]byte(o.stdout), &document))
		return document
	}
	asJSON := dump("json", json.Unmarshal)
	common, _ := asJSON["common"].(map[string]any)
	database, _ := common["database"].(map[string]any)
	require.Equal(t, "postgresql://tasker:****@db/tasker", database["url"])
	pool, _ := database["pool"].(map[string]any)
	require.EqualValues(t, 40, pool["max_connections"])
	for format, read := range map[string]func([]byte, any) error{"yaml": yaml.Unmarshal, "toml": toml.Unmarshal} {
		text, err := json.Marshal(dump(format, read))
		require.NoError(t, err)
		want, err := json.Marshal(asJSON)
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(text), format)
	}
	file := filepath.Join(t.TempDir(), "worker.toml")
	require.Zero(t, s.run(t.Context(), "", "config", "generate", "-c", "worker", "-e", "test", "-o", file).code)
	require.Zero(t, s.run(t.Context(), "", "config", "dump", "-p", file).code)
}

// Every key that has an effect is set by files or unused, and documented.
func TestDocumentsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	file := filepath.Join(t.TempDir(), "out")
	written := func(args ...string) string {
		o := s.run(t.Context(), "", append(args, "-o", file)...)
		require.Zero(t, o.code, o.stderr)
		require.Empty(t, o.stdout)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(text)
	}
	var r usageReport
	require.NoError(t, json.Unmarshal([]byte(written("config", "analyze-usage", "--source-dir", "testdata/config", "--show-unused", "-f", "json")), &r))
	require.Equal(t, 4, r.Files)
	require.Contains(t, r.Unused, "worker.lease_seconds")
	require.NotContains(t, r.Unused, "common.database.url")
	require.Equal(t, string(config.ReferenceMarkdown()), written("docs", "reference"))
	part := written("docs", "reference", "-c", "worker")
	require.Contains(t, part, "\n## worker\n")
	require.NotContains(t, part, "\n## orchestration\n")
	var keys []keyExplanation
	require.NoError(t, json.Unmarshal([]byte(written("docs", "reference", "-c", "common", "-f", "json")), &keys))
	require.NotEmpty(t, keys)
	whole, err := config.Generate(config.ContextComplete, "production")
	require.NoError(t, err)
	require.Equal(t, string(whole), written("docs", "annotated"))
	index := written("docs", "index")
	for _, k := range config.Keys() {
		require.Equal(t, !k.Older, strings.Contains(index, "- `"+k.Path+"`: "+k.Description+"\n"), k.Path)
	}
	var parts []coverage
	require.NoError(t, json.Unmarshal([]byte(s.run(t.Context(), "", "-o", "json", "docs", "coverage").stdout), &parts))
	for _, c := range parts {
		require.Equal(t, c.Keys, c.Described, c.Part)
	}
	require.Contains(t, s.run(t.Context(), "", "docs", "coverage").stdout, "DESCRIBED")
	tables := s.run(t.Context(), "", "config", "explain", "-c", "worker").stdout
	require.Contains(t, tables, "[common.database]")
	require.NotContains(t, tables, "[orchestration.")
}
