package measure

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
	"github.com/tasker-go/tasker/test/bench/peers"
)

const (
	// neutralDepth is how many tasks the producer keeps waiting.
	neutralDepth = 4000
	// neutralPause bounds the time of a handler of a millisecond on a free machine.
	neutralPause = 1100 * time.Microsecond
)

// neutral keeps more tasks waiting than handlers of a millisecond can use up, so that
// permits bound the rate, or the cost of a task does.
func (b *Bench) neutral(ctx context.Context) error {
	t := b.Report.Table(fmt.Sprintf("A neutral load: handlers of 1 ms, %s one-step tasks kept waiting", num(neutralDepth)),
		"system", "permits", "tasks/s", "handlers alone allow", "ms per handler", "CPU µs per task", "fewest waiting", "producer kept up")
	t.Notes = []string{"CPU is that of the daemons, or of the peer's workers, and of PostgreSQL, creation included, without the producer.",
		"Handlers wait for a timer of the kernel; ms per handler is the mean of tasker_step_duration_seconds.",
		"Waiting are the tasks that were created and have not ended. The producer kept up where a quarter of them were always left."}
	for _, permits := range []int{4, 16, 64, 128} {
		if err := b.neutralOurs(ctx, t, permits); err != nil {
			return fmt.Errorf("%d permits: %w", permits, err)
		}
		if err := b.neutralPeer(ctx, t, permits); err != nil {
			return fmt.Errorf("%d permits of River: %w", permits, err)
		}
	}
	return nil
}

func (b *Bench) neutralOurs(ctx context.Context, t *report.Table, permits int) error {
	o := rig.FleetOptions{WorkerConfig: fmt.Sprintf("[worker.mpsc_channels.handler_dispatch]\nmax_concurrent_handlers = %d\n", permits)}
	s, err := b.fleet(ctx, b.Rig.Stock(), o, []load.Workflow{load.Pausing}, 1, 1)
	if err != nil {
		return err
	}
	defer s.Close()
	n, err := b.holdDepth(ctx, s, permits, 4)
	if err != nil {
		return err
	}
	metrics, err := rig.Scrape(ctx, s.Workers)
	if err != nil {
		return err
	}
	const seconds = "tasker_step_duration_seconds"
	n.handler = num(metrics.Sum(seconds+"_sum") * 1000 / metrics.Sum(seconds+"_count"))
	b.recordNeutral(t, fmt.Sprintf("neutral.%d", permits), "ours", permits, n)
	return nil
}

func (b *Bench) neutralPeer(ctx context.Context, t *report.Table, permits int) error {
	o, err := b.other(ctx, b.Rig.Stock(), "river-tuned")
	if err != nil {
		return err
	}
	defer o.Close()
	if err := o.Start(b.Self, peers.Pace{Takes: load.PauseTime, Permits: permits}); err != nil {
		return err
	}
	n, err := b.holdDepth(ctx, o, permits, 1) // a peer takes one batch at a time
	if err != nil {
		return fmt.Errorf("%w: %s", err, o.out.String())
	}
	n.handler = "–"
	b.recordNeutral(t, fmt.Sprintf("peer.river-tuned.neutral.%d", permits), "River tuned", permits, n)
	return nil
}

// neutralRun is the result of one system.
type neutralRun struct {
	rate, cpu float64 // tasks per second, µs per task
	waiting   int64   // the fewest
	handler   string  // ms
}

func (b *Bench) recordNeutral(t *report.Table, key, system string, permits int, n neutralRun) {
	b.Report.Set(key+".rate", n.rate)
	b.Report.Set(key+".cpu_us", n.cpu)
	kept := "no"
	if n.waiting >= neutralDepth/4 {
		kept = "yes"
	}
	t.Add(system, permits, num(n.rate), num(float64(permits)/neutralPause.Seconds()), n.handler, num(n.cpu), num(float64(n.waiting)), kept)
}

// holdDepth keeps tasks waiting. It counts them when handlers can have ended an eighth,
// and not much more often, since counting is work for the system.
func (b *Bench) holdDepth(ctx context.Context, s measured, permits, inFlight int) (n neutralRun, err error) {
	m := &meter{measured: s, from: time.Now().Add(warmUp)}
	const batch = neutralDepth / 8
	every := max(neutralPause*batch/time.Duration(permits), 40*time.Millisecond)
	feed := load.Feed{Backlog: neutralDepth, Batch: batch, InFlight: inFlight, Every: every}
	samples, err := load.Keep(ctx, m, feed, warmUp+b.Sizes.Steady)
	if err != nil {
		return n, err
	}
	n.rate, n.waiting = stats.Rate(samples, warmUp, warmUp+b.Sizes.Steady), math.MaxInt64
	for _, sample := range samples {
		if sample.At >= warmUp {
			n.waiting = min(n.waiting, sample.Waiting)
		}
	}
	n.cpu, err = m.perTask(ctx)
	return n, err
}

// meter notes the CPU time and the tasks at the end of the warm-up.
type meter struct {
	measured
	from  time.Time
	spent time.Duration
	tasks int64
}

// Finished implements load.System.
func (m *meter) Finished(ctx context.Context) (int64, error) {
	n, err := m.measured.Finished(ctx)
	if err == nil && m.spent == 0 && time.Now().After(m.from) {
		var u usage
		u, err = m.usage(ctx)
		m.tasks, m.spent = n, u.cpu()
	}
	return n, err
}

// perTask is the CPU time of a task since then in µs.
func (m *meter) perTask(ctx context.Context) (float64, error) {
	n, err := m.Finished(ctx)
	if err != nil {
		return 0, err
	}
	u, err := m.usage(ctx)
	return float64((u.cpu() - m.spent).Microseconds()) / float64(max(n-m.tasks, 1)), err
}
