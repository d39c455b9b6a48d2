package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store/internal/stmt"
)

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
	// its handlers; the registry shows the first maxHandlersShown.
	Callables []int32  `sql:"-"`
	Handlers  []string `sql:"-"`
	// Refused are the rejected templates of a worker, whose versions have other content;
	// the registry shows the first maxRefusedShown.
	Refused []VersionConflict
	// Rules are those that an orchestrator publishes for workers, see AgreedRules; nil:
	// none.
	Rules json.RawMessage `sql:"-"`
}

// maxHandlersShown bounds the handlers of a worker in the registry.
const maxHandlersShown = 1000

// maxRefusedShown bounds the rejected templates of a worker in the registry.
const maxRefusedShown = 100

// workerHeartbeat reports that the worker is alive, extends the leases of its claims and
// returns the lost ones. It registers an unknown worker, so a forgotten one is registered
// again, and a stale one is active again. A dead one stays dead: nothing is extended, and
// the answer is null. One that signed off stays so: a heartbeat whose caller has ended
// may still reach the server, and a daemon never reuses its UUID. It returns the rules of
// the orchestrators if the live ones agree. It waits for no lock: the holder of a step's
// lock is about to end the claim, or leaves it unchanged, and then the next heartbeat is
// early enough. It never shortens a lease and leaves longer ones unchanged: see
// extendLease.
// Index: the primary keys; a hidden list as in reportSteps.
var workerHeartbeat = compile(`
with alive as (
    insert into tasker.workers as w (worker_uuid, worker_id, hostname, version, mode, namespaces, tags, refused_templates, address, callables, handlers)
    values (@worker, @id, @hostname, @version, @mode, @namespaces, @tags, @refused, @address, @callables, @handlers)
    on conflict (worker_uuid) do update set heartbeat_at = clock_timestamp(), mode = excluded.mode,
        namespaces = excluded.namespaces, tags = excluded.tags, refused_templates = excluded.refused_templates,
        address = excluded.address,
        callables = case when w.callables = excluded.callables then w.callables else excluded.callables end,
        handlers = case when w.handlers = excluded.handlers then w.handlers else excluded.handlers end,
        status = {worker_active}, status_since = case when w.status = {worker_active} then w.status_since else clock_timestamp() end
    where w.status < {worker_dead}
    returning w.worker_uuid
), held as materialized (
    select h.*, s.token is not null as ours
    from ` + stmt.HiddenList[ClaimKey]("h") + `
    left join tasker.board s on s.task_uuid = any (array[h.task_uuid]) and s.slot in (h.slot, h.step_no + 1) and s.step_no = h.step_no
                            and s.lease_until is not null and s.token = h.token
), free as materialized (
    select s.at
    from (select * from held where ours and exists (select from alive)) h cross join lateral (
        select ctid as at from tasker.board
        where task_uuid = h.task_uuid and slot in (h.slot, h.step_no + 1) and lease_until is not null and token = h.token
          and lease_until < clock_timestamp() + @lease_ms::bigint * interval '1 ms'
        for update skip locked) s
), extended as (
    update tasker.board s set lease_until = clock_timestamp() + @lease_ms::bigint * interval '1 ms'
    where s.ctid = any (array(select at from free))
)
select null::bigint as token, null::jsonb as rules where not exists (select from alive)
union all
select h.token, null from held h where not h.ours
union all
select 0, case when count(distinct rules) = 1 and count(rules) = count(*) then (array_agg(rules))[1] end from tasker.processors where rules_until > clock_timestamp() and stopped_at is null`)

// WorkerHeartbeat extends the leases of claims by lease and returns the tokens of lost
// ones: their handlers must stop. The error wraps ErrWorkerDead if the fleet considers
// the worker dead: then all of them are lost, and it must continue under a new UUID.
func (s *Store) WorkerHeartbeat(ctx context.Context, d Daemon, claims []ClaimKey, lease time.Duration) (lost []int64, err error) {
	refused, err := json.Marshal(nonNil(d.Refused[:min(len(d.Refused), maxRefusedShown)]))
	if err != nil {
		return nil, fmt.Errorf("encode the refused templates: %w", err)
	}
	heartbeat := workerHeartbeat.With(args{"worker": d.UUID, "id": d.ID, "hostname": d.Hostname, "version": d.Version, "mode": d.Mode,
		"namespaces": nonNil(d.Namespaces), "tags": nonNil(d.Tags), "refused": refused, "address": d.Address, "callables": nonNil(d.Callables),
		"handlers": nonNil(d.Handlers[:min(len(d.Handlers), maxHandlersShown)]), "h": inLockOrder(claims), "lease_ms": lease.Milliseconds()})
	err = s.repeatable(ctx, "worker_heartbeat", "send the heartbeat", func(ctx context.Context, db *conn) error {
		type answer struct {
			Token *int64
			Rules json.RawMessage
		}
		dead := false
		lost = make([]int64, 0, len(claims))
		err := stmt.Each(ctx, db, heartbeat, func(a *answer) error {
			switch {
			case a.Token == nil:
				dead = true
			case *a.Token == 0: // not a claim
				s.agreed.Store(new(string(a.Rules)))
			default:
				lost = append(lost, *a.Token)
			}
			return nil
		})
		if err == nil && dead {
			lost, err = nil, ErrWorkerDead
		}
		return err
	})
	return lost, err
}

