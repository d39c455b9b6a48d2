package registry

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/predict"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// ordering gives steps their lanes. It is safe for concurrent use.
type ordering struct {
	policies atomic.Pointer[map[int32]ordered] // by callable; nil: all are in order of priority
	models   atomic.Pointer[models]            // of the steps whose policies want them; nil: there are none
	predict  order.Predictor                   // comes before the models; nil: there is none
	missing  func(why order.Missing)           // called for each step for which predict has no answer
	unknown  func()                            // called for each step without a prediction that its policy wants
}

// ordered is the order of the steps of a callable.
type ordered struct {
	order.Policy
	features []string
	class    string
}

// models do not change.
type models struct {
	of     map[predict.Key]model
	newest time.Time // when the last of them changed
}

type model struct {
	*predict.Model
	changed time.Time
}

// staleAfter is when a model has no use any more that nothing was learned for.
const staleAfter = 24 * time.Hour

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
// context is the task's, nil where it is not available. A task that has begun has kept its
// deadline, which is the one for its beginning: its steps go first, so that it ends.
func (p *Plan) LaneOf(step *workflow.PlanStep, s order.Step, context []byte) int16 {
	by := ordered{Policy: order.Priority}
	if p.order != nil {
		if policies := p.order.policies.Load(); policies != nil {
			by = (*policies)[p.CallableOf(step)]
		}
	}
	if s.Begun {
		s.Deadline, s.Left = true, 0
	}
	if by.predicts() && (by.Policy != order.DeadlineAware || !s.Begun) {
		var known bool
		if s.Expected, known = p.order.expect(by, p.keyOf(step), context); !known {
			s.Expected = 0
			p.order.unknown()
		}
	}
	return by.Lane(s)
}

// predicts reports whether the order is by expected times.
func (o *ordered) predicts() bool {
	return o.Policy == order.ShortestExpected || o.Policy == order.DeadlineAware
}

func (p *Plan) keyOf(step *workflow.PlanStep) predict.Key {
	return predict.Key{Namespace: p.Template.Namespace, Template: p.Template.Name, Step: step.Name}
}

// question is what is asked about a step.
func (o *ordered) question(key predict.Key, context []byte) order.Question {
	return order.Question{Namespace: key.Namespace, Template: key.Template, Step: key.Step,
		Class: predict.Class(o.class, context), Features: o.features, Values: predict.Values(o.features, context)}
}

// expect returns the expected time; ok is false if nothing is known, or what is known has
// lately been no good.
func (o *ordering) expect(by ordered, key predict.Key, context []byte) (d time.Duration, ok bool) {
	var m model
	known := false
	if all := o.models.Load(); all != nil {
		m, known = all.of[key]
	}
	q := by.question(key, context)
	if o.predict != nil {
		if known && m.Outside.Distrust {
			o.missing(order.MissingDistrusted)
			return 0, false
		}
		d, why := o.predict.Expect(q)
		if why == "" {
			return d, true
		}
		o.missing(why)
	}
	if !known || m.Judge.Distrust || time.Since(m.changed) > staleAfter {
		return 0, false
	}
	x := m.Expect(q.Class, q.Values)
	return x.Time, x.Basis != predict.Unknown
}

// SampleOf returns what may be learned from an execution of a step that took a time; ok is
// false if its policy does not order by expected times.
func (s *Registry) SampleOf(callable int32, plan *workflow.Plan, step *workflow.PlanStep, context []byte, took time.Duration) (sample Sample, ok bool) {
	policies := s.known.plans.order.policies.Load()
	if policies == nil {
		return sample, false
	}
	by := (*policies)[callable]
	if !by.predicts() {
		return sample, false
	}
	q := by.question(predict.Key{Namespace: plan.Template.Namespace, Template: plan.Template.Name, Step: step.Name}, context)
	sample = Sample{Namespace: q.Namespace, Template: q.Template, Step: q.Step, Features: q.Features, Class: q.Class, Values: q.Values, MS: inMS(took)}
	if predict := s.known.plans.order.predict; predict != nil {
		d, _ := predict.Expect(q)
		sample.Outside = inMS(d)
	}
	return sample, true
}

func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Sample is an execution to learn from.
type Sample struct {
	No        int64     `json:"no"` // of its worker, from 1
	Namespace string    `json:"n"`
	Template  string    `json:"t"`
	Step      string    `json:"s"`
	Class     string    `json:"c,omitempty"`
	Features  []string  `json:"f,omitempty"`
	Values    []float64 `json:"v,omitempty"` // of the features; none: the context was not available
	MS        float64   `json:"ms"`
	Outside   float64   `json:"o,omitempty"` // what the predictor outside says; 0: it has no answer
}

// Key is that of the model which learns from it.
func (s *Sample) Key() predict.Key {
	return predict.Key{Namespace: s.Namespace, Template: s.Template, Step: s.Step}
}

var (
	readPolicies = pg.Compile(`select callable_id, policy, coalesce(features, '{}') as features, coalesce(class, '') as class from tasker.policies where policy <> @priority`)
	readModels   = pg.Compile(`select n.name as namespace, p.template, p.step, p.model, p.changed_at
from tasker.predictions p join tasker.namespaces n using (namespace_id) where p.changed_at > @since`)
)

