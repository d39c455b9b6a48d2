package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
	"github.com/tasker-go/tasker/test/bench/peers"
	"github.com/tasker-go/tasker/test/fleet"
)

// patience bounds the wait for a backlog to be drained.
const patience = 10 * time.Minute

// drained is the result of draining a backlog.
type drained struct {
	tasks, steps   float64
	created, spent time.Duration
}

func (d drained) rate() float64 { return d.tasks / d.spent.Seconds() }

// drainOurs drains a backlog through its own fleet.
func (b *Bench) drainOurs(ctx context.Context, mix []load.Workflow, n, orchestrators, workers int) (drained, error) {
	s, err := b.fleet(ctx, b.Rig.Stock(), rig.FleetOptions{}, mix, orchestrators, 0)
	if err != nil {
		return drained{}, err
	}
	defer s.Close()
	return s.drain(ctx, n, workers)
}

// drain makes a backlog while no worker runs, then starts the workers. The time
// is the database's, from the first claim to the last end.
func (s *ours) drain(ctx context.Context, n, workers int) (drained, error) {
	d, err := s.backlog(ctx, n)
	if err != nil {
		return d, err
	}
	if err := s.Start(ctx, fleet.Worker, workers); err != nil {
		return d, err
	}
	return s.awaitDrained(ctx, d)
}

// drainTogether is drain by workers that have all started when the first one claims: on
// two cores the start of eight takes about as long as the drain.
func (s *ours) drainTogether(ctx context.Context, n, workers int) (drained, error) {
	operator := s.Client()
	if _, err := operator.PauseNamespace(ctx, load.Namespace, client.Why{Actor: "bench", Reason: "workers start"}); err != nil {
		return drained{}, err
	}
	if err := s.Start(ctx, fleet.Worker, workers); err != nil {
		return drained{}, err
	}
	d, err := s.backlog(ctx, n)
	if err != nil {
		return d, err
	}
	if _, err := operator.ResumeNamespace(ctx, load.Namespace, client.Why{Actor: "bench", Reason: "all are ready"}); err != nil {
		return d, err
	}
	return s.awaitDrained(ctx, d)
}

// backlog creates tasks and takes the time of that.
func (s *ours) backlog(ctx context.Context, n int) (drained, error) {
	d := drained{tasks: float64(n), steps: load.StepsPerTask(s.mix) * float64(n)}
	begin := time.Now()
	err := s.Submit(ctx, n)
	d.created = time.Since(begin)
	return d, err
}

// awaitDrained waits until all tasks have ended, and measures the time.
func (s *ours) awaitDrained(ctx context.Context, d drained) (drained, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := load.Await(ctx, s, int64(d.tasks)); err != nil {
		return d, err
	}
	if left, err := s.board.Live(ctx); err != nil || left > 0 {
		return d, fmt.Errorf("%d tasks are left on the board: %w", left, err)
	}
	var err error
	d.spent, err = s.board.WorkSpan(ctx)
	return d, err
}

func (b *Bench) drain(ctx context.Context) error {
	d, err := b.drainOurs(ctx, load.Plain, b.Sizes.Drain, 1, 1)
	if err != nil {
		return err
	}
	b.Report.Set("drain.rate", d.rate())
	t := b.Report.Table(fmt.Sprintf("Drain of %s one-step tasks, one orchestrator and one worker", num(d.tasks)), "created/s", "drained in s", "tasks/s")
	t.Notes = []string{fmt.Sprintf("Created with POST /v1/tasks/batch, %s per request.", num(load.BulkLimit))}
	t.Add(num(d.tasks/d.created.Seconds()), sec(d.spent), num(d.rate()))
	return nil
}

