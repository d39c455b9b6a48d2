package board

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/signal"
)

// What happens to steps whose key has no room, where a limit does not let them wait. A worker
// acts beside the claims, with the turn of the callable: a claim sees all of it or nothing.
//
// A task to cancel is named in a message, which orchestrators follow until it is cancelled. In
// the same transaction its waiting step leaves its line, so that nothing claims it meanwhile;
// should it be there an hour later, which no flow causes, it waits in line again. A
// dropped step is reported as complete. Steps of tasks under compensation wait: a
// compensation must run, and such a task cannot be cancelled.
//
// A step that has run and waits to run again keeps the line of its key (limit_line): younger steps of the key
// supersede it, wherever it waits. See claimKeysFrom.

const (
	// overKeys is how many keys with waiting steps one look reads, those that are next first.
	overKeys = 1000
	// nextKeys and namedKeys are the keys with waiting steps of a limit l: those that are next, and those
	// of some lines.
	nextKeys  = `callable_id = l.callable_id and waiting order by from_turn, line limit @keys::int`
	namedKeys = `callable_id = l.callable_id and waiting and line = any (@lines::int[])`
	// overLimits are those of such keys without room, or whose step that holds them waits for its retry.
	overLimits = `over as materialized (
    select k.*, l.callable_id, l.beyond, case when l.ordered then 1 else l.max_running end as most
    from now cross join tasker.limits l cross join lateral (
        select k.line, k.head_task, k.head_step, h.held
        from (select * from tasker.limit_keys where `
	overLimitsEnd = `) k
        cross join lateral ` + limitedRoom + ` cross join lateral (select ` + limitedHeld + ` as held offset 0) h
        where x.room <= 0 or h.held) k
    where l.callable_id = any (@callables::int[]) and l.beyond in ('cancel_newest', 'cancel_running', 'drop') and not ` + limitedPaused + `
)`
	// overStep are the waiting steps of a key o that may be cancelled or dropped.
	overStep = `from tasker.board w where w.state = {claimable} and w.callable = -o.line
          and not (o.held and w.task_uuid = o.head_task and w.step_no = o.head_step)
          and not ` + undoes + `w.task_uuid)`
	// supersededStep are the steps w of limits l that younger ones have superseded.
	supersededStep = `from tasker.board w cross join lateral (
            select callable_id from tasker.limit_keys where line = -w.limit_line) k join tasker.limits l on l.callable_id = k.callable_id
        where w.state in ({scheduled}, {claimable}) and w.limit_line < 0 and l.callable_id = any (@superseded::int[]) and not ` + limitedPaused + `
        limit @limit::int`
	// undoes: a task undoes its steps. Its UUID and a bracket follow.
	undoes = `exists (select from tasker.board t where t.slot = 0 and get_byte(t.progress, 0) in ({progress_ending}, {progress_retry})
            and get_byte(t.progress, length(t.progress) - 1) <> 0 and t.task_uuid = `
)

var (
	// The limit of 1, like offset 0 elsewhere, keeps the planner from joining the keys with all waiting
	// steps, which is cheap only while the tables are small.
	// Index: limit_keys_turns, board_running, board_claimable, the primary keys.
	overLimit = pg.Compile(`
with now as materialized (select clock_timestamp() as now), ` + overLimits + nextKeys + overLimitsEnd + `
select callable_id, line from over o cross join lateral (select ` + overStep + ` limit 1) s
union
(select l.callable_id, 0 ` + supersededStep + `)`)
	// Of cancel_running as many of the newest steps stay as may run at once, and so many that
	// run are cancelled, the oldest first, that those have room; the one that holds an ordered
	// key while it waits for its retry makes room, too. A step that has run before is older than
	// all that run, and than all that have not. Where its task undoes its steps, it is superseded no more.
	// Index: limit_keys_turns, board_running, board_superseded, board_claimable, the primary keys.
	actBeyond = pg.Compile(`
with now as materialized (select clock_timestamp() as now), ` + overLimits + namedKeys + overLimitsEnd + `, waiting as materialized (
    select o.*, s.at, s.began, row_number() over (partition by o.line order by s.began, s.seq desc) as newest, (
        select count(*) from tasker.board where o.beyond = 'cancel_running' and state = {in_progress} and limit_line = o.line) as running
    from over o cross join lateral (
        select w.ctid as at, w.seq, w.limit_line is not null as began ` + overStep + ` and coalesce(w.limit_line, 0) >= 0
        order by w.lane, w.seq limit @limit::int for update skip locked) s
), judged as materialized (
    select *, beyond <> 'cancel_running' or newest > most or began and running + newest > most as excess from waiting
), superseded as materialized (
    select w.ctid as at, w.task_uuid, w.state, l.callable_id,
           ` + undoes + `w.task_uuid) as stays
    ` + supersededStep + ` for update of w skip locked
), excess as materialized (
    select at, line, callable_id, beyond from judged where excess
    union all
    select at, null, callable_id, 'cancel_running' from superseded where state = {claimable} and not stays
), staying as (
    update tasker.board s set limit_line = -s.limit_line from superseded e where s.ctid = e.at and e.stays
), withdrawn as (
    update tasker.board s set state = {scheduled}, callable = e.callable_id, due_at = now.now + interval '1 hour'
    from excess e, now where s.ctid = e.at and e.beyond <> 'drop' returning s.task_uuid, s.limit_line
), dropped as (
    update tasker.board s
    set state = {reported}, callable = e.callable_id, seq = nextval('tasker.step_seq'), attempt = s.attempt + 1, token = nextval('tasker.claim_token'),
        reported_at = now.now, outcome = {success}, result = '{"dropped": true}'
    from excess e, now where s.ctid = e.at and e.beyond = 'drop' returning 1
), ending as materialized (
    select s.task_uuid
    from (select line, head_task, held, most, running, count(*) filter (where not excess) as kept from judged where beyond = 'cancel_running'
          group by line, head_task, held, most, running) o
    cross join lateral (
        (select task_uuid from tasker.board where state = {in_progress} and limit_line = o.line order by claimed_at, task_uuid
         limit case when o.running >= o.most then o.kept + o.running - o.most else 0 end)
        union all
        (select o.head_task where o.held and o.running = 0)) s
    where not ` + undoes + `s.task_uuid)
    union all
    select task_uuid from superseded where not stays
    union all
    select task_uuid from withdrawn where limit_line is not null
), told as (
    insert into tasker.task_messages (task_uuid, kind)
    select distinct task_uuid, {beyond_limit}::smallint from (select task_uuid from withdrawn union all select task_uuid from ending) e
    where not exists (select from tasker.task_messages m where m.kind = {beyond_limit} and m.task_uuid = e.task_uuid)
    returning task_uuid
), emptied as (
    update tasker.limit_keys k set waiting = false
    where k.line = any (array(select line from over)) and not exists (
        select from tasker.board b where b.state = {claimable} and b.callable = -k.line and b.ctid <> all (array(select at from excess where line = k.line)) offset 0)
)
select (select count(*) from withdrawn where limit_line is null)::int as newest, (select count(*) from ending where task_uuid in (select task_uuid from told))::int as running,
       (select count(*) from dropped)::int as dropped`)
)

