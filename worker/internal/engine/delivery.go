package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/aside"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/store"
)

const (
	// maxReportBytes bounds the content of one statement; a larger item goes alone.
	maxReportBytes = 2 << 20
	// reportPatience bounds one flush; items without an answer by then are enqueued
	// again.
	reportPatience = time.Minute
	// statementPatience bounds one try of a statement: its connection may be silent.
	statementPatience = 5 * time.Second
)

// delivery writes the output of handlers to the database: items that arrive during a
// statement form the next batch. Statements have a bounded size and are retried in order until
// they are answered or rejected. An item that the database rejects affects no other: it is set
// aside and sent again, alone, after a time that grows. None is dropped before the stop.
type delivery[T deliverable, R any] struct {
	e     *Engine
	what  string // the items, for people
	size  func(item T) int
	first func(ctx context.Context, all []*parcel[T, R]) (left []*parcel[T, R]) // another way for some; nil: none
	send  func(ctx context.Context, items []T) ([]R, error)                     // one statement
	// content answers for an item whose content the database rejects; false: it does not.
	content func(ctx context.Context, p *parcel[T, R]) bool
	dropped func(item T, why error) // the item is rejected as the worker stops
	batch   *command.Batcher[T, R]
	aside   *aside.Set[int64] // by the tokens of the claims
	later   later[T]
	asked   atomic.Pointer[time.Time] // when the latest statement was sent that has no answer yet
}

// deliverable is what a delivery delivers.
type deliverable interface{ of() *Execution }

// parcel is an item on its way, with its answer.
type parcel[T deliverable, R any] struct {
	item   T
	answer R
	err    error
}

func (p *parcel[T, R]) token() int64 { return p.item.of().Key.Token }

// open makes the batcher. After patience, if there is one, another statement may begin beside one that has no
// answer yet. Beyond pending handlers wait for room; items without an answer do not.
func (d *delivery[T, R]) open(name, flow string, pending int, patience time.Duration, answered func([]command.Answer[T, R])) {
	d.aside = aside.New[int64](flow, d.e.log, d.e.metrics)
	d.batch = command.NewAsyncBatcher(command.BatcherConfig{
		Name: name, MaxBatch: d.e.cfg.Report.MaxBatch, MaxPending: pending, FlushTimeout: reportPatience, Patience: patience,
		Silent: func() bool {
			asked := d.asked.Load()
			return asked != nil && time.Since(*asked) >= patience
		},
		Logger: d.e.log, Metrics: d.e.metrics,
	}, d.flush, answered)
}

// submit waits for room. The time limit of next, which begins afterwards, starts then.
func (d *delivery[T, R]) submit(item T, next *Execution) {
	err := d.batch.TryAdd(item)
	if errors.Is(err, command.ErrFull) {
		d.e.slots.waits(next, true)
		err = d.batch.Add(d.e.base, item)
		d.e.slots.waits(next, false)
	}
	d.submitted(item, err)
}

// again enqueues an item whose flush has ended without an answer, at once or, where the database
// has rejected it, after a time. It never waits.
func (d *delivery[T, R]) again(item T, why error) {
	if !d.rejected(why) {
		d.submitted(item, d.batch.AddAgain(item))
		return
	}
	after := cmp.Or(d.aside.Left(item.of().Key.Token), deploymode.LongestHold) // not left out: the statement was rejected, whatever the item
	if !d.later.put(item, time.Now().Add(after)) {
		d.dropped(item, why)
		return
	}
	d.e.sendAgain()
}

// resend enqueues the rejected items whose time has come, and returns when the next one does.
func (d *delivery[T, R]) resend(now time.Time) time.Duration {
	due, next := d.later.due(now)
	for _, item := range due {
		d.submitted(item, d.batch.AddAgain(item))
	}
	return next
}

func (d *delivery[T, R]) submitted(item T, err error) {
	if err != nil {
		// Only after Stop; the lease of the claim is released.
		d.e.log.Error("what a step leaves behind was not saved", zap.Inline(item.of()), zap.String("what", d.what), zap.Error(err))
	}
}

// flush delivers a batch. Items that were rejected before go alone, behind the others.
func (d *delivery[T, R]) flush(ctx context.Context, items []T) ([]R, error) {
	parcels, left := make([]parcel[T, R], len(items)), make([]*parcel[T, R], 0, len(items))
	var known []*parcel[T, R]
	for i, item := range items {
		parcels[i].item = item
		if d.aside.Knows(parcels[i].token()) {
			known = append(known, &parcels[i])
		} else {
			left = append(left, &parcels[i])
		}
	}
	if d.first != nil && len(left) > 0 {
		left = d.first(ctx, left)
	}
	for len(left) > 0 {
		n := d.fitting(left)
		d.deliver(ctx, left[:n])
		left = left[n:]
	}
	for i := range known {
		d.deliver(ctx, known[i:i+1])
	}
	answers, errs := make([]R, len(items)), []error(nil)
	for i := range parcels {
		if answers[i] = parcels[i].answer; parcels[i].err != nil && errs == nil {
			errs = make([]error, len(items))
		}
		if errs != nil {
			errs[i] = parcels[i].err
		}
	}
	if errs == nil {
		return answers, nil
	}
	return answers, &command.BatchError{Errs: errs}
}

