package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
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
	// its handlers; the registry shows the first MaxHandlersShown.
	Callables []int32
	Handlers  []string
	// Refused are the rejected templates of a worker, whose versions have other content;
	// the registry shows the first MaxRefusedShown.
	Refused []VersionConflict
	// Rules are those that an orchestrator publishes for workers, see AgreedRules; nil:
	// none.
	Rules json.RawMessage
}

// MaxHandlersShown bounds the handlers of a worker in the registry.
const MaxHandlersShown = 1000

// MaxRefusedShown bounds the rejected templates of a worker in the registry.
const MaxRefusedShown = 100

// workerHeartbeat reports that the worker is alive, extends the leases of its claims and
// returns the lost ones. It registers an unknown worker, so a forgotten one is registered
// again, and a stale one is active again. A dead one stays dead: nothing is extended, and
// the answer is null. One that signed off stays so: a heartbeat whose caller has ended
// may still reach the server, and a daemon never reuses its UUID. It returns the rules of
// the orchestrators if the live ones agree. It waits for no lock: the holder of a step's
// lock is about to end the claim, or leaves it unchanged, and then the next heartbeat is
// early enough. It never shortens a lease and leaves longer ones unchanged: see
// extendLease.
// Index: the primary keys; (select $n) as in reportSteps.
const workerHeartbeat = `
with alive as (
    insert into tasker.workers as w (worker_uuid, worker_id, hostname, version, mode, namespaces, tags, refused_templates, address, callables, handlers)
    values ($1, $2, $3, $4, $5, $6, $12, $13, $14, $15, $16)
    on conflict (worker_uuid) do update set heartbeat_at = clock_timestamp(), mode = excluded.mode,
        namespaces = excluded.namespaces, tags = excluded.tags, refused_templates = excluded.refused_templates,
        address = excluded.address,
        callables = case when w.callables = excluded.callables then w.callables else excluded.callables end,
        handlers = case when w.handlers = excluded.handlers then w.handlers else excluded.handlers end,
        status = 1, status_since = case when w.status = 1 then w.status_since else clock_timestamp() end
    where w.status < 3
    returning w.worker_uuid
), held as materialized (
    select h.*, s.token is not null as ours
    from unnest((select $7::uuid[]), (select $8::smallint[]), (select $9::smallint[]), (select $10::bigint[])) h(task_uuid, slot, step_no, token)
    left join tasker.board s on s.task_uuid = any (array[h.task_uuid]) and s.slot in (h.slot, h.step_no + 1) and s.step_no = h.step_no
                            and s.lease_until is not null and s.token = h.token
), free as materialized (
    select s.at
    from (select * from held where ours and exists (select from alive)) h cross join lateral (
        select ctid as at from tasker.board
        where task_uuid = h.task_uuid and slot in (h.slot, h.step_no + 1) and lease_until is not null and token = h.token
          and lease_until < clock_timestamp() + $11::bigint * interval '1 ms'
        for update skip locked) s
), extended as (
    update tasker.board s set lease_until = clock_timestamp() + $11::bigint * interval '1 ms'
    where s.ctid = any (array(select at from free))
)
select null::bigint, null::jsonb where not exists (select from alive)
union all
select h.token, null from held h where not h.ours
union all
select 0, case when count(distinct rules) = 1 and count(rules) = count(*) then (array_agg(rules))[1] end from tasker.processors where rules_until > clock_timestamp() and stopped_at is null`

