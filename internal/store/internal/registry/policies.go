package registry

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// ordering gives steps their lanes. It is safe for concurrent use.
type ordering struct {
	policies atomic.Pointer[map[int32]order.Policy] // by callable; nil: all are in order of priority
	predict  order.Predictor                        // nil: nothing is known
	unknown  func()                                 // called for each step without a prediction that its policy wants
}

// Ordered returns the callables whose steps are not in order of priority.
func (s *Memory) Ordered() []int32 {
	if p := s.plans.order.policies.Load(); p != nil {
		return slices.Sorted(maps.Keys(*p))
	}
	return []int32{}
}

// Ordered reports whether any steps are not in order of priority.
func (p *Plan) Ordered() bool { return p.order != nil && p.order.policies.Load() != nil }

// LaneOf returns the lane of a step that is put in line, by the policy of its callable.
// context is the task's, nil where it is not at hand. A task that has begun has kept its
// deadline, which is the one for its beginning: its steps go first, so that it ends.
func (p *Plan) LaneOf(step *workflow.PlanStep, s order.Step, context []byte) int16 {
	policy := order.Priority
	if p.order != nil {
		if policies := p.order.policies.Load(); policies != nil {
			policy = (*policies)[p.CallableOf(step)]
		}
	}
	if s.Begun {
		s.Deadline, s.Left = true, 0
	}
	if policy == order.ShortestExpected || policy == order.DeadlineAware && !s.Begun {
		known := false
		if p.order.predict != nil {
			s.Expected, known = p.order.predict.Expect(p.Template.Namespace, p.Template.Name, step.Name, step.Tags, context)
		}
		if !known {
			s.Expected = 0
			p.order.unknown()
		}
	}
	return policy.Lane(s)
}

var readPolicies = pg.Compile(`select callable_id, policy from tasker.policies where policy <> @priority`)

// AskPolicies adds the query for the policies to a batch, and remembers the answer.
func (s *Memory) AskPolicies(b *pgx.Batch) {
	readPolicies.With(pg.Args{"priority": order.Priority}).Queue(b).Query(func(rows pgx.Rows) error {
		type row struct {
			CallableID int32
			Policy     order.Policy
		}
		read := map[int32]order.Policy{}
		err := stmt.Rows(func(r *row) { read[r.CallableID] = r.Policy })(rows)
		switch {
		case err != nil:
		case len(read) == 0:
			s.plans.order.policies.Store(nil)
		default:
			s.plans.order.policies.Store(&read)
		}
		return err
	})
}

// CallablePolicy is how the steps of a callable are put in order, with any method and
// resolver.
type CallablePolicy struct {
	Namespace, Callable string
	Policy              order.Policy
	ChangedAt           time.Time
	ChangedBy           string
}

// Index: the primary keys.
var listPolicies = pg.Compile(`
select distinct on (n.name, c.callable) n.name as namespace, c.callable, p.policy, p.changed_at, p.changed_by
from tasker.policies p join tasker.callables c using (callable_id) join tasker.namespaces n on n.namespace_id = c.namespace_id
where @namespace = '' or n.name = @namespace order by n.name, c.callable, p.changed_at desc limit 10000`)

// Policies lists the callables that have one, of a namespace or all for "".
func (s *Registry) Policies(ctx context.Context, namespace string) ([]CallablePolicy, error) {
	return pg.ReadAll[CallablePolicy](ctx, s.db, "policies", "list the policies", listPolicies.With(pg.Args{"namespace": namespace}))
}

// An operator's action is recorded with the change.
// Index: the unique name, callables_named, the primary key.
var (
	setPolicy = pg.Compile(`
with changed as (
    insert into tasker.policies as p (callable_id, policy, changed_by)
    select c.callable_id, @policy, @actor from tasker.namespaces n join tasker.callables c on c.namespace_id = n.namespace_id and c.callable = @callable
    where n.name = @namespace
    on conflict (callable_id) do update set policy = excluded.policy, changed_at = clock_timestamp(), changed_by = excluded.changed_by
    returning @namespace::text as name, @callable::text as callable
)` + recordPause + `'set_policy_' || @policy::text` + recordCallable)
	deletePolicy = pg.Compile(`
with changed as (
    delete from tasker.policies p using tasker.callables c, tasker.namespaces n
    where n.name = @namespace and c.namespace_id = n.namespace_id and c.callable = @callable and p.callable_id = c.callable_id
    returning n.name, c.callable
)` + recordPause + `'delete_policy'` + recordCallable)
)

// SetPolicy sets how the steps of a callable are put in order from now on, or removes its
// policy if it names none, and records it. Steps in line keep their places. Daemons follow within a
// heartbeat; the signals are to publish, unless the store sends them itself. The error wraps
// ErrNotFound if no step of the namespace has the callable, or it has no policy to remove.
func (s *Registry) SetPolicy(ctx context.Context, p CallablePolicy, reason string) (signals []signal.Signal, err error) {
	statement, how := deletePolicy, pg.Args{"namespace": p.Namespace, "callable": p.Callable, "actor": p.ChangedBy, "reason": reason}
	if p.Policy != "" {
		statement, how["policy"] = setPolicy, p.Policy
	}
	err = s.db.Transaction(ctx, "set_policy", "set the policy of a callable", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		changed, err := pg.Run(ctx, tx, statement.With(how))
		if err == nil && changed == 0 {
			err = pg.ErrNotFound
		}
		signals = []signal.Signal{{Topic: signal.TopicControl}}
		return signals, err
	})
	return signals, err
}
