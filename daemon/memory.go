package daemon

import (
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How the daemons collect garbage. They keep little and throw away much: with
// Go's default, which collects when the heap has doubled, a worker under load
// was a process of 31 MB that spent a quarter of its CPU time on collecting.
// So the heap may grow to five times what is kept, and a soft limit bounds what
// comes of that.
const (
	gcPercent   = 400
	memoryFloor = 128 << 20 // bytes; the soft limit of a daemon that keeps little
	// memoryMargin is what the limit leaves for stacks and the runtime itself,
	// in bytes.
	memoryMargin = 32 << 20
	// memoryInterval is how often the soft limit follows what is kept.
	memoryInterval = 5 * time.Second
)

// memory is how this process collects garbage. GOGC and GOMEMLIMIT win over it.
type memory struct {
	limited bool // by the user
	live    []metrics.Sample
}

// tuneMemory applies the settings that the user has not made.
func tuneMemory(getenv func(string) string) *memory {
	m := &memory{limited: getenv("GOMEMLIMIT") != "", live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	m.follow()
	return m
}

// follow moves the soft limit to where it belongs now. Handlers may keep as
// much as they need: a limit below that would have the process do nothing but
// collect.
func (m *memory) follow() {
	if m.limited {
		return
	}
	metrics.Read(m.live)
	if v := m.live[0].Value; v.Kind() == metrics.KindUint64 {
		debug.SetMemoryLimit(softLimit(v.Uint64()))
	}
}

// softLimit is the limit for a process that keeps live bytes: where it keeps
// much it collects as Go does by default, when the heap has doubled.
func softLimit(live uint64) int64 {
	const most = 1 << 50 // bytes; beyond any machine, and safe to double

	return max(memoryFloor, 2*int64(min(live, most))+memoryMargin) // #nosec G115 -- bounded in the line above
}
