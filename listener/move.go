package listener

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/sourcegraph/conc"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/signal"
)

// This file is about the time in which a fleet moves from one source to another. A
// subscription then is two: each has its connection, its probes and its attempts to connect,
// so that a source that fails has no effect on the signals of the other one.

// movedFrom ends the name of the subscription to the former source, in logs and metrics.
const movedFrom = "-moved-from"

// subscribeBoth returns a subscription to either source.
func (l *Listener) subscribeBoth(cfg SubscriptionConfig, hooks Hooks) *Subscription {
	var signals, changes sync.Mutex // the hooks are called by two
	var fatal sync.Once
	var s *Subscription
	under := func(mu *sync.Mutex, call func()) {
		mu.Lock()
		defer mu.Unlock()
		call()
	}
	either := Hooks{
		OnSignal:    func(sig signal.Signal) { under(&signals, func() { hooks.OnSignal(sig) }) },
		OnConnected: func() { under(&changes, hooks.OnConnected) },
		OnChange:    func(deploymode.Snapshot) { under(&changes, func() { hooks.OnChange(s.Snapshot()) }) },
		OnFatal: func(err error) {
			if s.Snapshot().Exhausted { // else the other one does
				fatal.Do(func() { under(&changes, func() { hooks.OnFatal(err) }) })
			}
		},
	}
	s = l.subscribe(cfg, either)
	cfg.SystemID += movedFrom
	s.from = l.from.subscribe(cfg, either)
	return s
}

// each calls do for the subscription to either source, at the same time: one that hangs does
// not delay the other.
func (s *Subscription) each(do func(*Subscription) error) error {
	if s.from == nil {
		return do(s)
	}
	var group conc.WaitGroup
	var from error
	group.Go(func() { from = do(s.from) })
	err := do(s)
	group.Wait()
	return errors.Join(err, from)
}

// Snapshot returns the state of the machine; while the fleet moves, what follows from those of
// both.
func (s *Subscription) Snapshot() deploymode.Snapshot {
	if s.from == nil {
		return s.own()
	}
	to, from := s.own(), s.from.own()
	joined := to // the state is that of the one that is worse off
	if to.Proven && !from.Proven {
		joined = from
	}
	joined.Mode = to.Mode
	// A daemon may be heard over one of them only, since it has not been restarted, or already
	// for the last time: so polling relaxes when both are proven.
	joined.Proven = to.Proven && from.Proven
	joined.Pace = tighter(to.Pace, from.Pace)
	// With one of them a daemon works, but it waits for the first attempt of the other.
	joined.Ready = to.Ready && from.Ready || to.Ready && from.Attempts > 0 || from.Ready && to.Attempts > 0
	joined.Exhausted = to.Exhausted && from.Exhausted
	var reasons []string
	for _, of := range []struct {
		source string
		reason string
	}{{s.listener.Source(), to.Reason}, {s.from.listener.Source(), from.Reason}} {
		if of.reason != "" {
			reasons = append(reasons, fmt.Sprintf("%s: %s", of.source, of.reason))
		}
	}
	joined.Reason = strings.Join(reasons, "; ")
	return joined
}

func tighter(a, b deploymode.Pace) deploymode.Pace {
	for _, pace := range []deploymode.Pace{deploymode.PaceTight, deploymode.PaceRelaxed} {
		if a == pace || b == pace {
			return pace
		}
	}
	return deploymode.PaceOff
}
