package ledger

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/plantest"
	"github.com/tasker-go/tasker/workflow"
)

// listedTask is a task of the model of lists.
type listedTask struct {
	id                       uuid.UUID
	namespace, name, version string
	state                    workflow.TaskState
	tags                     []string
	correlation              uuid.UUID
	requested                time.Time
	initiator, source        string
}

func (x *listedTask) fits(f *TaskFilter) bool {
	text := func(want, have string) bool { return want == "" || want == have }
	return text(f.Namespace, x.namespace) && text(f.Name, x.name) && text(f.Version, x.version) &&
		strings.Contains(strings.ToLower(x.name), strings.ToLower(f.Text)) &&
		(len(f.States) == 0 || slices.Contains(f.States, x.state)) &&
		!slices.ContainsFunc(f.Tags, func(tag string) bool { return !slices.Contains(x.tags, tag) }) &&
		(f.CorrelationID == uuid.Nil || f.CorrelationID == x.correlation) &&
		!x.requested.Before(f.CreatedAfter) && (f.CreatedBefore.IsZero() || x.requested.Before(f.CreatedBefore)) &&
		text(f.Initiator, x.initiator) && text(f.SourceSystem, x.source) &&
		(f.Before == uuid.Nil || x.id.String() < f.Before.String())
}

// TestListsAgreeWithAModel compares pages and continued lists of random filters with what a
// search through all tasks finds, with scans of a few tasks.
func TestListsAgreeWithAModel(t *testing.T) {
	t.Parallel()
	db := plantest.Open(t)
	all := fillLists(t, db, 400)
	store, err := pg.Open(t.Context(), pg.Options{URL: db.DSN})
	require.NoError(t, err)
	t.Cleanup(store.Server().Close)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 600 {
		l := &Ledger{db: store, scans: scans{first: 1 + r.IntN(1+r.IntN(200)), last: 1 + r.IntN(100), tagged: r.IntN(300), counted: 1 + r.IntN(600), most: 10 + r.IntN(50), source: 3,
			recent: time.Duration(1+r.IntN(60)) * time.Minute}}
		f := randomFilter(r, all)
		want := []uuid.UUID{}
		for i := range all {
			if all[i].fits(&f) {
				want = append(want, all[i].id)
			}
		}
		name := fmt.Sprintf("%+v by %+v", f, l.scans)

		f.Limit, f.Offset = 1+r.IntN(1+r.IntN(50)), r.IntN(1+r.IntN(30))
		var page TaskPage
		ids, err := l.find(t.Context(), f, &page)
		require.NoError(t, err, name)
		from, to := min(f.Offset, len(want)), min(f.Offset+f.Limit, len(want))
		if cut := page.Next != uuid.Nil && len(ids) < f.Limit; cut { // what it has is the beginning, up to the cursor
			require.True(t, page.Estimated, name)
			older := slices.IndexFunc(slices.Concat(want, []uuid.UUID{uuid.Nil}), func(id uuid.UUID) bool { return bytes.Compare(id[:], page.Next[:]) < 0 })
			to = max(from, older)
		} else if page.Estimated { // it has not looked far enough to know that nothing follows
			require.True(t, page.Next != uuid.Nil || to == len(want), name)
		} else {
			require.Equal(t, to < len(want), page.Next != uuid.Nil, name)
		}
		require.Equal(t, want[from:to], append([]uuid.UUID{}, ids...), name)
		if !page.Estimated {
			require.Equal(t, len(want), page.Total, name)
		}

		f.Offset, f.Continued = 0, true
		got := []uuid.UUID{}
		for range 1000 {
			var page TaskPage
			ids, err := l.find(t.Context(), f, &page)
			require.NoError(t, err, name)
			require.LessOrEqual(t, len(ids), f.Limit)
			if got = append(got, ids...); page.Next == uuid.Nil {
				break
			}
			f.Before = page.Next
		}
		require.Equal(t, want, got, name)
	}
}

