package board

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

// Checkpoint is the progress of a running step, saved under its claim.
type Checkpoint struct {
	ClaimKey
	Cursor      json.RawMessage // storable JSON: where the next execution continues
	Items       int64           // processed so far
	Accumulated json.RawMessage // storable JSON; nil: nothing
	Isolated    json.RawMessage // items that a batch has isolated so far, see Report; nil: none
}

// SavedCheckpoint answers one Checkpoint.
type SavedCheckpoint struct {
	// Saved says that the claim held and the checkpoint is saved. Otherwise nothing has
	// changed: the caller has lost the claim.
	Saved bool
	At    time.Time // by the database's clock
	// Lease is the remaining time of the claim; not positive if the lease had ended,
	// which a checkpoint does not revive.
	Lease time.Duration
}

// saveCheckpoints saves the progress of steps whose claims hold, and extends their
// leases; a lease ended by an operator or a sweep stays ended. The previous checkpoint
// goes into the history, of which the newest are kept. An unchanged one adds nothing
// there: it may be a repetition after a lost answer. An action may have moved the steps
// (ownSlot).
// Index: the primary key; a hidden list as in reportSteps.
var saveCheckpoints = pg.Compile(`
update tasker.board s
set checkpoint = jsonb_build_object('cursor', r.cursor::jsonb, 'items_processed', r.items,
        'timestamp', to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'history', case when s.checkpoint is null then '[]'::jsonb
                        when (s.checkpoint -> 'cursor') = r.cursor::jsonb then s.checkpoint -> 'history'
                        else jsonb_path_query_array((s.checkpoint -> 'history') || jsonb_build_array(jsonb_build_object(
                                 'cursor', s.checkpoint -> 'cursor', 'timestamp', s.checkpoint -> 'timestamp')),
                             '$[last - $others to last]', jsonb_build_object('others', @history::int - 1)) end)
        || coalesce(r.more::jsonb, '{}'),
    lease_until = case when s.lease_until > clock_timestamp() then clock_timestamp() + @lease_ms::bigint * interval '1 ms' else s.lease_until end
from ` + stmt.HiddenList[checkpointRow]("r") + `
where s.task_uuid = any (array[r.task_uuid]) and s.slot in (r.slot, r.step_no + 1) and s.step_no = r.step_no and s.lease_until is not null and s.token = r.token
returning s.token, s.step_no, (s.checkpoint ->> 'timestamp')::timestamptz as at, extract(epoch from s.lease_until - clock_timestamp())::float8 as lease`)

// checkpointRow is a checkpoint to save.
type checkpointRow struct {
	ClaimKey
	Cursor json.RawMessage
	Items  int64
	More   *string // see Checkpoint.more
}

// SaveCheckpoints saves the progress of running steps, many in one statement, and extends
// their leases by lease. history bounds the earlier cursors kept of each. saved has one
// entry per checkpoint, in order. Of several of one claim the last counts, and all get
// its answer.
func (s *Board) SaveCheckpoints(ctx context.Context, list []Checkpoint, history int, lease time.Duration) (saved []SavedCheckpoint, err error) {
	order := checkpointOrder(list)
	held := make(map[ClaimKey]SavedCheckpoint, len(list))
	err = s.db.Repeatable(ctx, "checkpoint", "save checkpoints", func(ctx context.Context, db *pg.Conn) error {
		clear(held) // of a rolled-back try
		if err := saveInto(ctx, db, list, order, history, lease, held); err != nil {
			return err
		}
		// An action may have moved a step while the statement waited for its row. A new
		// statement finds it at its new place.
		missed := slices.DeleteFunc(slices.Clone(order), func(i int) bool { return held[list[i].answer()].Saved || list[i].Slot != 0 })
		if len(missed) == 0 {
			return nil
		}
		return saveInto(ctx, db, list, missed, history, lease, held)
	})
	if err != nil {
		return nil, err
	}
	saved = make([]SavedCheckpoint, len(list))
	for i := range list {
		saved[i] = held[list[i].answer()]
	}
	return saved, nil
}

// answer is the part of the key that the answer contains; a token belongs to one claim.
func (c *Checkpoint) answer() ClaimKey { return ClaimKey{Step: c.Step, Token: c.Token} }

// checkpointOrder is the order of keys, with the last checkpoint of each claim.
func checkpointOrder(list []Checkpoint) []int {
	latest := make(map[ClaimKey]int, len(list))
	for i := range list {
		latest[list[i].answer()] = i
	}
	order := make([]int, 0, len(latest))
	for _, i := range latest {
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b int) int { return compareClaims(list[a].ClaimKey, list[b].ClaimKey) })
	return order
}

// saveInto saves the checkpoints listed in order, and records which were accepted.
func saveInto(ctx context.Context, db *pg.Conn, list []Checkpoint, order []int, history int, lease time.Duration, held map[ClaimKey]SavedCheckpoint) error {
	type row struct {
		Token int64
		Step  int `sql:"step_no"`
		At    time.Time
		Lease time.Duration `sql:",seconds"`
	}
	return stmt.Each(ctx, db, savedCheckpoints(list, order, history, lease), func(r *row) {
		held[ClaimKey{Token: r.Token, Step: r.Step}] = SavedCheckpoint{Saved: true, At: r.At, Lease: r.Lease}
	})
}

func savedCheckpoints(list []Checkpoint, order []int, history int, lease time.Duration) stmt.Call {
	rows := make([]checkpointRow, len(order))
	for i, at := range order {
		c := &list[at]
		rows[i] = checkpointRow{c.ClaimKey, c.Cursor, c.Items, c.more()}
	}
	return saveCheckpoints.With(pg.Args{"r": rows, "history": history, "lease_ms": lease.Milliseconds()})
}

// more returns the optional parts as an object; nil: none.
func (c *Checkpoint) more() *string {
	if c.Accumulated == nil && c.Isolated == nil {
		return nil
	}
	text, mark := "", "{"
	for _, part := range [...]struct {
		key   string
		value json.RawMessage
	}{{"accumulated_results", c.Accumulated}, {"isolated_items", c.Isolated}} {
		if part.value != nil {
			text, mark = text+mark+`"`+part.key+`":`+string(part.value), ","
		}
	}
	text += "}"
	return &text
}

// resumeSteps gives steps that were put on the board again the checkpoint of their newest
// attempt, if it has one; for a batch, only attempts of its own.
// Index: the primary keys.
var resumeSteps = pg.Compile(`
update tasker.board b set checkpoint = a.checkpoint
from ` + stmt.HiddenList[StepKey]("r") + `
cross join lateral (
    select checkpoint from tasker.step_attempts
    where task_uuid = r.task_uuid and step_no = r.step_no
      and token > coalesce((select since from tasker.batches where task_uuid = r.task_uuid and step_no = r.step_no), 0)
    order by token desc limit 1) a
where b.task_uuid = any (array[r.task_uuid]) and b.slot in (0, r.step_no + 1) and b.step_no = r.step_no and a.checkpoint is not null`)
