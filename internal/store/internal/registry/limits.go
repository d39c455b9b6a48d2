package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// Limit bounds what runs of a callable, key by key. Ordered follows the numbers (seq) of
// steps, which transactions draw before they commit.
type Limit struct {
	Namespace string
	Handler   workflow.HandlerReference `sql:",inline"`
	limitrule.Rule
}

// LimitState is a limit with its last change and what it holds up.
type LimitState struct {
	Limit
	ChangedAt time.Time
	ChangedBy string
	// DeclaredBy is the template, with its version, that declares the limit; "": an operator
	// has set it.
	DeclaredBy string
	Removing   bool // it bounds nothing more
	Running    int
	// Waiting counts the steps that wait in the lines of keys, up to a bound, and Keys the
	// keys that have some. Steps that have just become claimable are in no line yet.
	Waiting, Keys int
}

// Index: callables_named.
var limitedCallable = pg.Compile(`
select c.callable_id from tasker.callables c join tasker.namespaces n on n.namespace_id = c.namespace_id
where n.name = @namespace and md5(c.callable || {separator} || c.method || {separator} || c.resolver) = md5(@callable::text || {separator} || @method::text || {separator} || @resolver::text)`)

// takeTurn waits until no claim of the callable is under way that began before, nothing
// sorts its steps, and no creation places some in the lines of keys; those that begin after it see
// what the transaction has changed.
var takeTurn = pg.Compile(`select pg_advisory_xact_lock(class, @callable::int) from unnest(@classes::int[]) class`)

// TurnOf returns takeTurn for a callable. Who sorts takes the locks in the same order, and a creation
// waits for none of them.
func TurnOf(callable int32) stmt.Call {
	return takeTurn.With(pg.Args{"classes": []int32{pg.SortLock, pg.PlaceLock, pg.TurnLock}, "callable": callable})
}

var (
	setLimit = pg.Compile(`
insert into tasker.limits as l (callable_id, changed_by, key_path, key_tag, max_running, per_second, burst, ordered, overtake, weights, beyond, declared_by, declared_version)
values (@callable, @actor, @key_path, nullif(@key_tag::text, ''), @max_running, @per_second, @burst, @ordered, @overtake, @weights, @beyond, nullif(@declared_by::text, ''), nullif(@declared_version::text, ''))
on conflict (callable_id) do update set changed_at = clock_timestamp(), changed_by = excluded.changed_by, max_running = excluded.max_running,
    per_second = excluded.per_second, burst = excluded.burst, ordered = excluded.ordered, overtake = excluded.overtake, weights = excluded.weights, beyond = excluded.beyond, declared_by = excluded.declared_by,
    declared_version = excluded.declared_version, removing = false
where l.key_path is not distinct from excluded.key_path and l.key_tag is not distinct from excluded.key_tag`)
	weighKeys = pg.Compile(`
update tasker.limit_keys k set weight = coalesce((l.weights ->> k.key)::float8, 1)
from tasker.limits l where l.callable_id = @callable and k.callable_id = @callable and k.weight <> coalesce((l.weights ->> k.key)::float8, 1)`)
	recordLimit = pg.Compile(`
insert into tasker.operator_actions (actor, reason, action, target, matched, changed, dry_run)
select @actor::text, @reason::text, @action::text, jsonb_build_object('namespace', n.name, 'callable', c.callable, 'method', c.method, 'resolver', c.resolver), 1, 1, false
from tasker.callables c join tasker.namespaces n on n.namespace_id = c.namespace_id where c.callable_id = @callable`)
	pauseLimited = pg.Compile(`update tasker.callables set paused_at = coalesce(paused_at, clock_timestamp()) where callable_id = @callable`)
)

// ErrOtherKey says that a limit has another key: it must be removed first.
var ErrOtherKey = errors.New("the limit has another key; remove it first")

// SetLimit sets the limit of a callable; claims that begin after it follow it. What runs goes
// on. A callable that no template has named yet is known from then on. The error wraps
// ErrNotFound if there is no such namespace, and is ErrOtherKey if a limit with another key exists.
func (s *Registry) SetLimit(ctx context.Context, l Limit, actor, reason string) ([]signal.Signal, error) {
	signals := limitSignals(l.Namespace)
	err := s.db.Transaction(ctx, "set_limit", "limit a callable", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		callable, err := l.turn(ctx, tx)
		if errors.Is(err, pg.ErrNotFound) {
			callable, err = l.turnOfNew(ctx, tx)
		}
		if err != nil {
			return nil, err
		}
		err = l.set(ctx, tx, callable, limitChange{actor: actor, reason: reason})
		return signals, err
	})
	return signals, err
}

