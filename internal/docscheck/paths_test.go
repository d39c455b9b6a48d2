package docscheck_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// span is inline code that may be a path, or a name of a test.
	span = regexp.MustCompile("`([A-Za-z0-9_.-][A-Za-z0-9_./-]*)`")
	// goTest is a command that names packages.
	goTest = regexp.MustCompile("go test [^`\n|;]*")
	// source is a file that pages also name by the end of its path.
	source = regexp.MustCompile(`\.(go|sql|proto|tla)$`)
	// testName has to be a whole one: a pattern after -run may be a part.
	testName = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)[A-Z]\w+$`)
)

// TestWhatPagesNameExists: files and folders of the tree, tests, and the packages of `go test`.
func TestWhatPagesNameExists(t *testing.T) {
	t.Parallel()
	tree := treeOf(t)
	named := 0
	for _, name := range pages(t) {
		if name == "CHANGELOG.md" { // of what was
			continue
		}
		found, gone := tree.named(page(t, name))
		require.Empty(t, gone, name)
		named += found
	}
	require.Greater(t, named, 100)
}

// tree is what the repository has.
type tree struct {
	paths []string // with a slash before each
	tests map[string]bool
}

func treeOf(t *testing.T) *tree {
	found := &tree{tests: map[string]bool{}}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)\w*)\(`)
	err := filepath.WalkDir(root, func(name string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules") {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		found.paths = append(found.paths, strings.TrimPrefix(filepath.ToSlash(name), root))
		if strings.HasSuffix(name, "_test.go") {
			text, err := os.ReadFile(name) // #nosec G304 -- of the repository
			for _, m := range declared.FindAllSubmatch(text, -1) {
				found.tests[string(m[1])] = true
			}
			return err
		}
		return nil
	})
	require.NoError(t, err)
	return found
}

// named counts what a page names, and lists what does not exist.
func (tr *tree) named(text string) (count int, gone []string) {
	check := func(name string, exists bool) {
		if count++; !exists {
			gone = append(gone, name)
		}
	}
	for _, m := range span.FindAllStringSubmatch(text, -1) {
		name := strings.TrimSuffix(m[1], "/")
		first, _, below := strings.Cut(name, "/")
		switch {
		case testName.MatchString(name):
			check(name, tr.tests[name])
		case source.MatchString(name), below && slices.Contains(tr.paths, "/"+first):
			check(name, slices.ContainsFunc(tr.paths, func(path string) bool { return strings.HasSuffix(path, "/"+name) }))
		}
	}
	for _, command := range goTest.FindAllString(text, -1) {
		for _, word := range strings.Fields(command) {
			if folder, relative := strings.CutPrefix(strings.TrimSuffix(word, "/..."), "./"); relative && folder != "" && folder != "..." {
				check(word, slices.Contains(tr.paths, "/"+folder))
			}
		}
	}
	return count, gone
}

func TestPlantedNamesAreFound(t *testing.T) {
	t.Parallel()
	tree := treeOf(t)
	count, gone := tree.named("`workflow/advance.go`, `advance.go`, `docs`, `TestPlantedNamesAreFound`, `go test ./workflow ./...`, `application/json`, `a.b`")
	require.Equal(t, 4, count)
	require.Empty(t, gone)
	_, gone = tree.named("`workflow/no.go` `no.sql` `internal/no` `TestNo` and `go test ./no ./workflow -run TestNo`")
	require.Equal(t, []string{"workflow/no.go", "no.sql", "internal/no", "TestNo", "./no"}, gone)
}
