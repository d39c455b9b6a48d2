package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
)

// goalTable is the one table a run ends with.
func (r *Report) goalTable() *Table {
	t := &Table{Title: "Goals", Columns: []string{"area", "what", "goal", "ours", "peer in this run", "ratio", "met"}}
	for _, o := range r.Goals {
		ours, peer, ratio, verdict := "–", "–", "–", string(o.Verdict)
		if o.Ours != nil {
			ours = Number(*o.Ours) + " " + o.Unit
		}
		if o.Peer != nil {
			peer = Number(*o.Peer) + " (" + o.Name + ")"
		}
		if o.Ratio != nil {
			ratio = Number(*o.Ratio) + " ×"
		}
		if o.Reason != "" {
			verdict += ": " + o.Reason
		}
		t.Add(o.Area, o.What, o.Goal, ours, peer, ratio, verdict)
	}
	return t
}

// Text writes everything for a terminal; the goals are last.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	for _, line := range r.header() {
		b.WriteString(line + "\n")
	}
	for _, t := range append(r.Tables[:len(r.Tables):len(r.Tables)], r.goalTable()) {
		b.WriteString("\n" + t.Title + "\n")
		for _, note := range t.Notes {
			b.WriteString("  " + note + "\n")
		}
		b.WriteString(t.plain())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) header() []string {
	m := r.Machine
	lines := []string{
		fmt.Sprintf("%s, %s of %#q", r.Date.Format("2 January 2006 15:04 MST"), r.Took.Round(time.Second), r.Command),
		fmt.Sprintf("%s, kernel %s, %d × %s, %d MB memory, a commit takes %s ms", m.OS, m.Kernel, m.CPUs, m.CPU, m.MemoryMB, Number(m.CommitMS)),
		fmt.Sprintf("commit %s, %s, PostgreSQL %s (%s)", m.Commit, m.Go, m.PostgreSQL, m.Settings),
	}
	for _, p := range m.Peers {
		lines = append(lines, "peer: "+p)
	}
	return append(lines, r.Method...)
}

// plain aligns the columns; numeric ones to the right.
func (t *Table) plain() string {
	widths := make([]int, len(t.Columns))
	for _, row := range append([][]string{t.Columns}, t.Rows...) {
		for i := range min(len(row), len(widths)) {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	var b strings.Builder
	for _, row := range append([][]string{t.Columns}, t.Rows...) {
		var line strings.Builder
		for i := range min(len(row), len(widths)) {
			gap := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(row[i]))
			if t.numeric(i) {
				line.WriteString("  " + gap + row[i])
			} else {
				line.WriteString("  " + row[i] + gap)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// numeric reports whether every cell of the column begins like a number.
func (t *Table) numeric(column int) bool {
	for _, row := range t.Rows {
		if column >= len(row) || row[column] == "" || !strings.ContainsRune("0123456789.-+–", firstRune(row[column])) {
			return false
		}
	}
	return len(t.Rows) > 0
}

func firstRune(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

// Markdown writes everything as a page; the goals are first.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	title := "Latest run"
	if r.Partial {
		title += " of some sections"
	}
	b.WriteString("# " + title + "\n\nWritten by the benchmark; [README.md](README.md) says how to read it.\n\n")
	for _, line := range r.header() {
		b.WriteString("- " + line + "\n")
	}
	for _, t := range append([]*Table{r.goalTable()}, r.Tables...) {
		b.WriteString("\n## " + t.Title + "\n\n")
		for _, note := range t.Notes {
			b.WriteString(note + "\n\n")
		}
		b.WriteString(t.markdown())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Table) markdown() string {
	var b strings.Builder
	line := func(cells []string) {
		escaped := make([]string, len(cells))
		for i, c := range cells {
			escaped[i] = strings.ReplaceAll(c, "|", `\|`)
		}
		b.WriteString("| " + strings.Join(escaped, " | ") + " |\n")
	}
	line(t.Columns)
	rule := make([]string, len(t.Columns))
	for i := range rule {
		rule[i] = "---"
		if t.numeric(i) {
			rule[i] = "--:"
		}
	}
	line(rule)
	for _, row := range t.Rows {
		line(row)
	}
	return b.String()
}

// Write puts the report into <base>.json and <base>.md.
func (r *Report) Write(base string) error {
	if err := os.MkdirAll(filepath.Dir(base), 0o750); err != nil {
		return fmt.Errorf("make the folder of the report: %w", err)
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	var page strings.Builder
	if err := r.Markdown(&page); err != nil {
		return fmt.Errorf("render the report: %w", err)
	}
	for name, content := range map[string]string{base + ".json": string(raw) + "\n", base + ".md": page.String()} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}
