package orchestration

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/sourcegraph/conc"

	"github.com/tasker-go/tasker/internal/schema"
	"github.com/tasker-go/tasker/internal/store"
)

// The looks of an orchestrator check contexts of sub-workflows and schedules in the middle of a
// transaction. A small check is made there. A large one is made beside the looks, in the turns of
// the checker: its step or schedule is left as it is until the outcome is known, and then found
// again. A check beyond the budget has an outcome too: nothing is tried for ever, by whichever
// orchestrator.

// Bounds of the checks beside the looks.
const (
	// lookSteps are those of a check in a look, which makes a hundred of them.
	lookSteps = 5_000
	// maxBeside bounds the checks under way or waiting, and so their contexts in memory.
	maxBeside = 32
	// outcomeKept is how long an outcome is kept for the look that asks for it again.
	outcomeKept = time.Minute
	// contentPause is the delay before a step or schedule is looked at again whose check could not
	// be made.
	contentPause = time.Second
)

// content makes checks beside the looks.
type content struct {
	by   *schema.Checker
	wake func(in time.Duration) // looks again

	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	group  conc.WaitGroup // the checks

	mu     sync.Mutex
	checks map[contentKey]*contentCheck
	paused map[uuid.UUID]time.Time // steps' tasks and schedules, until then
}

// contentKey identifies a check by its schema and value.
type contentKey struct {
	schema *schema.Schema
	value  [sha256.Size]byte
}

// contentCheck is a check with its outcome.
type contentCheck struct {
	rows  []uuid.UUID // that wait for it
	ended time.Time   // zero: under way
	found []schema.Violation
	err   error
}

func newContent(by *schema.Checker, wake func(time.Duration)) *content {
	c := &content{by: by, wake: wake, checks: map[contentKey]*contentCheck{}, paused: map[uuid.UUID]time.Time{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Name implements lifecycle.Service.
func (c *content) Name() string { return "content-checks" }

// Start implements lifecycle.Service.
func (c *content) Start(context.Context) error { return nil }

// Stop implements lifecycle.Service: it abandons the checks.
func (c *content) Stop(context.Context) error {
	c.cancel()
	c.group.Wait() // they look at their context all the time
	return nil
}

// of returns the checks of a task or schedule, which is looked at again when the outcome of a large
// one is known. Until then they fail with store.ErrNotYet.
func (c *content) of(row uuid.UUID) rowChecks { return rowChecks{c, row} }

// rowChecks implements submission.Checks.
type rowChecks struct {
	*content
	row uuid.UUID
}

// Check implements submission.Checks.
func (c rowChecks) Check(ctx context.Context, s *schema.Schema, value any) ([]schema.Violation, error) {
	document, err := json.Marshal(value) // it is JSON text already
	if err != nil {
		return nil, fmt.Errorf("read a context: %w", err)
	}
	key := contentKey{s, sha256.Sum256(document)}
	if !c.begun(key) {
		found, err := c.by.Small(ctx, s, json.RawMessage(document), lookSteps)
		if !errors.Is(err, schema.ErrLarge) {
			return found, err
		}
	}
	return c.outcome(key, document, c.row)
}

// begun reports whether a check is under way or has an outcome.
func (c *content) begun(key contentKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checks[key] != nil
}

// outcome returns that of a check, which it begins if it has not begun.
func (c *content) outcome(key contentKey, value json.RawMessage, row uuid.UUID) ([]schema.Violation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(c.checks, func(_ contentKey, k *contentCheck) bool { return !k.ended.IsZero() && now.Sub(k.ended) > outcomeKept })
	check := c.checks[key]
	switch {
	case check != nil && !check.ended.IsZero():
		return check.found, check.err
	case check != nil:
	case len(c.checks) >= maxBeside || c.ctx.Err() != nil:
		c.pause(now, row)
		return nil, store.ErrNotYet
	default:
		check = &contentCheck{}
		c.checks[key] = check
		c.group.Go(func() { c.make(key, value) })
	}
	if !slices.Contains(check.rows, row) {
		check.rows = append(check.rows, row)
	}
	return nil, store.ErrNotYet
}

// pause requires the lock.
func (c *content) pause(now time.Time, rows ...uuid.UUID) {
	for _, row := range rows {
		c.paused[row] = now.Add(contentPause)
	}
	c.wake(contentPause)
}

// make makes a check.
func (c *content) make(key contentKey, value json.RawMessage) {
	found, err := c.by.Check(c.ctx, key.schema, value)
	known := err == nil || errors.As(err, new(*schema.BudgetError))
	c.mu.Lock()
	defer c.mu.Unlock()
	check, now := c.checks[key], time.Now()
	if !known { // too many wait, or the orchestrator stops
		delete(c.checks, key)
		c.pause(now, check.rows...)
		return
	}
	check.rows, check.ended, check.found, check.err = nil, now, found, err
	c.wake(0)
}

// held are the tasks and schedules that wait for outcomes.
func (c *content) held() (rows []uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(c.paused, func(_ uuid.UUID, until time.Time) bool { return !now.Before(until) })
	rows = slices.Collect(maps.Keys(c.paused))
	for _, check := range c.checks {
		rows = append(rows, check.rows...)
	}
	return rows
}