func randomFilter(r *rand.Rand, all []listedTask) (f TaskFilter) {
	some := all[r.IntN(len(all))]
	for range r.IntN(5) {
		switch r.IntN(10) {
		case 0:
			f.Namespace = some.namespace
		case 1:
			f.Name = some.name
		case 2:
			f.Version = []string{some.version, "9.9"}[r.IntN(2)]
		case 3:
			f.Text = strings.ToUpper(some.name[1:4])
		case 4, 5:
			for range 1 + r.IntN(3) {
				f.States = append(f.States, workflow.TaskStates()[r.IntN(12)])
			}
		case 6:
			f.Tags = []string{"even"}
			if r.IntN(2) == 0 {
				f.Tags = append(f.Tags, "rare")
			}
		case 7:
			f.CorrelationID = some.correlation
		case 8:
			f.CreatedAfter, f.CreatedBefore = some.requested, some.requested.Add(time.Minute)
		case 9:
			f.Initiator, f.SourceSystem = some.initiator, some.source
		}
	}
	if r.IntN(4) == 0 {
		f.Before = all[r.IntN(len(all))].id
	}
	return f
}

// fillLists makes tasks, the newest first: alive, ended, and with an end that was removed.
func fillLists(t *testing.T, db *pgtest.DB, count int) (all []listedTask) {
	db.Exec(t, `insert into tasker.namespaces (name) values ('alpha'), ('beta')`)
	plans := []struct {
		namespace     int
		name, version string
	}{{1, "order_flow", "1.0"}, {1, "order_flow", "2.0"}, {2, "Refund", "1.0"}, {2, "nightly_batch", "1.0"}}
	for _, p := range plans {
		db.Exec(t, `insert into tasker.plans (namespace_id, name, version, environment, content_hash, steps, template, current)
			values ($1, $2, $3, 'test', decode(repeat('00', 32), 'hex'), '{a}', '{}', true)`, p.namespace, p.name, p.version)
	}
	begin := time.Now().Add(-2 * time.Hour).Truncate(time.Millisecond)
	token, shared := 0, uuid.New()
	end := func(id uuid.UUID, state workflow.TaskState) {
		token++
		db.Exec(t, `insert into tasker.step_attempts (task_uuid, token, step_no, attempt, outcome, task_state, task_progress)
			values ($1, $2, $3, 1, 1, $4, '\x00')`, id, token, token%3-1, int16(state))
	}
	for i := range count {
		p := i % len(plans)
		x := listedTask{namespace: []string{"alpha", "beta"}[plans[p].namespace-1], name: plans[p].name, version: plans[p].version,
			state: workflow.TaskStates()[i%12], requested: begin.Add(time.Duration(i) * 10 * time.Second), initiator: []string{"ann", "bob"}[i%2],
			source: []string{"shop", "bank", ""}[i%3]}
		x.id = floorOf(x.requested.Add(time.Duration(i%7-3) * time.Second)) // clocks differ
		x.id[6], x.id[15] = 0x70, byte(i)
		var correlation *uuid.UUID
		if x.correlation = x.id; i%5 == 0 {
			x.correlation, correlation = shared, &shared
		}
		if i%2 == 0 {
			x.tags = []string{"even"}
		}
		if i%50 == 0 {
			x.tags = append(x.tags, "rare")
		}
		db.Exec(t, `insert into tasker.tasks (task_uuid, requested_at, plan_id, queue, priority, context, tags, correlation_id, initiator, source_system)
			values ($1, $2, $3, $4, 0, '{}', $5, $6, $7, nullif($8, ''))`, x.id, x.requested, p+1, plans[p].namespace, x.tags, correlation, x.initiator, x.source)
		if i%4 == 1 && x.state != workflow.TaskComplete { // it had failed before
			end(x.id, workflow.TaskError)
			db.Exec(t, `update tasker.step_attempts set task_state = null, task_progress = null where task_uuid = $1`, x.id) // as reopenTasks does
		}
		if x.state.Terminal() {
			end(x.id, x.state)
		} else {
			db.Exec(t, `insert into tasker.board (task_uuid, slot, queue, lane, state, task_state, priority, progress, plan_id, requested_at)
				values ($1, 0, 1, 0, 0, $2, 0, '\x00', $3, now())`, x.id, int16(x.state), p+1)
		}
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b listedTask) int { return strings.Compare(b.id.String(), a.id.String()) })
	return all
}