// AskPolicies adds the query for the policies to a batch, and remembers the answer; and for
// the models that have changed, where a policy wanted them last time.
func (s *Memory) AskPolicies(b *pgx.Batch) {
	o := s.plans.order
	readPolicies.With(pg.Args{"priority": order.Priority}).Queue(b).Query(func(rows pgx.Rows) error {
		type row struct {
			CallableID int32
			Policy     order.Policy
			Features   []string
			Class      string
		}
		read := map[int32]ordered{}
		err := stmt.Rows(func(r *row) { read[r.CallableID] = ordered{r.Policy, r.Features, r.Class} })(rows)
		switch {
		case err != nil:
		case len(read) == 0:
			o.policies.Store(nil)
		default:
			o.policies.Store(&read)
		}
		return err
	})
	if !o.predicted() {
		return
	}
	var since time.Time
	if known := o.models.Load(); known != nil {
		since = known.newest
	}
	readModels.With(pg.Args{"since": since}).Queue(b).Query(func(rows pgx.Rows) error {
		var changed []storedModel
		err := stmt.Rows(func(r *storedModel) { changed = append(changed, *r) })(rows)
		if err == nil && len(changed) > 0 {
			o.learn(changed)
		}
		return err
	})
}

// Predicts reports whether a policy orders by expected times.
func (s *Registry) Predicts() bool { return s.known.plans.order.predicted() }

// Foretold is what is known of the time of a step of a task.
type Foretold struct {
	Policy   order.Policy
	Features []string
	Values   []float64 // of the features
	Class    string
	predict.Expectation
	predict.Verdict
	Outside *Outside // nil: no predictor outside is asked
}

// Outside is what a predictor outside answers, and what its last answers were worth.
type Outside struct {
	Time    time.Duration
	Missing order.Missing // why there is none
	predict.Verdict
}

// Foretell returns what this process expects of the steps of a plan for the context of a
// task, by name, of those whose policies order by it; it learns with heartbeats.
func (s *Registry) Foretell(p *Plan, context []byte) map[string]Foretold {
	all, found := p.order.models.Load(), map[string]Foretold{}
	policies := p.order.policies.Load()
	for i := range p.Steps {
		step := &p.Steps[i]
		if policies == nil || step.Kind.ByEngine() {
			continue
		}
		by := (*policies)[p.CallableOf(step)]
		if !by.predicts() {
			continue
		}
		q := by.question(p.keyOf(step), context)
		f := Foretold{Policy: by.Policy, Features: q.Features, Values: q.Values, Class: q.Class,
			Expectation: predict.Expectation{Basis: predict.Unknown, Times: &predict.Sketch{}}}
		if p.order.predict != nil {
			f.Outside = &Outside{Verdict: (&predict.Judge{}).Verdict()}
			f.Outside.Time, f.Outside.Missing = p.order.predict.Expect(q)
		}
		if all != nil {
			if m, known := all.of[p.keyOf(step)]; known {
				f.Expectation, f.Verdict = m.Expect(f.Class, f.Values), m.Judge.Verdict()
				if f.Outside != nil {
					f.Outside.Verdict = m.Outside.Verdict()
				}
			}
		}
		found[step.Name] = f
	}
	return found
}

// predicted reports whether a policy orders by expected times.
func (o *ordering) predicted() bool {
	if p := o.policies.Load(); p != nil {
		for _, by := range *p {
			if by.predicts() {
				return true
			}
		}
	}
	return false
}

type storedModel struct {
	predict.Key
	Model     []byte
	ChangedAt time.Time
}

// learn takes over models. One that cannot be read, of another version, is not known.
func (o *ordering) learn(changed []storedModel) {
	next := models{of: map[predict.Key]model{}}
	if known := o.models.Load(); known != nil {
		next.newest = known.newest
		maps.Copy(next.of, known.of)
	}
	for i := range changed {
		m, err := predict.Decode(changed[i].Model)
		if err != nil {
			delete(next.of, changed[i].Key)
			continue
		}
		next.of[changed[i].Key] = model{m, changed[i].ChangedAt}
		if changed[i].ChangedAt.After(next.newest) {
			next.newest = changed[i].ChangedAt
		}
	}
	o.models.Store(&next)
}

// CallablePolicy is how the steps of a callable are put in order, with any method and
// resolver.
type CallablePolicy struct {
	Namespace, Callable string
	Policy              order.Policy
	Features            []string // of the context, by which times are learned; see [predict.Values]
	Class               string   // where the class of a task stands in its context; "": all are of one
	ChangedAt           time.Time
	ChangedBy           string
}

// Index: the primary keys.
var listPolicies = pg.Compile(`
select distinct on (n.name, c.callable) n.name as namespace, c.callable, p.policy, coalesce(p.features, '{}') as features, coalesce(p.class, '') as class, p.changed_at, p.changed_by
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
    insert into tasker.policies as p (callable_id, policy, features, class, changed_by)
    select c.callable_id, @policy, @features, nullif(@class::text, ''), @actor from tasker.namespaces n join tasker.callables c on c.namespace_id = n.namespace_id and c.callable = @callable
    where n.name = @namespace
    on conflict (callable_id) do update set policy = excluded.policy, features = excluded.features, class = excluded.class, changed_at = clock_timestamp(), changed_by = excluded.changed_by
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
		statement, how["policy"], how["features"], how["class"] = setPolicy, p.Policy, pg.NonNil(p.Features), p.Class
	}
	err = s.db.Transaction(ctx, "set_policy", "set the policy of a callable", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		signals = []signal.Signal{{Topic: signal.TopicControl}}
		return signals, pg.Find(ctx, tx, statement.With(how))
	})
	return signals, err
}
