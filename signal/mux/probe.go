package mux

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/signal"
)

// ErrSuspect is what members receive when another one closed while its probe
// had not come back: the connection they share may be deaf.
var ErrSuspect = errors.New("signal: a probe of another listener did not come back over the shared connection")

// A probe asks whether what is sent now comes out of the upstream connection.
// Three answers are right:
//
//   - the probe itself, once it has come back;
//   - that of another member, which was under way when it was asked and has
//     come back since;
//   - that of another member, which was sent a short time ago and has come
//     back already. It answers after as long as it took itself, so that what is
//     measured is the latest round trip.
//
// Another's counts when it was sent within Config.ProofShare of the time since
// the member's probe before. So of all probes at least one within the interval
// of any member is really sent, and its sender finds out as soon as if it were
// alone; by its leaving it tells the others. A member that has to find out by
// itself, because the sender left in peace, does so later by that share of its
// interval at most. The first probe of a member is always sent: it proves that
// its topics are listened to.

// flight is a probe that was sent and is not back yet.
type flight struct {
	probe  signal.Signal
	sent   time.Time
	riders map[*member]struct{} // whose probes it answers
}

// proof is the latest probe that came back. The zero proof is too old for
// everybody.
type proof struct {
	sent time.Time
	trip time.Duration
}

// Probe implements signal.Connection.
func (m *member) Probe(ctx context.Context, s signal.Signal) error {
	answered, trip, err := m.ask(s, time.Now())
	switch {
	case err != nil:
		return err
	case answered == byAnother:
		return nil
	case answered == byProof:
		return m.echo(ctx, trip)
	}
	return m.upstream.conn.Probe(ctx, s)
}

// answered says how a probe will be.
type answered int

const (
	byItself  answered = iota // it has to be sent
	byAnother                 // one that is under way
	byProof                   // one that has come back
)

func (m *member) ask(s signal.Signal, now time.Time) (how answered, trip time.Duration, err error) {
	u := m.upstream
	u.source.mu.Lock()
	defer u.source.mu.Unlock()
	if err := m.usable(); err != nil {
		return byItself, 0, err
	}
	share := time.Duration(u.source.cfg.ProofShare * float64(now.Sub(m.asked)))
	oldest := now.Add(-share)
	m.asked, m.out = now, &s
	if m.heard && share > 0 && m.topics.Has(s.Topic) {
		if f := u.underway(oldest); f != nil {
			f.riders[m] = struct{}{}
			return byAnother, 0, nil
		}
		if u.proof.sent.After(oldest) {
			return byProof, u.proof.trip, nil
		}
	}
	f := &flight{probe: s, sent: now, riders: make(map[*member]struct{})}
	if m.flight != nil { // given up for lost; who waits for it goes on waiting
		f.riders = m.flight.riders
	}
	m.flight = f
	return byItself, 0, nil
}

// echo answers the probe of m after trip.
func (m *member) echo(ctx context.Context, trip time.Duration) error {
	timer := time.NewTimer(trip)
	defer timer.Stop()
	u := m.upstream
	select {
	case <-timer.C:
	case <-u.life.Done():
	case <-ctx.Done():
		return fmt.Errorf("probing: %w", ctx.Err())
	}
	u.source.mu.Lock()
	defer u.source.mu.Unlock()
	if err := m.usable(); err != nil {
		return err
	}
	m.answer()
	return nil
}

// The methods below want source.mu held.

// underway returns the latest flight that was sent after oldest. None of the
// member's own is: it was sent when the member last asked, or before.
func (u *upstream) underway(oldest time.Time) (latest *flight) {
	for m := range u.members {
		if f := m.flight; f != nil && f.sent.After(oldest) {
			latest, oldest = f, f.sent
		}
	}
	return latest
}

// returned looks whether s is a probe that was sent.
func (u *upstream) returned(s signal.Signal) {
	for m := range u.members {
		f := m.flight
		if f == nil || f.probe != s {
			continue
		}
		m.flight, m.heard = nil, true
		if m.out != nil && *m.out == s {
			m.out = nil
		}
		if f.sent.After(u.proof.sent) {
			u.proof = proof{sent: f.sent, trip: time.Since(f.sent)}
		}
		for rider := range f.riders {
			rider.answer()
		}
	}
}

// answer has the probe of m come back without having been sent.
func (m *member) answer() {
	if m.out != nil {
		m.arrived.Put(*m.out)
		m.out = nil
	}
}

// unanswered reports whether a probe of m has not come back.
func (m *member) unanswered() bool { return m.out != nil || m.flight != nil }
