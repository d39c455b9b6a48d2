package operations

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/board"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
)

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
var workerHeartbeat = pg.Compile(`
with alive as (
    insert into tasker.workers as w (worker_uuid, worker_id, hostname, version, mode, namespaces, tags, refused_templates, address, callables, handlers, load, signals, schema_version)
    values (@worker, @id, @hostname, @version, @mode, @namespaces, @tags, @refused, @address, @callables, @handlers, @load, @signals, {schema_version})
    on conflict (worker_uuid) do update set heartbeat_at = clock_timestamp(), mode = excluded.mode,
        namespaces = excluded.namespaces, tags = excluded.tags, refused_templates = excluded.refused_templates,
        address = excluded.address, load = excluded.load, signals = excluded.signals,
        callables = case when w.callables = excluded.callables then w.callables else excluded.callables end,
        handlers = case when w.handlers = excluded.handlers then w.handlers else excluded.handlers end,
        status = {worker_active}, status_since = case when w.status = {worker_active} then w.status_since else clock_timestamp() end
    where w.status < {worker_dead}
    returning w.worker_uuid
), held as materialized (
    select h.*, s.token is not null as ours
    from ` + stmt.HiddenList[board.ClaimKey]("h") + `
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
select null::bigint as token, null::jsonb as rules, 0 as watched where not exists (select from alive)
union all
select h.token, null, 0 from held h where not h.ours
union all
select 0, case when count(distinct rules) = 1 and count(rules) = count(*) then (array_agg(rules))[1] end,
       {watched} from tasker.processors where rules_until > clock_timestamp() and stopped_at is null`)

// WorkerHeartbeat extends the leases of claims by lease and returns the tokens of lost
// ones: their handlers must stop. The error wraps ErrWorkerDead if the fleet considers
// the worker dead: then all of them are lost, and it must continue under a new UUID.
func (s *Operations) WorkerHeartbeat(ctx context.Context, d board.Daemon, claims []board.ClaimKey, lease time.Duration) (lost []int64, err error) {
	refused, err := json.Marshal(pg.NonNil(d.Refused[:min(len(d.Refused), maxRefusedShown)]))
	if err != nil {
		return nil, fmt.Errorf("encode the refused templates: %w", err)
	}
	load, err := json.Marshal(d.Load)
	if err != nil {
		return nil, fmt.Errorf("encode the load of the worker: %w", err)
	}
	signals, err := json.Marshal(d.Signals)
	if err != nil {
		return nil, fmt.Errorf("encode the event sources of the worker: %w", err)
	}
	heartbeat := workerHeartbeat.With(pg.Args{"load": load, "signals": signals, "worker": d.UUID, "id": d.ID, "hostname": d.Hostname, "version": d.Version, "mode": d.Mode,
		"namespaces": pg.NonNil(d.Namespaces), "tags": pg.NonNil(d.Tags), "refused": refused, "address": d.Address, "callables": pg.NonNil(d.Callables),
		"handlers": pg.NonNil(d.Handlers[:min(len(d.Handlers), maxHandlersShown)]), "h": board.InLockOrder(claims), "lease_ms": lease.Milliseconds()})
	err = s.db.Repeatable(ctx, "worker_heartbeat", "send the heartbeat", func(ctx context.Context, db *pg.Conn) error {
		type answer struct {
			Token   *int64
			Rules   json.RawMessage
			Watched int
		}
		dead, note := false, s.db.Following.Ask()
		lost = make([]int64, 0, len(claims))
		err := stmt.Each(ctx, db, heartbeat, func(a *answer) {
			switch {
			case a.Token == nil:
				dead = true
			case *a.Token == 0: // not a claim
				s.agreed.Store(new(string(a.Rules)))
				note(a.Watched)
			default:
				lost = append(lost, *a.Token)
			}
		})
		if err == nil && dead {
			lost, err = nil, pg.ErrWorkerDead
		}
		return err
	})
	return lost, err
}

// AgreedRules returns the rules that all live orchestrators had published at the latest
// heartbeat of a worker of this process; "" if there were none, or they differed. It is
// safe for concurrent use.
func (s *Operations) AgreedRules() string {
	if agreed := s.agreed.Load(); agreed != nil {
		return *agreed
	}
	return ""
}

var signOff = pg.Compile(`
with w as (update tasker.workers set stopped_at = clock_timestamp() where worker_uuid = @daemon)
update tasker.processors set stopped_at = clock_timestamp() where processor_uuid = @daemon`)

