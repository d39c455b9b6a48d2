package board

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
)

// promoteDue makes due steps claimable and ends waits whose time is over: those become
// reports. The time is read once: compared with the clock function, every future step
// would be read.
// Index: board_due.
var promoteDue = pg.Compile(`
with due as materialized (
    select ctid as at ` + firstDue + ` for update skip locked
), moved as (
    update tasker.board s
    set state = case when s.wait is null then {claimable} else {reported} end, due_at = null, seq = nextval('tasker.step_seq'),
        enqueued_at = case when s.wait is null then clock_timestamp() else s.enqueued_at end,
        reported_at = case when s.wait is not null then clock_timestamp() end,
        outcome = (s.wait ->> 'outcome')::smallint, retryable = (s.wait ->> 'retryable')::boolean, awaits = null,
        result = (s.wait -> 'result') || jsonb_build_object('until', s.due_at), error = s.wait -> 'error'
    where s.ctid = any (array(select at from due))
    returning s.queue, s.callable, s.lane, s.state, case when s.state = {reported} then s.wait ->> 'task_uuid' end as sub_task
), stopped as (
    insert into tasker.task_messages (task_uuid, kind) select sub_task::uuid, {stop} from moved where sub_task is not null
)
select coalesce(n.name, '') as namespace, m.callable, m.lane, m.state = {reported} as reported, count(*) as steps, count(sub_task) > 0 as sub_tasks
from moved m left join tasker.namespaces n on n.namespace_id = m.queue group by n.name, m.callable, m.lane, m.state`)

// firstDue are the steps that have been due for longest.
var firstDue = `from tasker.board
    where state = {scheduled} and due_at >= @from and due_at <= (select clock_timestamp()) and ` + pg.InRows("task_uuid") + `
    order by due_at limit @limit`

// dueTasks are the tasks of the steps that promoteDue would take.
// Index: board_due.
var dueTasks = pg.Compile(`select distinct task_uuid from (select task_uuid ` + firstDue + `) d`)

// DueTasks returns the tasks of the steps that PromoteDue would take. It reads nothing else of them.
func (s *Board) DueTasks(ctx context.Context, rows pg.Rows) ([]uuid.UUID, error) {
	from, _ := s.timesFrom()
	return pg.ReadAll[uuid.UUID](ctx, s.db, "due_tasks", "list the tasks of due steps",
		dueTasks.With(rows.Args().And(pg.Args{"from": from})))
}

// promoted are the steps of a lane.
type promoted struct {
	NamedLane
	Reported bool
	Steps    int
	SubTasks bool // some were waiting for the end of a task
}

// Promoted is the result of a promotion.
type Promoted struct {
	Steps   int             // now claimable, or with an ended wait
	Signals []signal.Signal // to publish, unless the store sends them itself
}

