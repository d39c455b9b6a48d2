package signal

import (
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
)

// Transport delivers a batch of well-formed signals to all subscribers in as few round
// trips as possible. Send is bounded by ctx and safe for concurrent use. After an error
// some of the batch may have been delivered.
type Transport interface {
	Send(ctx context.Context, batch []Signal) error
}

// SenderConfig bounds a Sender. A zero field means its default.
type SenderConfig struct {
	// Limit is how many different signals wait before their payloads are dropped.
	// Default DefaultBufferLimit.
	Limit int
	// MaxBatch is how many waiting signals one flush takes. Default 2048.
	MaxBatch int
	// FlushTimeout bounds one call of the transport. Default 5 s.
	FlushTimeout time.Duration
	// BackoffMin and BackoffMax bound the pause after a failed flush, which doubles with
	// each consecutive failure and is jittered down to its half. Defaults 50 ms and 5 s.
	BackoffMin, BackoffMax time.Duration
	// OnError, when set, is called by the flushing loop with the error of each
	// failed flush. It must not block.
	OnError func(error)
	// OnRestart, when set, is called for each restart of the flushing loop after a
	// panic, for counting.
	OnRestart func(name string)
	Logger    *zap.Logger // default none
}

func (c SenderConfig) withDefaults() SenderConfig {
	orInt := func(v, def int) int {
		if v > 0 {
			return v
		}
		return def
	}
	orTime := func(v, def time.Duration) time.Duration {
		if v > 0 {
			return v
		}
		return def
	}
	c.Limit = orInt(c.Limit, DefaultBufferLimit)
	c.MaxBatch = orInt(c.MaxBatch, 2048)
	c.FlushTimeout = orTime(c.FlushTimeout, 5*time.Second)
	c.BackoffMin = orTime(c.BackoffMin, 50*time.Millisecond)
	c.BackoffMax = max(c.BackoffMin, orTime(c.BackoffMax, 5*time.Second))
	return c
}

// SenderStats counts signals since the Sender was made, after payloads with
// several UUIDs were split. At rest
// Published = Sent + Coalesced + Dropped + Waiting.
type SenderStats struct {
	Published uint64 // offered to Publish
	Sent      uint64 // carried by the transport
	Coalesced uint64 // merged into another: equal, joined, or covered by a bare topic
	Collapsed uint64 // dropped payloads: overflow, or not valid for any transport
	Dropped   uint64 // not sent: malformed topic, two failures, or published after Stop
	Failed    uint64 // flushes that failed
	Flushes   uint64 // flushes that succeeded
	Waiting   int    // waiting for the next flush now
}

// Sender is the coalescing Publisher. At most one flush is in flight; signals published
// meanwhile form the next batch, which is sent as soon as the flush returns. So a lone
// signal is sent at once and a thousand share one round trip, and there is no timer.
//
// A failed batch is retried once after a pause, then dropped: signals are hints, and
// listeners scan after an outage anyway. A batch on which the flushing loop panicked is
// dropped, and the loop restarts after a pause.
type Sender struct {
	transport Transport
	cfg       SenderConfig
	waiting   *Buffer

	published, sent, joined, stripped, dropped, failed, flushes atomic.Uint64

	loop     *lifecycle.Loop
	mu       sync.Mutex // guards the life cycle
	started  bool
	stopped  bool
	stopping chan struct{}
	done     chan struct{} // closed when stopped and nothing is left
}

var (
	_ Publisher         = (*Sender)(nil)
	_ lifecycle.Service = (*Sender)(nil)
)

// NewSender returns a Sender that is not started: signals wait until it is.
func NewSender(t Transport, cfg SenderConfig) *Sender {
	cfg = cfg.withDefaults()
	s := &Sender{
		transport: t,
		cfg:       cfg,
		waiting:   NewBuffer(cfg.Limit),
		stopping:  make(chan struct{}),
		done:      make(chan struct{}),
	}
	s.loop = lifecycle.NewLoop(lifecycle.LoopConfig{Name: "signal-sender", Run: s.run, OnRestart: cfg.OnRestart, Logger: cfg.Logger})
	return s
}

// Publish implements Publisher. A signal whose payload no transport can carry is sent
// without it; a signal with a malformed topic is dropped, and after Stop every signal.
// Both show in the statistics.
func (s *Sender) Publish(signals ...Signal) {
	for _, sig := range signals {
		if sig.Topic != TopicTasks || !strings.Contains(sig.Payload, ",") {
			s.put(sig)
			continue
		}
		// Single identifiers coalesce with others; they are joined at the flush.
		for _, id := range splitIDs(sig.Payload) {
			s.put(Signal{Topic: TopicTasks, Payload: id})
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

func (s *Sender) put(sig Signal) {
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
		Waiting:   s.waiting.Len(),
	}
}

// await waits for signals to flush; false means that no more arrive.
func (s *Sender) await(ctx context.Context) bool {
	select {
	case <-s.waiting.Ready():
		return true
	case <-s.stopping:
		return s.waiting.Len() > 0
	case <-ctx.Done():
		return true // run sees it
	}
}

// flush sends one batch, at most twice, and returns the consecutive failures.
func (s *Sender) flush(ctx context.Context, batch []Signal, failures int) int {
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
		err := s.send(ctx, batch)
		if err == nil {
			s.flushes.Add(1)
			s.sent.Add(uint64(len(batch)))
			sent = true
			return 0
		}
		failures++
		s.failed.Add(1)
		if s.cfg.OnError != nil {
			s.cfg.OnError(err)
		}
	}
	return failures
}

func (s *Sender) send(ctx context.Context, batch []Signal) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.FlushTimeout)
	defer cancel()
	if r := panics.Try(func() { err = s.transport.Send(ctx, batch) }); r != nil {
		err = r.AsError()
	}
	if err != nil {
		return fmt.Errorf("sending %d signals: %w", len(batch), err)
	}
	return nil
}

// pause waits for the backoff; Stop ends it early.
func (s *Sender) pause(ctx context.Context, failures int) {
	d := s.cfg.BackoffMin << min(failures-1, 20)
	if d <= 0 || d > s.cfg.BackoffMax {
		d = s.cfg.BackoffMax
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
func (s *Sender) join(batch []Signal) []Signal {
	out := make([]Signal, 0, len(batch))
	var ids []string
	size := 0 // of the payload that ids will make
	closePayload := func() {
		if len(ids) > 0 {
			out = append(out, Signal{Topic: TopicTasks, Payload: strings.Join(ids, ",")})
			s.joined.Add(uint64(len(ids) - 1))
			ids, size = ids[:0], 0
		}
	}
	for _, sig := range batch {
		if sig.Topic != TopicTasks || sig.Payload == "" {
			out = append(out, sig)
			continue
		}
		if len(ids) > 0 && size+1+len(sig.Payload) > MaxPayloadBytes {
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
