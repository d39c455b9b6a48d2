package orchestration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

const (
	// manyTransactions is how many transactions of CreateMany run at once in
	// one process: the next one is made ready while another is under way, and
	// creations one by one keep their share of the connections.
	manyTransactions = 2
	// manyTimeout bounds each of them.
	manyTimeout = 30 * time.Second
)

// CreateResult is what became of one request: the task that was created, or
// the error that Create would have returned.
type CreateResult struct {
	Created
	Err error
}

// CreateMany validates requests and creates their tasks, CreateBatch in one
// transaction. The answer has one entry per request, in order; what is wrong
// with one request costs no other its task. Of requests with the same identity
// the first makes the task, and the others are told that it exists.
//
// When ctx ends or the database goes away, the transactions under way are
// finished and the rest is not tried.
func (o *Orchestrator) CreateMany(ctx context.Context, requests []Request) []CreateResult {
	m := &many{o: o, ctx: ctx, requests: requests, results: make([]CreateResult, len(requests)),
		plans: map[planName]planAnswer{}, first: make(map[workflow.Identity]int, len(requests))}
	var group conc.WaitGroup
	defer group.Wait() // also when making ready the next ones panics
	for next := 0; next < len(requests); {
		var p part
		p, next = m.prepare(next)
		if len(p.tasks) == 0 {
			continue
		}
		if err := o.many.enter(ctx); err != nil {
			m.fail(p, err)
			continue
		}
		group.Go(func() {
			defer o.many.leave()
			m.write(p)
		})
	}
	group.Wait()
	m.settle()
	return m.results
}

// many is one call of CreateMany.
type many struct {
	o        *Orchestrator
	ctx      context.Context
	requests []Request
	results  []CreateResult
	plans    map[planName]planAnswer
	first    map[workflow.Identity]int // the request that an identity came with first
	repeats  []repeat
	lost     atomic.Pointer[error] // why nothing more is tried
}

type planName struct{ namespace, name, version string }

type planAnswer struct {
	plan *store.Plan
	err  error
}

// repeat is a request with the identity of an earlier one.
type repeat struct{ index, first int }

// part is what goes into one transaction: tasks, and whose they are.
type part struct {
	tasks   []store.NewTask
	indexes []int
}

// prepare makes tasks of the requests from next on, until a transaction is
// full. It returns where to go on.
func (m *many) prepare(next int) (part, int) {
	room := min(m.o.cfg.CreateBatch, len(m.requests)-next)
	p := part{tasks: make([]store.NewTask, 0, room), indexes: make([]int, 0, room)}
	for ; next < len(m.requests) && len(p.tasks) < room; next++ {
		task, err := m.task(&m.requests[next])
		if err != nil {
			m.results[next].Err = err
			continue
		}
		if first, again := m.first[*task.Identity]; again {
			m.repeats = append(m.repeats, repeat{index: next, first: first})
			continue
		}
		m.first[*task.Identity] = next
		p.tasks, p.indexes = append(p.tasks, task), append(p.indexes, next)
	}
	return p, next
}

func (m *many) task(r *Request) (store.NewTask, error) {
	if err := m.over(); err != nil {
		return store.NewTask{}, err
	}
	r.Schema = m.o.schema
	if err := r.Check(); err != nil {
		return store.NewTask{}, err
	}
	// Each template is asked for once, so that many requests for an unknown
	// one do not become as many questions to the database.
	name := planName{r.Namespace, r.Name, r.Version}
	known, ok := m.plans[name]
	if !ok {
		known.plan, known.err = submission.Template(m.ctx, m.o.store, r)
		m.plans[name] = known
		m.giveUp(known.err)
	}
	if known.err != nil {
		return store.NewTask{}, known.err
	}
	task, err := submission.TaskOf(m.ctx, m.o.store, r, known.plan)
	if err != nil {
		m.giveUp(err)
		return store.NewTask{}, err
	}
	m.plans[name] = planAnswer{plan: task.Plan}
	return task, nil
}

// over returns why nothing more is to be tried.
func (m *many) over() error {
	if err := m.lost.Load(); err != nil {
		return *err
	}
	if err := m.ctx.Err(); err != nil {
		return fmt.Errorf("create the tasks: %w", err)
	}
	return nil
}

// giveUp ends the trying when err says that the database is away.
func (m *many) giveUp(err error) {
	if errors.Is(err, store.ErrUnavailable) {
		m.lost.CompareAndSwap(nil, &err)
	}
}

func (m *many) write(p part) {
	// A transaction that has begun is finished, whoever has left meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), manyTimeout)
	defer cancel()
	rows, err := m.o.flushCreates(ctx, p.tasks)
	var each *command.BatchError
	if err != nil && (!errors.As(err, &each) || len(rows) != len(p.tasks)) {
		if err = creationError(err); len(p.tasks) > 1 {
			err = fmt.Errorf("create the tasks: %w", err)
		}
		m.giveUp(err)
		m.fail(p, err)
		return
	}
	created := map[string]int{}
	for i, index := range p.indexes {
		result := &m.results[index]
		if each != nil && each.Errs[i] != nil {
			result.Err = creationError(each.Errs[i])
			m.giveUp(result.Err)
			continue
		}
		result.Created, result.Err = submission.Answer(&p.tasks[i], rows[i], m.requests[index].Conflict)
		if result.Err == nil && !result.Existing {
			created[m.requests[index].Namespace]++
		}
	}
	for namespace, n := range created {
		m.o.metrics.TasksCreated.WithLabelValues(namespace).Add(float64(n))
	}
}

func (m *many) fail(p part, err error) {
	for _, index := range p.indexes {
		m.results[index].Err = err
	}
}

// settle answers the requests that repeat another one, which by now has its
// answer.
func (m *many) settle() {
	for _, r := range m.repeats {
		first := &m.results[r.first]
		if first.Err != nil {
			m.results[r.index].Err = first.Err
			continue
		}
		if m.requests[r.index].Conflict == submission.ConflictUseExisting {
			m.results[r.index].Created = Created{UUID: first.UUID, Plan: first.Plan, Existing: true}
			continue
		}
		duplicate := &DuplicateError{}
		if m.requests[r.index].IdempotencyKey != "" {
			duplicate.Existing = first.UUID
		}
		m.results[r.index].Err = duplicate
	}
}

// gate lets a bounded number in and can be closed. It is safe for concurrent
// use.
type gate struct {
	places  chan struct{}
	closing chan struct{}
	close   sync.Once
}

func newGate(places int) *gate {
	return &gate{places: make(chan struct{}, places), closing: make(chan struct{})}
}

// enter waits for a place until ctx ends or the gate is closed; leave gives it
// back.
func (g *gate) enter(ctx context.Context) error {
	select {
	case <-g.closing:
		return fmt.Errorf("create the tasks: %w", command.ErrStopped)
	default:
	}
	select {
	case g.places <- struct{}{}:
		return nil
	case <-g.closing:
		return fmt.Errorf("create the tasks: %w", command.ErrStopped)
	case <-ctx.Done():
		return fmt.Errorf("create the tasks: %w", ctx.Err())
	}
}

func (g *gate) leave() { <-g.places }

// stop closes the gate and waits until those inside have left. A second call
// does not wait.
func (g *gate) stop(ctx context.Context) (err error) {
	g.close.Do(func() {
		close(g.closing)
		for range cap(g.places) {
			select {
			case g.places <- struct{}{}: // for good
			case <-ctx.Done():
				err = fmt.Errorf("wait for the creations under way: %w", ctx.Err())
				return
			}
		}
	})
	return err
}
