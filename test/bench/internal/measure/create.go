package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

// create measures creation while no worker runs.
func (b *Bench) create(ctx context.Context) error {
	s, err := b.fleet(ctx, b.Rig.Stock(), rig.FleetOptions{}, load.Plain, 1, 0)
	if err != nil {
		return err
	}
	defer s.Close()
	t := b.Report.Table("Creating one-step tasks, no worker running", "how", "clients", "tasks/s", "p50 ms", "p95", "p99")
	for _, clients := range []int{1, 16, 64} {
		rate, sum, err := b.singles(ctx, s, clients)
		if err != nil {
			return err
		}
		t.Add("one per request", clients, num(rate), ms(sum.P50), ms(sum.P95), ms(sum.P99))
		if clients == 1 {
			b.Report.SetSummary("create.one", sum)
		} else {
			b.Report.Set("create.single.rate", max(rate, b.Report.Figures["create.single.rate"]))
		}
	}
	if err := b.createInBulk(ctx, s, t.Add); err != nil {
		return err
	}
	rate, err := b.createdBy(ctx, 1, func(ctx context.Context) (int, error) { return 1000, s.board.Create(ctx, load.OneStep, 1000) })
	if err != nil {
		return err
	}
	b.Report.Set("create.store.rate", rate)
	t.Add("through the store, 1,000 per transaction", 1, num(rate), "–", "–", "–")
	return nil
}

func (b *Bench) singles(ctx context.Context, s *ours, clients int) (float64, stats.Summary, error) {
	for _, lasting := range []time.Duration{b.Sizes.Create / 4, b.Sizes.Create} { // the first warms up
		timed, cancel := context.WithTimeout(ctx, lasting)
		begin := time.Now()
		took, err := s.creator.Singles(timed, clients)
		spent := time.Since(begin)
		cancel()
		if err != nil {
			return 0, stats.Summary{}, err
		}
		if lasting == b.Sizes.Create {
			return float64(len(took)) / spent.Seconds(), stats.Summarize(took), nil
		}
	}
	return 0, stats.Summary{}, errors.New("no time to create tasks")
}

func (b *Bench) createInBulk(ctx context.Context, s *ours, row func(...any)) error {
	for _, clients := range []int{1, 2, 4} {
		rate, err := b.createdBy(ctx, clients, func(ctx context.Context) (int, error) {
			return load.BulkLimit, s.creator.Bulk(ctx, load.BulkLimit)
		})
		if err != nil {
			return err
		}
		b.Report.Set("create.bulk.rate", max(rate, b.Report.Figures["create.bulk.rate"]))
		row(fmt.Sprintf("%s per request", num(load.BulkLimit)), clients, num(rate), "–", "–", "–")
	}
	return nil
}

// createdBy has clients create batches one after the other and returns the tasks per
// second; started batches are finished.
func (b *Bench) createdBy(ctx context.Context, clients int, batch func(context.Context) (int, error)) (float64, error) {
	made, errs := make([]int, clients), make([]error, clients)
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for time.Since(begin) < b.Sizes.Create && errs[i] == nil && ctx.Err() == nil {
				var n int
				n, errs[i] = batch(ctx)
				made[i] += n
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range made {
		sum += n
	}
	return float64(sum) / time.Since(begin).Seconds(), errors.Join(errs...)
}
