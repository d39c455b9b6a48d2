package load

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

// System is a system that runs tasks.
type System interface {
	// Submit adds n tasks, in bulk.
	Submit(ctx context.Context, n int) error
	// Finished returns how many tasks have ended; it is cheap.
	Finished(ctx context.Context) (int64, error)
}

// Feed says how to keep a system busy.
type Feed struct {
	// Backlog is the least number of waiting tasks; when there are fewer, Batch tasks are
	// added.
	Backlog, Batch int
	// InFlight is how many batches may be on their way at once; default 1. The
	// system must allow for that.
	InFlight int
	// Waiting is how many tasks wait at the beginning.
	Waiting int64
	// Rate, if not nil, returns how many tasks per second to add regardless of the
	// backlog; 0 leaves it to the backlog. at counts from the beginning.
	Rate func(at time.Duration) float64
	// Every is the time between samples; default 200 ms.
	Every time.Duration
}

// Keep keeps a system busy for a time and returns the growth of its count of finished
// tasks, beginning with 0. Tasks are added beside the goroutine that counts, so a slow
// Submit costs the system work, but no sample.
func Keep(ctx context.Context, s System, f Feed, lasting time.Duration) ([]stats.Sample, error) {
	if f.Every == 0 {
		f.Every = 200 * time.Millisecond
	}
	first, err := s.Finished(ctx)
	if err != nil {
		return nil, fmt.Errorf("count finished tasks: %w", err)
	}
	k := &keeper{system: s, feed: f, begin: time.Now(), first: first, samples: []stats.Sample{{}}, want: make(chan int)}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	submitters := max(f.InFlight, 1)
	submitted := make(chan error, submitters)
	for range submitters {
		go func() {
			submitted <- k.submit(ctx)
			cancel()
		}()
	}
	err = k.watch(ctx, lasting)
	cancel()
	for range submitters {
		if e := <-submitted; e != nil {
			err = e // why watch was interrupted
		}
	}
	return k.samples, err
}

// keeper is one Keep under way.
type keeper struct {
	system  System
	feed    Feed
	begin   time.Time
	first   int64
	added   atomic.Int64 // added tasks
	owed    float64
	samples []stats.Sample
	want    chan int // how many to add next; received when the last ones are added
}

func (k *keeper) submit(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-k.want:
			err := k.system.Submit(ctx, n)
			switch {
			case err == nil:
				k.added.Add(int64(n))
			case ctx.Err() == nil:
				return fmt.Errorf("add %d tasks: %w", n, err)
			}
		}
	}
}

// steady is the interval of adding tasks at a rate, so that they arrive in small groups.
const steady = 20 * time.Millisecond

// mostOwed bounds how much of a rate is made up for after a slow Submit.
const mostOwed = time.Second

func (k *keeper) watch(ctx context.Context, lasting time.Duration) error {
	tick := k.feed.Every / 4
	if k.feed.Rate != nil {
		tick = min(tick, steady)
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	last := time.Duration(0)
	for {
		now := time.Since(k.begin)
		if now-k.samples[len(k.samples)-1].At >= k.feed.Every {
			added := k.added.Load()
			n, err := k.system.Finished(ctx)
			if err != nil {
				return fmt.Errorf("count finished tasks: %w", err)
			}
			n -= k.first
			k.samples = append(k.samples, stats.Sample{At: time.Since(k.begin), Count: n, Waiting: k.feed.Waiting + added - n})
			if now >= lasting {
				return nil
			}
		}
		k.ask(now, now-last)
		last = now
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// ask requests more tasks if some are due and no more than InFlight batches are being
// added.
func (k *keeper) ask(now, passed time.Duration) {
	rate := 0.0
	if k.feed.Rate != nil {
		rate = k.feed.Rate(now)
	}
	n := 0
	if rate > 0 {
		// A system that cannot keep up is not overloaded with missed tasks.
		k.owed = min(k.owed+rate*passed.Seconds(), rate*mostOwed.Seconds())
		n = min(int(k.owed), BulkLimit)
	} else {
		k.owed = 0
		finished := k.samples[len(k.samples)-1].Count
		if k.feed.Waiting+k.added.Load()-finished < int64(k.feed.Backlog) {
			n = k.feed.Batch
		}
	}
	if n == 0 {
		return
	}
	select {
	case k.want <- n:
		k.owed = max(0, k.owed-float64(n))
	default: // the latest ones are not added yet
	}
}

// Await waits until the system has finished n tasks.
func Await(ctx context.Context, s System, n int64) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		finished, err := s.Finished(ctx)
		if err != nil {
			return fmt.Errorf("count finished tasks: %w", err)
		}
		if finished >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d tasks, %d are finished: %w", n, finished, ctx.Err())
		case <-ticker.C:
		}
	}
}