// Stopped records that a daemon has ended on purpose.
func (s *Operations) Stopped(ctx context.Context, daemon uuid.UUID) error {
	_, err := pg.Execute(ctx, s.db, "stopped", "sign off", signOff.With(pg.Args{"daemon": daemon}))
	return err
}

// Replica is a daemon in the fleet.
type Replica struct {
	board.Daemon
	Kind         string        // "orchestrator" or "worker"
	HeartbeatAge time.Duration `sql:",seconds"` // by the database's clock
	StartedAt    time.Time
	Stopped      bool
}

var listFleet = pg.Compile(`
(select 'orchestrator' as kind, processor_uuid as uuid, processor_id as id, hostname, address, version, mode, '{}'::text[] as namespaces, '{}'::text[] as tags,
        null::jsonb as refused, coalesce(signals, '{}') as signals, started_at, greatest(extract(epoch from clock_timestamp() - heartbeat_at), 0)::float8 as heartbeat_age,
        stopped_at is not null as stopped
 from tasker.processors where heartbeat_at > now() - @age_ms::bigint * interval '1 ms' order by heartbeat_at desc limit 1000)
union all
(select 'worker', worker_uuid, worker_id, hostname, address, version, mode, namespaces, tags, null, coalesce(signals, '{}'), started_at,
        greatest(extract(epoch from clock_timestamp() - heartbeat_at), 0)::float8, stopped_at is not null
 from tasker.workers where heartbeat_at > now() - @age_ms::bigint * interval '1 ms' order by heartbeat_at desc limit 1000)`)

// Fleet lists the daemons that gave a sign of life within maxAge, the newest
// 1,000 of each kind at most.
func (s *Operations) Fleet(ctx context.Context, maxAge time.Duration) ([]Replica, error) {
	return pg.ReadAll[Replica](ctx, s.db, "fleet", "list the fleet", listFleet.With(pg.Args{"age_ms": maxAge.Milliseconds()}))
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
	// Released is the number of claims of dead ones whose leases have ended, and Reclaimable
	// of those that processes may still present.
	Released, Reclaimable int
	Signals               []signal.Signal // to publish, unless the store sends them itself
}

// Succession says what a worker takes over with its worker_id.
type Succession struct {
	// Dead workers count as such if their last heartbeat is Silence old by the database's
	// clock. The caller has watched them long enough for a living one to send a heartbeat.
	Dead    []uuid.UUID
	Silence time.Duration
	// Own are the callables whose handlers run in the worker's own process. They died with
	// it, so the leases of their claims end at once; those of the others last for Grace.
	Own   []int32
	Grace time.Duration
}

const (
	// maxNamesakes bounds the namesakes returned at once.
	maxNamesakes = 100
	// maxInherited bounds the leases that end at once; the liveness sweep ends the
	// others.
	maxInherited = 10_000
)

// Requests for a worker_id are serialized.
var workerIDTurn = pg.Compile(`select pg_advisory_xact_lock(hashtextextended('tasker.worker_id ' || @id, 0))`)

// namesakes have a worker_id, and neither signed off nor are dead. Their rows are
// locked: a heartbeat precedes the decision or is rejected after it.
var namesakes = pg.Compile(`
select worker_uuid as uuid, hostname, heartbeat_at, (extract(epoch from clock_timestamp() - heartbeat_at) * 1000)::bigint as heartbeat_age
from tasker.workers
where worker_id = @id and worker_uuid <> @worker and status < {worker_dead} and stopped_at is null
order by worker_uuid limit @limit for update`)

// succeedWorkers marks namesakes as dead and registers their successor, whose first
// heartbeat adds the rest. The dead count as such after the grace: before that the sweep
// ends no lease of theirs.
// Index: the primary key.
var succeedWorkers = pg.Compile(`
with dead as (
    update tasker.workers set status = {worker_dead}, status_since = clock_timestamp() + @grace_ms::bigint * interval '1 ms'
    where worker_uuid = any ((select @dead::uuid[])::uuid[])
)
insert into tasker.workers (worker_uuid, worker_id, hostname, version, mode, namespaces, schema_version)
values (@worker, @id, @hostname, @version, @mode, @namespaces, {schema_version}) on conflict (worker_uuid) do nothing`)