// limitChange is a change of a limit as it is recorded; declaredBy is the template that
// declares the limit, "" for an operator.
type limitChange struct{ actor, reason, declaredBy, version string }

func (c *limitChange) record(ctx context.Context, tx pgx.Tx, callable int32, action string) error {
	_, err := pg.Run(ctx, tx, recordLimit.With(pg.Args{"callable": callable, "actor": c.actor, "reason": c.reason, "action": action}))
	return err
}

// set sets the limit of a callable whose turn has come, or returns ErrOtherKey.
func (l *Limit) set(ctx context.Context, tx pgx.Tx, callable int32, c limitChange) error {
	weights, err := json.Marshal(l.Weights)
	if l.Weights == nil {
		weights = []byte("{}")
	}
	if err != nil {
		return fmt.Errorf("encode the weights: %w", err)
	}
	changed, err := pg.Run(ctx, tx, setLimit.With(pg.Args{"callable": callable, "actor": c.actor, "key_path": l.KeyPath, "key_tag": l.KeyTag, "max_running": l.MaxRunning,
		"per_second": l.PerSecond, "burst": max(l.Burst, 1), "ordered": l.Ordered, "overtake": l.Overtake, "weights": weights,
		"beyond": string(cmp.Or(l.Beyond, limitrule.Wait)), "declared_by": c.declaredBy, "declared_version": c.version}))
	if err == nil && changed == 0 {
		err = ErrOtherKey
	}
	for _, statement := range []*stmt.Statement{weighKeys, pauseLimited} {
		if err == nil {
			_, err = pg.Run(ctx, tx, statement.With(pg.Args{"callable": callable}))
		}
	}
	if err != nil {
		return err
	}
	return c.record(ctx, tx, callable, "set_limit")
}

// end begins the removal of the limit of a callable whose turn has come; the error wraps
// ErrNotFound if there is none.
func (c *limitChange) end(ctx context.Context, tx pgx.Tx, callable int32) error {
	if err := pg.Find(ctx, tx, endLimit.With(pg.Args{"callable": callable, "actor": c.actor})); err != nil {
		return err
	}
	return c.record(ctx, tx, callable, "delete_limit")
}

// A limit ends in several transactions, since it may have many keys, and many steps may wait in their lines.
// With the first one it bounds nothing more: new steps are claimed from the line of the
// callable, and those of the keys without a bound. Others return to that line step by step, and
// keys without steps are removed: all hold the locks of TurnOf, without one of which
// no step enters the line of a key, and one that waits in such a line is always claimable.
// Until then the removal may be repeated, and workers claim from both kinds of lines.
var (
	endLimit = pg.Compile(`
with ended as (
    update tasker.limits set removing = true, max_running = null, per_second = null, ordered = false, changed_at = clock_timestamp(), changed_by = @actor
    where callable_id = @callable returning callable_id
)
update tasker.callables c set paused_at = case when c.paused_by is not null then c.paused_at end
from ended e where c.callable_id = e.callable_id`)
	// Index: the primary key, the unique index of keys, board_claimable.
	returnLimited = pg.Compile(`
with returning_steps as materialized (
    select s.at from ` + firstKeys + ` k cross join lateral (
        select ctid as at from tasker.board where state = {claimable} and callable = -k.line limit @limit::int + @skip::int for update skip locked) s
    limit @limit::int offset @skip::int
)
update tasker.board set callable = @callable, seq = nextval('tasker.step_seq') where ctid = any (array(select at from returning_steps))`)
	dropKeys = pg.Compile(`
delete from tasker.limit_keys where ctid = any (array(
    select at from ` + firstKeys + ` k where (select true from tasker.board where state = {claimable} and callable = -k.line limit 1) is null))`)
	dropLimit = pg.Compile(`
delete from tasker.limits where callable_id = @callable and removing and not exists (select from tasker.limit_keys where callable_id = @callable)`)
)

// firstKeys are the first keys of a limit that is being removed.
const firstKeys = `(select ctid as at, line from tasker.limit_keys where callable_id = @callable and (select removing from tasker.limits where callable_id = @callable)
        order by callable_id, key limit @limit::int)`

// returnedAtOnce is how many steps one transaction returns to the line of the callable, and of how many keys.
const returnedAtOnce = 5000

