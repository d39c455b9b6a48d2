package daemon

import (
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Garbage collection of the daemons. They keep little and allocate much: with Go's
// default, which collects when the heap has doubled, a worker under load was a process of
// 31 MB that spent a quarter of its CPU time on collecting. So the heap may grow to five
// times the live bytes, within a soft limit.
const (
	gcPercent   = 400
	memoryFloor = 128 << 20 // bytes; the least soft limit
	// memoryMargin is the part of the limit for stacks and the runtime itself, in bytes.
	memoryMargin = 32 << 20
	// memoryInterval is the interval of adjusting the soft limit.
	memoryInterval = 5 * time.Second
)

// memory is the garbage collection of this process. GOGC and GOMEMLIMIT take precedence.
type memory struct {
	limited bool // by the user
	live    []metrics.Sample
}

// tuneMemory applies the settings that the user has not set.
func tuneMemory(getenv func(string) string) *memory {
	m := &memory{limited: getenv("GOMEMLIMIT") != "", live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	m.follow()
	return m
}

// follow adjusts the soft limit. Handlers may keep any amount: with a lower limit the
// process would only collect.
func (m *memory) follow() {
	if m.limited {
		return
	}
	metrics.Read(m.live)
	if v := m.live[0].Value; v.Kind() == metrics.KindUint64 {
		debug.SetMemoryLimit(softLimit(v.Uint64()))
	}
}

// softLimit is the limit for a process with live bytes: a large one collects as Go does
// by default, when the heap has doubled.
func softLimit(live uint64) int64 {
	const most = 1 << 50 // bytes; beyond any machine, and safe to double

	return max(memoryFloor, 2*int64(min(live, most))+memoryMargin) // #nosec G115 -- bounded in the line above
}
