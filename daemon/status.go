package daemon

import (
	"net"
	"runtime"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/signal/pending"
	"github.com/tasker-go/tasker/internal/signal/relay"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
)

// part is one part of a daemon in its logged status.
type part struct {
	Name   string
	Fields []zap.Field
}

// logStatus logs a line for the process and one for each part.
func (r *runner) logStatus() {
	parts := []part{processPart(r.since)}
	if r.process != nil {
		parts = append(parts, r.process.status()...)
	}
	for _, p := range parts {
		r.status.Info("status", append([]zap.Field{zap.String("part", p.Name)}, p.Fields...)...)
	}
}

func processPart(since time.Time) part {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return part{"process", []zap.Field{
		zap.String("version", version()), zap.Duration("uptime", time.Since(since).Round(time.Second)),
		zap.Int("goroutines", runtime.NumGoroutine()),
		zap.Uint64("heap_bytes", m.HeapAlloc), zap.Uint64("memory_bytes", m.Sys-m.HeapReleased), zap.Uint32("collections", m.NumGC),
	}}
}

// statusOf are the parts that both daemons have.
func (s *shared) statusOf(systems map[string]coordinator.Health, loops []lifecycle.LoopHealth) []part {
	var parts []part
	for name, h := range systems {
		parts = append(parts, systemPart(name, h))
		loops = append(loops, h.Loop, h.Poller.Loop)
		if h.Listener != nil {
			loops = append(loops, h.Listener.Loop)
		}
	}
	for _, l := range loops {
		parts = append(parts, loopPart(l))
	}
	slices.SortFunc(parts, func(a, b part) int { return strings.Compare(a.Name, b.Name) }) // maps have no order
	for _, one := range s.signals.senders {
		parts = append([]part{senderPart(one.source, one.Stats())}, parts...)
	}
	return append([]part{poolPart(s.store.PoolStat())}, parts...)
}

func systemPart(name string, h coordinator.Health) part {
	fields := []zap.Field{
		zap.String("mode", string(h.Mode)), zap.String("pace", string(h.Pace)), zap.Bool("ready", h.Ready), zap.String("reason", h.Reason),
		zap.Uint64("looks", h.Looks), zap.Time("last_look", h.LastLook), zap.Duration("last_look_took", h.LastLookTook),
		zap.Uint64("errors", h.Errors), zap.Int("consecutive_errors", h.ConsecutiveErrors), zap.String("last_error", h.LastError),
		zap.Any("found_by", h.Found), zap.Strings("dead_loops", h.DeadLoops),
	}
	if l := h.Listener; l != nil {
		fields = append(fields, zap.String("listener", string(l.State)), zap.String("source", l.Source), zap.Bool("proven", l.Proven),
			zap.Float64("lag_ms", l.LagMS), zap.Uint64("reconnects", l.Reconnects), zap.String("listener_error", l.LastError))
	}
	return part{"event system " + name, fields}
}

func loopPart(h lifecycle.LoopHealth) part {
	return part{"loop " + h.Name, []zap.Field{
		zap.String("state", string(h.State)), zap.Uint64("restarts", h.Restarts), zap.Bool("stuck", h.Stuck), zap.String("last_error", h.LastError),
	}}
}

func poolPart(p store.PoolStat) part {
	return part{"pool", []zap.Field{
		zap.Int32("in_use", p.Acquired), zap.Int32("idle", p.Idle), zap.Int32("open", p.Total), zap.Int32("max", p.Max),
		zap.Int64("acquires", p.Acquires), zap.Int64("acquires_that_waited", p.EmptyAcquires),
	}}
}

func senderPart(source string, s pending.SenderStats) part {
	return part{"signal sender", []zap.Field{
		zap.String("source", source), zap.Int("waiting", s.Waiting), zap.Uint64("sent", s.Sent), zap.Uint64("failed", s.Failed), zap.Uint64("dropped", s.Dropped),
	}}
}

func relayPart(h relay.Health) part {
	return part{"relay", []zap.Field{
		zap.Bool("leader", h.Leader), zap.Bool("connected", h.Connected), zap.Uint64("forwarded", h.Forwarded),
		zap.Int64("lag_bytes", h.LagBytes), zap.String("last_error", h.LastError),
	}}
}

func workerPart(h worker.Health) part {
	return part{"worker", []zap.Field{
		zap.String("state", h.State), zap.Bool("ready", h.Ready), zap.String("reason", h.Reason),
		zap.Int("permits_in_use", h.Running), zap.Int("permits", h.Limit), zap.Int("zombies", h.Zombies),
		zap.Int("claimed_ahead", h.Prefetched), zap.Int("reports_pending", h.Reporting),
		zap.Uint64("claimed", h.Claimed), zap.Uint64("succeeded", h.Succeeded), zap.Uint64("failed", h.Failed),
		zap.Uint64("stale", h.Stale), zap.Uint64("leases_lost", h.LeasesLost),
		zap.Duration("heartbeat_age", h.HeartbeatAge), zap.String("heartbeat_error", h.HeartbeatError),
		zap.Strings("namespaces", h.Namespaces), zap.Strings("missing_namespaces", h.Missing),
	}}
}

// status implements process.
func (d *Orchestrator) status() []part {
	parts := []part{{"orchestrator", []zap.Field{
		zap.String("mode", string(d.engine.Mode())), zap.Float64("command_saturation", d.engine.Saturation()), addressField(d.Addr()),
	}}}
	if d.relay != nil {
		parts = append(parts, relayPart(d.relay.Health()))
	}
	all := d.supervised()
	return append(parts, d.statusOf(all.Health(), all.Loops())...)
}

// status implements process.
func (d *Worker) status() []part {
	return append([]part{workerPart(d.worker.Health())}, d.statusOf(d.systems(), d.shared.loops())...)
}

// addressField is the address of a server; none is skipped.
func addressField(a net.Addr) zap.Field {
	if a == nil {
		return zap.Skip()
	}
	return zap.Stringer("address", a)
}