// WorkerHeartbeat extends the leases of claims by lease and returns the tokens of lost
// ones: their handlers must stop. The error wraps ErrWorkerDead if the fleet considers
// the worker dead: then all of them are lost, and it must continue under a new UUID.
func (s *Store) WorkerHeartbeat(ctx context.Context, d Daemon, claims []ClaimKey, lease time.Duration) (lost []int64, err error) {
	keys := claimColumns(claims)
	refused, err := json.Marshal(nonNil(d.Refused[:min(len(d.Refused), MaxRefusedShown)]))
	if err != nil {
		return nil, fmt.Errorf("encode the refused templates: %w", err)
	}
	err = s.repeatable(ctx, "worker_heartbeat", "send the heartbeat", func(ctx context.Context, db *conn) error {
		args := append([]any{d.UUID, d.ID, d.Hostname, d.Version, d.Mode, nonNil(d.Namespaces)}, keys...)
		answer, err := db.Query(ctx, workerHeartbeat, append(args, lease.Milliseconds(), nonNil(d.Tags), refused, d.Address, nonNil(d.Callables), nonNil(d.Handlers[:min(len(d.Handlers), MaxHandlersShown)]))...)
		if err != nil {
			return err
		}
		var token *int64
		var rules []byte
		dead := false
		lost = make([]int64, 0, len(claims))
		_, err = pgx.ForEachRow(answer, []any{&token, &rules}, func() error {
			switch {
			case token == nil:
				dead = true
			case *token == 0: // not a claim
				s.agreed.Store(new(string(rules)))
			default:
				lost = append(lost, *token)
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

// processorAlive reports that the orchestrator is alive.
const processorAlive = `
insert into tasker.processors as p (processor_uuid, processor_id, hostname, version, mode, address, rules, rules_until)
values ($1, $2, $3, $4, $5, $6, $7, clock_timestamp() + $8::bigint * interval '1 ms')
on conflict (processor_uuid) do update set heartbeat_at = clock_timestamp(), mode = excluded.mode, address = excluded.address,
    rules = excluded.rules, rules_until = excluded.rules_until`

// attention is processorAlive that also returns the horizon of the orchestrator's timer
// and work that has waited since before the last heartbeats: its sender may have died
// between its commit and the signal.
// Index: board_due, board_lease, schedules_due, board_reported, board_reported_apart,
// board_claimable.
var attention = `with recursive alive as (` + processorAlive + `), ` + overdue(9)

// overdue checks the beginning of every list for work that has waited too long; its
// parameters, from number p on, are those of lookEverywhere.
func overdue(p int) string {
	at := func(n int) string { return "$" + strconv.Itoa(p+n) }
	return everyLane(p+5, p+8) + `, first as materialized (
    select l.callable, s.enqueued_at from found l cross join lateral (
        select enqueued_at from tasker.board where state = 2 and callable = l.callable and lane = l.lane and seq >= l.mark order by seq limit 1) s
)` +
		strings.NewReplacer("$1", at(0), "$2", at(1)).Replace(horizon) + `,
       coalesce((select reported_at < clock_timestamp() - ` + at(4) + `::bigint * interval '1 ms' from tasker.board
                 where state = 4 and slot = 0 and seq >= ` + at(2) + ` order by seq limit 1), false)
       or coalesce((select reported_at < clock_timestamp() - ` + at(4) + `::bigint * interval '1 ms' from tasker.board
                    where state = 4 and slot > 0 and seq >= ` + at(3) + ` order by seq limit 1), false),
       array(select distinct n.name from first f
             cross join lateral (select namespace_id from tasker.callables where callable_id = any (array[f.callable]) and paused_at is null limit 1) c
             cross join lateral (select name, paused_at from tasker.namespaces where namespace_id = any (array[c.namespace_id]) limit 1) n
             where n.paused_at is null and f.enqueued_at < clock_timestamp() - ` + at(4) + `::bigint * interval '1 ms')`
}

// lookEverywhere returns the arguments of overdue: the frontiers, and how long work may
// wait.
func (s *Store) lookEverywhere(patience time.Duration) []any {
	due, lease := s.timesFrom()
	reported := s.reportedFrom()
	return append([]any{due, lease, reported.lone, reported.apart, patience.Milliseconds()}, s.everywhere()...)
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
		args := []any{d.UUID, d.ID, d.Hostname, d.Version, d.Mode, d.Address, d.Rules, (3 * overdue).Milliseconds()}
		if !attend {
			_, err := db.Exec(ctx, processorAlive, args...)
			return err
		}
		begin := time.Now()
		err := s.scanAll(ctx, db, func(b *pgx.Batch) {
			b.Queue(attention, append(slices.Clone(args), s.lookEverywhere(overdue)...)...).QueryRow(func(row pgx.Row) (err error) {
				a, err = scanAttention(row)
				return err
			})
		})
		if err == nil {
			s.moveAll(ctx, db, time.Since(begin))
		}
		return err
	})
	return a, err
}

func scanAttention(row pgx.Row) (a Attention, err error) {
	var (
		at         dueTimes
		reported   bool
		namespaces []string
	)
	if err := row.Scan(append(at.columns(), &reported, &namespaces)...); err != nil {
		return a, err
	}
	a.Horizon = at.horizon()
	if reported {
		a.Signals = ReportSignals()
	}
	for _, n := range namespaces {
		a.Signals = append(a.Signals, signal.Signal{Topic: signal.WorkerTopic(n)})
	}
	return a, nil
}

// Stopped records that a daemon has ended on purpose.
func (s *Store) Stopped(ctx context.Context, daemon uuid.UUID) error {
	return s.call(ctx, "stopped", "sign off", func(ctx context.Context, db *conn) error {
		_, err := db.Exec(ctx, `
			with w as (update tasker.workers set stopped_at = clock_timestamp() where worker_uuid = $1)
			update tasker.processors set stopped_at = clock_timestamp() where processor_uuid = $1`, daemon)
		return err
	})
}

// Replica is a daemon in the fleet.
type Replica struct {
	Daemon
	Kind         string        // "orchestrator" or "worker"
	HeartbeatAge time.Duration // by the database's clock
	StartedAt    time.Time
	Stopped      bool
}

// Fleet lists the daemons that gave a sign of life within maxAge, the newest
// 1,000 of each kind at most.
func (s *Store) Fleet(ctx context.Context, maxAge time.Duration) ([]Replica, error) {
	var fleet []Replica
	err := s.repeatable(ctx, "fleet", "list the fleet", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, `
			(select 'orchestrator', processor_uuid, processor_id, hostname, address, version, mode, '{}'::text[], '{}'::text[], started_at,
			        extract(epoch from clock_timestamp() - heartbeat_at)::float8, stopped_at is not null
			 from tasker.processors where heartbeat_at > now() - $1::bigint * interval '1 ms' order by heartbeat_at desc limit 1000)
			union all
			(select 'worker', worker_uuid, worker_id, hostname, address, version, mode, namespaces, tags, started_at,
			        extract(epoch from clock_timestamp() - heartbeat_at)::float8, stopped_at is not null
			 from tasker.workers where heartbeat_at > now() - $1::bigint * interval '1 ms' order by heartbeat_at desc limit 1000)`,
			maxAge.Milliseconds())
		if err != nil {
			return err
		}
		fleet, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Replica, error) {
			var r Replica
			var age float64
			err := row.Scan(&r.Kind, &r.UUID, &r.ID, &r.Hostname, &r.Address, &r.Version, &r.Mode, &r.Namespaces, &r.Tags, &r.StartedAt, &age, &r.Stopped)
			r.HeartbeatAge = time.Duration(max(age, 0) * float64(time.Second))
			return r, err
		})
		return err
	})
	return fleet, err
}
