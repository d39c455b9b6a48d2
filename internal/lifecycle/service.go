package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sourcegraph/conc"
	"go.uber.org/zap"
)

// Service is a long-running part of the program.
type Service interface {
	// Name is for logs and errors.
	Name() string
	// Start returns once the service has started; ctx bounds only the starting. A second
	// call returns nil; a call after Stop returns ErrStopped.
	Start(ctx context.Context) error
	// Stop returns once the service has stopped, or with an error when ctx ends first.
	// Calling it twice, or without Start, is fine.
	Stop(ctx context.Context) error
}

// ErrStopped is returned by Start after Stop: a service has one life.
var ErrStopped = errors.New("already stopped")

// stopGrace is the time beyond its deadline in which a service may return the error that
// says what is left, before StopAll abandons it.
const stopGrace = 250 * time.Millisecond

// StartAll starts services in order. When one fails, or ctx ends, those already started are
// stopped in reverse, each within the time each, and the joined errors are returned. A panic
// counts as an error.
func StartAll(ctx context.Context, log *zap.Logger, each time.Duration, services ...Service) error {
	for i, s := range services {
		err := ctx.Err()
		if err == nil {
			err = Guard(func() error { return s.Start(ctx) })
		}
		if err != nil {
			err = fmt.Errorf("starting %s: %w", s.Name(), err)
			return errors.Join(err, StopAll(context.WithoutCancel(ctx), log, each, services[:i]...))
		}
		log.Debug("started", zap.String("service", s.Name()))
	}
	return nil
}

// StopAll stops services in reverse order, each within the time each and all of them within
// ctx. Every service is stopped, even if others fail; the errors are joined. A service whose
// Stop does not return in time is logged and abandoned.
func StopAll(ctx context.Context, log *zap.Logger, each time.Duration, services ...Service) error {
	var failed []error
	for _, s := range slices.Backward(services) {
		begin := time.Now()
		if err := stopOne(ctx, each, s); err != nil {
			err = fmt.Errorf("stopping %s: %w", s.Name(), err)
			log.Warn("did not stop in time or cleanly",
				zap.String("service", s.Name()), zap.Int64("duration_ms", time.Since(begin).Milliseconds()), zap.Error(err), StackField(err))
			failed = append(failed, err)
			continue
		}
		log.Debug("stopped", zap.String("service", s.Name()), zap.Int64("duration_ms", time.Since(begin).Milliseconds()))
	}
	return errors.Join(failed...)
}

func stopOne(ctx context.Context, each time.Duration, s Service) error {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	done := make(chan error, 1)
	var wg conc.WaitGroup // not waited for: an abandoned Stop must not delay the others
	wg.Go(func() { done <- Guard(func() error { return s.Stop(ctx) }) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case err := <-done:
		return err
	case <-grace.C:
		return ctx.Err()
	}
}
