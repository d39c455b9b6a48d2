package waits

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/plantest"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// fillApprovals makes waiting approvals of namespace a, and of each hundredth task one of b.
func fillApprovals(t *testing.T, db *pgtest.DB, plans *registry.Registry, count int) {
	var templates []*workflow.Template
	for _, namespace := range []string{"a", "b"} {
		tmpl, _, err := template.Parse("t.yaml", []byte("name: flow\nnamespace_name: "+namespace+"\nversion: 1.0.0\nsteps:\n  - {name: ask, handler: {callable: c}}\n"))
		require.NoError(t, err)
		templates = append(templates, tmpl.Resolve("test"))
	}
	_, err := plans.RegisterTemplates(t.Context(), registry.Registrant{Environment: "test"}, templates)
	require.NoError(t, err)
	db.Exec(t, `create function test_task(i int) returns uuid language sql immutable as $$ select md5(i::text)::uuid $$`)
	db.Exec(t, `insert into tasker.board (task_uuid, slot, queue, lane, state, task_state, priority, progress, plan_id, requested_at)
		select test_task(i), 0, p.namespace_id, 0, 0, 4, 0, '\x00', p.plan_id, now() from generate_series(1, $1::int) i
		join tasker.namespaces n on n.name = case when i % 100 = 50 then 'b' else 'a' end join tasker.plans p using (namespace_id)`, count)
	// Ten begin to wait at the same moment.
	db.Exec(t, `insert into tasker.board (task_uuid, slot, step_no, queue, lane, state, seq, attempt, token, claimed_at, wait, awaits)
		select test_task(i), 1, 0, 0, 200, 1, i, 1, i, timestamptz '2026-01-01' + i / 10 * interval '1 us', '{"kind":"approval"}', 'a' || test_task(i)
		from generate_series(1, $1::int) i`, count)
}

// TestApprovalsAreListedByPlaces follows lists to their ends: each approval is on one page, the
// oldest first, also where those of the namespace are few among others.
func TestApprovalsAreListedByPlaces(t *testing.T) {
	t.Parallel()
	const count = 2000
	db := plantest.Open(t)
	opened, err := pg.Open(t.Context(), pg.Options{URL: db.DSN})
	require.NoError(t, err)
	t.Cleanup(opened.Server().Close)
	plans, known := registry.New(opened)
	fillApprovals(t, db, plans, count)
	for _, c := range []struct {
		namespace       string
		limit, searched int
		want, pages     int
	}{
		{"", 300, 1, count, 7},
		{"a", 150, 1000, 1980, 14},
		{"b", 5, 150, 20, 14}, // a page has one or two of 150
		{"b", 1, 1000, 20, 20},
		{"b", 100, 5000, 20, 1},
		{"c", 100, 600, 0, 4},
	} {
		t.Run(fmt.Sprintf("%q by %d", c.namespace, c.limit), func(t *testing.T) {
			w := New(opened, known)
			w.searched = c.searched
			f := ApprovalFilter{Namespace: c.namespace, Limit: c.limit}
			seen, pages, last := map[string]bool{}, 0, f.After
			for {
				page, err := w.Approvals(t.Context(), f)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page.Approvals), c.limit)
				require.Empty(t, page.Unreadable)
				pages++
				for _, a := range page.Approvals {
					require.False(t, seen[a.Token], "twice")
					require.False(t, a.Since.Before(last.Since), "in the order of time")
					seen[a.Token], last.Since = true, a.Since
				}
				if page.Next == nil {
					break
				}
				f.After = *page.Next
			}
			require.Len(t, seen, c.want)
			require.Equal(t, c.pages, pages)
		})
	}
}
