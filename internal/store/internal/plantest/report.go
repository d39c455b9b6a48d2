package plantest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
)

// reportItems is how many tasks or steps each statement of the report carries.
const reportItems = 100

// planReport gathers the executed plans of every hot statement on boards of
// several sizes, for people to read.
type planReport struct {
	sizes  []string
	names  []string
	blocks map[string][]int // by statement, one for each size
	plans  map[string]string
	server string
}

// newPlanReport returns nil unless a report was requested.
func newPlanReport(t *testing.T) *planReport {
	t.Helper()
	if *plansFile == "" {
		return nil
	}
	return &planReport{blocks: map[string][]int{}, plans: map[string]string{}}
}

func (r *planReport) measure(t *testing.T, db *pgtest.DB, f Fixture, statements Statements) {
	t.Helper()
	r.server = db.QueryString(t, `show server_version`)
	r.sizes = append(r.sizes, fmt.Sprintf("%d waiting, %d finished", f.Waiting, f.Finished))
	e := NewExplainer(t, db.DSN, "force_generic_plan")
	for _, c := range statements(f, t, db, reportItems) {
		e.Execute(t, c) // warms caches and plans
		plans, took := e.explain(t, c)
		if len(r.sizes) == 1 {
			r.names = append(r.names, c.Name)
		}
		blocks := 0
		var text strings.Builder
		for i := range plans {
			blocks = max(blocks, plans[i].Hit+plans[i].Read)
			plans[i].render(&text, 0)
		}
		r.blocks[c.Name] = append(r.blocks[c.Name], blocks)
		r.plans[c.Name] = fmt.Sprintf("%s-- %v\n", text.String(), took.Round(10*time.Microsecond))
	}
}

// render writes the executed nodes, one per line.
func (n *planNode) render(w *strings.Builder, depth int) {
	if n.Loops > 0 {
		fmt.Fprintf(w, "%s%s", strings.Repeat("  ", depth), n.Type)
		if n.Subplan != "" {
			fmt.Fprintf(w, " (%s)", n.Subplan)
		}
		if n.Index != "" {
			fmt.Fprintf(w, " using %s", n.Index)
		}
		if n.Relation != "" {
			fmt.Fprintf(w, " on %s", n.Relation)
		}
		fmt.Fprintf(w, "  rows=%.0f loops=%.0f", n.Rows, n.Loops)
		if n.Removed > 0 {
			fmt.Fprintf(w, " removed=%.0f", n.Removed)
		}
		fmt.Fprintf(w, " buffers=%d\n", n.Hit+n.Read)
		depth++
	}
	for i := range n.Plans {
		n.Plans[i].render(w, depth)
	}
}

func (r *planReport) write(t *testing.T) {
	t.Helper()
	var w strings.Builder
	fmt.Fprintf(&w, "# Plans of the hot statements\n\nMade by `make plans` on %s, PostgreSQL %s, with the settings of the pools and generic plans:\n"+
		"`EXPLAIN (ANALYZE, BUFFERS)` by auto_explain, inside functions too. Each statement carries %d tasks or steps where it can.\n"+
		"A test in store fails on a sequential scan, on walking over rows, and on blocks beyond a bound for each item.\n\n"+
		"## Blocks touched\n\n| statement | %s |\n|---|%s\n", time.Now().UTC().Format("2 January 2006"), r.server, reportItems,
		strings.Join(r.sizes, " | "), strings.Repeat("---:|", len(r.sizes)))
	for _, name := range r.names {
		fmt.Fprintf(&w, "| %s |", name)
		for _, blocks := range r.blocks[name] {
			fmt.Fprintf(&w, " %d |", blocks)
		}
		w.WriteByte('\n')
	}
	fmt.Fprintf(&w, "\n## Plans, %s\n\nNodes that were not executed are left out.\n", r.sizes[len(r.sizes)-1])
	for _, name := range r.names {
		fmt.Fprintf(&w, "\n### %s\n\n```\n%s```\n", name, r.plans[name])
	}
	require.NoError(t, os.WriteFile(*plansFile, []byte(w.String()), 0o600))
}
