package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// cell is one field of a table and its colour.
type cell struct {
	text  string
	style style
}

// table collects rows and writes them in aligned columns, two spaces apart.
// Alignment counts characters, so colours and non-ASCII text do not disturb it.
type table struct {
	screen terminal
	rows   [][]cell
}

func (a *app) newTable(headers ...string) *table {
	t := &table{screen: a.screen}
	row := make([]cell, len(headers))
	for i, h := range headers {
		row[i] = cell{h, bold}
	}
	t.rows = append(t.rows, row)
	return t
}

// newPairs makes a table of names and values, without headers.
func (a *app) newPairs() *table { return &table{screen: a.screen} }

// row adds a row of strings, cells and other values; nil is shown as a dash.
func (t *table) row(values ...any) {
	row := make([]cell, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case cell:
			row[i] = v
		case nil:
			row[i] = cell{text: "-"}
		default:
			row[i] = cell{text: fmt.Sprint(v)}
		}
		row[i].text = oneLine(row[i].text)
		if row[i].text == "" {
			row[i].text = "-"
		}
	}
	t.rows = append(t.rows, row)
}

// lines renders the rows; trailing blanks are left out.
func (t *table) lines() []string {
	var widths []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	lines := make([]string, 0, len(t.rows))
	for _, row := range t.rows {
		var b strings.Builder
		for i, c := range row {
			b.WriteString(t.screen.paint(c.style, c.text))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)+2))
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

func (t *table) write(w io.Writer) {
	for _, line := range t.lines() {
		fmt.Fprintln(w, line)
	}
}

// oneLine keeps foreign text from breaking a table or steering a terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0):
			return -1
		}
		return r
	}, s)
}

// clip shortens text to n characters.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	return string(runes[:max(n-1, 0)]) + "…"
}
