package docscheck_test

import (
	"fmt"
	"html"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestThePictureOfTheDemoIsUpToDate: it is drawn from docs/images/demo.txt, which `make demo` has printed,
// without the columns and lines that a reader of README can do without.
func TestThePictureOfTheDemoIsUpToDate(t *testing.T) {
	t.Parallel()
	compare(t, "docs/images/demo.svg", terminal(page(t, "docs/images/demo.txt")))
}

// terminal draws text as a terminal shows it.
func terminal(text string) string {
	const (
		size, advance, leading, margin = 13, 7.83, 18, 16 // pixels; the advance of common monospaced fonts
		ground, ink, bars              = "#161b22", "#c9d1d9", "#58a6ff"
	)
	lines, columns := strings.Split(strings.TrimRight(text, "\n"), "\n"), 0
	for _, line := range lines {
		columns = max(columns, utf8.RuneCountInString(line))
	}
	width, height := float64(columns)*advance+2*margin, len(lines)*leading+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d" role="img" `+
		`aria-label="make demo prints a timeline of a workflow">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="%s"/>`+"\n", ground)
	fmt.Fprintf(&b, `<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="%d" fill="%s">`+"\n", size, ink)
	for i, line := range lines {
		if line == "" {
			continue
		}
		fill := ""
		if strings.Contains(line, "█") && strings.Contains(line, "success") {
			fill = fmt.Sprintf(" fill=%q", bars)
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" textLength="%.1f" xml:space="preserve"%s>%s</text>`+"\n",
			margin, margin+size+i*leading, float64(utf8.RuneCountInString(line))*advance, fill, html.EscapeString(line))
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}