// peers drains the same through other queues and measures their latency.
func (b *Bench) peers(ctx context.Context) error {
	t := b.Report.Table("Other queues, the same machine and server", "queue", "jobs", "created/s", "drained in s", "jobs/s", "start p50 ms", "p95", "p99")
	t.Notes = []string{"Start is the time from the insertion to the start of a job by the queue's own timestamps, one job at a time."}
	for _, p := range peers.All() {
		d, latency, err := b.drainPeer(ctx, p)
		if err != nil {
			for _, figure := range []string{".drain.rate", ".submit.rate", ".latency.p50_ms", ".latency.p99_ms"} {
				b.Report.Missing("peer."+p.Name()+figure, err.Error())
			}
			t.Add(p.Name(), err, "–", "–", "–", "–", "–", "–")
			continue
		}
		key := "peer." + p.Name()
		b.Report.Set(key+".drain.rate", d.rate())
		b.Report.Set(key+".submit.rate", d.tasks/d.created.Seconds())
		b.Report.SetSummary(key+".latency", latency)
		t.Add(p.Name(), num(d.tasks), num(d.tasks/d.created.Seconds()), sec(d.spent), num(d.rate()), ms(latency.P50), ms(latency.P95), ms(latency.P99))
	}
	return nil
}

func (b *Bench) drainPeer(ctx context.Context, p peers.Peer) (drained, stats.Summary, error) {
	n := b.jobsOf(p.Name())
	d := drained{tasks: float64(n)}
	o, err := b.other(ctx, b.Rig.Stock(), p.Name())
	if err != nil {
		return d, stats.Summary{}, err
	}
	defer o.Close()
	begin := time.Now()
	if err := o.Submit(ctx, n); err != nil {
		return d, stats.Summary{}, fmt.Errorf("submit to %s: %w", p.Name(), err)
	}
	d.created = time.Since(begin)
	if err := o.Start(b.Self, peers.Pace{}); err != nil {
		return d, stats.Summary{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := load.Await(ctx, o, int64(n)); err != nil {
		return d, stats.Summary{}, fmt.Errorf("%w: %s", err, o.out.String())
	}
	if d.spent, err = p.Took(ctx, o.db); err != nil {
		return d, stats.Summary{}, fmt.Errorf("time of %s: %w", p.Name(), err)
	}
	times, err := p.Latency(ctx, o.DSN, b.latenciesOf(p.Name()))
	if err != nil {
		return d, stats.Summary{}, fmt.Errorf("latency of %s: %w", p.Name(), err)
	}
	return d, stats.Summarize(times), nil
}

// jobsOf is how many jobs a peer can do in a sensible time.
func (b *Bench) jobsOf(name string) int {
	switch name {
	case "river-tuned":
		return b.Sizes.Drain
	case "river":
		return b.Sizes.DrainDefaults
	default:
		return b.Sizes.DrainSlow
	}
}

// latenciesOf is how many jobs the latency of a peer is measured with: fewer if its
// defaults make it pause for long between two.
func (b *Bench) latenciesOf(name string) int {
	if name == "river-tuned" {
		return b.Sizes.PeerLatency
	}
	return max(b.Sizes.PeerLatency/4, 10)
}

// replicas adds workers to one orchestrator, then orchestrators.
func (b *Bench) replicas(ctx context.Context) error {
	t := b.Report.Table("Replicas on the same machine", "orchestrators + workers", "drain tasks/s", "mixed tasks/s", "mixed steps/s")
	var first, last struct{ drain, mixed float64 }
	for i, n := range []struct{ orchestrators, workers int }{{1, 1}, {1, 4}, {1, 8}, {4, 8}} {
		d, err := b.drainReplicas(ctx, n.orchestrators, n.workers)
		if err != nil {
			return err
		}
		mixed, err := b.sustain(ctx, load.Mixed, n.orchestrators, n.workers)
		if err != nil {
			return err
		}
		last.drain, last.mixed = d.rate(), mixed
		if i == 0 {
			first = last
		}
		t.Add(fmt.Sprintf("%d + %d", n.orchestrators, n.workers), num(d.rate()), num(mixed), num(mixed*load.StepsPerTask(load.Mixed)))
	}
	b.Report.Set("replicas.drain_ratio", last.drain/first.drain)
	b.Report.Set("replicas.mixed_ratio", last.mixed/first.mixed)
	return nil
}

func (b *Bench) drainReplicas(ctx context.Context, orchestrators, workers int) (drained, error) {
	s, err := b.fleet(ctx, b.Rig.Stock(), rig.FleetOptions{}, load.Plain, orchestrators, 0)
	if err != nil {
		return drained{}, err
	}
	defer s.Close()
	return s.drainTogether(ctx, b.Sizes.Drain/2, workers)
}
