package workertest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/enginestep"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
)

// Bounds of one Play.
const (
	maxMoments = 100_000 // attempts, delays and waits
	maxYields  = 10_000  // of one attempt
)

// Play executes a task of a template that register registers, with the handlers that it
// registers, until it ends or cannot move. The rules are the engine's with its default
// settings, except that delays have no jitter; what time passes is the task's own, so that
// retries, sleeps and timeouts cost none. Handlers take no time on that clock, and run one
// after the other, always in the same order.
//
// It fails the test for what it does not do: handlers that need a transaction, limits of
// lifecycle blocks that fail a task, steps that wait for the domain events of others, and
// events of steps that the engine runs. Subscribers get no events.
// Tasks that handlers continue with are listed and not executed.
func Play(t TB, register func(*worker.Worker) error, task Task) Outcome {
	t.Helper()
	o, err := play(register, &task)
	if err != nil {
		t.Fatalf("workertest: play a task: %v", err)
	}
	return *o
}

// player is one Play. Its moments are worked off in the order of time.
type player struct {
	rehearsal *engine.Rehearsal
	board     *board
	task      *Task
	rules     workflow.Rules
	plans     []*store.Plan
	depth     int           // of tasks in tasks, at most
	ttl       time.Duration // of kept events
	begin     time.Time
	now       time.Time
	moments   []moment
	count     int
	kept      []Event // that no step has waited for yet
	tasks     []*playing
	out       *Outcome
}

// moment is something that happens at a time; of several at once the first added.
type moment struct {
	at time.Time
	do func() error
}

func play(register func(*worker.Worker) error, task *Task) (o *Outcome, err error) {
	p, err := newPlayer(register, task)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeWithin(p.rehearsal)) }()
	if err := p.refuse(); err != nil {
		return nil, err
	}
	root, err := p.create()
	if err != nil {
		return nil, err
	}
	if err := p.run(); err != nil {
		return nil, err
	}
	p.outcome(root, p.out)
	return p.out, nil
}

