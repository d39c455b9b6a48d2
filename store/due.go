package store

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
)

// promoteDue makes due steps claimable and ends waits whose time is over: those become
// reports. The time is read once: compared with the clock function, every future step
// would be read.
// Index: board_due.
const promoteDue = `
with due as materialized (
    select ctid as at from tasker.board
    where state = 1 and due_at >= $2 and due_at <= (select clock_timestamp())
    order by due_at limit $1 for update skip locked
), moved as (
    update tasker.board s
    set state = case when s.wait is null then 2 else 4 end, due_at = null, seq = nextval('tasker.step_seq'),
        enqueued_at = case when s.wait is null then clock_timestamp() else s.enqueued_at end,
        reported_at = case when s.wait is not null then clock_timestamp() end,
        outcome = (s.wait ->> 'outcome')::smallint, retryable = (s.wait ->> 'retryable')::boolean, awaits = null,
        result = (s.wait -> 'result') || jsonb_build_object('until', s.due_at), error = s.wait -> 'error'
    where s.ctid = any (array(select at from due))
    returning s.queue, s.callable, s.lane, s.state, case when s.state = 4 then s.wait ->> 'task_uuid' end as sub_task
), stopped as (
    insert into tasker.task_messages (task_uuid, kind) select sub_task::uuid, 2 from moved where sub_task is not null
)
select coalesce(n.name, ''), m.callable, m.lane, m.state, count(*), count(sub_task)
from moved m left join tasker.namespaces n on n.namespace_id = m.queue group by n.name, m.callable, m.lane, m.state`

// Promoted is the result of a promotion.
type Promoted struct {
	Steps   int             // now claimable, or with an ended wait
	Signals []signal.Signal // to publish, unless the store sends them itself
}

// PromoteDue makes up to limit due steps claimable (retries, delayed starts), or
// ends their waits.
func (s *Store) PromoteDue(ctx context.Context, limit int) (Promoted, error) {
	var p Promoted
	err := s.call(ctx, "promote", "promote due steps", func(ctx context.Context, db *conn) error {
		p = Promoted{}
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
			from, _ := s.timesFrom()
			rows, err := tx.Query(ctx, promoteDue, limit, from)
			if err != nil {
				return nil, err
			}
			var (
				namespace  string
				lane       laneKey
				state      int16
				count, sub int
				topics     = signalSet{}
			)
			if _, err := pgx.ForEachRow(rows, []any{&namespace, &lane.callable, &lane.lane, &state, &count, &sub}, func() error {
				p.Steps += count
				switch {
				case state == 4:
					topics.add(signal.TopicOrchestration)
				case namespace == "": // the engine's own
					topics.add(signal.TopicDue)
				default:
					topics.addLane(namespace, lane)
				}
				if sub > 0 {
					topics.add(signal.TopicDue)
				}
				return nil
			}); err != nil {
				return nil, err
			}
			p.Signals = topics.signals()
			return p.Signals, nil
		})
	})
	return p, err
}

// expireLeases turns lost claims into reports of their loss, which are applied like every
// report. The token stays for the record; a late result is rejected because the state has
// changed. A claim made ahead whose beginning was never announced is claimable again as
// if it had not been made: its worker has begun no handler, and does not begin one after
// its lease.
// Index: board_lease, and the primary key of begun_claims.
const expireLeases = `
with lost as materialized (
    select ctid as at, worker, token, ahead from tasker.board
    where state = 3 and lease_until >= $2 and lease_until <= (select clock_timestamp())
    order by lease_until limit $1 for update skip locked
), judged as materialized (
    select at, coalesce(ahead and token > coalesce((select token from tasker.begun_claims b where b.worker = l.worker order by token desc limit 1), 0), false) as unbegun
    from lost l
), back as (
    update tasker.board s
    set state = 2, seq = nextval('tasker.step_seq'), attempt = s.attempt - 1, token = null, worker = null, lease_until = null, claimed_at = null,
        ahead = null, enqueued_at = clock_timestamp()
    where s.ctid = any (array(select at from judged where unbegun))
    returning s.queue, s.callable, s.lane
), gone as (
    update tasker.board s
    set state = 4, seq = nextval('tasker.step_seq'), lease_until = null, reported_at = clock_timestamp(), outcome = 4, retryable = true
    where s.ctid = any (array(select at from judged where not unbegun))
    returning 1
)
select '', 0, 0::smallint, count(*) from gone
union all
select n.name, b.callable, b.lane, count(*)
from back b cross join lateral (select name from tasker.namespaces where namespace_id = any (array[b.queue]) limit 1) n group by n.name, b.callable, b.lane`

// Expired is the outcome of claims whose leases have ended.
type Expired struct {
	Lost    int             // to be applied as attempts that ended with a lost lease
	Unbegun int             // claimable again: no handler had begun
	Signals []signal.Signal // to publish, unless the store sends them itself
}

// ExpireLeases ends up to limit leases that have run out.
func (s *Store) ExpireLeases(ctx context.Context, limit int) (Expired, error) {
	var e Expired
	err := s.call(ctx, "expire", "expire leases", func(ctx context.Context, db *conn) error {
		e = Expired{}
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
			_, from := s.timesFrom()
			rows, err := tx.Query(ctx, expireLeases, limit, from)
			if err != nil {
				return nil, err
			}
			var namespace string
			var lane laneKey
			var count int
			topics := signalSet{}
			if _, err := pgx.ForEachRow(rows, []any{&namespace, &lane.callable, &lane.lane, &count}, func() error {
				if namespace == "" {
					e.Lost = count
					return nil
				}
				e.Unbegun += count
				topics.addLane(namespace, lane)
				return nil
			}); err != nil {
				return nil, err
			}
			if e.Signals = topics.signals(); e.Lost > 0 {
				e.Signals = append(e.Signals, ReportSignals()...)
			}
			return e.Signals, nil
		})
	})
	return e, err
}