// inheritClaims ends the leases of dead workers, and gives those of handlers in other
// processes the grace in which they may be adopted. The row has the end, so it comes
// whatever becomes of the successor. A locked claim is being adopted or reported.
// Index: board_leases.
var inheritClaims = pg.Compile(`
with found as materialized (
    select s.ctid as at, s.callable = any ((select @own::int[])::int[]) or @grace_ms::bigint = 0 as ends from tasker.board s
    where s.state = {in_progress} and s.lease_until > (select clock_timestamp()) and s.worker = any ((select @dead::uuid[])::uuid[])
    order by s.lease_until limit @limit for update of s skip locked
), inherited as (
    update tasker.board s set lease_until = clock_timestamp() + case when f.ends then interval '0' else @grace_ms::bigint * interval '1 ms' end
    from found f where s.ctid = f.at and s.ctid = any (array(select at from found))
    returning f.ends
)
select count(*) filter (where ends) as released, count(*) filter (where not ends) as reclaimable from inherited`)

// TakeWorkerID registers a worker under its ID if no other one has that, and has what dead
// ones held run again: see Succession.
func (s *Operations) TakeWorkerID(ctx context.Context, d board.Daemon, from Succession) (TakenWorkerID, error) {
	given := make(map[uuid.UUID]bool, len(from.Dead))
	for _, id := range from.Dead {
		given[id] = true
	}
	return pg.Change(ctx, s.db, "take_worker_id", "take the worker_id", func(ctx context.Context, tx pgx.Tx) (taken TakenWorkerID, _ []signal.Signal, err error) {
		if _, err = pg.Run(ctx, tx, workerIDTurn.With(pg.Args{"id": d.ID})); err != nil {
			return taken, nil, err
		}
		found, err := stmt.All[Namesake](ctx, tx, namesakes.With(pg.Args{"id": d.ID, "worker": d.UUID, "limit": maxNamesakes}))
		if err != nil {
			return taken, nil, fmt.Errorf("look for workers of the same worker_id: %w", err)
		}
		gone := make(pg.UUIDs, 0, len(found))
		for _, n := range found {
			if !given[n.UUID] || n.HeartbeatAge < from.Silence {
				taken.Others = found
				return taken, nil, nil
			}
			gone = append(gone, n.UUID)
		}
		if _, err = pg.Run(ctx, tx, succeedWorkers.With(pg.Args{"worker": d.UUID, "id": d.ID, "hostname": d.Hostname, "version": d.Version,
			"mode": d.Mode, "namespaces": pg.NonNil(d.Namespaces), "dead": gone, "grace_ms": from.Grace.Milliseconds()})); err != nil || len(gone) == 0 {
			return taken, nil, err
		}
		type count struct{ Released, Reclaimable int }
		var held count
		err = pgx.BeginFunc(ctx, tx, func(part pgx.Tx) (err error) {
			held, err = stmt.One[count](ctx, part, inheritClaims.With(pg.Args{"limit": maxInherited, "dead": gone, "own": pg.NonNil(from.Own),
				"grace_ms": from.Grace.Milliseconds()}))
			return err
		})
		switch {
		case pg.Rejected(err): // the claims end with their leases
			s.db.Opts.OnRejected("take_worker_id", "a claim of a former worker "+d.ID, err)
		case err != nil:
			return taken, nil, err
		}
		taken.Released, taken.Reclaimable = held.Released, held.Reclaimable
		if taken.Released+taken.Reclaimable > 0 {
			taken.Signals = []signal.Signal{{Topic: signal.TopicDue}} // the timers must know
		}
		return taken, taken.Signals, nil
	})
}

// othersOffer checks whether another live worker offers a callable.
// Index: workers_alive.
var othersOffer = pg.Compile(`
select exists (
    select from tasker.workers
    where stopped_at is null and status < {worker_dead} and heartbeat_at > clock_timestamp() - @alive_ms::bigint * interval '1 ms'
      and worker_uuid <> @worker and mode not in ('` + board.ModeDraining + `', 'Disabled') and @callable = any (callables))`)

// OthersOffer reports whether a worker other than the given one offers a callable; alive
// is the age up to which a heartbeat counts.
func (s *Operations) OthersOffer(ctx context.Context, worker uuid.UUID, callable int32, alive time.Duration) (bool, error) {
	return pg.ReadOne[bool](ctx, s.db, "others_offer", "look for workers that offer the same",
		othersOffer.With(pg.Args{"worker": worker, "callable": callable, "alive_ms": alive.Milliseconds()}))
}

