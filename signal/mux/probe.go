package mux

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/signal"
)

// ErrSuspect is what members receive when another member closed before its probe had
// come back: the shared connection may be deaf.
var ErrSuspect = errors.New("signal: a probe of another listener did not come back over the shared connection")

// A probe tests whether signals sent now arrive on the upstream connection. There are
// three valid answers:
//
//   - the probe itself, once it has come back;
//   - a probe of another member that was under way at the time of the request and has
//     come back since;
//   - a probe of another member that was sent a short time ago and has come back
//     already. The answer is delayed by the time that probe took, so that the latest
//     round trip is what is measured.
//
// Another member's probe counts if it was sent within Config.ProofShare of the time
// since the member's previous probe. So at least one probe is really sent within the
// interval of any member, and its sender detects a deaf connection as soon as it would
// alone; by leaving it ends the connection for the others. If the sender left for
// another reason, another member detects it later by at most that share of its
// interval. The first probe of a member is always sent: it proves that its topics are
// subscribed to.

// flight is a probe that was sent and is not back yet.
type flight struct {
	probe  signal.Signal
	sent   time.Time
	riders map[*member]struct{} // the members whose probes it answers
}

// proof is the latest probe that came back. The zero proof is too old for any member.
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

// answered says how a probe will be answered.
type answered int

const (
	byItself  answered = iota // it has to be sent
	byAnother                 // by a probe that is under way
	byProof                   // by a probe that has come back
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
	if m.proven && share > 0 && m.topics.Has(s.Topic) {
		if f := u.underway(oldest); f != nil {
			f.riders[m] = struct{}{}
			return byAnother, 0, nil
		}
		if u.proof.sent.After(oldest) {
			return byProof, u.proof.trip, nil
		}
	}
	f := &flight{probe: s, sent: now, riders: make(map[*member]struct{})}
	if m.flight != nil { // given up as lost; its riders wait for the next
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

// The methods below require source.mu.

// underway returns the latest flight that was sent after oldest. It is never the
// member's own: that was sent at the member's previous probe or earlier.
func (u *upstream) underway(oldest time.Time) (latest *flight) {
	for m := range u.members {
		if f := m.flight; f != nil && f.sent.After(oldest) {
			latest, oldest = f, f.sent
		}
	}
	return latest
}

// returned checks whether s is a probe that was sent.
func (u *upstream) returned(s signal.Signal) {
	for m := range u.members {
		f := m.flight
		if f == nil || f.probe != s {
			continue
		}
		m.flight, m.proven = nil, true
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

// answer makes the probe of m come back although it was not sent.
func (m *member) answer() {
	if m.out != nil {
		m.arrived.Put(*m.out)
		m.out = nil
	}
}

// unanswered reports whether a probe of m has not come back.
func (m *member) unanswered() bool { return m.out != nil || m.flight != nil }