// newPlayer prepares a Play. Without an error the caller must close its rehearsal.
func newPlayer(register func(*worker.Worker) error, task *Task) (*player, error) {
	w, err := newWorker(register)
	if err != nil {
		return nil, err
	}
	defaults, err := config.Defaults()
	if err != nil {
		return nil, err
	}
	settings := orchestration.Configure(defaults)
	p := &player{board: newBoard(), task: task, rules: settings.Rules, depth: settings.MaxTaskDepth, ttl: settings.EventTTL,
		begin: task.Now, out: &Outcome{}}
	p.rules.Backoff.Jitter = 0
	if p.begin.IsZero() {
		p.begin = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	p.now, p.board.now = p.begin, func() time.Time { return p.now }
	p.rehearsal = w.Host().Rehearse(p.board)
	if err := p.compile(); err != nil {
		return nil, errors.Join(err, closeWithin(p.rehearsal))
	}
	return p, nil
}

// compile makes the plans of all templates.
func (p *player) compile() error {
	for _, t := range p.rehearsal.Templates {
		plan, err := workflow.Compile(t.Resolve(p.task.Environment))
		if err != nil {
			return err
		}
		p.plans = append(p.plans, &store.Plan{Plan: plan, ID: int32(len(p.plans)) + 1}) // #nosec G115 -- a few
	}
	return nil
}

// refuse refuses templates that need more than rules and handlers.
func (p *player) refuse() error {
	published, awaited := map[string]string{}, []string{}
	for _, plan := range p.plans {
		if l := plan.Template.Lifecycle; l != nil && l.AutoFailOnTimeout {
			return fmt.Errorf("template %s: lifecycle.auto_fail_on_timeout is not played: no sweeps run", plan.Template.Name)
		}
		for i := range plan.Steps {
			s := &plan.Steps[i]
			if s.Kind.ByEngine() && len(s.PublishesEvents) > 0 {
				return fmt.Errorf("step %s: events of steps that the engine runs are not played", s.Name)
			}
			if s.Kind == workflow.KindWaitForEvent && s.Wait != nil && s.Wait.Key != "" {
				awaited = append(awaited, s.Wait.Event)
			}
			for _, e := range s.PublishesEvents {
				if e.Key != "" {
					published[e.Name] = s.Name
				}
			}
		}
	}
	for _, name := range awaited {
		if by, ok := published[name]; ok {
			return fmt.Errorf("a step waits for the event %s that step %s publishes, which is not played: test it with PlayOn", name, by)
		}
	}
	return nil
}

// plan returns the plan of a version, or of the highest where it is empty; nil without one.
func (p *player) plan(namespace, name, version string) (found *store.Plan) {
	for _, plan := range p.plans {
		t := plan.Template
		if t.Namespace != namespace || t.Name != name || version != "" && t.Version != version {
			continue
		}
		if found == nil || workflow.VersionKey(found.Template.Version) < workflow.VersionKey(t.Version) {
			found = plan
		}
	}
	return found
}

// root returns the plan of the task: the only one that fits.
func (p *player) root() (*store.Plan, error) {
	var found []*store.Plan
	for _, plan := range p.plans {
		t := plan.Template
		if cmp.Or(p.task.Namespace, t.Namespace) == t.Namespace && cmp.Or(p.task.Name, t.Name) == t.Name && cmp.Or(p.task.Version, t.Version) == t.Version {
			found = append(found, plan)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d registered templates fit namespace %q, name %q and version %q: want one", len(found), p.task.Namespace, p.task.Name, p.task.Version)
	}
	for i := range p.task.Verdicts {
		if v := &p.task.Verdicts[i]; !p.approves(v.Step) {
			return nil, fmt.Errorf("invalid step %q of a verdict: want a step of type approval", v.Step)
		}
	}
	return found[0], nil
}

func (p *player) approves(step string) bool {
	return slices.ContainsFunc(p.plans, func(plan *store.Plan) bool {
		no, ok := plan.StepNumber(step)
		return ok && plan.Steps[no].Kind == workflow.KindApproval
	})
}

// create creates the first task and plans the events.
func (p *player) create() (*playing, error) {
	plan, err := p.root()
	if err != nil {
		return nil, err
	}
	context := json.RawMessage(`{}`)
	if p.task.Context != nil {
		if context, err = encode(p.task.Context); err != nil {
			return nil, fmt.Errorf("encode Context: %w", err)
		}
	}
	t := plan.Template
	task, err := p.begun(&submission.Request{Namespace: t.Namespace, Name: t.Name, Version: t.Version, Context: context,
		Priority: p.task.Priority, StartIn: p.task.StartIn}, plan, nil)
	if err != nil {
		return nil, err
	}
	for _, e := range p.task.Events {
		if e.Payload, err = encode(e.Payload); err != nil {
			return nil, fmt.Errorf("encode the payload of event %s: %w", e.Name, err)
		}
		p.at(e.After, func() error { return p.deliver(e) })
	}
	return task, nil
}

// at plans a moment in some time.
func (p *player) at(in time.Duration, do func() error) {
	m := moment{p.now.Add(max(in, 0)), do}
	i, _ := slices.BinarySearchFunc(p.moments, m, func(have, m moment) int {
		return cmp.Or(have.at.Compare(m.at), -1) // behind those of the same time
	})
	p.moments = slices.Insert(p.moments, i, m)
}

// run works the moments off.
func (p *player) run() error {
	for len(p.moments) > 0 {
		if p.count++; p.count > maxMoments {
			return fmt.Errorf("the task has not ended after %d attempts, delays and waits", maxMoments)
		}
		m := p.moments[0]
		p.moments = p.moments[1:]
		p.now = m.at
		if err := m.do(); err != nil {
			return err
		}
	}
	return nil
}

// deliver gives an event to the steps that wait for it, or keeps it.
func (p *player) deliver(e Event) error {
	waiting := false
	for _, t := range p.tasks {
		for _, no := range slices.Sorted(maps.Keys(t.steps)) {
			s := t.steps[no]
			if s.awaits == nil || s.awaits.Kind != workflow.KindWaitForEvent || s.awaits.Event != e.Name || s.awaits.Key != e.Key {
				continue
			}
			waiting = true
			if err := t.ended(no, p.result(&e)); err != nil {
				return err
			}
		}
	}
	if !waiting {
		p.kept = append(p.kept, e)
	}
	return nil
}

// result is the end of a step that waited for an event.
func (p *player) result(e *Event) enginestep.End {
	end, err := enginestep.Succeeded(map[string]any{"event": e.Name, "key": e.Key, "payload": e.Payload, "received_at": p.now.UTC()})
	if err != nil { // its payload is JSON
		return enginestep.Failed(enginestep.ErrorTypeCannotRun, err.Error(), false)
	}
	return end
}

// take returns the oldest kept event that a step waits for.
func (p *player) take(name, key string) (Event, bool) {
	p.kept = slices.DeleteFunc(p.kept, func(e Event) bool { return p.begin.Add(e.After + p.ttl).Before(p.now) })
	i := slices.IndexFunc(p.kept, func(e Event) bool { return e.Name == name && e.Key == key })
	if i < 0 {
		return Event{}, false
	}
	e := p.kept[i]
	p.kept = slices.Delete(p.kept, i, i+1)
	return e, true
}
