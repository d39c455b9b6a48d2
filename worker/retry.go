package worker

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/command"
)

// Delivery of handler output to the database: in statements of bounded size, retried
// until answered; an item that cannot be stored does not affect the others.

// fitting returns how many of the first items fit into one statement; an item that is too
// large goes alone.
func fitting[T any](items []T, size func(T) int) int {
	total := 0
	for i := range items {
		total += size(items[i])
		if total > maxReportBytes && i > 0 {
			return i
		}
	}
	return len(items)
}

// retryUntilAnswered retries a statement with n items until it gets an answer, the
// database rejects its content, or ctx ends.
func retryUntilAnswered[R any](ctx context.Context, e *engine, what string, n int, send func(ctx context.Context) ([]R, error)) ([]R, error) {
	guard := e.cfg.Report.Breaker
	for try := 0; ; try++ {
		var answers []R
		err := guard.Do(ctx, func(ctx context.Context) (err error) {
			answers, err = send(ctx)
			return err
		})
		if err == nil && len(answers) != n {
			err = fmt.Errorf("%d answers to %d %s", len(answers), n, what)
		}
		if err == nil || refused(err) {
			return answers, err
		}
		if try == 0 {
			e.log.Warn(what+" are repeated until they are answered", zap.Int(what, n), zap.Error(err))
		}
		if cause := pause(ctx, try, guard.Wait()); cause != nil {
			return nil, fmt.Errorf("%w (gave up for now: %w)", err, cause)
		}
	}
}

// inHalves sends items and records the answers. When the database rejects the content of
// one of them, it halves the batch until that item is alone, and alone decides about it.
func inHalves[T, R any](items []T, answers []R, errs []error, send func([]T) ([]R, error), alone func(T, error) (R, error)) {
	got, err := send(items)
	switch {
	case err == nil:
		copy(answers, got)
	case !refused(err):
		for i := range errs {
			errs[i] = err
		}
	case len(items) > 1:
		half := len(items) / 2
		inHalves(items[:half], answers[:half], errs[:half], send, alone)
		inHalves(items[half:], answers[half:], errs[half:], send, alone)
	default:
		answers[0], errs[0] = alone(items[0], err)
	}
}

// batchError combines the errors of a flush's items.
func batchError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return &command.BatchError{Errs: errs}
		}
	}
	return nil
}
