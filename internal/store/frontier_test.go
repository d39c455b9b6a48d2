package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
)

// copyStep puts a claimable copy of the pattern on the board, under its own number.
const copyStep = `
insert into tasker.board (task_uuid, slot, plan_id, queue, task_state, priority, progress, requested_at, context, step_no, callable, lane, state, seq, enqueued_at)
select gen_random_uuid(), 0, plan_id, queue, task_state, priority, progress, requested_at, context, step_no, callable, $1, 2, nextval('tasker.step_seq'), now()
from tasker.board where state = 1 limit 1`

// frontierRun has transactions write the board, claims roll back, and the
// frontier move, in any order.
type frontierRun struct {
	s       *store.Store
	db      *pgtest.DB
	plan    *store.Plan
	writers []*frontierWriter
}

type frontierWriter struct {
	tx   pgx.Tx
	conn *pgx.Conn
	rows int // that become claimable with its commit
}

func (r *frontierRun) begin(t *rapid.T, ctx context.Context) *frontierWriter {
	conn, err := pgx.Connect(ctx, r.db.DSN)
	require.NoError(t, err)
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	w := &frontierWriter{tx: tx, conn: conn}
	r.writers = append(r.writers, w)
	return w
}

func (r *frontierRun) end(t *rapid.T, ctx context.Context, at int, commit bool) (rows int) {
	w := r.writers[at]
	r.writers = append(r.writers[:at:at], r.writers[at+1:]...)
	if commit {
		require.NoError(t, w.tx.Commit(ctx))
		rows = w.rows
	} else {
		require.NoError(t, w.tx.Rollback(ctx))
	}
	require.NoError(t, w.conn.Close(ctx))
	return rows
}

// all claims all steps with full scans.
func (r *frontierRun) all(t *rapid.T, ctx context.Context) int {
	claimed, _, err := r.s.Claim(ctx, store.ClaimRequest{Worker: uuid.Max, Callables: r.plan.Callables, Limit: 1000, Lease: time.Minute}, true)
	require.NoError(t, err)
	return len(claimed)
}

// TestNothingComesBehindTheFrontier: whatever runs while it moves, a scan from the
// frontier finds all visible rows.
func TestNothingComesBehindTheFrontier(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	create(t, s, p, 1)
	db.Exec(t, `update tasker.board set state = 1, due_at = 'infinity'`)
	moved, pool := 0, db.Pool(t)
	rapid.Check(t, func(t *rapid.T) {
		r := &frontierRun{s: s, db: db, plan: p}
		visible, locked := 0, map[*frontierWriter]int{}
		for range rapid.IntRange(1, 25).Draw(t, "events") {
			switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
			case what <= 2 && len(r.writers) < 4: // writes, briefly or for a while
				w := r.begin(t, ctx)
				w.rows = rapid.IntRange(1, 3).Draw(t, "rows")
				for range w.rows {
					_, err := w.tx.Exec(ctx, copyStep, rapid.SampledFrom([]int{-1, 150, 200, 201, 260}).Draw(t, "lane"))
					require.NoError(t, err)
				}
			case what == 3 && len(r.writers) < 4: // a claim that may be rolled back
				w := r.begin(t, ctx)
				tag, err := w.tx.Exec(ctx, `update tasker.board set state = 3, token = 1, lease_until = now() where ctid = any (array(
					select ctid from tasker.board where state = 2 order by lane, seq limit 2 for update skip locked))`)
				require.NoError(t, err)
				locked[w] = int(tag.RowsAffected())
				visible -= locked[w]
			case what <= 5 && len(r.writers) > 0:
				at := rapid.IntRange(0, len(r.writers)-1).Draw(t, "writer")
				w, commit := r.writers[at], rapid.Bool().Draw(t, "commit")
				if !commit {
					visible += locked[w]
				}
				delete(locked, w)
				visible += r.end(t, ctx, at, commit)
			case what <= 8:
				require.NoError(t, s.MoveFrontiers(ctx))
				if at, _ := s.AtFrontier(); at {
					moved++
				}
			default:
				require.Equal(t, visible, r.all(t, ctx))
				visible = 0
			}
		}
		for len(r.writers) > 0 {
			w := r.writers[0]
			visible += locked[w]
			r.end(t, ctx, 0, false)
		}
		require.Equal(t, visible, r.all(t, ctx))
		_, err := pool.Exec(ctx, `delete from tasker.board where state <> 1`)
		require.NoError(t, err)
	})
	require.Positive(t, moved, "the frontier has moved at all")
}

// TestTheFrontierFollows: a scan from it does not read dead rows, even while another
// session holds a snapshot and a transaction id.
func TestTheFrontierFollows(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	holder, err := db.Pool(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
	var n int
	require.NoError(t, holder.QueryRow(t.Context(), `select count(*) from tasker.board where pg_current_xact_id() is not null`).Scan(&n))

	last := int64(0)
	for range 3 {
		create(t, s, p, 100)
		require.Len(t, claim(t, s, p, 100), 100)
		require.NoError(t, s.MoveFrontiers(t.Context()))
		require.NoError(t, s.MoveFrontiers(t.Context()))
		at, from := s.AtFrontier()
		require.True(t, at)
		require.GreaterOrEqual(t, from, last+100, "it is behind all that was claimed")
		last = from
	}
	create(t, s, p, 7)
	require.Len(t, claim(t, s, p, 10), 7)
	depth, err := s.QueueDepth(t.Context(), 100)
	require.NoError(t, err)
	require.Zero(t, depth[p.Template.Namespace])
	create(t, s, p, 3)
	depth, err = s.QueueDepth(t.Context(), 100)
	require.NoError(t, err)
	require.Equal(t, 3, depth[p.Template.Namespace])
}
