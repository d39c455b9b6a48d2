package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/command"
)

const (
	// maxReportBytes bounds the content of one statement; a larger item goes alone.
	maxReportBytes = 8 << 20
	// reportPatience bounds one flush; items without an answer by then are enqueued
	// again.
	reportPatience = time.Minute
)

// delivery writes the output of handlers to the database: items that arrive during a
// statement form the next batch. Statements have a bounded size and are retried in order until
// they are answered or rejected. An item that cannot be stored affects no other, and none is
// dropped.
type delivery[T deliverable, R any] struct {
	e     *Engine
	what  string // the items, for people
	size  func(item T) int
	first func(ctx context.Context, all []*parcel[T, R]) (left []*parcel[T, R]) // another way for some; nil: none
	send  func(ctx context.Context, items []T) ([]R, error)                     // one statement
	alone func(ctx context.Context, p *parcel[T, R])                            // answers for an item that the database rejects
	batch *command.Batcher[T, R]
}

// deliverable is what a delivery delivers.
type deliverable interface{ of() *Execution }

// parcel is an item on its way, with its answer.
type parcel[T deliverable, R any] struct {
	item   T
	answer R
	err    error
}

// open makes the batcher. Beyond pending handlers wait for room; items without an answer do not.
func (d *delivery[T, R]) open(name string, pending int, answered func([]command.Answer[T, R])) {
	d.batch = command.NewAsyncBatcher(command.BatcherConfig{
		Name: name, MaxBatch: d.e.cfg.Report.MaxBatch, MaxPending: pending, FlushTimeout: reportPatience,
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

// again enqueues an item whose flush has ended without an answer. It never waits.
func (d *delivery[T, R]) again(item T) { d.submitted(item, d.batch.AddAgain(item)) }

func (d *delivery[T, R]) submitted(item T, err error) {
	if err != nil {
		// Only after Stop; the lease of the claim is released.
		d.e.log.Error("what a step leaves behind was not saved", zap.Inline(item.of()), zap.String("what", d.what), zap.Error(err))
	}
}

// flush delivers a batch.
func (d *delivery[T, R]) flush(ctx context.Context, items []T) ([]R, error) {
	parcels, left := make([]parcel[T, R], len(items)), make([]*parcel[T, R], len(items))
	for i, item := range items {
		parcels[i].item, left[i] = item, &parcels[i]
	}
	if d.first != nil {
		left = d.first(ctx, left)
	}
	for len(left) > 0 {
		n := d.fitting(left)
		d.deliver(ctx, left[:n])
		left = left[n:]
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

// deliver sends parcels that fit into one statement. When the database rejects the
// content of one of them, it halves them until that one is alone.
func (d *delivery[T, R]) deliver(ctx context.Context, list []*parcel[T, R]) {
	items := make([]T, len(list))
	for i, p := range list {
		items[i] = p.item
	}
	answers, err := d.retry(ctx, items)
	if Refused(err) && len(list) > 1 {
		half := len(list) / 2
		d.deliver(ctx, list[:half])
		d.deliver(ctx, list[half:])
		return
	}
	for i, p := range list {
		if p.err = err; err == nil {
			p.answer = answers[i]
		}
	}
	if Refused(err) {
		d.alone(ctx, list[0])
	}
}

// retry repeats a statement until it gets an answer, the database rejects its content, or
// ctx ends.
func (d *delivery[T, R]) retry(ctx context.Context, items []T) (answers []R, err error) {
	guard := d.e.cfg.Report.Breaker
	for try := 0; ; try++ {
		err = guard.Do(ctx, func(ctx context.Context) (err error) {
			answers, err = d.send(ctx, items)
			return err
		})
		if err == nil && len(answers) != len(items) {
			err = fmt.Errorf("%d answers to %d %s", len(answers), len(items), d.what)
		}
		if err == nil || Refused(err) {
			return answers, err
		}
		if try == 0 {
			d.e.log.Warn("the database did not answer; what steps leave behind is sent again", zap.String("what", d.what), zap.Int("count", len(items)), zap.Error(err))
		}
		if cause := pause(ctx, try, guard.Wait()); cause != nil {
			return nil, fmt.Errorf("%w (gave up for now: %w)", err, cause)
		}
	}
}

// stop waits within a time until nothing is left, and stops.
func (d *delivery[T, R]) stop(ctx context.Context, within time.Duration, left func(u Usage) int) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := d.e.slots.waitFor(ctx, func(u Usage) bool { return left(u) == 0 })
	if err != nil {
		err = fmt.Errorf("%d %s not saved: %w", left(d.e.slots.usage()), d.what, err)
	}
	return errors.Join(err, d.batch.Stop(ctx))
}

// Refused reports whether an error is about the content of the statement, so that a retry
// cannot help: data exceptions, violated constraints, limits.
func Refused(err error) bool {
	code := sqlState(err)
	return strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23") || strings.HasPrefix(code, "54")
}

// sqlState returns the SQLSTATE of an error from the server, or "".
func sqlState(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}
