package docscheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// plainPackages are the directories whose comments and string literals TestLanguage
// reads, with everything below them.
var plainPackages = []string{
	"client", "cmd", "config", "coordinator", "daemon", "deploymode", "examples", "internal", "listener", "poller", "signal",
	"test", "worker", "workflow",
}

// plainPages are the pages that it reads; docs/cli.md and docs/reference are generated.
var plainPages = []string{
	"README.md", "CHANGELOG.md", "docs/api-stability.md", "CONTRIBUTING.md", "SECURITY.md", "docs/architecture.md", "docs/configuration.md", "docs/contributing.md", "docs/concepts.md", "docs/data-model.md", "docs/new-versions.md",
	"docs/development.md", "docs/embedding.md", "docs/engine.md", "docs/events.md", "docs/getting-started.md", "docs/glossary.md", "docs/migrating.md", "docs/modes.md",
	"docs/operations.md", "docs/runbooks.md", "docs/schedules.md", "docs/task-types.md", "docs/templates.md", "docs/wire-compatibility.md", "docs/workers.md",
	"examples/fulfillment/README.md", "examples/jobs/README.md", "examples/lanes/README.md", "examples/mail/README.md", "examples/restqueue/README.md",
}

// vague matches subjects and verbs that hide which component acts.
var vague = regexp.MustCompile(`(?i)\b(?:` + strings.Join([]string{"nobody", "somebody", "whoever", `let go of`, `is asked to`}, "|") + `)\b`)

// vagueAllowed lists the files that keep such a word, at most ten, with the reason.
var vagueAllowed = map[string]string{
	"internal/docscheck/language_test.go": "the words themselves",
	"internal/pgcluster/account.go":       "the name of a Unix user",
	"internal/pgcluster/doc.go":           "the name of a Unix user",
}

// TestLanguage: comments and texts name the component that acts.
func TestLanguage(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, len(vagueAllowed), 10)
	kept, files := map[string]bool{}, 0
	for _, dir := range plainPackages {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(file) != ".go" {
				return err
			}
			files++
			name, err := filepath.Rel(root, file)
			require.NoError(t, err)
			name = filepath.ToSlash(name)
			words := vagueWords(t, page(t, name))
			if _, allowed := vagueAllowed[name]; allowed {
				kept[name] = len(words) > 0
				return nil
			}
			require.Empty(t, words, "%s: name the component that acts (worker, orchestrator, listener, client, operator, …)", name)
			return nil
		}))
	}
	require.Greater(t, files, 800)
	for name, why := range vagueAllowed {
		require.True(t, kept[name], "%s needs no exception any more (%s)", name, why)
	}
	for _, name := range plainPages {
		require.Empty(t, vague.FindAllString(page(t, name), -1), name)
	}
}

// vagueWords lists such words in the comments and string literals of a Go file.
func vagueWords(t *testing.T, src string) (words []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", src, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	find := func(text string) {
		words = append(words, vague.FindAllString(strings.Join(strings.Fields(text), " "), -1)...)
	}
	for _, comment := range file.Comments {
		find(comment.Text())
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, err := strconv.Unquote(lit.Value)
			require.NoError(t, err)
			find(text)
		}
		return true
	})
	return words
}

func TestLanguageFindsPlantedWords(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"Nobody", "let go of", "whoever", "is asked to"}, vagueWords(t, `package p

// Nobody waits. The lock is let go
// of later.
func f() string { return "whoever is asked to" }
`))
	require.Empty(t, vagueWords(t, "package p\n\n// A worker claims the step of nobodyish.\nvar nobody = `two asked tokens`\n"))
}
