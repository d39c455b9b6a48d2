package orchestration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/workflow"
)

// manyTimeout bounds each transaction of CreateMany.
const manyTimeout = 30 * time.Second

// CreateResult is the outcome of one request: the created task, or the error that
// Create would have returned.
type CreateResult struct {
	Created
	Err error
}

// CreateMany validates requests and creates their tasks, CreateBatch in one
// transaction. The answer has one entry per request, in order; a fault of one request
// does not affect the others. Of requests with the same identity the first creates
// the task, and the others are duplicates of it, unless submissions are debounced: then all
// count in their order, as if they came one by one.
//
// When ctx ends or the database goes away, transactions under way are finished and
// the rest is not tried.
func (o *Orchestrator) CreateMany(ctx context.Context, requests []Request) []CreateResult {
	m := &many{o: o, ctx: ctx, requests: requests, results: make([]CreateResult, len(requests)),
		plans: submission.Once(o.store), first: make(map[dedup.Identity]int, len(requests))}
	if len(requests) > o.cfg.CreateBatch {
		limits, err := o.store.SubmissionLimits(ctx, "")
		m.inOrder = err != nil || len(limits) > 0
	}
	all := make([]int, len(requests))
	for i := range all {
		all[i] = i
	}
	m.create(all)
	if left := m.answerRepeats(); len(left) > 0 {
		// The requests that they repeat were rejected for faults of their own. Of these too the
		// first creates the task: the store tells the others of one transaction apart.
		m.first, m.inOrder = nil, true
		m.create(left)
	}
	return m.results
}

// create creates the tasks of requests, given by their indexes.
func (m *many) create(todo []int) {
	var group conc.WaitGroup
	defer group.Wait() // also when preparing the next ones panics
	for len(todo) > 0 {
		if m.inOrder {
			group.Wait()
		}
		var p part
		p, todo = m.prepare(todo)
		if len(p.tasks) == 0 {
			continue
		}
		turn, err := m.o.processor.Take(m.ctx, commandCreateMany)
		if err != nil {
			m.fail(p, fmt.Errorf("create the tasks: %w", err))
			continue
		}
		group.Go(func() {
			// A transaction that has begun is finished, even if its caller has left.
			err := turn.Run(context.WithoutCancel(m.ctx), func(ctx context.Context) error { m.write(ctx, p); return nil })
			if err != nil { // it panicked
				m.fail(p, fmt.Errorf("create the tasks: %w", err))
			}
		})
	}
}

// many is one call of CreateMany.
type many struct {
	o        *Orchestrator
	ctx      context.Context
	requests []Request
	results  []CreateResult
	plans    submission.Plans       // each template is read once: many requests for an unknown one must not become as many queries
	first    map[dedup.Identity]int // index of the first request with an identity; nil: repeats are left to the store
	repeats  []repeat
	inOrder  bool                  // one transaction after the other, as limits of submissions want it
	lost     atomic.Pointer[error] // why no more transactions are begun
}

// repeat is a request with the identity of an earlier one.
type repeat struct{ index, first int }

// part is the content of one transaction: tasks and their requests.
type part struct {
	tasks   []store.NewTask
	indexes []int
}

// prepare makes tasks of the first requests of todo, until a transaction is full. It
// returns the rest.
func (m *many) prepare(todo []int) (p part, rest []int) {
	room, begin := min(m.o.cfg.CreateBatch, len(todo)), todo[0]
	p = part{tasks: make([]store.NewTask, 0, room), indexes: make([]int, 0, room)}
	for ; len(todo) > 0 && len(p.tasks) < room; todo = todo[1:] {
		index := todo[0]
		task, err := m.task(&m.requests[index])
		if err != nil {
			m.results[index].Err = err
			continue
		}
		switch first, again := m.first[*task.Identity]; {
		case m.first == nil:
		case !again:
			m.first[*task.Identity] = index
		case task.IdempotencyKey != "" || first < begin && !m.inOrder:
			m.repeats = append(m.repeats, repeat{index: index, first: first})
			continue
		}
		p.tasks, p.indexes = append(p.tasks, task), append(p.indexes, index)
	}
	return p, todo
}

func (m *many) task(r *Request) (store.NewTask, error) {
	if err := m.over(); err != nil {
		return store.NewTask{}, err
	}
	m.o.judge(r)
	task, err := submission.Prepare(m.ctx, m.plans, r)
	m.giveUp(err)
	task.Limited = true
	return task, err
}

// over returns why no more transactions are begun; nil while they are.
func (m *many) over() error {
	if err := m.lost.Load(); err != nil {
		return *err
	}
	if err := m.ctx.Err(); err != nil {
		return fmt.Errorf("create the tasks: %w", err)
	}
	return nil
}

// giveUp stops further transactions when err says that the database is away.
func (m *many) giveUp(err error) {
	if errors.Is(err, store.ErrUnavailable) {
		m.lost.CompareAndSwap(nil, &err)
	}
}

func (m *many) write(ctx context.Context, p part) {
	ctx, cancel := context.WithTimeout(ctx, manyTimeout)
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
	created := map[*store.Plan]int{}
	for i, index := range p.indexes {
		result := &m.results[index]
		if each != nil && each.Errs[i] != nil {
			result.Err = creationError(each.Errs[i])
			m.giveUp(result.Err)
			continue
		}
		result.Created, result.Err = submission.Answer(&p.tasks[i], rows[i], m.requests[index].Conflict)
		m.o.refused(result.Err)
		if result.Err == nil && !result.Existing {
			created[p.tasks[i].Plan]++
		}
	}
	for plan, n := range created {
		settle.CountCreated(m.o.metrics, plan, n)
	}
}

func (m *many) fail(p part, err error) {
	for _, index := range p.indexes {
		m.results[index].Err = err
	}
}

// answerRepeats answers the requests that repeat an earlier one, which has its answer by now,
// each by its own policy. It returns those whose first request was rejected for a fault of its
// own, so that there is no task.
func (m *many) answerRepeats() (left []int) {
	for _, r := range m.repeats {
		first, request := &m.results[r.first], &m.requests[r.index]
		existing := store.CreatedTask{UUID: first.UUID, Duplicate: true, State: cmp.Or(first.State, workflow.TaskPending), Running: first.Running}
		if duplicate := (*DuplicateError)(nil); errors.As(first.Err, &duplicate) {
			existing.UUID, existing.State = duplicate.Existing, duplicate.State
		} else if first.Err != nil {
			left = append(left, r.index)
			continue
		}
		of := store.NewTask{Plan: first.Plan, IdempotencyKey: request.IdempotencyKey}
		result := &m.results[r.index]
		result.Created, result.Err = submission.Answer(&of, existing, request.Conflict)
	}
	return left
}
