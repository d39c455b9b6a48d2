// Package schedule draws which faults strike when. The same seed and options give the
// same schedule, on any machine.
//
// What may not enter: clocks, processes, networks. It is a pure function.
package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is the kind of a fault.
type Kind string

// The kinds of faults.
const (
	Kill              Kind = "kill"               // kill -9 of daemons, which are started again at the end
	Freeze            Kind = "freeze"             // SIGSTOP, and SIGCONT at the end
	FreezeHolding     Kind = "freeze-holding"     // the same, while the server waits for them in the middle of a transaction
	RestartServer     Kind = "restart-server"     // pg_ctl restart -m immediate
	StopServer        Kind = "stop-server"        // pg_ctl stop -m immediate, and a start at the end
	TerminateBackends Kind = "terminate-backends" // pg_terminate_backend of some of the fleet's
	Cut               Kind = "cut"                // connections are closed and refused; those of an executor to all workers but one
	Slow              Kind = "slow"               // every byte comes late
	HalfOpen          Kind = "half-open"          // connections stay and carry nothing
	Deafen            Kind = "deafen"             // the same, for those that signals come over
	Roll              Kind = "roll"               // daemons are restarted one by one in another mode
	Promote           Kind = "promote"            // the standby takes the place of the primary
	FillWAL           Kind = "fill-wal"           // the volume of the server's log is full, and has room again at the end
	KillBroker        Kind = "kill-broker"        // kill -9 of the broker, which is started again at the end
	WipeBroker        Kind = "wipe-broker"        // the broker has forgotten everything, with its connections or without
	FreezeBroker      Kind = "freeze-broker"      // SIGSTOP of the broker, and SIGCONT at the end
	StarveBroker      Kind = "starve-broker"      // the broker has no memory for what is new
	FillBroker        Kind = "fill-broker"        // the broker's disk is full
	PartBroker        Kind = "part-broker"        // connections to the broker are cut, or carry nothing, in one direction or in both
	SlowBroker        Kind = "slow-broker"        // every byte to and from the broker comes late
)

// Kinds lists the kinds without requirements.
func Kinds() []Kind {
	return []Kind{Kill, Freeze, FreezeHolding, RestartServer, StopServer, TerminateBackends, Cut, Slow, HalfOpen, Deafen, Roll}
}

// Particular lists the others: Promote needs a standby, FillWAL a volume that can be
// filled, and those of Brokers an event source that has one.
func Particular() []Kind { return append([]Kind{Promote, FillWAL}, Brokers()...) }

// Brokers lists the kinds that concern a broker alone.
func Brokers() []Kind {
	return []Kind{KillBroker, WipeBroker, FreezeBroker, StarveBroker, FillBroker, PartBroker, SlowBroker}
}

// Fault is one fault for a while.
type Fault struct {
	N       int
	Kind    Kind
	At      time.Duration // since the start of the run
	For     time.Duration // 0: it is over at once
	Targets []string      `json:",omitempty"` // daemons, for kinds that hit daemons
	// Share of the backends that are terminated, above 0 and at most 1.
	Share float64 `json:",omitempty"`
	// Delay of every byte, in each direction.
	Delay time.Duration `json:",omitempty"`
	// Mode that the daemons are in afterwards.
	Mode string `json:",omitempty"`
	// Seed for random choices while the fault lasts.
	Seed uint64
}

// End is when the fault is lifted, by the schedule.
func (f Fault) End() time.Duration { return f.At + f.For }

// String describes the fault, without its time.
func (f Fault) String() string {
	parts := []string{fmt.Sprintf("#%d %s", f.N, f.Kind)}
	if len(f.Targets) > 0 {
		parts = append(parts, strings.Join(f.Targets, " "))
	}
	if f.For > 0 {
		parts = append(parts, "for "+f.For.String())
	}
	if f.Share > 0 {
		parts = append(parts, fmt.Sprintf("%.0f %%", 100*f.Share))
	}
	if f.Delay > 0 {
		parts = append(parts, "by "+f.Delay.String())
	}
	if f.Mode != "" {
		parts = append(parts, "to "+f.Mode)
	}
	return strings.Join(parts, ", ")
}

// Options are the inputs of Draw.
type Options struct {
	Seed    uint64
	Length  time.Duration // all faults end within it
	Kinds   []Kind
	Daemons []string // those that can be hit
	// Calm is the time without faults at the beginning and, at least, between
	// faults that do not strike together. Gaps are up to three times as long.
	Calm time.Duration
	// Longest a fault may last.
	Longest time.Duration
}

