package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// Limit bounds what runs of a callable, key by key.
type Limit struct {
	Namespace string
	Handler   workflow.HandlerReference `sql:",inline"`
	// The key of a step is the text at KeyPath in the context of its task, or what follows
	// KeyTag in a tag of the task; of a step without one, or of all with neither, it is
	// empty.
	KeyPath []string
	KeyTag  string
	// MaxRunning is how many steps of a key run at once; nil: no bound.
	MaxRunning *int
	// PerSecond is how many of a key begin in a second, on average, and Burst how many at
	// once after a pause; nil: no bound.
	PerSecond *float64
	Burst     int
	// Ordered: one step of a key at a time, in the order of creation. Overtake lets others
	// run while the first one waits for its retry.
	Ordered, Overtake bool
	// Weights are the shares of keys; others have 1.
	Weights map[string]float64
}

// ChangedLimit is a limit with its last change.
type ChangedLimit struct {
	Limit
	ChangedAt time.Time
	ChangedBy string
	Removing  bool // it bounds nothing more
}

// Index: callables_named.
var limitedCallable = pg.Compile(`
select c.callable_id from tasker.callables c join tasker.namespaces n on n.namespace_id = c.namespace_id
where n.name = @namespace and md5(c.callable || {separator} || c.method || {separator} || c.resolver) = md5(@callable::text || {separator} || @method::text || {separator} || @resolver::text)`)

// takeTurn waits until no claim of the callable is under way that began before; those
// that begin after it see what the transaction has changed.
var takeTurn = pg.Compile(`select pg_advisory_xact_lock(@class, @callable::int)`)

var (
	setLimit = pg.Compile(`
insert into tasker.limits as l (callable_id, changed_by, key_path, key_tag, max_running, per_second, burst, ordered, overtake, weights)
values (@callable, @actor, @key_path, nullif(@key_tag::text, ''), @max_running, @per_second, @burst, @ordered, @overtake, @weights)
on conflict (callable_id) do update set changed_at = clock_timestamp(), changed_by = excluded.changed_by, max_running = excluded.max_running,
    per_second = excluded.per_second, burst = excluded.burst, ordered = excluded.ordered, overtake = excluded.overtake, weights = excluded.weights, removing = false
where l.key_path is not distinct from excluded.key_path and l.key_tag is not distinct from excluded.key_tag`)
	weighKeys = pg.Compile(`
update tasker.limit_keys k set weight = coalesce((l.weights ->> k.key)::float8, 1), tokens = least(k.tokens, l.burst)
from tasker.limits l where l.callable_id = @callable and k.callable_id = @callable`)
	pauseLimited = pg.Compile(`update tasker.callables set paused_at = coalesce(paused_at, clock_timestamp()) where callable_id = @callable`)
)

// ErrOtherKey says that a limit has another key: it must be removed first.
var ErrOtherKey = errors.New("the limit has another key; remove it first")

// SetLimit sets the limit of a callable; claims that begin after it follow it. What runs goes
// on. The error wraps ErrNotFound if no template or worker has named the callable, and is
// ErrOtherKey if a limit with another key exists.
func (s *Registry) SetLimit(ctx context.Context, l Limit, actor string) ([]signal.Signal, error) {
	signals := []signal.Signal{{Topic: signal.TopicControl}, {Topic: signal.WorkerTopic(l.Namespace)}}
	err := s.db.Transaction(ctx, "set_limit", "limit a callable", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		weights, err := json.Marshal(l.weights())
		if err != nil {
			return nil, fmt.Errorf("encode the weights: %w", err)
		}
		callable, err := l.turn(ctx, tx)
		if err != nil {
			return nil, err
		}
		changed, err := pg.Run(ctx, tx, setLimit.With(pg.Args{"callable": callable, "actor": actor, "key_path": l.KeyPath, "key_tag": l.KeyTag,
			"max_running": l.MaxRunning, "per_second": l.PerSecond, "burst": max(l.Burst, 1), "ordered": l.Ordered, "overtake": l.Overtake, "weights": weights}))
		if err == nil && changed == 0 {
			err = ErrOtherKey
		}
		for _, statement := range []*stmt.Statement{weighKeys, pauseLimited} {
			if err == nil {
				_, err = pg.Run(ctx, tx, statement.With(pg.Args{"callable": callable}))
			}
		}
		return signals, err
	})
	return signals, err
}

func (l *Limit) weights() map[string]float64 {
	if l.Weights == nil {
		return map[string]float64{}
	}
	return l.Weights
}

// turn returns the callable after its turn has come.
func (l *Limit) turn(ctx context.Context, tx pgx.Tx) (callable int32, err error) {
	callable, err = pg.OneOf[int32](ctx, tx, limitedCallable.With(pg.Args{"namespace": l.Namespace, "callable": l.Handler.Callable,
		"method": l.Handler.Method, "resolver": l.Handler.Resolver}))
	if err == nil {
		_, err = pg.Run(ctx, tx, takeTurn.With(pg.Args{"class": int32(pg.TurnLock), "callable": callable}))
	}
	return callable, err
}

var limitedCallables = pg.Compile(`select callable_id from tasker.limits order by callable_id`)

// LimitedCallables returns the callables with a limit, also those whose limit is being
// removed.
func (s *Registry) LimitedCallables(ctx context.Context) ([]int32, error) {
	return pg.ReadAll[int32](ctx, s.db, "limited_callables", "read which callables are limited", limitedCallables.With(nil))
}
