package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/wording"
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

// row adds a row of cells and other values.
func (t *table) row(values ...any) {
	row := make([]cell, len(values))
	for i, v := range values {
		row[i] = cellOf(v)
	}
	t.rows = append(t.rows, row)
}

// cellOf writes a value as people read it. What is missing or empty is a dash.
func cellOf(v any) cell {
	c := cell{}
	switch v := v.(type) {
	case cell:
		c = v
	case nil:
	case bool:
		c.text = "no"
		if v {
			c.text = "yes"
		}
	case []string:
		c.text = strings.Join(v, ",")
	case json.RawMessage:
		c.text = shownJSON(v)
	case client.Time:
		c.text = instant(&v)
	case client.NaiveTime:
		c.text = instant(&client.Time{Time: v.Time})
	default:
		if p := reflect.ValueOf(v); p.Kind() != reflect.Pointer {
			c.text = fmt.Sprint(v)
		} else if !p.IsNil() {
			c = cellOf(p.Elem().Interface())
		}
	}
	if c.text = oneLine(c.text); c.text == "" {
		c.text = "-"
	}
	return c
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

// oneLine keeps foreign text from breaking a table or steering a terminal. What the output escapes
// is escaped here, so that columns have its width.
func oneLine(s string) string {
	return string(wording.Escape([]byte(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r < ' ':
			return -1
		}
		return r
	}, s))))
}

// counted is a number with its noun: "1 error", "2 batches", "3 entries".
func counted(n int, noun string) string {
	stem, isEntry := strings.CutSuffix(noun, "y")
	switch {
	case n == 1:
		return "1 " + noun
	case isEntry:
		return fmt.Sprintf("%d %sies", n, stem)
	case strings.HasSuffix(noun, "ch"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// seconds writes a duration with as many digits as a reader needs.
func seconds(d time.Duration) string {
	switch {
	case d < 0:
		return "-"
	case d > 0 && d < 10*time.Millisecond:
		return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// duration makes a time.Duration of the API's seconds.
func duration(s float64) time.Duration {
	return time.Duration(math.Round(s*1e6)) * time.Microsecond
}

// styles are the colours of states: of tasks, steps, entries, replicas, breakers
// and whatever else has one.
var styles = map[style][]string{
	green: {"complete", "resolved_manually", "healthy", "alive", "ready", "live", "running", "success", "ManuallyResolved", "closed"},
	red:   {"error", "blocked_by_failures", "unhealthy", "unreachable", "lost", "stale", "dead", "PermanentlyFailed", "open"},
	yellow: {"waiting_for_retry", "degraded", "warning", "enqueued_as_error_for_orchestration", "failed", "lease_lost", "paused",
		"draining", "deprecated", "Pending", "half_open"},
	dim:  {"cancelled", "stopped", "not_created", "Cancelled"},
	cyan: {"in_progress", "steps_in_process", "enqueued_for_orchestration", "evaluating_results", "enqueuing_steps"},
}

func stateStyle(state string) style {
	for style, states := range styles {
		if slices.Contains(states, state) {
			return style
		}
	}
	return plain
}

func stateCell(state string) cell { return cell{state, stateStyle(state)} }