// fadingWorkers are those whose status does not match the age of their heartbeat. Workers that signed off are excluded.
// Index: workers_alive.
const fadingWorkers = `
select w.ctid as at, w.worker_uuid, w.worker_id, w.hostname, a.age as heartbeat_age, b.becomes
from tasker.workers w
cross join lateral (select (extract(epoch from clock_timestamp() - w.heartbeat_at) * 1000)::bigint as age offset 0) a
cross join lateral (select case when a.age >= @dead_ms::bigint then {worker_dead} when a.age >= @stale_ms::bigint then {worker_stale} else {worker_active} end as becomes offset 0) b
where w.status < {worker_dead} and w.stopped_at is null and w.status <> b.becomes
limit @limit offset @skip`

// judgeWorkers updates the status of workers. A locked one is sending a heartbeat.
const judgeWorkers = `
with found as materialized (` + fadingWorkers + ` for update of w skip locked)
update tasker.workers w set status = f.becomes, status_since = clock_timestamp()
from found f where w.ctid = f.at and w.ctid = any (array(select at from found))
returning f.worker_uuid, f.worker_id, f.hostname, f.heartbeat_age, f.becomes`

const previewWorkers = `select worker_uuid, worker_id, hostname, heartbeat_age, becomes from (` + fadingWorkers + `) found`

// anyDead checks for workers that died recently and may hold claims.
// Index: workers_dead.
const anyDead = `exists (select from tasker.workers where ` + diedRecently + `)`

// diedRecently: the death of a worker that has a successor counts only after the grace of
// what it held.
const diedRecently = `status = {worker_dead} and status_since between (select clock_timestamp() - interval '1 hour') and (select clock_timestamp())`

// claimsOfDead are the claims of workers that died recently. Their leases end by
// themselves; this is for leases longer than the time after which a worker counts as
// dead.
// Index: workers_dead, board_leases.
const claimsOfDead = `
select s.ctid as at from tasker.board s
where s.state = {in_progress} and s.lease_until > (select clock_timestamp())
  and s.worker = any (array(select worker_uuid from tasker.workers where ` + diedRecently + `
                            union all select unnest(@dead::uuid[])))
order by s.lease_until limit @limit offset @skip`

// endLeasesOfDead ends the leases of dead workers, which then are handled as lost leases.
// A report before that is still accepted.
var endLeasesOfDead = pg.Compile(`
with lost as materialized (` + claimsOfDead + ` for update of s skip locked)
update tasker.board s set lease_until = clock_timestamp() where s.ctid = any (array(select at from lost))`)

var countClaimsOfDead = pg.Compile(`select count(*) from (` + claimsOfDead + `) c`)

// The sweep of liveness, and its preview. Most of the time no worker is dead: then this is
// all.
var (
	sweepWorkers = pg.Compile(`with judged as (` + judgeWorkers + `)` + judged)
	viewWorkers  = pg.Compile(`with judged as (` + previewWorkers + `)` + judged)
)

const judged = ` select *, false as holding from judged union all select null, '', '', 0, 0, true where ` + anyDead

// LivenessLimits are the ages at which workers are stale or dead.
type LivenessLimits struct {
	Stale, Dead time.Duration // since the last heartbeat
	Batch       int           // workers, and claims, at once; at least 1
}

// WorkerRef names a worker whose status changed.
type WorkerRef struct {
	UUID         uuid.UUID `sql:"worker_uuid,omitzero"`
	ID           string    `sql:"worker_id"`
	Hostname     string
	HeartbeatAge time.Duration
}

// Liveness is the result of SweepLiveness.
type Liveness struct {
	// Recovered workers send heartbeats again. A heartbeat sets its status itself, so
	// these are only workers of versions that do not.
	Stale, Recovered, Dead []WorkerRef
	Released               int             // claims of dead workers whose leases were ended
	More                   bool            // a batch was full: there may be more to do at once
	Signals                []signal.Signal // to publish, unless the store sends them itself
}

