package signal

import (
	"context"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// Name implements lifecycle.Service.
func (s *Sender) Name() string { return "signal sender" }

// Health returns the state of the flushing loop.
func (s *Sender) Health() lifecycle.LoopHealth { return s.loop.Health() }

// Start begins to flush and returns at once. The end of ctx does not end the Sender,
// because a draining daemon still publishes: Stop does. Starting twice is harmless;
// starting after Stop returns lifecycle.ErrStopped.
func (s *Sender) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return lifecycle.ErrStopped
	}
	s.started = true
	return s.loop.Start(context.WithoutCancel(ctx))
}

// stopGrace is how long Stop waits, beyond its context, for a cancelled transport to
// return.
const stopGrace = 100 * time.Millisecond

// Stop rejects new signals, sends the waiting ones and returns when none is left. When
// ctx ends before that, the flush in flight is cancelled, the rest is dropped and the
// error of ctx is returned. Stopping twice is harmless.
func (s *Sender) Stop(ctx context.Context) error {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		s.waiting.Fail(ErrClosed)
		close(s.stopping)
	}
	started := s.started
	s.mu.Unlock()
	if !started {
		s.waiting.Close()
		return nil
	}
	var left error
	select {
	case <-s.done:
	case <-ctx.Done():
		left = fmt.Errorf("flushing the last signals: %w", ctx.Err())
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if err := s.loop.Stop(grace); left == nil {
		return err
	}
	return left
}

// run flushes until Stop was called and no signal waits, or ctx ends. It returns only
// with the end of ctx, since the loop would restart.
func (s *Sender) run(ctx context.Context) error {
	failures := 0 // in a row
	for ctx.Err() == nil {
		if failures > 0 {
			s.pause(ctx, failures) // before taking, so that more coalesces
		}
		batch := s.waiting.TakeBatch(s.cfg.MaxBatch)
		if len(batch) > 0 {
			failures = s.flush(ctx, s.join(batch), failures)
		} else if !s.await(ctx) {
			break
		}
	}
	s.waiting.Close() // counts what is left as dropped
	close(s.done)
	<-ctx.Done()
	return nil
}