// inTxThenNotify is inTx for flows whose signals are known only after they have run. A
// signal that cannot be sent after the commit is not a failure of the flow.
func (s *Store) inTxThenNotify(ctx context.Context, db *conn, fn func(tx pgx.Tx) ([]signal.Signal, error)) error {
	var signals []signal.Signal
	err := s.inTx(ctx, db, func(tx pgx.Tx) (err error) {
		if signals, err = fn(tx); err != nil {
			return err
		}
		b := &pgx.Batch{}
		if s.queueSignals(b, signals); b.Len() == 0 {
			return nil
		}
		return tx.SendBatch(ctx, b).Close()
	})
	if err == nil {
		_ = s.notify(ctx, db, signals)
	}
	return err
}

// Horizon is when the board next needs attention without a signal.
type Horizon struct {
	NextDue      time.Duration // until the earliest due step; negative: none
	NextLease    time.Duration // until the earliest end of a lease; negative: none
	NextSchedule time.Duration // until the earliest run of a schedule; negative: none
	Engine       bool          // there are steps for the engine to begin
	Messages     bool          // there are messages about tasks, or events to deliver to them
	Since        Since
}

// Since is for how long work has been due, by the database's clock: since the earliest of
// each was due; 0 without any.
type Since struct {
	Due, Lease, Schedule time.Duration
	Engine               time.Duration // the first in the queue
	Messages             time.Duration // the first about a task; events to deliver have no time
}

// Next is the nearest of them; negative without any.
func (h Horizon) Next() time.Duration {
	if h.Engine || h.Messages {
		return 0
	}
	d := slices.DeleteFunc([]time.Duration{h.NextDue, h.NextLease, h.NextSchedule}, func(d time.Duration) bool { return d < 0 })
	if len(d) == 0 {
		return -1
	}
	return slices.Min(d)
}

// horizon reads the ends of three indexes, of the board from a moment on, and whether two
// lists are empty: in how many seconds each is due, negative if overdue; null without a
// row.
// Index: board_due, board_lease, schedules_due, board_claimable.
const horizon = `
select (select extract(epoch from due_at - clock_timestamp())::float8 from tasker.board
        where state = 1 and due_at >= $1 order by due_at limit 1),
       (select extract(epoch from lease_until - clock_timestamp())::float8 from tasker.board
        where state = 3 and lease_until >= $2 order by lease_until limit 1),
       (select extract(epoch from next_run_at - clock_timestamp())::float8 from tasker.schedules
        where paused_at is null order by next_run_at limit 1),
       (select coalesce(extract(epoch from enqueued_at - clock_timestamp()), 0)::float8 from tasker.board
        where state = 2 and callable = 0 order by lane, seq limit 1),
       least((select extract(epoch from sent_at - clock_timestamp())::float8 from tasker.task_messages limit 1),
             (select 0::float8 from tasker.event_deliveries limit 1))`

// Horizon returns when the next step is due, the next lease ends and the next schedule
// runs.
func (s *Store) Horizon(ctx context.Context) (Horizon, error) {
	h := new(dueTimes).horizon()
	err := s.repeatable(ctx, "horizon", "read the next due time", func(ctx context.Context, db *conn) error {
		var at dueTimes
		begin := time.Now()
		if err := s.scanAll(ctx, db, func(b *pgx.Batch) {
			dueFrom, leaseFrom := s.timesFrom()
			b.Queue(horizon, dueFrom, leaseFrom).QueryRow(func(row pgx.Row) error { return row.Scan(at.columns()...) })
		}); err != nil {
			return err
		}
		h = at.horizon()
		_ = s.moveTimes(ctx, db, time.Since(begin)) // the result is valid regardless of an error
		return nil
	})
	return h, err
}

// dueTimes are the columns of horizon.
type dueTimes struct{ due, lease, schedule, engine, messages *float64 }

func (t *dueTimes) columns() []any {
	return []any{&t.due, &t.lease, &t.schedule, &t.engine, &t.messages}
}

func (t *dueTimes) horizon() Horizon {
	h := Horizon{Engine: t.engine != nil, Messages: t.messages != nil}
	h.NextDue, h.Since.Due = split(t.due)
	h.NextLease, h.Since.Lease = split(t.lease)
	h.NextSchedule, h.Since.Schedule = split(t.schedule)
	_, h.Since.Engine = split(t.engine)
	_, h.Since.Messages = split(t.messages)
	return h
}

// split separates the future from the past; next is negative without a value.
func split(s *float64) (next, since time.Duration) {
	if s == nil {
		return -1, 0
	}
	at := seconds(s)
	return max(at, 0), max(-at, 0)
}

func seconds(s *float64) time.Duration {
	if s == nil {
		return -1
	}
	return time.Duration(*s * float64(time.Second))
}

// EnsurePartitions creates the ledger's partitions up to daysAhead days from now; it
// returns the number of new ones. It gives up quickly if a table is busy: rows without a
// partition go to the default one.
func (s *Store) EnsurePartitions(ctx context.Context, daysAhead int) (int, error) {
	var made int
	err := s.call(ctx, "partitions", "create the ledger's partitions", func(ctx context.Context, db *conn) error {
		return s.transact(ctx, db, nil, func(b *pgx.Batch) {
			b.Queue(`select set_config('lock_timeout', '2s', true)`)
			b.Queue(`select tasker.ensure_partitions($1)`, daysAhead).QueryRow(func(row pgx.Row) error { return row.Scan(&made) })
		})
	})
	return made, err
}
