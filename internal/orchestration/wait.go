package orchestration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// waiterPoll is the fallback for lost signals: how often the tasks with waiters are
// read, all in one statement.
const waiterPoll = time.Second

// watchAfter is how long a waiter waits before it asks the other orchestrators for a
// signal.
const watchAfter = 10 * time.Millisecond

// waiters are the callers that wait for tasks to end.
type waiters struct {
	o *Orchestrator

	mu    sync.Mutex
	tasks map[uuid.UUID][]chan bool // gets one value: whether it is only a hint
	some  chan struct{}             // wakes the poll when the first waiter comes
	loop  *lifecycle.Loop
}

func newWaiters(o *Orchestrator) *waiters {
	w := &waiters{o: o, tasks: map[uuid.UUID][]chan bool{}, some: make(chan struct{}, 1)}
	w.loop = lifecycle.NewLoop(lifecycle.LoopConfig{Name: "task-waiters", Run: w.poll, Logger: o.log, OnRestart: o.metrics.Restarted})
	return w
}

// Wait returns true as soon as the task has ended, false when ctx ends before that. A
// task that does not exist counts as ended: the caller finds out by reading it. A
// reopened task is waited for until its next end.
func (o *Orchestrator) Wait(ctx context.Context, task uuid.UUID) (ended bool, err error) {
	done := o.waiters.add(task)
	defer func() { o.waiters.remove(task, done) }()
	// A task that ends at once in this orchestrator needs no watch. Its first step is
	// being claimed right now, and marking the row as watched would be in the way.
	early := time.NewTimer(watchAfter)
	defer early.Stop()
	for {
		select {
		case hint := <-done:
			if !hint {
				return true, nil
			}
			done = o.waiters.add(task) // before the look: an end in between is not missed
		case <-ctx.Done():
			return false, nil
		case <-early.C: // once
		}
		alive, err := o.store.Watch(ctx, task)
		if err != nil {
			return false, fmt.Errorf("wait for the task: %w", err)
		}
		if !alive {
			return true, nil
		}
	}
}

func (w *waiters) add(task uuid.UUID) chan bool {
	done := make(chan bool, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tasks[task] = append(w.tasks[task], done)
	lifecycle.Nudge(w.some)
	return done
}

func (w *waiters) remove(task uuid.UUID, done chan bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.tasks[task]
	for i := range list {
		if list[i] == done {
			list = append(list[:i], list[i+1:]...)
			break
		}
	}
	if len(list) == 0 {
		delete(w.tasks, task)
		return
	}
	w.tasks[task] = list
}

// ended wakes the waiters of a task. A hint may be about an earlier end: signals take
// time, and the task may have been reopened since.
func (w *waiters) ended(task uuid.UUID, hint bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, done := range w.tasks[task] {
		done <- hint // of capacity 1, and gets one value
	}
	delete(w.tasks, task)
}

// signalled reads the payload of TopicTasks.
func (w *waiters) signalled(payload string) {
	for _, text := range strings.Split(payload, ",") {
		if id, err := uuid.Parse(text); err == nil {
			w.ended(id, true)
		}
	}
}

func (w *waiters) waiting() []uuid.UUID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.tasks))
}

// poll runs only while there are waiters.
func (w *waiters) poll(ctx context.Context) error {
	timer := time.NewTimer(waiterPoll)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.some:
		}
		for ids := w.waiting(); len(ids) > 0; ids = w.waiting() {
			timer.Reset(waiterPoll)
			select {
			case <-ctx.Done():
				return nil
			case <-timer.C:
			}
			w.lookUp(ctx, ids)
		}
	}
}

func (w *waiters) lookUp(ctx context.Context, ids []uuid.UUID) {
	ends, err := w.o.store.TaskEnds(ctx, ids)
	if err != nil {
		w.o.log.Warn("looking for the end of watched tasks failed", zap.Error(err))
		return
	}
	for id := range ends {
		w.ended(id, false)
	}
}

// broadcast wakes the goroutines that follow domain events when there may be new ones.
// It is a hint: a waiter must also look by itself from time to time. The zero value is
// ready; it is safe for concurrent use.
type broadcast struct {
	mu   sync.Mutex
	next chan struct{} // closed by the next notify; nil: no waiters
}

func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

func (b *broadcast) notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}

// NewEvents returns a channel that is closed when the orchestrator next learns that
// durable domain events were published, here or by another replica. Get it before
// looking, so that no event falls in between.
func (o *Orchestrator) NewEvents() <-chan struct{} { return o.eventsPublished.wait() }