// Beyond counts the actions on steps of keys without room.
type Beyond struct {
	Newest  int // left the line, their tasks are being cancelled
	Running int // ran, or had run and waited to run again; their tasks are being cancelled
	Dropped int // completed without having run
	// Signals to publish, unless the store sends them itself.
	Signals []signal.Signal `sql:"-"`
}

// Count returns how many steps each action has met.
func (b *Beyond) Count() map[limitrule.Beyond]int {
	return map[limitrule.Beyond]int{limitrule.CancelNewest: b.Newest, limitrule.CancelRunning: b.Running, limitrule.Drop: b.Dropped}
}

// ActBeyond finds steps of limited callables whose keys have no room, and acts as the limits
// say. It skips a callable whose steps are being sorted. A key that the database rejects holds up no others.
func (s *Board) ActBeyond(ctx context.Context, callables []int32) (done Beyond, err error) {
	type over struct{ CallableID, Line int32 }
	found, err := pg.ReadAll[over](ctx, s.db, "over_limits", "look for steps beyond limits",
		overLimit.With(pg.Args{"keys": overKeys, "limit": sortedBeside, "callables": callables, "superseded": callables}))
	lines := map[int32][]int32{}
	for _, o := range found {
		lines[o.CallableID] = append(lines[o.CallableID], o.Line)
	}
	for callable, lines := range lines {
		failure := pg.Apart(s.db, "act_beyond", lines, func(part []int32) error {
			now, err := s.actBeyond(ctx, callable, part)
			if err == nil {
				done.add(&now)
			}
			return err
		}, func(line int32) string { return fmt.Sprintf("line %d of limit_keys, of callable %d", line, callable) })
		if err = errors.Join(err, failure); errors.Is(failure, pg.ErrUnavailable) {
			break
		}
	}
	return done, err
}

// actBeyond acts on the steps of keys of a callable; line 0 stands for steps that are superseded.
func (s *Board) actBeyond(ctx context.Context, callable int32, lines []int32) (Beyond, error) {
	only, superseded := []int32{callable}, []int32{}
	if slices.Contains(lines, 0) {
		superseded = only
	}
	return pg.Change(ctx, s.db, "act_beyond", "act on steps beyond a limit", func(ctx context.Context, tx pgx.Tx) (done Beyond, _ []signal.Signal, err error) {
		if free, err := pg.OneOf[bool](ctx, tx, trySort.With(pg.Args{"class": int32(pg.SortLock), "callable": callable})); err != nil || !free {
			return done, nil, err
		}
		if _, err := pg.Run(ctx, tx, takeTurns.With(pg.Args{"class": int32(pg.TurnLock), "callables": only})); err != nil {
			return done, nil, err
		}
		done, err = pg.OneOf[Beyond](ctx, tx, actBeyond.With(pg.Args{"lines": lines, "superseded": superseded, "limit": sortedBeside, "callables": only}))
		if done.Newest+done.Running > 0 {
			done.Signals = append(done.Signals, signal.Signal{Topic: signal.TopicDue})
		}
		if done.Dropped > 0 {
			done.Signals = append(done.Signals, ReportSignals()...)
		}
		return done, done.Signals, err
	})
}

func (b *Beyond) add(more *Beyond) {
	b.Newest, b.Running, b.Dropped = b.Newest+more.Newest, b.Running+more.Running, b.Dropped+more.Dropped
	b.Signals = append(b.Signals, more.Signals...)
}
