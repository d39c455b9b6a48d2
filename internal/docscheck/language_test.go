package docscheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// vague matches subjects and verbs that hide which component acts.
var vague = regexp.MustCompile(`(?i)\b(?:` + strings.Join([]string{
	"nobody", "somebody", "anybody", "everybody", "whoever", `lets? go of`, `in the hands of`, `is asked to`, `brought forth`, `befalls?`, `what is told`, `is over after`,
}, "|") + `)\b`)

// vagueAllowed lists the files that keep such a word, at most ten, with the reason.
var vagueAllowed = map[string]string{
	"internal/docscheck/language_test.go": "the words themselves",
	"internal/pgcluster/account.go":       "the name of a Unix user",
	"internal/pgcluster/doc.go":           "the name of a Unix user",
}

// Texts that are read are those of these extensions, Go files, and files without an
// extension that begin with #! or have one of these names. SQL is not read: the hashes of
// released migrations are recorded.
var (
	textExtensions = []string{".md", ".yaml", ".yml", ".toml", ".proto", ".py", ".ts", ".mjs", ".sh", ".pml", ".conf", ".tmpl", ".tpl"}
	textNames      = []string{"Makefile", "Containerfile"}
)

// Not read are hidden directories but these, what tests and package managers put into
// the tree, and generated pages, whose words come from Go files.
var (
	hiddenRead = []string{".", ".ci", ".github"}
	dirsUnread = []string{"bin", "build", "dist", "testdata", "node_modules", "__pycache__", "docs/reference"}
	generated  = []string{"docs/cli.md", "config/reference.md"}
)

// TestLanguage: comments and texts name the component that acts.
func TestLanguage(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, len(vagueAllowed), 10)
	found, read := vagueTexts(t, os.DirFS(root))
	require.Greater(t, read[".go"], 1400)
	for kind, least := range map[string]int{".md": 80, ".yaml": 20, ".yml": 5, ".toml": 2, ".proto": 5, ".py": 15, ".ts": 10, ".mjs": 2, "": 20} {
		require.Greater(t, read[kind], least, "files %q", kind)
	}
	for name, why := range vagueAllowed {
		require.NotEmpty(t, found[name], "%s needs no exception any more (%s)", name, why)
		delete(found, name)
	}
	require.Empty(t, found, "name the component that acts (worker, orchestrator, listener, client, operator, …)")
}

// vagueTexts lists such words by file, and the number of files read by extension.
func vagueTexts(t *testing.T, tree fs.FS) (found map[string][]string, read map[string]int) {
	t.Helper()
	found, read = map[string][]string{}, map[string]int{}
	require.NoError(t, fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && unread(name):
			return fs.SkipDir
		case !entry.Type().IsRegular() || slices.Contains(generated, name):
			return nil
		}
		kind := path.Ext(name)
		if kind != "" && kind != ".go" && !slices.Contains(textExtensions, kind) {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		require.NoError(t, err)
		if kind == "" && !strings.HasPrefix(string(text), "#!") && !slices.Contains(textNames, path.Base(name)) {
			return nil
		}
		read[kind]++
		words := vagueLines
		if kind == ".go" {
			words = func(text string) []string { return vagueWords(t, text) }
		}
		if list := words(string(text)); len(list) > 0 {
			found[name] = list
		}
		return nil
	}))
	return found, read
}

func unread(dir string) bool {
	base := path.Base(dir)
	hidden := strings.HasPrefix(base, ".") && !slices.Contains(hiddenRead, base)
	return hidden || slices.Contains(dirsUnread, base) || slices.Contains(dirsUnread, dir)
}

// lineStart is what stands before the words of a comment's or a list's line.
var lineStart = regexp.MustCompile(`(?m)^[\s#/*>|-]+`)

// vagueLines lists such words in a text, also those that a line break divides.
func vagueLines(text string) []string {
	return vague.FindAllString(strings.Join(strings.Fields(lineStart.ReplaceAllString(text, " ")), " "), -1)
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

// TestLanguageReadsEveryKind: a planted word is found in a file of each kind that is read.
func TestLanguageReadsEveryKind(t *testing.T) {
	t.Parallel()
	tree, want := fstest.MapFS{}, map[string][]string{}
	plant := func(name, text string, words ...string) {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
		if words != nil {
			want[name] = words
		}
	}
	for _, kind := range textExtensions {
		plant("deploy/a"+kind, "# A worker lets go\n# of it, and\tEverybody waits.\n", "lets go of", "Everybody")
	}
	plant("docs/a.md", "- in the hands\n  of a worker\n", "in the hands of")
	plant("client/a.go", "package client\n\n// Anybody may call it.\nvar nobody int\n", "Anybody")
	plant("Makefile", "all: # whoever asks\n", "whoever")
	plant("scripts/a", "#!/bin/sh\n# somebody's\n", "somebody")
	plant(".github/a.yml", "nobody: 1\n", "nobody")
	for _, name := range []string{"LICENSE", "a.sql", "docs/cli.md", "docs/reference/a.md", "a/testdata/a.md", "a/testdata/a.go", ".tools/a.md", "sdk/node_modules/a.ts"} {
		plant(name, "nobody\n")
	}
	found, read := vagueTexts(t, tree)
	require.Equal(t, want, found)
	require.Equal(t, 2, read[""])
}
