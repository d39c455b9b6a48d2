package attemptlog

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
)

const (
	// maxChunk bounds the lines of a chunk, in bytes as stored before compression, but for one line.
	maxChunk = 64 << 10
	// leastShare is what each attempt may have in memory, however many others there are.
	leastShare = 16 << 10
	// leastCharge is what a chunk counts at least among the bytes that are kept, so that an attempt
	// which logs little and for long has a bounded number of rows.
	leastCharge = 128
	// segments is into how many parts the last lines of an attempt are divided; the oldest is dropped
	// as a whole.
	segments = 16
)

// Bounds are those of a process.
type Bounds struct {
	// Kept is how many bytes of the first lines of an attempt are kept, and how many of the last, as
	// stored before compression.
	Kept int
	// Line bounds the text and the fields of a line, in bytes each. A longer text is cut; larger
	// fields are left out.
	Line int
	// Pending bounds the lines that are not written yet, of all attempts together, in bytes; what each
	// attempt has at least may double it. It is shared: an attempt has at most its part of those that
	// have some.
	Pending int
	// After is how long a line waits for others before it is written.
	After time.Duration
}

// Memory has the lines of all attempts of a process that are not written yet. K says which attempt
// one is. It is safe for concurrent use.
type Memory[K any] struct {
	bounds Bounds
	wake   func()
	bytes  atomic.Int64 // pending
	lost   atomic.Int64 // lines dropped
	// attempts are those with pending lines.
	attempts atomic.Int64

	encoder func() *zstd.Encoder

	mu    sync.Mutex
	dirty []*Log[K] // those with pending lines, by their first
}

// NewMemory returns a Memory without lines. wake is called when there is a line to be written after
// there was none; it must not block.
func NewMemory[K any](b Bounds, wake func()) *Memory[K] {
	return &Memory[K]{bounds: b, wake: wake, encoder: sync.OnceValue(newEncoder)}
}

func (m *Memory[K]) compress(raw []byte) []byte {
	return m.encoder().EncodeAll(raw, make([]byte, 0, len(raw)/3+64))
}

// Pending returns how many bytes of lines are not written yet.
func (m *Memory[K]) Pending() int64 { return m.bytes.Load() }

// Dropped returns how many lines were dropped since the process began.
func (m *Memory[K]) Dropped() int64 { return m.lost.Load() }

// share is how many bytes one attempt may have in memory: as many as are kept of it, while there is
// room, else its part of those that have some.
func (m *Memory[K]) share() int {
	if m.bytes.Load() <= int64(m.bounds.Pending) {
		return 2 * m.bounds.Kept
	}
	return max(m.bounds.Pending/max(int(m.attempts.Load()), 1), leastShare)
}

// enter adds an attempt with a first pending line.
func (m *Memory[K]) enter(l *Log[K]) {
	m.mu.Lock()
	m.dirty = append(m.dirty, l)
	m.attempts.Store(int64(len(m.dirty)))
	first := len(m.dirty) == 1
	m.mu.Unlock()
	if first {
		m.wake()
	}
}

// Next returns after which time lines are to be written; negative: there are none.
func (m *Memory[K]) Next(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := time.Duration(-1)
	for _, l := range m.dirty {
		if left := max(l.waits(now, m.bounds.After), 0); next < 0 || left < next {
			next = left
		}
	}
	return next
}

// Due removes and returns the attempts whose lines are to be written now, at most count of them. With
// all it returns those that would wait, too.
func (m *Memory[K]) Due(now time.Time, all bool, count int) (due []*Log[K]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dirty = slices.DeleteFunc(m.dirty, func(l *Log[K]) bool {
		taken := len(due) < count && (all || l.waits(now, m.bounds.After) <= 0)
		if taken {
			due = append(due, l)
		}
		return taken
	})
	m.attempts.Store(int64(len(m.dirty)))
	return due
}

// Log is the lines of one attempt. It is safe for concurrent use. Executions of a claim that follow
// each other share it.
type Log[K any] struct {
	Of     K // what it is the log of
	memory *Memory[K]

	mu      sync.Mutex
	pending bool // it is among the dirty ones
	ended   bool
	since   time.Time // of the first pending line, by the local clock
	next    int64     // number of the next line
	last    time.Time // of the latest line
	closed  []part    // chunks to come, without the open one
	open    part
	bytes   int // of closed and open
	head    int // bytes of the first lines, with those that are pending
	isTail  bool
	written []segment // of the last lines, in the database
	tail    int       // their bytes
}

// part is a chunk in memory.
type part struct {
	Chunk
	raw  []byte
	tail bool
}

func (p *part) charge() int { return max(len(p.raw), leastCharge) }

// segment is some chunks in the database, in a row.
type segment struct {
	from  time.Time // of the first chunk
	first int64     // number of the first line
	bytes int
}

// NewLog returns a Log without lines.
func (m *Memory[K]) NewLog(of K) *Log[K] { return &Log[K]{Of: of, memory: m} }

// waits returns after which time the lines are to be written.
func (l *Log[K]) waits(now time.Time, after time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return 0
	}
	return after - now.Sub(l.since)
}