// SweepLiveness updates the status of workers by the age of their heartbeat and the
// database's clock, and ends the leases of dead ones. A dry run only reports.
func (s *Operations) SweepLiveness(ctx context.Context, l LivenessLimits, dry bool) (Liveness, error) {
	var found Liveness
	err := s.db.Call(ctx, "liveness", "check the liveness of workers", func(ctx context.Context, db *pg.Conn) error {
		found = Liveness{}
		statement := sweepWorkers
		if dry {
			statement = viewWorkers
		}
		holding := false
		_, err := s.db.ByPosition("liveness", "worker %d whose status changes", l.Batch, func(limit, skip int) (int, error) {
			var some Liveness
			dead, err := some.read(ctx, db, statement.With(pg.Args{"stale_ms": l.Stale.Milliseconds(), "dead_ms": l.Dead.Milliseconds(), "limit": limit, "skip": skip}))
			if err == nil {
				holding = holding || dead
				found.Stale, found.Recovered, found.Dead = append(found.Stale, some.Stale...), append(found.Recovered, some.Recovered...), append(found.Dead, some.Dead...)
			}
			return some.workers(), err
		})
		if err != nil {
			return err
		}
		found.More = found.workers() >= l.Batch
		dead := pg.Column(found.Dead, func(w *WorkerRef) [16]byte { return w.UUID })
		if dry {
			found.Released, err = stmt.One[int](ctx, db, countClaimsOfDead.With(pg.Args{"limit": l.Batch, "skip": 0, "dead": dead}))
			return err
		}
		if len(dead) == 0 && !holding {
			return nil
		}
		found.Released, err = s.db.ByPosition("liveness", "claim %d of a dead worker", l.Batch, func(limit, skip int) (released int, err error) {
			err = s.db.InTxThenNotify(ctx, db, func(tx pgx.Tx) (signals []signal.Signal, err error) {
				released, err = pg.Run(ctx, tx, endLeasesOfDead.With(pg.Args{"limit": limit, "skip": skip, "dead": dead}))
				if released > 0 {
					signals = []signal.Signal{{Topic: signal.TopicDue}} // the timers must know
				}
				return signals, err
			})
			return released, err
		})
		if found.Released > 0 {
			found.Signals = []signal.Signal{{Topic: signal.TopicDue}}
		}
		found.More = found.More || found.Released >= l.Batch
		return err
	})
	return found, err
}

// workers is how many workers have changed their status.
func (f *Liveness) workers() int { return len(f.Stale) + len(f.Recovered) + len(f.Dead) }

// read reads the workers; holding says that workers that died earlier may hold claims.
func (f *Liveness) read(ctx context.Context, db *pg.Conn, c stmt.Call) (holding bool, err error) {
	type row struct {
		WorkerRef
		Becomes pg.WorkerStatus
		Holding bool
	}
	err = stmt.Each(ctx, db, c, func(r *row) {
		switch {
		case r.Holding:
			holding = true
		case r.Becomes == pg.WorkerStale:
			f.Stale = append(f.Stale, r.WorkerRef)
		case r.Becomes == pg.WorkerDead:
			f.Dead = append(f.Dead, r.WorkerRef)
		default:
			f.Recovered = append(f.Recovered, r.WorkerRef)
		}
	})
	return holding, err
}

// WorkerFilter selects workers; zero values select everything.
type WorkerFilter struct {
	Status    pg.WorkerStatus
	Namespace string // which they serve
	Running   bool   // only those that have not signed off
	Limit     int    // default and most: 1,000
}

// WorkerState is a worker in the registry.
type WorkerState struct {
	board.Daemon
	Status       pg.WorkerStatus
	StatusSince  time.Time
	StartedAt    time.Time
	HeartbeatAge time.Duration `sql:",seconds"` // by the database's clock
	StoppedAt    *time.Time    // when it signed off
}

var listWorkers = pg.Compile(`
select worker_uuid as uuid, worker_id as id, hostname, address, version, mode, namespaces, tags, refused_templates as refused, coalesce(signals, '{}') as signals, status,
       least(status_since, clock_timestamp()) as status_since,
       started_at, greatest(extract(epoch from clock_timestamp() - heartbeat_at), 0)::float8 as heartbeat_age, stopped_at
from tasker.workers
where (@status::smallint = 0 or status = @status::smallint) and (@namespace = '' or @namespace = any (namespaces)) and (not @running or stopped_at is null)
order by heartbeat_at desc limit @limit`)

// Workers lists workers, latest heartbeat first.
func (s *Operations) Workers(ctx context.Context, f WorkerFilter) ([]WorkerState, error) {
	limit := f.Limit
	if limit <= 0 || limit > 1000 {
		limit = 1000
	}
	return pg.ReadAll[WorkerState](ctx, s.db, "workers", "list the workers", listWorkers.With(pg.Args{
		"status": int16(f.Status), "namespace": f.Namespace, "running": f.Running, "limit": limit}))
}