// Modes are those that a rolling restart chooses from.
func Modes() []string { return []string{"Hybrid", "EventDrivenOnly", "PollingOnly"} }

// together is how often a fault strikes while another is at work.
const together = 0.25

// Draw makes a schedule, in the order of At. Kinds are dealt like cards, so that each is
// played before one of them repeats. Faults that strike together hit different daemons,
// and the server and the broker in one way only.
func Draw(o Options) []Fault {
	d := drawer{o: o, rng: rand.New(rand.NewPCG(o.Seed, 0x63686173))}
	var faults []Fault
	free := o.Calm // when the last fault and the calm after it are over
	for {
		f := d.fault(len(faults) + 1)
		beside := d.rng.Float64() < together
		f.At = free + d.upTo(2*o.Calm)
		if n := len(faults); beside && n > 0 && faults[n-1].For > 0 && apart(faults[n-1], f) && alone(faults) {
			last := faults[n-1]
			f.At = last.At + d.upTo(last.For)
		}
		if f.End()+o.Calm > o.Length {
			return faults
		}
		faults = append(faults, f)
		free = max(free, f.End()+o.Calm)
	}
}

// alone reports whether no other fault strikes together with the last one.
func alone(faults []Fault) bool {
	n := len(faults)
	return n < 2 || faults[n-2].End() <= faults[n-1].At
}

// apart reports whether two faults can be at work at the same time.
func apart(a, b Fault) bool {
	if a.Kind.OfServer() && b.Kind.OfServer() || a.Kind.OfBroker() && b.Kind.OfBroker() {
		return false
	}
	return !slices.ContainsFunc(a.Targets, func(t string) bool { return slices.Contains(b.Targets, t) })
}

// OfServer reports whether it hits the server, and so strikes beside no other such.
func (k Kind) OfServer() bool {
	return k == RestartServer || k == StopServer || k == Promote || k == TerminateBackends || k == FillWAL
}

// OfBroker reports whether it hits the broker itself, and so strikes beside no other such.
func (k Kind) OfBroker() bool {
	return slices.Contains(Brokers(), k) && k != PartBroker && k != SlowBroker
}

type drawer struct {
	o    Options
	rng  *rand.Rand
	deck []Kind
}

func (d *drawer) kind() Kind {
	if len(d.deck) == 0 {
		d.deck = slices.Clone(d.o.Kinds)
		d.rng.Shuffle(len(d.deck), func(i, j int) { d.deck[i], d.deck[j] = d.deck[j], d.deck[i] })
	}
	k := d.deck[0]
	d.deck = d.deck[1:]
	return k
}

func (d *drawer) fault(n int) Fault {
	f := Fault{N: n, Kind: d.kind(), Seed: d.rng.Uint64()}
	switch f.Kind {
	case Kill:
		f.Targets, f.For = d.some(), d.lasting(3*time.Second)
	case Freeze, FreezeHolding, Cut, HalfOpen, Deafen, PartBroker:
		f.Targets, f.For = d.some(), d.lasting(d.o.Longest)
	case Slow, SlowBroker:
		f.Targets, f.For = d.some(), d.lasting(d.o.Longest)
		f.Delay = 50*time.Millisecond + d.upTo(250*time.Millisecond)
	case StopServer, FillWAL, KillBroker, FreezeBroker, StarveBroker, FillBroker:
		f.For = d.lasting(d.o.Longest)
	case TerminateBackends:
		f.Share = 0.1 + 0.9*d.rng.Float64()
	case Roll:
		f.Targets, f.Mode = d.some(), Modes()[d.rng.IntN(len(Modes()))]
	}
	return f
}

// some daemons: one half of the time, all of them once in a while.
func (d *drawer) some() []string {
	n := 1
	if d.rng.IntN(2) == 0 {
		n += d.rng.IntN(len(d.o.Daemons))
	}
	var targets []string
	for _, i := range d.rng.Perm(len(d.o.Daemons))[:n] {
		targets = append(targets, d.o.Daemons[i])
	}
	slices.Sort(targets)
	return targets
}

// lasting is mostly short, sometimes the longest.
func (d *drawer) lasting(longest time.Duration) time.Duration {
	longest = min(longest, d.o.Longest)
	if d.rng.IntN(3) == 0 {
		longest = min(longest, time.Second)
	}
	return 100*time.Millisecond + d.upTo(longest-100*time.Millisecond)
}

// upTo draws whole milliseconds, which can be read and written.
func (d *drawer) upTo(limit time.Duration) time.Duration {
	return time.Duration(d.rng.Int64N(max(limit.Milliseconds(), 1))) * time.Millisecond
}
