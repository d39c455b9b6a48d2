package wal

import (
	"testing"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"
)

// TestPositionNeverConfirmsWhatWaits draws streams of transactions, messages and
// keepalives with a reader at its own pace: the confirmed position only grows, never
// reaches a waiting signal, and is the end of the stream at rest.
func TestPositionNeverConfirmsWhatWaits(t *testing.T) {
	type message struct{ end, mark pglogrepl.LSN } // end: confirming it loses the message
	rapid.Check(t, func(t *rapid.T) {
		lsn := pglogrepl.LSN(100)
		p := newPosition(lsn)
		var waiting, open []message // in the buffer; in the open transaction
		confirmed := lsn
		step := func() pglogrepl.LSN { lsn += pglogrepl.LSN(rapid.IntRange(1, 50).Draw(t, "step")); return lsn }
		check := func() {
			var oldest uint64
			if len(waiting)+len(open) > 0 {
				oldest = uint64(append(waiting[:len(waiting):len(waiting)], open...)[0].mark)
			}
			c := p.confirmable(oldest, len(waiting)+len(open) > 0)
			if c < confirmed {
				t.Fatalf("confirmed %s after %s", c, confirmed)
			}
			for _, m := range waiting {
				if c >= m.end {
					t.Fatalf("confirmed %s, but a message that ends at %s waits", c, m.end)
				}
			}
			if p.lag() < 0 {
				t.Fatalf("lag %d", p.lag())
			}
			confirmed = c
		}
		take := func() {
			if len(waiting) > 0 {
				waiting = waiting[rapid.IntRange(0, len(waiting)).Draw(t, "taken"):]
			}
			check()
		}
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				p.keepalive(step())
			case 1: // a message outside of a transaction
				mark := p.message(step(), false)
				waiting = append(waiting, message{end: lsn, mark: pglogrepl.LSN(mark)})
			case 2:
				p.begin()
				for range rapid.IntRange(0, 3).Draw(t, "messages") {
					open = append(open, message{mark: pglogrepl.LSN(p.message(step(), true))})
					p.keepalive(lsn) // must not end the transaction
					check()
				}
				p.commit(step())
				for _, m := range open {
					m.end = lsn
					waiting = append(waiting, m)
				}
				open = nil
			case 3:
				take()
			}
			check()
		}
		waiting = nil
		check()
		if confirmed != p.complete || p.lag() != 0 {
			t.Fatalf("at rest: confirmed %s of %s, lag %d", confirmed, p.complete, p.lag())
		}
	})
}

func TestNothingWithinATransactionIsConfirmed(t *testing.T) {
	p := newPosition(100)
	p.begin()
	p.message(150, true)
	p.keepalive(500)
	if c := p.confirmable(0, false); c != 100 {
		t.Errorf("confirmable within a transaction = %d, want 100", c)
	}
	p.commit(200)
	if c := p.confirmable(0, false); c != 200 {
		t.Errorf("confirmable after it = %d, want 200", c)
	}
}

func TestLag(t *testing.T) {
	p := newPosition(100)
	raise(&p.serverEnd, 250) // the server reports how far it has written
	if p.lag() != 150 {
		t.Errorf("lag = %d, want 150", p.lag())
	}
	p.begin()
	p.message(150, true)
	if p.lag() != 100 {
		t.Errorf("lag within a transaction = %d, want 100", p.lag())
	}
	p.commit(300)
	if p.lag() != 0 {
		t.Errorf("lag = %d, want 0", p.lag())
	}
	raise(&p.serverEnd, 10)
	if p.serverEnd.Load() != 300 {
		t.Error("the server's end went back")
	}
}
