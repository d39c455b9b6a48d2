package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/signal/pending"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker/internal/engine"
)

// maxHealthSteps bounds the running steps listed in a health report.
const maxHealthSteps = 100

// Health is the state that a worker reports.
type Health struct {
	WorkerID   string    `json:"worker_id"`
	WorkerUUID uuid.UUID `json:"worker_uuid"`
	State      string    `json:"state"` // idle, starting, running, draining, stopped
	Ready      bool      `json:"ready"`
	Reason     string    `json:"reason,omitempty"`
	Namespaces []string  `json:"namespaces,omitempty"`
	// Missing namespaces do not exist yet.
	Missing  []string `json:"missing_namespaces,omitempty"`
	Handlers []string `json:"handlers,omitempty"`

	// Limit is the number of permits, Running the number of handlers that run. Zombies of
	// them have ended for the worker (time limit passed or lease lost) but have not
	// returned.
	Limit      int `json:"handlers_limit"`
	Running    int `json:"handlers_running"`
	Zombies    int `json:"handlers_zombie"`
	Prefetched int `json:"steps_prefetched"`
	Reporting  int `json:"outcomes_reporting"`
	Yielding   int `json:"steps_yielding"` // their checkpoints are being saved, then they run again
	// Steps are the running ones, the oldest first; 100 at most.
	Steps []engine.RunningStep `json:"steps,omitempty"`

	// Counts since the worker was started.
	Claimed    uint64 `json:"claimed"`
	Succeeded  uint64 `json:"succeeded"`
	Failed     uint64 `json:"failed"`
	Stale      uint64 `json:"stale"` // outcomes rejected as late
	LeasesLost uint64 `json:"leases_lost"`

	// HeartbeatAge is the time since the latest successful heartbeat.
	HeartbeatAge      time.Duration `json:"heartbeat_age_ns"`
	HeartbeatFailures int           `json:"heartbeat_failures"` // in a row
	HeartbeatError    string        `json:"heartbeat_error,omitempty"`

	// Events is the health of the event system; nil while the worker does not run.
	Events *coordinator.Health `json:"events,omitempty"`
	// Rejects says that the database has rejected all outcomes of steps for a minute; "" if not.
	Rejects string `json:"rejects,omitempty"`
	// DeadLoops names the loops that should run and do not.
	DeadLoops []string `json:"dead_loops,omitempty"`
}

// current returns the parts while they exist.
func (w *Worker) current() (*parts, state) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.parts, w.state
}

// Health returns the present state without I/O.
func (w *Worker) Health() Health {
	p, s := w.current()
	h := Health{WorkerID: w.cfg.WorkerID, WorkerUUID: w.ownUUID(), State: string(s), Limit: w.cfg.MaxConcurrent, Handlers: w.registry.names()}
	if p == nil {
		h.Reason = "the worker is " + h.State
		return h
	}
	h.Namespaces, h.Missing = p.engine.Namespaces()
	u := p.engine.Usage()
	h.Running, h.Zombies, h.Prefetched, h.Reporting, h.Yielding = u.Running, u.Zombies, u.Waiting, u.Reporting, u.Yielding
	h.Steps = p.engine.Steps(maxHealthSteps)
	c := p.engine.Counts()
	h.Claimed, h.Succeeded, h.Failed = c.Claimed, c.Succeeded, c.Failed
	h.Stale, h.LeasesLost = c.Stale, c.LeasesLost
	var err error
	if h.HeartbeatAge, h.HeartbeatFailures, err = p.engine.Heartbeats(); err != nil {
		h.HeartbeatError = err.Error()
	}
	h.Rejects = p.engine.Rejects()
	events := p.system.Health()
	h.Events, h.DeadLoops = &events, events.DeadLoops
	loops := p.engine.Loops()
	for _, s := range p.senders {
		loops = append(loops, s.Health())
	}
	for _, l := range loops {
		if l.Dead() {
			h.DeadLoops = append(h.DeadLoops, l.Name)
		}
	}
	h.Ready, h.Reason = w.readiness(s, h)
	return h
}

func (w *Worker) readiness(s state, h Health) (bool, string) {
	switch {
	case s != stateRunning:
		return false, "the worker is " + string(s)
	case !h.Events.Ready:
		return false, h.Events.Reason
	case len(h.DeadLoops) > 0:
		return false, "not running: " + strings.Join(h.DeadLoops, ", ")
	case h.HeartbeatAge > w.cfg.Lease:
		return false, fmt.Sprintf("no successful heartbeat for %v: %s", h.HeartbeatAge.Round(time.Second), h.HeartbeatError)
	case h.Rejects != "":
		return false, h.Rejects
	case h.Zombies >= h.Limit:
		return false, fmt.Sprintf("all %d permits are taken by handlers that ignore the end of their context", h.Limit)
	}
	return true, h.Events.Reason
}

// Ready reports whether the worker can run steps, with the reason, or with a warning
// although it can.
func (w *Worker) Ready() (ready bool, reason string) {
	h := w.Health()
	return h.Ready, h.Reason
}

// Mode returns the effective deployment mode.
func (w *Worker) Mode() deploymode.Mode {
	if p, _ := w.current(); p != nil {
		return p.system.Mode()
	}
	return w.cfg.Mode
}

// SetMode changes the mode of a running worker; see coordinator.EventSystem.SetMode.
// Claims are kept.
func (w *Worker) SetMode(ctx context.Context, mode deploymode.Mode) error {
	p, s := w.current()
	if p == nil || s != stateRunning {
		return errors.New("change the mode: the worker is not running")
	}
	return p.system.SetMode(ctx, mode)
}

// countSignals returns a function that updates the metrics from the counts of the
// worker's own senders.
func (p *parts) countSignals(m *telemetry.Metrics) func() {
	last := make([]pending.SenderStats, len(p.senders))
	return func() { // called only by the heartbeat
		for i, s := range p.senders {
			now := s.Stats()
			m.SignalsSent.Add(float64(now.Sent - last[i].Sent))
			m.SignalsCoalesced.Add(float64(now.Coalesced - last[i].Coalesced))
			m.SignalsDropped.Add(float64(now.Dropped - last[i].Dropped))
			last[i] = now
		}
	}
}