// DeleteLimit removes a limit: claims that begin after it follow none. After an error, it may
// be repeated, and FinishLimits does what is left. The error wraps ErrNotFound if there is no
// limit.
func (s *Registry) DeleteLimit(ctx context.Context, namespace string, handler workflow.HandlerReference, actor, reason string) ([]signal.Signal, error) {
	l := Limit{Namespace: namespace, Handler: handler}
	var callable int32
	signals := limitSignals(namespace)
	err := s.db.Transaction(ctx, "delete_limit", "end a limit", func(ctx context.Context, tx pgx.Tx) (_ []signal.Signal, err error) {
		if callable, err = l.turn(ctx, tx); err != nil {
			return nil, err
		}
		return signals, (&limitChange{actor: actor, reason: reason}).end(ctx, tx, callable)
	})
	if err != nil {
		return nil, err
	}
	for more := true; more && err == nil; {
		_, more, err = s.finishLimit(ctx, callable, namespace)
	}
	return signals, err
}

// FinishLimits goes on with removals that were interrupted, by one transaction each; more says
// that some are still under way. One that the database rejects holds up no others.
func (s *Registry) FinishLimits(ctx context.Context) (finished int, signals []signal.Signal, more bool, err error) {
	type removal struct {
		CallableID int32
		Namespace  string
	}
	left, err := pg.ReadAll[removal](ctx, s.db, "limits_left", "look for interrupted removals of limits", limitsLeft.With(nil))
	for i := 0; i < len(left) && !errors.Is(err, pg.ErrUnavailable); i++ {
		remains, goesOn, failure := s.finishLimit(ctx, left[i].CallableID, left[i].Namespace)
		if failure != nil {
			err = errors.Join(err, failure)
			continue
		}
		signals = append(signals, limitSignals(left[i].Namespace)...)
		if more = more || goesOn; !remains {
			finished++
		}
	}
	return finished, signals, more, err
}

var limitsLeft = pg.Compile(`
select l.callable_id, n.name as namespace
from tasker.limits l join tasker.callables c on c.callable_id = l.callable_id join tasker.namespaces n on n.namespace_id = c.namespace_id
where l.removing order by l.callable_id`)

// finishLimit returns steps of a limit that is being removed, or else removes keys, and it with the last
// ones; remains says that it is still there, and more that the next call does more.
func (s *Registry) finishLimit(ctx context.Context, callable int32, namespace string) (remains, more bool, err error) {
	err = s.db.Transaction(ctx, "delete_limit", "remove a limit", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		one := pg.Args{"callable": callable}
		some := one.And(pg.Args{"limit": returnedAtOnce})
		if _, err := pg.Run(ctx, tx, TurnOf(callable)); err != nil {
			return nil, err
		}
		changed, err := s.returnSome(ctx, tx, one)
		if remains, more = true, true; err != nil || changed > 0 {
			return limitSignals(namespace), err
		}
		for _, call := range []stmt.Call{dropKeys.With(some), dropLimit.With(one)} {
			n, err := pg.Run(ctx, tx, call)
			if changed += n; err != nil {
				return nil, err
			}
		}
		remains, err = pg.OneOf[bool](ctx, tx, limitLeft.With(one))
		more = remains && changed > 0
		return limitSignals(namespace), err
	})
	return remains, more, err
}

// returnSome returns steps to the line of the callable, but those that the database rejects: these stay in the
// lines of their keys, and the removal goes on when they have left them.
func (s *Registry) returnSome(ctx context.Context, tx pgx.Tx, one pg.Args) (int, error) {
	return s.db.ByPosition("delete_limit", "step %d of a limit", returnedAtOnce, func(limit, skip int) (n int, err error) {
		err = pgx.BeginFunc(ctx, tx, func(part pgx.Tx) error {
			n, err = pg.Run(ctx, part, returnLimited.With(one.And(pg.Args{"limit": limit, "skip": skip})))
			return err
		})
		return n, err
	})
}

var limitLeft = pg.Compile(`select exists (select from tasker.limits where callable_id = @callable and removing)`)

// limitSignals make the workers of a namespace follow a changed limit.
func limitSignals(namespace string) []signal.Signal {
	return []signal.Signal{{Topic: signal.TopicControl}, {Topic: signal.WorkerTopic(namespace)}}
}

