// Package report holds the results of a run and writes them: figures by name, tables, and
// the goals with their results.
//
// Sections of the benchmark only set figures and add tables. Only goals.go assigns
// figures to goals.
package report

import (
	"fmt"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

// Machine is the environment of a run.
type Machine struct {
	OS       string `json:"os"`
	Kernel   string `json:"kernel"`
	CPU      string `json:"cpu"`
	CPUs     int    `json:"cpus"`
	MemoryMB int64  `json:"memory_mb"`
	// CommitMS is how long a commit of one small row takes, median.
	CommitMS   float64  `json:"commit_ms"`
	Go         string   `json:"go"`
	PostgreSQL string   `json:"postgresql"`
	Settings   string   `json:"postgresql_settings"`
	Peers      []string `json:"peers"`
	Commit     string   `json:"commit"`
}

// Table is one block of results.
type Table struct {
	Title   string     `json:"title"`
	Notes   []string   `json:"notes,omitempty"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

// Add appends a row; values are formatted with fmt.Sprint.
func (t *Table) Add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.Rows = append(t.Rows, row)
}

// Series is a figure over time.
type Series struct {
	Name   string        `json:"name"`
	Points []stats.Point `json:"points"`
}

// Report is the result of one run. It is not safe for concurrent use.
type Report struct {
	Date    time.Time     `json:"date"`
	Took    time.Duration `json:"took_ns"`
	Command string        `json:"command"`
	// Partial runs have some of the sections, and only the goals of these.
	Partial bool     `json:"partial,omitempty"`
	Method  []string `json:"method"`
	Machine Machine  `json:"machine"`
	// Figures by name, such as drain.rate; the unit is part of the name unless it is a
	// rate per second, a ratio or a count.
	Figures map[string]float64 `json:"figures"`
	// Others is the share of the CPUs, in per cent, that other programs used while a
	// figure was measured.
	Others map[string]float64 `json:"others_cpu_percent"`
	// Absent says why a figure is missing.
	Absent map[string]string `json:"absent"`
	Tables []*Table          `json:"tables"`
	Series []Series          `json:"series,omitempty"`
	Goals  []Outcome         `json:"goals"`

	fresh []string // figures since Beside was last called
}

// New returns an empty report of a run that begins now.
func New() *Report {
	return &Report{Date: time.Now().UTC(), Figures: map[string]float64{}, Others: map[string]float64{}, Absent: map[string]string{}}
}

// Set notes a figure.
func (r *Report) Set(name string, value float64) {
	r.Figures[name] = value
	r.fresh = append(r.fresh, name)
}

// Beside records the share of the CPUs, in per cent, that other programs used while the
// figures since the last call were measured.
func (r *Report) Beside(others float64) {
	for _, name := range r.fresh {
		r.Others[name] = others
	}
	r.fresh = nil
}

// SetSummary notes the percentiles of a figure in milliseconds.
func (r *Report) SetSummary(name string, s stats.Summary) {
	r.Set(name+".p50_ms", Millis(s.P50))
	r.Set(name+".p95_ms", Millis(s.P95))
	r.Set(name+".p99_ms", Millis(s.P99))
}

// Missing notes why a figure is not there.
func (r *Report) Missing(name, reason string) { r.Absent[name] = reason }

// Table adds a table.
func (r *Report) Table(title string, columns ...string) *Table {
	t := &Table{Title: title, Columns: columns}
	r.Tables = append(r.Tables, t)
	return t
}

// Millis is a duration in milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
