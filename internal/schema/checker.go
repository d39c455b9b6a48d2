package schema

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// smallSteps bounds the checks that are made at once, a few milliseconds each. What takes longer
// begins anew when it is its turn.
const smallSteps = 20_000

// Limits that hold where a program has no configuration of its own.
var defaultBudget = Budget{Steps: 2_000_000, Time: 10 * time.Second}

// ErrBusy says that too many large checks wait for their turn.
var ErrBusy = errors.New("too many large values wait to be checked against their schemas")

// CheckerConfig is the configuration of a Checker.
type CheckerConfig struct {
	Budget
	AtOnce     int // large checks under way; 0: any number
	MaxWaiting int // for their turn
	// Waits receives how many wait, GivenUp each check that was given up: for "steps", "time" or
	// "busy". Both may be nil.
	Waits   func(n int)
	GivenUp func(reason string)
}

// Checker checks values against schemas within a budget. Small checks are made at once; large ones
// take turns, so that they leave processors to others. It is safe for concurrent use. The nil
// *Checker has a budget of its own, and no turns.
type Checker struct {
	cfg     CheckerConfig
	turns   chan struct{}
	waiting atomic.Int64
}

// NewChecker returns a checker.
func NewChecker(cfg CheckerConfig) *Checker {
	return &Checker{cfg: cfg, turns: make(chan struct{}, cfg.AtOnce)}
}

// Check is Schema.Validate within the budget of the checker. The error is a *BudgetError or
// ErrBusy, or that of the context.
func (c *Checker) Check(ctx context.Context, s *Schema, value any) ([]Violation, error) {
	found, err := c.Small(ctx, s, value, smallSteps)
	if !errors.Is(err, ErrLarge) {
		return found, err
	}
	if c == nil || c.cfg.AtOnce == 0 {
		return c.whole(ctx, s, value)
	}
	if err := c.take(ctx); err != nil {
		return nil, err
	}
	defer func() { <-c.turns }()
	return c.whole(ctx, s, value)
}

// ErrLarge says that a check is too large to be made at once.
var ErrLarge = errors.New("the check takes a turn")

// Small is Check of up to so many steps, and without a turn: a check that has more fails with ErrLarge.
func (c *Checker) Small(ctx context.Context, s *Schema, value any, steps int) ([]Violation, error) {
	limit := c.budget()
	large := limit.Steps > steps
	limit.Steps = min(limit.Steps, steps)
	found, err := s.Validate(ctx, limit, value)
	if large && TooManySteps(err) != nil {
		return nil, ErrLarge
	}
	c.note(err)
	return found, err
}

func (c *Checker) budget() Budget {
	if c == nil {
		return defaultBudget
	}
	return c.cfg.Budget
}

func (c *Checker) whole(ctx context.Context, s *Schema, value any) ([]Violation, error) {
	found, err := s.Validate(ctx, c.budget(), value)
	c.note(err)
	return found, err
}

// take waits for a turn.
func (c *Checker) take(ctx context.Context) error {
	select {
	case c.turns <- struct{}{}:
		return nil
	default:
	}
	n := c.waiting.Add(1)
	defer func() { c.waits(c.waiting.Add(-1)) }()
	if c.waits(n); n > int64(c.cfg.MaxWaiting) {
		c.note(ErrBusy)
		return ErrBusy
	}
	select {
	case c.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait to check a value against its schema: %w", context.Cause(ctx))
	}
}

func (c *Checker) waits(n int64) {
	if c.cfg.Waits != nil {
		c.cfg.Waits(int(n))
	}
}

// note counts a check that was given up.
func (c *Checker) note(err error) {
	if err == nil || c == nil || c.cfg.GivenUp == nil {
		return
	}
	switch {
	case errors.Is(err, ErrBusy):
		c.cfg.GivenUp("busy")
	case TooManySteps(err) != nil:
		c.cfg.GivenUp("steps")
	case errors.As(err, new(*BudgetError)):
		c.cfg.GivenUp("time")
	}
}

// Busy is how many large checks are under way.
func (c *Checker) Busy() int { return len(c.turns) }