// Index: the primary keys, limit_keys_turns, board_running, board_claimable.
var listLimits = pg.Compile(`
select n.name as namespace, c.callable, c.method, c.resolver, coalesce(l.key_path, '{}') as key_path, coalesce(l.key_tag, '') as key_tag, l.max_running, l.per_second,
       l.burst, l.ordered, l.overtake, l.weights, l.beyond, l.changed_at, l.changed_by, l.removing,
       coalesce(l.declared_by || ':' || l.declared_version, '') as declared_by,
       (select count(*) from tasker.limit_keys k join tasker.board r on r.state = {in_progress} and r.limit_line = k.line where k.callable_id = l.callable_id)::int as running,
       (select count(*) from (
            (select from tasker.limit_keys k cross join lateral (
                select from tasker.board where state = {claimable} and callable = -k.line limit @limit::int) s
             where k.callable_id = l.callable_id and k.waiting limit @limit::int)
            union all
            (select from tasker.board where state = {claimable} and callable = l.callable_id limit @limit::int) limit @limit::int) w)::int as waiting,
       (select count(*) from tasker.limit_keys k where k.callable_id = l.callable_id and k.waiting)::int as keys
from tasker.limits l join tasker.callables c on c.callable_id = l.callable_id join tasker.namespaces n on n.namespace_id = c.namespace_id
where (@namespace = '' or n.name = @namespace) order by n.name, c.callable, c.method, c.resolver limit 10000`)

// Limits lists the limits, of a namespace or all, by names; waiting steps are counted up to
// limit.
func (s *Registry) Limits(ctx context.Context, namespace string, limit int) ([]LimitState, error) {
	return pg.ReadAll[LimitState](ctx, s.db, "limits", "list the limits", listLimits.With(pg.Args{"namespace": namespace, "limit": limit}))
}

// turn returns the callable after its turn has come.
func (l *Limit) turn(ctx context.Context, tx pgx.Tx) (callable int32, err error) {
	callable, err = pg.OneOf[int32](ctx, tx, limitedCallable.With(pg.Args{"namespace": l.Namespace, "callable": l.Handler.Callable,
		"method": l.Handler.Method, "resolver": l.Handler.Resolver}))
	if err == nil {
		_, err = pg.Run(ctx, tx, TurnOf(callable))
	}
	return callable, err
}

// nameCallable adds a callable to an existing namespace.
var nameCallable = pg.Compile(`
insert into tasker.callables (namespace_id, callable, method, resolver)
select namespace_id, @callable, @method, @resolver from tasker.namespaces where name = @namespace on conflict do nothing`)

// turnOfNew is turn for a callable that no template has named: a registration that names it
// later finds it.
func (l *Limit) turnOfNew(ctx context.Context, tx pgx.Tx) (callable int32, err error) {
	if err := (*registration)(nil).take(ctx, tx); err != nil {
		return 0, err
	}
	if _, err := pg.Run(ctx, tx, nameCallable.With(pg.Args{"namespace": l.Namespace, "callable": l.Handler.Callable,
		"method": l.Handler.Method, "resolver": l.Handler.Resolver})); err != nil {
		return 0, err
	}
	return l.turn(ctx, tx)
}

var limitedCallables = pg.Compile(`
select callable_id, removing, not removing and beyond in ('cancel_newest', 'cancel_running', 'drop') as acts,
       not removing and not ordered and coalesce(max_running >= 32, true) and coalesce(per_second >= 1000, true) as ahead from tasker.limits`)

// LimitedCallable says how claims follow the limit of a callable.
type LimitedCallable struct {
	Removing bool // other claims take the steps in the line of the callable, too
	Acts     bool // steps beyond the limit do not wait, see ActBeyond of package board
	Ahead    bool // it has room for steps that begin later
}

// limitedRow is a row of limitedCallables.
type limitedRow struct {
	CallableID int32
	LimitedCallable
}

// LimitedCallables returns the callables with a limit.
func (s *Registry) LimitedCallables(ctx context.Context) (map[int32]LimitedCallable, error) {
	limited, err := pg.ReadMap(ctx, s.db, "limited_callables", "read which callables are limited", limitedCallables.With(nil),
		func(r *limitedRow) (int32, LimitedCallable) { return r.CallableID, r.LimitedCallable })
	if err == nil {
		s.known.limited.Store(&limited)
	}
	return limited, err
}

// AskLimits adds the query for the callables with a limit to a batch, and remembers the
// answer: a worker that hears no signals learns only so that a limit was set or removed.
func (s *Memory) AskLimits(b *pgx.Batch) {
	limitedCallables.With(nil).Queue(b).Query(func(rows pgx.Rows) error {
		limited := map[int32]LimitedCallable{}
		err := stmt.Rows(func(r *limitedRow) { limited[r.CallableID] = r.LimitedCallable })(rows)
		if err == nil {
			s.limited.Store(&limited)
		}
		return err
	})
}

// KnownLimits returns the callables with a limit as they were read last; it must not be
// changed.
func (s *Registry) KnownLimits() map[int32]LimitedCallable {
	if limited := s.known.limited.Load(); limited != nil {
		return *limited
	}
	return nil
}