// PromoteDue makes due steps claimable (retries, delayed starts), or ends their waits; the
// keys of the rows are their tasks.
func (s *Board) PromoteDue(ctx context.Context, rows pg.Rows) (Promoted, error) {
	return pg.Change(ctx, s.db, "promote", "promote due steps", func(ctx context.Context, tx pgx.Tx) (p Promoted, _ []signal.Signal, err error) {
		from, _ := s.timesFrom()
		topics := SignalSet{}
		if err := stmt.Each(ctx, tx, promoteDue.With(rows.Args().And(pg.Args{"from": from})), func(m *promoted) {
			p.Steps += m.Steps
			switch {
			case m.Reported:
				topics.Add(signal.TopicOrchestration)
			case m.Namespace == "": // the engine's own
				topics.Add(signal.TopicDue)
			default:
				topics.AddNamed(&m.NamedLane)
			}
			if m.SubTasks {
				topics.Add(signal.TopicDue)
			}
		}); err != nil {
			return p, nil, err
		}
		p.Signals = topics.Signals()
		return p, p.Signals, nil
	})
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

// Without are the tasks that a Horizon leaves out: they are set aside.
type Without struct {
	Due, Leases, Engine       []uuid.UUID // of steps, claims, and steps for the engine
	Dependencies, Ends, Stops []uuid.UUID // of messages
	Events, Schedules         []uuid.UUID // not tasks, but these
}

func (w Without) args() pg.Args {
	return pg.Args{"no_due": pg.NonNil(w.Due), "no_lease": pg.NonNil(w.Leases), "no_engine": pg.NonNil(w.Engine),
		"no_dependencies": pg.NonNil(w.Dependencies), "no_ends": pg.NonNil(w.Ends), "no_stops": pg.NonNil(w.Stops),
		"no_events": pg.NonNil(w.Events), "no_schedule": pg.NonNil(w.Schedules)}
}

// horizon reads the ends of three indexes, of the board from a moment on, and whether two
// lists are empty: in how many seconds each is due, negative if overdue; null without a
// row.
// Index: board_due, board_leases, schedules_due, board_claimable.
var horizon = pg.Compile(dueTimesOf)

const dueTimesOf = `
select (select extract(epoch from due_at - clock_timestamp())::float8 from tasker.board
        where state = {scheduled} and due_at >= @due_from and task_uuid <> all (@no_due::uuid[]) order by due_at limit 1) as due,
       (select extract(epoch from lease_until - clock_timestamp())::float8 from tasker.board
        where state = {in_progress} and lease_until >= @lease_from and task_uuid <> all (@no_lease::uuid[])
        order by lease_until limit 1) as lease,
       (select extract(epoch from next_run_at - clock_timestamp())::float8 from tasker.schedules
        where paused_at is null and schedule_uuid <> all (@no_schedule::uuid[]) order by next_run_at limit 1) as schedule,
       (select coalesce(extract(epoch from enqueued_at - clock_timestamp()), 0)::float8 from tasker.board
        where state = {claimable} and callable = {by_engine} and task_uuid <> all (@no_engine::uuid[])
        order by lane, seq limit 1) as engine,
       least((select extract(epoch from sent_at - clock_timestamp())::float8 from tasker.task_messages
              where task_uuid <> all (case kind when {ended} then @no_ends::uuid[] when {dependencies} then @no_dependencies::uuid[]
                                                else @no_stops::uuid[] end) limit 1),
             (select 0::float8 from tasker.event_deliveries where event_uuid <> all (@no_events::uuid[]) limit 1)) as messages`

// Horizon returns when the next step is due, the next lease ends and the next schedule
// runs.
func (s *Board) Horizon(ctx context.Context, without Without) (Horizon, error) {
	h := new(dueTimes).horizon()
	err := s.db.Repeatable(ctx, "horizon", "read the next due time", func(ctx context.Context, db *pg.Conn) error {
		var at dueTimes
		begin := time.Now()
		if err := s.db.ScanAll(ctx, db, func(b *pgx.Batch) {
			dueFrom, leaseFrom := s.timesFrom()
			horizon.With(without.args().And(pg.Args{"due_from": dueFrom, "lease_from": leaseFrom})).Queue(b).Query(stmt.Row(&at))
		}); err != nil {
			return err
		}
		h = at.horizon()
		_ = s.moveTimes(ctx, db, time.Since(begin)) // the result is valid regardless of an error
		return nil
	})
	return h, err
}

// dueTimes is the row of horizon.
type dueTimes struct{ Due, Lease, Schedule, Engine, Messages *float64 }

func (t *dueTimes) horizon() Horizon {
	h := Horizon{Engine: t.Engine != nil, Messages: t.Messages != nil}
	h.NextDue, h.Since.Due = split(t.Due)
	h.NextLease, h.Since.Lease = split(t.Lease)
	h.NextSchedule, h.Since.Schedule = split(t.Schedule)
	_, h.Since.Engine = split(t.Engine)
	_, h.Since.Messages = split(t.Messages)
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

var ensurePartitions = pg.Compile(`select tasker.ensure_partitions(@days)`)

// EnsurePartitions creates the ledger's partitions up to daysAhead days from now; it
// returns the number of new ones. It gives up quickly if a table is busy: rows without a
// partition go to the default one.
func (s *Board) EnsurePartitions(ctx context.Context, daysAhead int) (int, error) {
	var made int
	err := s.db.Call(ctx, "partitions", "create the ledger's partitions", func(ctx context.Context, db *pg.Conn) error {
		return s.db.Transact(ctx, db, nil, func(b *pgx.Batch) {
			b.Queue(`select set_config('lock_timeout', '2s', true)`)
			ensurePartitions.With(pg.Args{"days": daysAhead}).Queue(b).Query(stmt.Row(&made))
		})
	})
	return made, err
}

// queueDepth counts lane by lane, so that a long lane does not exhaust the limit of the others
// and an empty namespace is included.
// Index: board_claimable, those of keyLines.
var queueDepth = pg.Compile(`
with recursive ` + everyLane + `, ` + keyLines(allOfKey) + `, counted as materialized (
    select c.namespace_id, sum(s.depth)::bigint as depth
    from (
        select l.callable, s.depth from found l cross join lateral (
            select count(*) as depth from (
                select from tasker.board where state = {claimable} and callable = l.callable and lane = l.lane and seq >= l.mark
                order by seq limit @limit::int) first) s
        union all
        select callable, steps from key_lines) s
    cross join lateral (select namespace_id from tasker.callables where callable_id = any (array[s.callable]) limit 1) c
    group by c.namespace_id
)
select n.name, coalesce((select least(depth, @limit::int) from counted c where c.namespace_id = n.namespace_id), 0)::int as depth from tasker.namespaces n`)

// oldestClaimable reads the first step of each lane: a lane is in the order in which its
// steps became claimable.
// Index: board_claimable, those of keyLines.
var oldestClaimable = pg.Compile(`
with recursive ` + everyLane + `, ` + keyLines(allOfKey) + `, oldest as materialized (
    select c.namespace_id, min(s.since) as since
    from (
        select l.callable, s.since from found l cross join lateral (
            select coalesce(enqueued_at, requested_at) as since from tasker.board
            where state = {claimable} and callable = l.callable and lane = l.lane and seq >= l.mark order by seq limit 1) s
        union all
        select callable, since from key_lines) s
    cross join lateral (select namespace_id from tasker.callables where callable_id = any (array[s.callable]) limit 1) c
    group by c.namespace_id
)
select n.name, extract(epoch from clock_timestamp() - o.since)::float8 as seconds
from oldest o cross join lateral (select name from tasker.namespaces where namespace_id = any (array[o.namespace_id]) limit 1) n`)

// OldestClaimable returns for how long the oldest claimable step of each namespace has
// waited. A namespace without one is left out.
func (s *Board) OldestClaimable(ctx context.Context) (map[string]time.Duration, error) {
	type row struct {
		Name    string
		Seconds float64
	}
	return pg.ReadMap(ctx, s.db, "oldest_claimable", "look for the oldest claimable steps", oldestClaimable.With(s.everywhere().And(pg.Args{"limit": 1})),
		func(r *row) (string, time.Duration) {
			return r.Name, time.Duration(max(r.Seconds, 0) * float64(time.Second))
		})
}

// QueueDepth counts the claimable steps of every namespace, each up to limit: exact
// numbers beyond it have no use, and counting them would cost most under overload.
func (s *Board) QueueDepth(ctx context.Context, limit int) (map[string]int, error) {
	depth := map[string]int{}
	err := s.db.Call(ctx, "queue_depth", "count the claimable steps", func(ctx context.Context, db *pg.Conn) error {
		begin := time.Now()
		type row struct {
			Name  string
			Depth int
		}
		err := stmt.Each(ctx, db, queueDepth.With(s.everywhere().And(pg.Args{"limit": limit})), func(r *row) {
			depth[r.Name] = r.Depth
		})
		if err == nil {
			_ = s.moveClaimable(ctx, db, time.Since(begin)) // the counts are valid regardless of an error
		}
		return err
	})
	return depth, err
}

var claimsEver = pg.Compile(`select last_value from tasker.claim_token`)

// ClaimsEver is the number of claims so far, including those handed back. It goes back if
// the database does.
func (s *Board) ClaimsEver(ctx context.Context) (uint64, error) {
	return pg.ReadOne[uint64](ctx, s.db, "claims_ever", "count the claims", claimsEver.With(nil))
}

// ModeDraining replaces the deployment mode of a worker that is stopping: it claims no
// work and ends its claims.
const ModeDraining = "Draining"

// Daemon describes a running daemon to the fleet.
type Daemon struct {
	UUID       uuid.UUID // new for every start of the process
	ID         string    // worker_id or processor id, for operators
	Hostname   string
	Address    string // host:port of its API; "" without one
	Version    string
	Mode       string   // deployment mode, or ModeDraining
	Namespaces []string // of a worker
	Tags       []string // of a worker
	// Callables are those that a worker claims, see Callable, and Handlers the names of
	// its handlers; the registry shows the first thousand.
	Callables []int32    `sql:"-"`
	Handlers  []string   `sql:"-"`
	Load      WorkerLoad `sql:"-"` // of a worker
	// Refused are the rejected templates of a worker, whose versions have other content;
	// the registry shows the first hundred.
	Refused []registry.VersionConflict
	// Rules are those that an orchestrator publishes for workers, see AgreedRules; nil:
	// none.
	Rules json.RawMessage `sql:"-"`
	// Signals says what carries its signals.
	Signals SignalSources
}

// SignalSources are the event sources of a daemon. Source is empty for programs that do not tell.
type SignalSources struct {
	Source     string   `json:"source"`
	MovingFrom string   `json:"moving_from,omitempty"` // what its fleet moves away from
	Unheard    []string `json:"unheard,omitempty"`     // those over which signals are not known to arrive
}

// signOfProcessor reports that the orchestrator is alive.
const signOfProcessor = `
insert into tasker.processors as p (processor_uuid, processor_id, hostname, version, mode, address, signals, rules, rules_until, schema_version)
values (@processor, @id, @hostname, @version, @mode, @address, @signals, @rules, clock_timestamp() + @rules_ms::bigint * interval '1 ms', {schema_version})
on conflict (processor_uuid) do update set heartbeat_at = clock_timestamp(), mode = excluded.mode, address = excluded.address,
    signals = excluded.signals, rules = excluded.rules, rules_until = excluded.rules_until
returning {watched} as watched, ` + uncounted + ` as uncounted`

// uncounted says whether there are counts to add up to rates.
const uncounted = `(exists (select from tasker.call_counts) or exists (select from tasker.task_counts))`

var processorAlive = pg.Compile(signOfProcessor)

// attention is processorAlive that also returns the horizon of the orchestrator's timer
// and work that has waited since before the last heartbeats: its sender may have died
// between its commit and the signal.
// Index: board_due, board_leases, schedules_due, board_reported, board_reported_apart,
// board_claimable.
var attention = pg.Compile(`with recursive alive as (` + signOfProcessor + `), ` + overdue)

// overdue checks the beginning of every list for work that has waited too long.
var overdue = everyLane + `, first as materialized (
    select l.callable, s.enqueued_at from found l cross join lateral (
        select enqueued_at from tasker.board where state = {claimable} and callable = l.callable and lane = l.lane and seq >= l.mark order by seq limit 1) s
)` + dueTimesOf + `,
       coalesce((select reported_at < clock_timestamp() - @patience_ms::bigint * interval '1 ms' from tasker.board
                 where state = {reported} and slot = 0 and seq >= @lone order by seq limit 1), false)
       or coalesce((select reported_at < clock_timestamp() - @patience_ms::bigint * interval '1 ms' from tasker.board
                    where state = {reported} and slot > 0 and seq >= @apart order by seq limit 1), false) as reported,
       array(select distinct n.name from first f
             cross join lateral (select namespace_id from tasker.callables where callable_id = any (array[f.callable]) and (paused_at is null or paused_by is null) limit 1) c
             cross join lateral (select name, paused_at from tasker.namespaces where namespace_id = any (array[c.namespace_id]) limit 1) n
             where n.paused_at is null and f.enqueued_at < clock_timestamp() - @patience_ms::bigint * interval '1 ms') as namespaces,
       {watched} as watched, ` + uncounted + ` as uncounted`

// lookEverywhere returns the arguments of overdue: the frontiers, and how long work may
// wait.
func (s *Board) lookEverywhere(patience time.Duration) pg.Args {
	due, lease := s.timesFrom()
	reported := s.reportedFrom()
	return s.everywhere().And(Without{}.args()).And(pg.Args{"due_from": due, "lease_from": lease, "lone": reported.lone, "apart": reported.apart,
		"patience_ms": patience.Milliseconds()})
}

// Attention is the result of an orchestrator's heartbeat.
type Attention struct {
	Horizon
	Signals []signal.Signal // for work that has waited too long
	// Uncounted says that there are counts to add up to rates.
	Uncounted bool

	watched int // see pg.DB.Following
}

// ProcessorHeartbeat registers or refreshes an orchestrator, and with attend checks, in
// the same statement, what needs attention; overdue is how long work may wait before it
// is signalled again. Its rules hold for three times as long.
func (s *Board) ProcessorHeartbeat(ctx context.Context, d Daemon, overdue time.Duration, attend bool) (Attention, error) {
	a := Attention{Horizon: new(dueTimes).horizon()}
	signals, err := json.Marshal(d.Signals)
	if err != nil {
		return a, fmt.Errorf("encode the event sources of the orchestrator: %w", err)
	}
	err = s.db.Repeatable(ctx, "processor_heartbeat", "send the heartbeat", func(ctx context.Context, db *pg.Conn) error {
		note := s.db.Following.Ask()
		alive := pg.Args{"processor": d.UUID, "id": d.ID, "hostname": d.Hostname, "version": d.Version, "mode": d.Mode, "address": d.Address,
			"signals": signals, "rules": d.Rules, "rules_ms": (3 * overdue).Milliseconds()}
		if !attend {
			sign, err := stmt.One[signed](ctx, db, processorAlive.With(alive))
			if err == nil {
				note(sign.Watched)
				a.Uncounted = sign.Uncounted
			}
			return err
		}
		begin := time.Now()
		err := s.db.ScanAll(ctx, db, func(b *pgx.Batch) {
			attention.With(alive.And(s.lookEverywhere(overdue))).Queue(b).Query(stmt.Rows(a.learn))
			s.registry.AskPolicies(b)
		})
		if err == nil {
			note(a.watched)
			s.moveAll(ctx, db, time.Since(begin))
		}
		return err
	})
	return a, err
}

// overdueWork is the row of overdue.
type overdueWork struct {
	dueTimes
	Reported   bool
	Namespaces []string
	signed
}

// signed is what the sign of life of an orchestrator tells it.
type signed struct {
	Watched   int
	Uncounted bool
}

func (a *Attention) learn(row *overdueWork) {
	a.Horizon, a.Signals, a.watched, a.Uncounted = row.horizon(), nil, row.Watched, row.Uncounted
	if row.Reported {
		a.Signals = ReportSignals()
	}
	for _, n := range row.Namespaces {
		a.Signals = append(a.Signals, signal.Signal{Topic: signal.WorkerTopic(n)})
	}
}

// stuck is what an orchestrator's heartbeat checks too.
// Index: board_due, board_leases, schedules_due, board_reported, board_reported_apart,
// board_claimable.
var stuck = pg.Compile(`with recursive ` + overdue)

// OverdueSignals returns the signals for work that has waited longer than patience: its
// sender may have died before the signal.
func (s *Board) OverdueSignals(ctx context.Context, patience time.Duration) (list []signal.Signal, err error) {
	err = s.db.Repeatable(ctx, "overdue_signals", "look for work without a signal", func(ctx context.Context, db *pg.Conn) error {
		begin := time.Now()
		var a Attention
		if err := stmt.Each(ctx, db, stuck.With(s.lookEverywhere(patience)), a.learn); err != nil {
			return err
		}
		s.moveAll(ctx, db, time.Since(begin))
		if list = a.Signals; a.Next() == 0 {
			list = append(list, signal.Signal{Topic: signal.TopicDue})
		}
		return nil
	})
	return list, err
}