// fitting returns how many of the first parcels fit into one statement; one that is too
// large goes alone.
func (d *delivery[T, R]) fitting(list []*parcel[T, R]) int {
	total := 0
	for i, p := range list {
		total += d.size(p.item)
		if total > maxReportBytes && i > 0 {
			return i
		}
	}
	return len(list)
}

// deliver sends parcels that fit into one statement.
func (d *delivery[T, R]) deliver(ctx context.Context, list []*parcel[T, R]) {
	err := d.sendAll(ctx, list)
	if !d.rejected(err) {
		return
	}
	// Those without an answer keep the error of the statement.
	_ = aside.Halves(list, err, d.rejected, func(part []*parcel[T, R]) error { return d.sendAll(ctx, part) },
		func(p *parcel[T, R], why error) { d.culprit(ctx, p, why) })
}

// sendAll sends one statement until it is answered or rejected.
func (d *delivery[T, R]) sendAll(ctx context.Context, list []*parcel[T, R]) error {
	items, tokens := make([]T, len(list)), make([]int64, len(list))
	for i, p := range list {
		items[i], tokens[i] = p.item, p.token()
	}
	answers, err := d.retry(ctx, items)
	for i, p := range list {
		if p.err = err; err == nil {
			p.answer = answers[i]
		}
	}
	if err == nil {
		d.aside.Pass(tokens...)
	}
	return err
}

// culprit handles an item that is rejected on its own: it is set aside. The lease of a claim that
// is to blame is not extended any more, so that the orchestrators end its attempt.
func (d *delivery[T, R]) culprit(ctx context.Context, p *parcel[T, R], why error) {
	p.err = why
	x := p.item.of()
	named := []zap.Field{zap.Inline(x), zap.String("callable", x.callable())}
	if store.OfContent(why) && d.content(ctx, p) {
		d.aside.Fail(why, named...)
		return
	}
	if d.rejected(p.err) && d.aside.Reject(p.token(), p.err, named...) {
		x.forsaken.Store(true)
	}
}

// rejected reports whether the database has rejected a statement.
func (d *delivery[T, R]) rejected(err error) bool {
	return store.Rejected(err) && !errors.Is(err, breaker.ErrOpen) && !errors.Is(err, errAnswers)
}

// errAnswers says that a statement has answered something else than it was asked.
var errAnswers = errors.New("wrong number of answers")

// retry repeats a statement until it gets an answer, the database rejects it, or ctx ends.
func (d *delivery[T, R]) retry(ctx context.Context, items []T) (answers []R, err error) {
	guard := d.e.cfg.Report.Breaker
	for try := 0; ; try++ {
		err = guard.Do(ctx, func(ctx context.Context) (err error) {
			ctx, cancel := context.WithTimeout(ctx, statementPatience)
			defer cancel()
			d.asked.Store(new(time.Now()))
			defer d.asked.Store(nil)
			answers, err = d.send(ctx, items)
			return err
		})
		if err == nil && len(answers) != len(items) {
			err = fmt.Errorf("%w: %d to %d %s", errAnswers, len(answers), len(items), d.what)
		}
		if err == nil || d.rejected(err) {
			return answers, err
		}
		if try == 0 {
			what := "what steps leave behind was not saved and is sent again"
			if errors.Is(err, store.ErrUnavailable) {
				what = "the database did not answer; what steps leave behind is sent again"
			}
			d.e.log.Warn(what, zap.String("what", d.what), zap.Int("count", len(items)), zap.Error(err))
		}
		if cause := pause(ctx, try, guard.Wait()); cause != nil {
			return nil, fmt.Errorf("%w (gave up for now: %w)", err, cause)
		}
	}
}

// stop waits within a time until nothing is left, and stops.
// Rejected items are tried once more.
func (d *delivery[T, R]) stop(ctx context.Context, within time.Duration, left func(u Usage) int) error {
	for _, item := range d.later.close() {
		d.submitted(item, d.batch.AddAgain(item))
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := d.e.slots.waitFor(ctx, func(u Usage) bool { return left(u) == 0 })
	if err != nil {
		err = fmt.Errorf("%d %s not saved: %w", left(d.e.slots.usage()), d.what, err)
	}
	return errors.Join(err, d.batch.Stop(ctx))
}

// later are items that wait until they are sent again. It is safe for concurrent use; the zero
// value is empty. It holds at most the items of the executions of a worker.
type later[T any] struct {
	mu     sync.Mutex
	items  []waiting[T]
	closed bool
}

type waiting[T any] struct {
	item T
	due  time.Time
}

// put adds an item, unless it is closed.
func (l *later[T]) put(item T, due time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.items = append(l.items, waiting[T]{item, due})
	}
	return !l.closed
}

// due removes and returns the items whose time has come, and the time until the next one; 0: there
// is none.
func (l *later[T]) due(now time.Time) (due []T, next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = slices.DeleteFunc(l.items, func(w waiting[T]) bool {
		left := w.due.Sub(now)
		if left <= 0 {
			due = append(due, w.item)
			return true
		}
		if next == 0 || left < next {
			next = left
		}
		return false
	})
	return due, next
}

// close removes and returns all items; no more are added.
func (l *later[T]) close() (all []T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.items {
		all = append(all, w.item)
	}
	l.items, l.closed = nil, true
	return all
}

// sqlState returns the SQLSTATE of an error from the server, or "".
func sqlState(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}