// AgreedRules returns the rules that all live orchestrators had published at the latest
// heartbeat of a worker of this process; "" if there were none, or they differed. It is
// safe for concurrent use.
func (s *Store) AgreedRules() string {
	if agreed := s.agreed.Load(); agreed != nil {
		return *agreed
	}
	return ""
}

// signOfProcessor reports that the orchestrator is alive.
const signOfProcessor = `
insert into tasker.processors as p (processor_uuid, processor_id, hostname, version, mode, address, rules, rules_until)
values (@processor, @id, @hostname, @version, @mode, @address, @rules, clock_timestamp() + @rules_ms::bigint * interval '1 ms')
on conflict (processor_uuid) do update set heartbeat_at = clock_timestamp(), mode = excluded.mode, address = excluded.address,
    rules = excluded.rules, rules_until = excluded.rules_until`

var processorAlive = compile(signOfProcessor)

// attention is processorAlive that also returns the horizon of the orchestrator's timer
// and work that has waited since before the last heartbeats: its sender may have died
// between its commit and the signal.
// Index: board_due, board_lease, schedules_due, board_reported, board_reported_apart,
// board_claimable.
var attention = compile(`with recursive alive as (` + signOfProcessor + `), ` + overdue)

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
             cross join lateral (select namespace_id from tasker.callables where callable_id = any (array[f.callable]) and paused_at is null limit 1) c
             cross join lateral (select name, paused_at from tasker.namespaces where namespace_id = any (array[c.namespace_id]) limit 1) n
             where n.paused_at is null and f.enqueued_at < clock_timestamp() - @patience_ms::bigint * interval '1 ms') as namespaces`

// lookEverywhere returns the arguments of overdue: the frontiers, and how long work may
// wait.
func (s *Store) lookEverywhere(patience time.Duration) args {
	due, lease := s.timesFrom()
	reported := s.reportedFrom()
	return s.everywhere().And(args{"due_from": due, "lease_from": lease, "lone": reported.lone, "apart": reported.apart,
		"patience_ms": patience.Milliseconds()})
}

// Attention is the result of an orchestrator's heartbeat.
type Attention struct {
	Horizon
	Signals []signal.Signal // for work that has waited too long
}

// ProcessorHeartbeat registers or refreshes an orchestrator, and with attend checks, in
// the same statement, what needs attention; overdue is how long work may wait before it
// is signalled again. Its rules hold for three times as long.
func (s *Store) ProcessorHeartbeat(ctx context.Context, d Daemon, overdue time.Duration, attend bool) (Attention, error) {
	a := Attention{Horizon: new(dueTimes).horizon()}
	err := s.repeatable(ctx, "processor_heartbeat", "send the heartbeat", func(ctx context.Context, db *conn) error {
		alive := args{"processor": d.UUID, "id": d.ID, "hostname": d.Hostname, "version": d.Version, "mode": d.Mode, "address": d.Address,
			"rules": d.Rules, "rules_ms": (3 * overdue).Milliseconds()}
		if !attend {
			_, err := run(ctx, db, processorAlive.With(alive))
			return err
		}
		begin := time.Now()
		err := s.scanAll(ctx, db, func(b *pgx.Batch) {
			attention.With(alive.And(s.lookEverywhere(overdue))).Queue(b).Query(stmt.Rows(a.learn))
		})
		if err == nil {
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
}

func (a *Attention) learn(row *overdueWork) error {
	a.Horizon, a.Signals = row.horizon(), nil
	if row.Reported {
		a.Signals = ReportSignals()
	}
	for _, n := range row.Namespaces {
		a.Signals = append(a.Signals, signal.Signal{Topic: signal.WorkerTopic(n)})
	}
	return nil
}

var signOff = compile(`
with w as (update tasker.workers set stopped_at = clock_timestamp() where worker_uuid = @daemon)
update tasker.processors set stopped_at = clock_timestamp() where processor_uuid = @daemon`)

// Stopped records that a daemon has ended on purpose.
func (s *Store) Stopped(ctx context.Context, daemon uuid.UUID) error {
	_, err := execute(ctx, s, "stopped", "sign off", signOff.With(args{"daemon": daemon}))
	return err
}

// Replica is a daemon in the fleet.
type Replica struct {
	Daemon
	Kind         string        // "orchestrator" or "worker"
	HeartbeatAge time.Duration `sql:",seconds"` // by the database's clock
	StartedAt    time.Time
	Stopped      bool
}

var listFleet = compile(`
(select 'orchestrator' as kind, processor_uuid as uuid, processor_id as id, hostname, address, version, mode, '{}'::text[] as namespaces, '{}'::text[] as tags,
        null::jsonb as refused, started_at, greatest(extract(epoch from clock_timestamp() - heartbeat_at), 0)::float8 as heartbeat_age,
        stopped_at is not null as stopped
 from tasker.processors where heartbeat_at > now() - @age_ms::bigint * interval '1 ms' order by heartbeat_at desc limit 1000)
