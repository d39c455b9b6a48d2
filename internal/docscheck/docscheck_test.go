package docscheck_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/logroom"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/workflow"
)

const root = "../.."

var update = flag.Bool("update", false, "write the generated parts of the documentation anew")

// page reads a file of the repository.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	require.NoError(t, err)
	return string(text)
}

// pages lists the documentation: the README, every page below docs, and those of examples.
func pages(t *testing.T) []string {
	t.Helper()
	list := []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(name) == ".md" {
			list = append(list, filepath.ToSlash(strings.TrimPrefix(name, filepath.Clean(root)+string(filepath.Separator))))
		}
		return err
	})
	require.NoError(t, err)
	examples, err := fs.Glob(os.DirFS(root), "examples/*/README.md")
	require.NoError(t, err)
	require.Greater(t, len(list), 1)
	return append(list, examples...)
}

// compare compares a generated text with the file, or writes it with -update.
func compare(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join(root, filepath.FromSlash(name)), []byte(want), 0o644)) // #nosec G306 -- it is public
		return
	}
	require.Equal(t, want, page(t, name), "%s is out of date: run go test ./internal/docscheck -update", name)
}

func TestConfigurationReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	compare(t, "docs/reference/configuration.md", string(config.ReferenceMarkdown()))
}

func TestEveryVariableOfAKeyIsExplained(t *testing.T) {
	t.Parallel()
	text := page(t, "docs/operate/configuration.md")
	for _, name := range []string{"TASKER_CONFIG_PATH", "TASKER_CONFIG_ROOT", "TASKER_ENV"} {
		require.True(t, strings.Contains(text, "`"+name+"`"), "docs/operate/configuration.md does not mention %s", name) //nolint:testifylint // Contains would print the page
	}
	for _, key := range config.Keys() {
		for _, name := range key.Env {
			require.True(t, strings.Contains(text, "`"+name+"`"), "docs/operate/configuration.md does not mention %s of %s", name, key.Path) //nolint:testifylint // Contains would print the page
		}
	}
}

const (
	countsPage  = "docs/operate/configuration.md"
	countsBegin = "<!-- counts: written by go test ./internal/docscheck -update -->\n"
	countsEnd   = "<!-- end of counts -->\n"
)

func TestCountsOfKeysAreUpToDate(t *testing.T) {
	t.Parallel()
	compareBetween(t, countsPage, countsBegin, countsEnd, countsTable())
}

// countsTable counts the keys by status.
func countsTable() string {
	counts, all := map[string]int{}, 0
	for _, k := range config.Keys() {
		if !k.Older && !k.Member {
			counts[k.Status]++
			all++
		}
	}
	return fmt.Sprintf("| status | keys | meaning |\n|---|---|---|\n"+
		"| `active` | %d | changes what a daemon does |\n"+
		"| `planned` | %d | no effect until the feature exists that the key names |\n"+
		"| `ignored` | %d | a key of Tasker that can have no effect here, for the reason it names |\n"+
		"| | %d | without older spellings |\n",
		counts[config.StatusActive], counts["planned"], counts["ignored"], all)
}

// compareBetween holds the part of a page between two marks.
func compareBetween(t *testing.T, name, begin, end, want string) {
	t.Helper()
	before, rest, found := strings.Cut(page(t, name), begin)
	require.True(t, found, "%s lacks %s", name, begin)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found, "%s lacks %s", name, end)
	compare(t, name, before+begin+want+end+after)
}

func TestEveryRoomHasItsPlaceInTheArchitecture(t *testing.T) {
	t.Parallel()
	text := page(t, "docs/inside/architecture.md")
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	rooms := 0
	for _, entry := range entries {
		if !entry.IsDir() || strings.HasPrefix(entry.Name(), ".") || !holdsGo(t, filepath.Join(root, entry.Name())) {
			continue
		}
		rooms++
		require.True(t, strings.Contains(text, "`"+entry.Name()+"/`"), "docs/inside/architecture.md does not mention the room %s", entry.Name()) //nolint:testifylint // Contains would print the page
	}
	require.Greater(t, rooms, 10)
}

func holdsGo(t *testing.T, dir string) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		found = found || filepath.Ext(name) == ".go"
		return err
	})
	require.NoError(t, err)
	return found
}

// stateNames are the states of tasks and steps.
func stateNames() (names []string) {
	for _, s := range workflow.TaskStates() {
		names = append(names, s.String())
	}
	for _, s := range workflow.StepStates() {
		names = append(names, s.String())
	}
	return names
}

// Names in code blocks of this list are what readers search for; each source is read from
// the program itself.
func TestNamesAreMentioned(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		page, what string
		names      []string
	}{
		{"docs/reference/templates.md", "problem code", problemCodes(t)},
		{"docs/inside/data-model.md", "object of the schema", schemaObjects(t)},
		{"docs/reference/metrics.md", "metric", metricNames()},
		{"docs/inside/engine.md", "state of a task or step", stateNames()},
	} {
		text := page(t, tt.page)
		require.Greater(t, len(tt.names), 20, tt.what)
		for _, name := range tt.names {
			require.True(t, strings.Contains(text, "`"+name+"`"), "%s does not mention the %s %s", tt.page, tt.what, name) //nolint:testifylint // Contains would print the page
		}
	}
}

func TestReferenceOfLogFieldsIsUpToDate(t *testing.T) {
	t.Parallel()
	compare(t, "docs/reference/log-fields.md", logFieldsPage())
}

// logFieldsPage lists the keys of the log.
func logFieldsPage() string {
	var b strings.Builder
	table := func(keys []telemetry.LogKey) {
		b.WriteString("\n| key | type | meaning |\n|---|---|---|\n")
		for _, k := range keys {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.Name, k.Type, k.Meaning)
		}
	}
	b.WriteString("# Fields of the log\n\nGenerated by `go test ./internal/docscheck -update` from `internal/telemetry/logkeys.go`. A key has one type in all lines of both daemons.\n" +
		"Each line has `timestamp` (RFC 3339), `level` (debug, info, warn, error) and `message`, and `logger` where a room has written it:\n")
	for i, room := range logroom.Names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("`" + room + "`")
	}
	b.WriteString(".\nThe fields that handlers add with the logger of their step are their own.\n\n## Leading fields\n\nThey stand before all others, in this order; a line has those that are known where it is written.\n")
	table(telemetry.LeadingLogKeys)
	b.WriteString("\n## Others\n")
	table(telemetry.LogKeys)
	return b.String()
}
