package pending

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc/panics"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/signal"
)

// SenderConfig bounds a Sender. A zero field means its default.
type SenderConfig struct {
	// FlushTimeout bounds one call of the transport. Default 5 s.
	FlushTimeout time.Duration
	// SendAfter is the transport's way to send with a delay; nil: it has none.
	SendAfter func(ctx context.Context, delay time.Duration, batch []signal.Signal) error
	// OnError, when set, is called by the flushing loop with the error of each
	// failed flush. It must not block.
	OnError func(error)
	// OnRestart, when set, is called for each restart of the flushing loop after a
	// panic, for counting.
	OnRestart func(name string)
	Logger    *zap.Logger // default none

	limit, maxBatch        int // of waiting signals, and of those in one flush
	backoffMin, backoffMax time.Duration
}

// SenderStats counts signals since the Sender was made, after payloads with
// several UUIDs were split. At rest
// Published = Sent + Coalesced + Dropped + Waiting.
type SenderStats struct {
	Published uint64 // offered to Publish
	Sent      uint64 // carried by the transport
	Coalesced uint64 // merged into another: equal, joined, or covered by a bare topic
	Collapsed uint64 // dropped payloads: overflow, or not valid for any transport
	Dropped   uint64 // not sent: malformed, two failures (one if delayed), no room, or published after Stop
	Failed    uint64 // flushes that failed
	Flushes   uint64 // flushes that succeeded
	Waiting   int    // waiting for the next flush now
}

// Sender is the coalescing signal.Publisher. At most one flush is in flight; signals published
// meanwhile form the next batch, which is sent as soon as the flush returns. So a lone
// signal is sent at once and a thousand share one round trip, and there is no timer.
//
// A failed batch is retried once after a pause, which doubles from 50 ms to 5 s with each
// failure in a row and is jittered down to its half; then it is dropped: signals are hints, and
// listeners scan after an outage anyway. A batch on which the flushing loop panicked is
// dropped, and the loop restarts after a pause.
type Sender struct {
	transport signal.Transport
	cfg       SenderConfig
	waiting   *Buffer
	later     *later

	published, sent, joined, stripped, dropped, failed, flushes atomic.Uint64

	loop     *lifecycle.Loop
	stop     sync.Once
	stopping chan struct{}
	done     chan struct{} // closed when stopped and nothing is left
}

var (
	_ signal.Publisher  = (*Sender)(nil)
	_ lifecycle.Service = (*Sender)(nil)
)

// NewSender returns a Sender that is not started: signals wait until it is.
func NewSender(t signal.Transport, cfg SenderConfig) *Sender {
	cfg.maxBatch = cmp.Or(cfg.maxBatch, 2048)
	cfg.FlushTimeout = cmp.Or(max(cfg.FlushTimeout, 0), 5*time.Second)
	cfg.backoffMin = cmp.Or(cfg.backoffMin, 50*time.Millisecond)
	cfg.backoffMax = cmp.Or(cfg.backoffMax, 5*time.Second)
	s := &Sender{
		transport: t,
		cfg:       cfg,
		waiting:   NewBuffer(cfg.limit),
		later:     newLater(),
		stopping:  make(chan struct{}),
		done:      make(chan struct{}),
	}
	s.loop = lifecycle.NewLoop(lifecycle.LoopConfig{Name: "signal-sender", Run: s.run, OnRestart: cfg.OnRestart, Logger: cfg.Logger})
	return s
}

// Publish implements signal.Publisher. A signal whose payload no transport can carry is sent
// without it; a signal with a malformed topic is dropped, and after Stop every signal.
// Both show in the statistics.
func (s *Sender) Publish(signals ...signal.Signal) {
	for _, sig := range signals {
		if sig.Topic != signal.TopicTasks || !strings.Contains(sig.Payload, ",") {
			s.put(sig)
			continue
		}
		// Single identifiers coalesce with others; they are joined at the flush.
		for _, id := range splitIDs(sig.Payload) {
			s.put(signal.Signal{Topic: signal.TopicTasks, Payload: id})
		}
	}
}

// splitIDs returns the parts of a payload of TopicTasks, without empty ones; a payload
// of only commas yields the empty payload.
func splitIDs(payload string) []string {
	ids := strings.FieldsFunc(payload, func(r rune) bool { return r == ',' || r == ' ' })
	if len(ids) == 0 {
		return []string{""}
	}
	return ids
}

func (s *Sender) put(sig signal.Signal) {
	s.published.Add(1)
	if sig.Topic.Validate() != nil {
		s.dropped.Add(1)
		return
	}
	// One malformed payload would make the whole statement of a flush fail.
	if sig.Validate() != nil {
		sig.Payload = ""
		s.stripped.Add(1)
	}
	s.waiting.Put(sig)
}

// Stats returns the counters. It is safe at any time.
func (s *Sender) Stats() SenderStats {
	b := s.waiting.Stats()
	return SenderStats{
		Published: s.published.Load(),
		Sent:      s.sent.Load(),
		Coalesced: b.Coalesced + s.joined.Load(),
		Collapsed: b.Collapsed + s.stripped.Load(),
		Dropped:   b.Dropped + s.dropped.Load(),
		Failed:    s.failed.Load(),
		Flushes:   s.flushes.Load(),
		Waiting:   s.waiting.Len() + s.later.len(),
	}
}

