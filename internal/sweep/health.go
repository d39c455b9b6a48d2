package sweep

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// Health is the state of one sweep in one replica. The runs of the fleet are recorded in
// the database.
type Health struct {
	Sweep             string               `json:"sweep"`
	DryRun            bool                 `json:"dry_run"`
	Runs              uint64               `json:"runs"` // in this process
	Errors            uint64               `json:"errors"`
	ConsecutiveErrors int                  `json:"consecutive_errors"`
	LastError         string               `json:"last_error,omitempty"`
	LastRun           *Run                 `json:"last_run,omitempty"`
	LastRunAt         time.Time            `json:"last_run_at,omitzero"` // its begin
	Loop              lifecycle.LoopHealth `json:"loop"`
}

// Health reports the sweeps in their configured order.
func (r *Runner) Health() []Health {
	out := make([]Health, len(r.sweepers))
	for i, s := range r.sweepers {
		s.mu.Lock()
		out[i] = s.health
		s.mu.Unlock()
		out[i].Sweep, out[i].DryRun, out[i].Loop = s.job.Name, s.job.DryRun, s.loop.Health()
	}
	return out
}

// Loops reports the supervised loops.
func (r *Runner) Loops() []lifecycle.LoopHealth { return r.group.Health() }

// degradedAfter is the number of consecutive errors that degrade a sweep. A sweep that
// met a conflict or a restart of the server is repeated soon.
const degradedAfter = 3

// Check is the verdict on this replica's sweeps: unhealthy when a loop is dead,
// degraded when a sweep keeps failing.
func (r *Runner) Check() telemetry.Check {
	check := telemetry.Check{Status: deploymode.Healthy}
	var words []string
	for _, h := range r.Health() {
		switch {
		case h.Loop.Dead():
			check.Status = deploymode.Unhealthy
			words = append(words, "loop "+h.Loop.Name+" is not running")
		case h.ConsecutiveErrors >= degradedAfter:
			check.Status = deploymode.Worst(check.Status, deploymode.Degraded)
			words = append(words, fmt.Sprintf("sweep %s has failed %d times in a row", h.Sweep, h.ConsecutiveErrors))
		}
	}
	check.Message = strings.Join(words, "; ")
	return check
}

// record updates health, metrics and the log after a run.
func (s *sweeper) record(begin time.Time, took time.Duration, run Run, err error) {
	m, name := s.cfg.Metrics, s.job.Name
	m.SweepRuns.WithLabelValues(name, string(run.Outcome)).Inc()
	m.SweepDuration.WithLabelValues(name).Observe(took.Seconds())
	for action, n := range run.Items {
		m.SweepItems.WithLabelValues(name, action).Add(float64(n))
	}
	s.mu.Lock()
	s.health.Runs++
	s.health.LastRun, s.health.LastRunAt = &run, begin
	s.mu.Unlock()
	switch {
	case err == nil:
		m.SweepLastSuccess.WithLabelValues(name).Set(float64(time.Now().UnixMilli()) / 1000)
		s.reached()
		s.log(run)
	case run.Outcome != OutcomeStopped:
		s.failed(err)
	}
}

// log logs the changes of a run, if any.
func (s *sweeper) log(run Run) {
	if run.total() == 0 {
		return
	}
	s.cfg.Logger.Info("swept", zap.Bool("dry_run", run.DryRun), zap.Any("items", run.Items),
		zap.Any("findings", run.Findings[:min(len(run.Findings), 10)]), zap.Bool("more", run.More), zap.Int64("duration_ms", run.TookMS))
}

// reached: the sweep works, or another replica has its lease.
func (s *sweeper) reached() {
	s.mu.Lock()
	before := s.health.ConsecutiveErrors
	s.health.ConsecutiveErrors, s.health.LastError = 0, ""
	s.mu.Unlock()
	if before > 0 {
		s.cfg.Logger.Info("the sweep works again", zap.Int("errors", before))
	}
}

func (s *sweeper) failed(err error) {
	s.mu.Lock()
	s.health.Errors++
	s.health.ConsecutiveErrors++
	s.health.LastError = err.Error()
	first := s.health.ConsecutiveErrors == 1
	s.mu.Unlock()
	var panicked *lifecycle.PanicError
	if first || errors.As(err, &panicked) { // other errors are counted; log lines would only repeat them
		s.cfg.Logger.Warn("sweep failed and will be retried", zap.Error(err), lifecycle.StackField(err))
	}
}
