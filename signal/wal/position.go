package wal

import (
	"sync/atomic"

	"github.com/jackc/pglogrepl"
)

// position follows the stream and says what may be confirmed. It is pure
// apart from the two atomics, which others read; the owner of the stream calls
// everything else.
//
// Confirming a position tells the server never to send again what ends at or
// before it. Transactions arrive whole, one after the other, so only the end of
// one may be confirmed; and with signals waiting, nothing behind the oldest.
type position struct {
	complete pglogrepl.LSN // everything up to here has been received in full
	inTx     bool          // between Begin and Commit

	received  atomic.Uint64 // the furthest place in the WAL that was heard of
	serverEnd atomic.Uint64 // the furthest place that the server's WAL is known to reach
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

// message notes a message at lsn and returns its mark: what was complete
// before it, and may be confirmed as long as the message waits. A message
// outside of transactions is complete by itself.
func (p *position) message(lsn pglogrepl.LSN, transactional bool) (mark uint64) {
	mark = uint64(p.complete)
	if !transactional && !p.inTx {
		p.advance(lsn)
	}
	raise(&p.received, lsn)
	return mark
}

// keepalive notes that the server has sent everything up to end.
func (p *position) keepalive(end pglogrepl.LSN) {
	if !p.inTx {
		p.advance(end)
	}
	raise(&p.serverEnd, end)
}

// confirmable returns what may be confirmed, given the mark of the oldest
// signal that waits to be handed out.
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

// lag is the distance in bytes between the end of the server's WAL and what
// was received, as far as both are known. Never negative.
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