union all
(select 'worker', worker_uuid, worker_id, hostname, address, version, mode, namespaces, tags, null, started_at,
        greatest(extract(epoch from clock_timestamp() - heartbeat_at), 0)::float8, stopped_at is not null
 from tasker.workers where heartbeat_at > now() - @age_ms::bigint * interval '1 ms' order by heartbeat_at desc limit 1000)`)

// Fleet lists the daemons that gave a sign of life within maxAge, the newest
// 1,000 of each kind at most.
func (s *Store) Fleet(ctx context.Context, maxAge time.Duration) ([]Replica, error) {
	return readAll[Replica](ctx, s, "fleet", "list the fleet", listFleet.With(args{"age_ms": maxAge.Milliseconds()}))
}

// Namesake is a worker, alive or dead, with the worker_id that another one requests.
type Namesake struct {
	UUID         uuid.UUID
	Hostname     string
	HeartbeatAt  time.Time     // by the database's clock
	HeartbeatAge time.Duration // by the database's clock
}

// TakenWorkerID is the result of a request for a worker_id.
type TakenWorkerID struct {
	// Others have the worker_id. If there are any nothing has changed.
	Others []Namesake
	// Released is the number of claims of dead ones; their leases have ended.
	Released int
	Signals  []signal.Signal // to publish, unless the store sends them itself
}

const (
	// maxNamesakes bounds the namesakes returned at once.
	maxNamesakes = 100
	// maxInherited bounds the leases that end at once; the liveness sweep ends the
	// others.
	maxInherited = 10_000
)

// Requests for a worker_id are serialized.
var workerIDTurn = compile(`select pg_advisory_xact_lock(hashtextextended('tasker.worker_id ' || @id, 0))`)

// namesakes have a worker_id, and neither signed off nor are dead. Their rows are
// locked: a heartbeat precedes the decision or is rejected after it.
var namesakes = compile(`
select worker_uuid as uuid, hostname, heartbeat_at, (extract(epoch from clock_timestamp() - heartbeat_at) * 1000)::bigint as heartbeat_age
from tasker.workers
where worker_id = @id and worker_uuid <> @worker and status < {worker_dead} and stopped_at is null
order by worker_uuid limit @limit for update`)

// succeedWorkers marks namesakes as dead and registers their successor, whose first
// heartbeat adds the rest.
// Index: the primary key.
var succeedWorkers = compile(`
with dead as (
    update tasker.workers set status = {worker_dead}, status_since = clock_timestamp() where worker_uuid = any ((select @dead::uuid[])::uuid[])
)
insert into tasker.workers (worker_uuid, worker_id, hostname, version, mode, namespaces)
values (@worker, @id, @hostname, @version, @mode, @namespaces) on conflict (worker_uuid) do nothing`)

// TakeWorkerID registers a worker under its ID if no other one has that. Workers in dead
// whose last heartbeat is silence old by the database's clock count as dead: their leases
// end. The caller has watched those in dead long enough for a living one to send a
// heartbeat.
func (s *Store) TakeWorkerID(ctx context.Context, d Daemon, dead []uuid.UUID, silence time.Duration) (TakenWorkerID, error) {
	var taken TakenWorkerID
	given := make(map[uuid.UUID]bool, len(dead))
	for _, id := range dead {
		given[id] = true
	}
	err := s.transaction(ctx, "take_worker_id", "take the worker_id", func(ctx context.Context, tx pgx.Tx) (_ []signal.Signal, err error) {
		taken = TakenWorkerID{}
		if _, err = run(ctx, tx, workerIDTurn.With(args{"id": d.ID})); err != nil {
			return nil, err
		}
		found, err := stmt.All[Namesake](ctx, tx, namesakes.With(args{"id": d.ID, "worker": d.UUID, "limit": maxNamesakes}))
		if err != nil {
			return nil, fmt.Errorf("look for workers of the same worker_id: %w", err)
		}
		gone := make(uuids, 0, len(found))
		for _, n := range found {
			if !given[n.UUID] || n.HeartbeatAge < silence {
				taken.Others = found
				return nil, nil
			}
			gone = append(gone, n.UUID)
		}
		if _, err = run(ctx, tx, succeedWorkers.With(args{"worker": d.UUID, "id": d.ID, "hostname": d.Hostname, "version": d.Version,
			"mode": d.Mode, "namespaces": nonNil(d.Namespaces), "dead": gone})); err != nil || len(gone) == 0 {
			return nil, err
		}
		if taken.Released, err = run(ctx, tx, endLeasesOfDead.With(args{"limit": maxInherited, "dead": gone})); err != nil {
			return nil, err
		}
		if taken.Released > 0 {
			taken.Signals = []signal.Signal{{Topic: signal.TopicDue}} // the timers must know
		}
		return taken.Signals, nil
	})
	return taken, err
}
