package docscheck_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	cookbookPage = "docs/use/cookbook.md"
	cookbookRoom = "examples/cookbook/"
)

// shownSource is the comment before a block that is taken from a file, or from a region of it.
var shownSource = regexp.MustCompile(`^<!-- from (` + cookbookRoom + `[\w.-]+)(?:#([\w-]+))? -->\n$`)

// TestCookbookShowsItsSources: each block of the cookbook equals the file or region that it
// names, and no template and no region is left out.
func TestCookbookShowsItsSources(t *testing.T) {
	t.Parallel()
	want, shown, err := withSources(page(t, cookbookPage), func(name string) (string, error) {
		text, err := fs.ReadFile(os.DirFS(root), name)
		return string(text), err
	})
	require.NoError(t, err)
	compare(t, cookbookPage, want)
	files, err := fs.Glob(os.DirFS(root), cookbookRoom+"*")
	require.NoError(t, err)
	for _, name := range files {
		switch {
		case path.Ext(name) == ".yaml":
			require.Contains(t, shown, name)
		case path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go"):
			for _, m := range regionBegin.FindAllStringSubmatch(page(t, name), -1) {
				require.True(t, m[1] == "end" || slices.Contains(shown, name+"#"+m[1]), "%s#%s is not shown", name, m[1])
			}
		}
	}
}

var regionBegin = regexp.MustCompile(`(?m)^// cookbook: ([\w-]+)$`)

// withSources is a page whose blocks are replaced by their sources, and the sources.
func withSources(text string, read func(name string) (string, error)) (page string, shown []string, err error) {
	var b strings.Builder
	var source *string // of the next block
	fenced := false
	for line := range strings.Lines(text) {
		m := shownSource.FindStringSubmatch(line)
		fence := strings.HasPrefix(line, "```")
		switch {
		case fence && fenced:
			fenced, source = false, nil
		case fence && source == nil:
			return "", nil, fmt.Errorf("a block does not name its source: %s", line)
		case fence:
			fenced = true
			line += *source
		case fenced:
			continue
		case source != nil:
			return "", nil, fmt.Errorf("no block follows the comment before %q", line)
		case m != nil:
			whole, err := read(m[1])
			if err != nil {
				return "", nil, err
			}
			if m[2] != "" {
				if whole, err = region(whole, m[2]); err != nil {
					return "", nil, fmt.Errorf("%s: %w", m[1], err)
				}
				m[1] += "#" + m[2]
			}
			source, shown = &whole, append(shown, m[1])
		}
		b.WriteString(line)
	}
	if source != nil || fenced {
		return "", nil, fmt.Errorf("a block does not end, or is missing")
	}
	return b.String(), shown, nil
}

// region is the part of a Go file between two marks.
func region(text, name string) (string, error) {
	begin := "\n// cookbook: " + name + "\n"
	if strings.Count(text, begin) != 1 {
		return "", fmt.Errorf("not exactly one region %s", name)
	}
	_, text, _ = strings.Cut(text, begin)
	part, _, ended := strings.Cut(text, "\n// cookbook: end\n")
	if !ended || strings.Contains(part, "\n// cookbook: ") {
		return "", fmt.Errorf("the region %s does not end", name)
	}
	return strings.TrimSpace(part) + "\n", nil
}

func TestBlocksAreReplacedByTheirSources(t *testing.T) {
	t.Parallel()
	read := func(name string) (string, error) {
		return map[string]string{
			cookbookRoom + "a.yaml": "a: 1\n",
			cookbookRoom + "b.go":   "package b\n\n// cookbook: one\nfunc one() {}\n\n// cookbook: end\n\n// cookbook: open\nfunc two() {}\n",
		}[name], nil
	}
	text := func(source, block string) string {
		return "x\n<!-- from " + cookbookRoom + source + " -->\n```\n" + block + "```\ny\n"
	}
	for source, block := range map[string]string{"a.yaml": "a: 1\n", "b.go#one": "func one() {}\n"} {
		for _, before := range []string{block, "", "another\n\nblock\n"} {
			got, shown, err := withSources(text(source, before), read)
			require.NoError(t, err)
			require.Equal(t, text(source, block), got)
			require.Equal(t, []string{cookbookRoom + source}, shown)
		}
	}
	for _, wrong := range []string{
		text("b.go#two", ""), text("b.go#open", ""), "```\nno source\n```\n", "<!-- from " + cookbookRoom + "a.yaml -->\n",
		"<!-- from " + cookbookRoom + "a.yaml -->\nno block\n", "<!-- from " + cookbookRoom + "a.yaml -->\n```\nno end\n",
	} {
		_, _, err := withSources(wrong, read)
		require.Error(t, err, wrong)
	}
}
