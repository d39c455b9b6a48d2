package wal

import (
	"sync/atomic"

	"github.com/jackc/pglogrepl"
)

// position follows the stream and says what may be confirmed. It is pure apart from the
// two atomics, which other goroutines read; only the owner of the stream calls the rest.
//
// A confirmed position tells the server never to send again what ends at or before it.
// Transactions arrive whole, one after the other, so only the end of one may be
// confirmed; and while signals wait, nothing behind the oldest.
type position struct {
	complete pglogrepl.LSN // everything up to here has been received in full
	inTx     bool          // between Begin and Commit

	received  atomic.Uint64 // the furthest WAL position received
	serverEnd atomic.Uint64 // the furthest known end of the server's WAL
}

func newPosition(start pglogrepl.LSN) *position {
	p := &position{complete: start}
	raise(&p.received, start)
	raise(&p.serverEnd, start)
	return p
}

// begin enters a transaction.
func (p *position) begin() { p.inTx = true }

// commit leaves a transaction that ends at end.
func (p *position) commit(end pglogrepl.LSN) {
	p.inTx = false
	p.advance(end)
}

// message records a message at lsn and returns its mark: the position that was complete
// before it, which may be confirmed while the message waits. A message outside of
// transactions is complete by itself.
func (p *position) message(lsn pglogrepl.LSN, transactional bool) (mark uint64) {
	mark = uint64(p.complete)
	if !transactional && !p.inTx {
		p.advance(lsn)
	}
	raise(&p.received, lsn)
	return mark
}

// keepalive records that the server has sent everything up to end.
func (p *position) keepalive(end pglogrepl.LSN) {
	if !p.inTx {
		p.advance(end)
	}
	raise(&p.serverEnd, end)
}

// confirmable returns the position that may be confirmed, given the mark of the oldest
// waiting signal.
func (p *position) confirmable(oldest uint64, waiting bool) pglogrepl.LSN {
	if waiting {
		return min(p.complete, pglogrepl.LSN(oldest))
	}
	return p.complete
}

func (p *position) advance(to pglogrepl.LSN) {
	p.complete = max(p.complete, to)
	raise(&p.received, to)
	raise(&p.serverEnd, to)
}

// lag is the distance in bytes between the known end of the server's WAL and the
// received position. Never negative.
func (p *position) lag() int64 {
	received := p.received.Load()
	return int64(max(p.serverEnd.Load(), received) - received)
}

// raise sets v to lsn unless it is further already.
func raise(v *atomic.Uint64, lsn pglogrepl.LSN) {
	for {
		old := v.Load()
		if uint64(lsn) <= old || v.CompareAndSwap(old, uint64(lsn)) {
			return
		}
	}
}
