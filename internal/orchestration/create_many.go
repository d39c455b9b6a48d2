package orchestration

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
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
	var group conc.WaitGroup
	defer group.Wait() // also when preparing the next ones panics
	if len(requests) > o.cfg.CreateBatch {
		limits, err := o.store.SubmissionLimits(ctx, "")
		m.inOrder = err != nil || len(limits) > 0
	}
	for next := 0; next < len(requests); {
		if m.inOrder {
			group.Wait()
		}
		var p part
		p, next = m.prepare(next)
		if len(p.tasks) == 0 {
			continue
		}
		turn, err := o.processor.Take(ctx, commandCreateMany)
		if err != nil {
			m.fail(p, fmt.Errorf("create the tasks: %w", err))
			continue
		}
		group.Go(func() {
			// A transaction that has begun is finished, even if its caller has left.
			err := turn.Run(context.WithoutCancel(ctx), func(ctx context.Context) error { m.write(ctx, p); return nil })
			if err != nil { // it panicked
				m.fail(p, fmt.Errorf("create the tasks: %w", err))
			}
		})
	}
	group.Wait()
	m.answerRepeats()
	return m.results
}

// many is one call of CreateMany.
type many struct {
	o        *Orchestrator
	ctx      context.Context
	requests []Request
	results  []CreateResult
	plans    submission.Plans       // each template is read once: many requests for an unknown one must not become as many queries
	first    map[dedup.Identity]int // index of the first request with an identity
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

// prepare makes tasks of the requests from next on, until a transaction is full. It
// returns the index to continue from.
func (m *many) prepare(next int) (part, int) {
	room, begin := min(m.o.cfg.CreateBatch, len(m.requests)-next), next
	p := part{tasks: make([]store.NewTask, 0, room), indexes: make([]int, 0, room)}
	for ; next < len(m.requests) && len(p.tasks) < room; next++ {
		task, err := m.task(&m.requests[next])
		if err != nil {
			m.results[next].Err = err
			continue
		}
		switch first, again := m.first[*task.Identity]; {
		case !again:
			m.first[*task.Identity] = next
		case task.IdempotencyKey != "" || first < begin && !m.inOrder:
			m.repeats = append(m.repeats, repeat{index: next, first: first})
			continue
		}
		p.tasks, p.indexes = append(p.tasks, task), append(p.indexes, next)
	}
	return p, next
}

func (m *many) task(r *Request) (store.NewTask, error) {
	if err := m.over(); err != nil {
		return store.NewTask{}, err
	}
	r.Schema = m.o.schema
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
	created := map[string]int{}
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

// answerRepeats answers the requests that repeat an earlier one, which has its answer
// by now.
func (m *many) answerRepeats() {
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