// Add appends a line. It never waits for the database. The fields are a JSON object without line
// breaks, or nil.
func (l *Log[K]) Add(at time.Time, level Level, text string, fields []byte) {
	b := &l.memory.bounds
	text = clip(text, b.Line)
	if len(fields) > b.Line {
		fields = fmt.Appendf(nil, `{"fields_left_out_bytes":%d}`, len(fields))
	}
	at = at.Truncate(time.Microsecond)
	l.mu.Lock()
	if l.memory.bytes.Load() > 2*int64(b.Pending) {
		l.closeOpen() // the lines of a chunk have no gap
		l.next++
		l.mu.Unlock()
		l.memory.lost.Add(1)
		return
	}
	if at.Before(l.last) { // a clock was set back: the lines stay in their order
		at = l.last
	}
	p := &l.open
	if p.Lines == 0 {
		*p = part{Chunk: Chunk{At: at, First: l.next}, tail: l.isTail, raw: p.raw[:0]}
	}
	before := len(p.raw)
	p.raw = appendLine(p.raw, at, level, text, fields)
	grown := len(p.raw) - before
	p.Last, p.Lines, p.Levels = at, p.Lines+1, p.Levels|1<<level
	l.last, l.next, l.bytes = at, l.next+1, l.bytes+grown
	l.memory.bytes.Add(int64(grown))
	entered := !l.pending
	if entered {
		l.pending, l.since = true, time.Now()
	}
	if len(p.raw) >= min(maxChunk, b.Kept/4, max(l.memory.share()/4, leastShare/2)) {
		l.closeOpen()
		l.fit(l.memory.share())
	}
	l.mu.Unlock()
	if entered {
		l.memory.enter(l)
	}
}

// End has the lines written without waiting for others.
func (l *Log[K]) End() {
	l.mu.Lock()
	l.ended = true
	pending := l.pending
	l.mu.Unlock()
	if pending {
		l.memory.wake()
	}
}

// closeOpen ends the chunk that lines are added to. The caller holds the lock.
func (l *Log[K]) closeOpen() {
	if l.open.Lines == 0 {
		return
	}
	if !l.open.tail {
		l.head += l.open.charge()
		l.isTail = l.head >= l.memory.bounds.Kept
	}
	l.closed = append(l.closed, l.open)
	l.open = part{}
}

// fit drops pending lines of the middle: while there are more of the last ones than are kept, or more
// of all than the attempt may have. The first lines end early where they alone are too many. The
// newest chunk stays. The caller holds the lock.
func (l *Log[K]) fit(share int) {
	tail := 0
	for i := range l.closed {
		if l.closed[i].tail {
			tail += l.closed[i].charge()
		}
	}
	l.closed = slices.DeleteFunc(l.closed, func(p part) bool {
		more := p.tail && p.First < l.closed[len(l.closed)-1].First && (tail-p.charge() >= l.memory.bounds.Kept || l.bytes > share)
		if more {
			tail -= p.charge()
			l.bytes -= len(p.raw)
			l.memory.bytes.Add(-int64(len(p.raw)))
			l.memory.lost.Add(int64(p.Lines))
		}
		return more
	})
	l.isTail = l.isTail || l.bytes > share
}

// Range is lines in the database that are dropped, since later ones are kept instead.
type Range struct {
	From               time.Time `sql:"from_at"` // of their chunks; both inclusive
	Upto               time.Time `sql:"upto_at"`
	FromLine, UptoLine int64     // the numbers of the first lines of their chunks; the last exclusive
}

// Take removes and returns the pending lines, as chunks with their contents, and what of the
// database is dropped for them.
func (l *Log[K]) Take() (chunks []Chunk, drop *Range) {
	l.mu.Lock()
	l.closeOpen()
	l.fit(l.memory.share())
	parts := l.closed
	l.memory.bytes.Add(-int64(l.bytes))
	l.closed, l.bytes, l.pending = nil, 0, false
	for i := range parts {
		if parts[i].tail {
			l.write(&parts[i])
		}
	}
	drop = l.dropWritten()
	l.mu.Unlock()
	chunks = make([]Chunk, len(parts))
	for i := range parts {
		chunks[i] = parts[i].Chunk
		chunks[i].Content = l.memory.compress(parts[i].raw)
	}
	return chunks, drop
}

// write adds a chunk to the segments of the last lines.
func (l *Log[K]) write(p *part) {
	n := len(l.written)
	if n == 0 || l.written[n-1].bytes >= l.memory.bounds.Kept/segments {
		l.written = append(l.written, segment{from: p.At, first: p.First})
		n++
	}
	l.written[n-1].bytes += p.charge()
	l.tail += p.charge()
}

// dropWritten removes the oldest segments while the others have all that is kept.
func (l *Log[K]) dropWritten() *Range {
	n := 0
	for n < len(l.written)-1 && l.tail-l.written[n].bytes >= l.memory.bounds.Kept {
		l.tail -= l.written[n].bytes
		n++
	}
	if n == 0 {
		return nil
	}
	from, upto := l.written[0], l.written[n]
	l.written = append(l.written[:0], l.written[n:]...)
	return &Range{From: from.from, Upto: upto.from, FromLine: from.first, UptoLine: upto.first}
}