// Name implements lifecycle.Service.
func (s *Sender) Name() string { return "signal sender" }

// Health returns the state of the flushing loop.
func (s *Sender) Health() lifecycle.LoopHealth { return s.loop.Health() }

// Start begins to flush and returns at once. The end of ctx does not end the Sender,
// because a draining daemon still publishes: Stop does. Starting twice is harmless;
// starting after Stop returns lifecycle.ErrStopped.
func (s *Sender) Start(ctx context.Context) error {
	return s.loop.Start(context.WithoutCancel(ctx))
}

// stopGrace is how long Stop waits, beyond its context, for a cancelled transport to
// return.
const stopGrace = 100 * time.Millisecond

// Stop rejects new signals, sends the waiting ones and returns when none is left. When
// ctx ends before that, the flush in flight is cancelled, the rest is dropped and the
// error of ctx is returned. Stopping twice is harmless.
func (s *Sender) Stop(ctx context.Context) error {
	s.stop.Do(func() {
		s.waiting.Fail(signal.ErrClosed)
		close(s.stopping)
	})
	switch s.Health().State {
	case lifecycle.LoopIdle, lifecycle.LoopStopped: // nothing sends what waits
		s.waiting.Close()
		return s.loop.Stop(ctx)
	}
	select {
	case <-s.done:
		return s.loop.Stop(ctx)
	case <-ctx.Done():
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		_ = s.loop.Stop(grace) // what is left says more
		return fmt.Errorf("flushing the last signals: %w", ctx.Err())
	}
}

// run flushes until Stop was called and no signal waits, or ctx ends. It returns only
// with the end of ctx, since the loop would restart.
func (s *Sender) run(ctx context.Context) error {
	failures, paused := 0, true // in a row; since the last of them
	for ctx.Err() == nil {
		if !paused {
			s.pause(ctx, failures) // before taking, so that more coalesces
			paused = true
		}
		batch := s.waiting.TakeBatch(s.cfg.maxBatch)
		if len(batch) > 0 {
			failures = s.flush(ctx, s.join(batch), failures)
			paused = failures == 0
		}
		if !s.flushLater(ctx) && len(batch) == 0 && !s.await(ctx) {
			break
		}
	}
	s.waiting.Close() // counts what is left as dropped
	for _, ok := s.later.take(); ok; _, ok = s.later.take() {
		s.dropped.Add(1)
	}
	close(s.done)
	<-ctx.Done()
	return nil
}

// await waits for signals to flush; false means that no more arrive.
func (s *Sender) await(ctx context.Context) bool {
	select {
	case <-s.waiting.Ready():
		return true
	case <-s.later.ready:
		return true
	case <-s.stopping:
		return s.waiting.Len()+s.later.len() > 0
	case <-ctx.Done():
		return true // run sees it
	}
}

// flush sends one batch, at most twice, and returns the consecutive failures.
func (s *Sender) flush(ctx context.Context, batch []signal.Signal, failures int) int {
	sent := false
	defer func() { // also after a panic
		if !sent {
			s.dropped.Add(uint64(len(batch)))
		}
	}()
	for attempt := range 2 {
		if attempt > 0 {
			s.pause(ctx, failures)
		}
		if sent = s.send(ctx, batch, s.transport.Send); sent {
			return 0
		}
		failures++
	}
	return failures
}

// send makes one try, and counts it.
func (s *Sender) send(ctx context.Context, batch []signal.Signal, over func(context.Context, []signal.Signal) error) bool {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.FlushTimeout)
	defer cancel()
	var err error
	if r := panics.Try(func() { err = over(ctx, batch) }); r != nil {
		err = r.AsError()
	}
	if err == nil {
		s.flushes.Add(1)
		s.sent.Add(uint64(len(batch)))
		return true
	}
	s.failed.Add(1)
	if s.cfg.OnError != nil {
		s.cfg.OnError(fmt.Errorf("sending %d signals: %w", len(batch), err))
	}
	return false
}

// pause waits for the backoff; Stop ends it early.
func (s *Sender) pause(ctx context.Context, failures int) {
	d := s.cfg.backoffMin << min(failures-1, 20)
	if d <= 0 || d > s.cfg.backoffMax {
		d = s.cfg.backoffMax
	}
	d -= rand.N(d/2 + 1)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.stopping:
	case <-ctx.Done():
	}
}

// join combines the UUIDs on TopicTasks, as many per payload as fit.
func (s *Sender) join(batch []signal.Signal) []signal.Signal {
	out := make([]signal.Signal, 0, len(batch))
	var ids []string
	size := 0 // of the payload that ids will make
	closePayload := func() {
		if len(ids) > 0 {
			out = append(out, signal.Signal{Topic: signal.TopicTasks, Payload: strings.Join(ids, ",")})
			s.joined.Add(uint64(len(ids) - 1))
			ids, size = ids[:0], 0
		}
	}
	for _, sig := range batch {
		if sig.Topic != signal.TopicTasks || sig.Payload == "" {
			out = append(out, sig)
			continue
		}
		if len(ids) > 0 && size+1+len(sig.Payload) > signal.MaxPayloadBytes {
			closePayload()
		}
		if len(ids) > 0 {
			size++ // the comma
		}
		ids = append(ids, sig.Payload)
		size += len(sig.Payload)
	}
	closePayload()
	return out
}
