package pending

import (
	"context"
	"sync"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/signal"
)

// DefaultLimit is the number of signals with different payloads that
// wait on either end before they collapse to their topics.
const DefaultLimit = 8192

// maxBareTopics bounds what a full buffer still accepts: one signal without
// payload for each topic. It is far above any number of namespaces.
const maxBareTopics = 1 << 16

// Buffer is a bounded first-in-first-out set of waiting signals. Put never blocks. A
// signal that equals a waiting one coalesces with it. When the buffer is full, all
// payloads are dropped and each waiting topic keeps one signal without payload, which
// covers later signals of the topic until it is taken: a flood loses detail, never a
// topic. Probes keep their last payload, because their nonce is what is measured.
//
// A Buffer is safe for concurrent use.
type Buffer struct {
	limit int
	// ready holds a token when a waiting reader should look again.
	ready chan struct{}

	mu       sync.Mutex
	queue    []waiting
	index    map[signal.Signal]struct{} // the signals in queue
	covered  map[signal.Topic]struct{}  // topics whose bare signal in queue stands for all payloads
	payloads int                        // signals in queue that a collapse would remove
	err      error                      // why no more signals arrive
	stats    BufferStats
}

type waiting struct {
	signal signal.Signal
	mark   uint64
}

// BufferStats counts signals since the buffer was made. At every moment
// Put = taken + Coalesced + Dropped + waiting.
type BufferStats struct {
	Put       uint64 // signals offered
	Coalesced uint64 // merged into one that was waiting
	Dropped   uint64 // offered after the end, discarded by Close, or beyond every bound
	Collapsed uint64 // times that a full buffer dropped payloads
}

// NewBuffer returns an empty buffer for limit signals (DefaultLimit when
// limit is not positive).
func NewBuffer(limit int) *Buffer {
	if limit <= 0 {
		limit = DefaultLimit
	}
	return &Buffer{
		limit:   limit,
		ready:   make(chan struct{}, 1),
		index:   make(map[signal.Signal]struct{}),
		covered: make(map[signal.Topic]struct{}),
	}
}

// Put adds s, which must be well-formed.
func (b *Buffer) Put(s signal.Signal) { b.PutAt(s, 0) }

// PutAt adds s with a mark: a position in the source's stream, never less than the
// previous mark. A signal that coalesces keeps the mark of the first.
func (b *Buffer) PutAt(s signal.Signal, mark uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats.Put++
	switch {
	case b.err != nil:
		b.stats.Dropped++
		return
	case b.merge(s):
		return
	case len(b.queue) >= b.limit:
		b.collapse()
		if b.merge(s) {
			return
		}
	}
	if len(b.queue) < b.limit {
		b.push(waiting{signal: s, mark: mark})
	} else {
		b.pushTopic(waiting{signal: s, mark: mark})
	}
	b.wake()
}

// Take waits for the oldest signal and removes it. It returns the error of ctx, or,
// when no signal is left, the error of Fail or signal.ErrClosed.
func (b *Buffer) Take(ctx context.Context) (signal.Signal, error) {
	for {
		if err := ctx.Err(); err != nil {
			b.rewake() // the token that this call may have consumed belongs to other readers
			return signal.Signal{}, err
		}
		b.mu.Lock()
		taken, err := b.pop(1), b.err
		if err != nil || len(b.queue) > 0 {
			b.wake() // for other readers
		}
		b.mu.Unlock()
		if len(taken) == 1 {
			return taken[0], nil
		}
		if err != nil {
			return signal.Signal{}, err
		}
		select {
		case <-b.ready:
		case <-ctx.Done():
		}
	}
}

// TakeBatch removes and returns up to limit signals, oldest first, without waiting. It
// also works after Fail.
func (b *Buffer) TakeBatch(limit int) []signal.Signal {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pop(limit)
}

// Ready returns the channel that receives a token when a signal was put into an empty
// buffer or the buffer has failed. It is for a single reader that uses TakeBatch.
func (b *Buffer) Ready() <-chan struct{} { return b.ready }

// Oldest returns the mark of the oldest waiting signal.
func (b *Buffer) Oldest() (mark uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		return 0, false
	}
	return b.queue[0].mark, true
}

// Len is the number of waiting signals.
func (b *Buffer) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// Stats returns the counters.
func (b *Buffer) Stats() BufferStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stats
}

// Fail says that no more signals arrive. Take returns the waiting signals, then err.
// Only the first error counts.
func (b *Buffer) Fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	b.wake()
}

// Close discards the waiting signals; Take returns signal.ErrClosed from now on.
func (b *Buffer) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = signal.ErrClosed
	b.stats.Dropped += uint64(len(b.pop(len(b.queue))))
	b.wake()
}

// merge reports whether a waiting signal covers s, and counts it.
func (b *Buffer) merge(s signal.Signal) bool {
	_, equal := b.index[s]
	_, covered := b.covered[s.Topic]
	if equal || covered {
		b.stats.Coalesced++
	}
	return equal || covered
}

// pushTopic adds w to a buffer that holds only topics: w may add its topic, without
// the payload.
func (b *Buffer) pushTopic(w waiting) {
	if !topicset.IsProbe(w.signal.Topic) {
		w.signal.Payload = ""
	}
	if _, there := b.index[w.signal]; there {
		b.covered[w.signal.Topic] = struct{}{}
		b.stats.Coalesced++
		return
	}
	if len(b.queue) >= b.limit+maxBareTopics {
		b.stats.Dropped++
		return
	}
	b.push(w)
	if !topicset.IsProbe(w.signal.Topic) {
		b.covered[w.signal.Topic] = struct{}{}
	}
}

func (b *Buffer) push(w waiting) {
	b.queue = append(b.queue, w)
	b.index[w.signal] = struct{}{}
	if w.signal.Payload != "" {
		b.payloads++
	}
}

func (b *Buffer) pop(limit int) []signal.Signal {
	n := min(limit, len(b.queue))
	if n <= 0 {
		return nil
	}
	taken := make([]signal.Signal, n)
	for i, w := range b.queue[:n] {
		taken[i] = w.signal
		delete(b.index, w.signal)
		if w.signal.Payload == "" {
			delete(b.covered, w.signal.Topic)
		} else {
			b.payloads--
		}
		b.queue[i] = waiting{}
	}
	b.queue = b.queue[n:]
	return taken
}

// collapse leaves one signal per topic, at the place and with the mark of the oldest
// signal of that topic.
func (b *Buffer) collapse() {
	if b.payloads == 0 {
		return
	}
	old := b.queue
	b.queue, b.payloads = nil, 0
	clear(b.index)
	last := lastProbes(old)
	seen := make(map[signal.Topic]struct{})
	for _, w := range old {
		if _, again := seen[w.signal.Topic]; again {
			b.stats.Coalesced++
			continue
		}
		seen[w.signal.Topic] = struct{}{}
		w.signal.Payload = last[w.signal.Topic] // empty for all but probes
		b.push(w)
		if !topicset.IsProbe(w.signal.Topic) {
			b.covered[w.signal.Topic] = struct{}{}
		}
	}
	b.stats.Collapsed++
}

// lastProbes returns the newest payload of each probe topic.
func lastProbes(queue []waiting) map[signal.Topic]string {
	last := make(map[signal.Topic]string)
	for _, w := range queue {
		if topicset.IsProbe(w.signal.Topic) {
			last[w.signal.Topic] = w.signal.Payload
		}
	}
	return last
}

func (b *Buffer) rewake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) > 0 || b.err != nil {
		b.wake()
	}
}

func (b *Buffer) wake() {
	lifecycle.Nudge(b.ready)
}
