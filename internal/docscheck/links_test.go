package docscheck_test

import (
	"iter"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	links := 0
	for _, name := range pages(t) {
		for _, target := range linksOf(page(t, name)) {
			links++
			require.Empty(t, whyBroken(name, target), "%s: (%s)", name, target)
		}
	}
	require.Positive(t, links)
}

// A page that lost its text would still have no broken link.
func TestPagesHaveTitles(t *testing.T) {
	t.Parallel()
	for _, name := range pages(t) {
		require.Regexp(t, `(?m)^# \S`, page(t, name), name)
	}
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// linksOf lists the relative targets of a page, code left out.
func linksOf(text string) (targets []string) {
	for _, m := range link.FindAllStringSubmatch(withoutCode(text), -1) {
		if !strings.Contains(m[1], "://") && !strings.HasPrefix(m[1], "mailto:") {
			targets = append(targets, m[1])
		}
	}
	return targets
}

var inlineCode = regexp.MustCompile("`[^`\n]*`")

func withoutCode(text string) string {
	var b strings.Builder
	for line := range unfenced(text) {
		b.WriteString(inlineCode.ReplaceAllString(line, "code"))
	}
	return b.String()
}

// unfenced are the lines of a page that stand in no block of code.
func unfenced(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		fenced := false
		for line := range strings.Lines(text) {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				fenced = !fenced
			} else if !fenced && !yield(line) {
				return
			}
		}
	}
}

// whyBroken is empty where the target of a link on a page exists.
func whyBroken(from, target string) string {
	file, anchor, _ := strings.Cut(target, "#")
	to := from
	if file != "" {
		to = path.Join(path.Dir(from), file)
	}
	info, err := os.Stat(filepath.Join(root, filepath.FromSlash(to)))
	switch {
	case err != nil:
		return "missing: " + to
	case anchor == "" || info.IsDir():
		return ""
	}
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(to)))
	if err != nil {
		return err.Error()
	}
	if !hasAnchor(string(text), anchor) {
		return to + " has no heading #" + anchor
	}
	return ""
}

func hasAnchor(text, anchor string) bool {
	for line := range unfenced(text) {
		heading := strings.TrimLeft(line, "#")
		if heading != line && strings.HasPrefix(heading, " ") && slug(heading) == anchor {
			return true
		}
	}
	return false
}

// slug is the anchor that Markdown renderers make of a heading.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.TrimSpace(heading))
}

func TestBrokenLinksAreFound(t *testing.T) {
	t.Parallel()
	require.Empty(t, whyBroken("README.md", "docs"))
	require.Empty(t, whyBroken("docs/inside/engine.md", "../../README.md"))
	require.NotEmpty(t, whyBroken("docs/inside/engine.md", "README.md"))
	require.NotEmpty(t, whyBroken("README.md", "docs/inside/engine.md#no-such-heading"))
	require.Equal(t, []string{"a.md", "#b"}, linksOf("[x](a.md) `[y](c.md)` [z](https://example.org)\n```\n[w](d.md)\n```\n[v](#b)\n"))
	require.True(t, hasAnchor("# What, then?\n", "what-then"))
	require.False(t, hasAnchor("```\n# What, then?\n```\n", "what-then"))
}

// TestTablesHaveTheirColumns: a bar in a text, also in code, would begin a column unless it is escaped.
func TestTablesHaveTheirColumns(t *testing.T) {
	t.Parallel()
	for _, name := range pages(t) {
		require.Empty(t, oddRows(page(t, name)), name)
	}
	require.Equal(t, []string{"| c | d | e |"}, oddRows("| a | b |\n|---|---|\n| c | d | e |\n| `f\\|g` | h |\n\n| i |\n```\n| j | k |\n```\n"))
}

// oddRows are the rows of tables that have more or fewer columns than the first of theirs.
func oddRows(text string) (odd []string) {
	columns := 0
	for line := range unfenced(text) {
		if !strings.HasPrefix(line, "|") {
			columns = 0
			continue
		}
		bars := strings.Count(line, "|") - strings.Count(line, `\|`)
		if columns == 0 {
			columns = bars
		}
		if bars != columns {
			odd = append(odd, strings.TrimSpace(line))
		}
	}
	return odd
}
