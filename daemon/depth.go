package daemon

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/telemetry"
)

const (
	// depthAge is how long a count is good: health and metrics are open to all
	// and must not become load.
	depthAge = time.Second
	// depthShare: between two counts lies this many times what the first took.
	// While an old snapshot is held a count walks over what is dead.
	depthShare = 20
	// depthTimeout bounds one count, and so what a scrape may wait.
	depthTimeout = 2 * time.Second
)

// queueDepth counts the claimable steps for people: as a health check and as a
// metric. It is safe for concurrent use.
type queueDepth struct {
	count func(ctx context.Context, limit int) (map[string]int, error)
	now   func() time.Time
	gauge *prometheus.Desc

	mu         sync.Mutex
	thresholds config.QueueDepthThresholds
	at         time.Time
	took       time.Duration
	last       map[string]int // by namespace; nil: the latest count failed
}

func newQueueDepth(count func(context.Context, int) (map[string]int, error), thresholds config.QueueDepthThresholds) *queueDepth {
	return &queueDepth{count: count, thresholds: thresholds, now: time.Now,
		gauge: prometheus.NewDesc("tasker_queue_depth", "Claimable steps, counted up to one more than overflow_threshold.", []string{"namespace"}, nil)}
}

// judgeBy has the next check use other thresholds.
func (q *queueDepth) judgeBy(thresholds config.QueueDepthThresholds) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.thresholds.OverflowThreshold < thresholds.OverflowThreshold {
		q.at = time.Time{} // the latest count did not go that far
	}
	q.thresholds = thresholds
}

// measure counts at most once per depthAge, one at a time; nil means that
// there is no answer. The map must not be changed.
func (q *queueDepth) measure(ctx context.Context) map[string]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.at.IsZero() && q.now().Sub(q.at) < max(depthAge, depthShare*q.took) {
		return q.last
	}
	// A caller that leaves must not make the others miss the count.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), depthTimeout)
	defer cancel()
	begin := q.now()
	depth, err := q.count(ctx, q.thresholds.OverflowThreshold+1)
	if err != nil {
		depth = nil // what was true a while ago says nothing now
	}
	q.last, q.at = depth, q.now()
	q.took = q.at.Sub(begin)
	return depth
}

// check judges the longest queue.
func (q *queueDepth) check(ctx context.Context) telemetry.Check {
	begin := q.now()
	depth := q.measure(ctx)
	c := telemetry.Check{Status: deploymode.Unknown, Message: "the queues could not be counted", Duration: q.now().Sub(begin)}
	if depth == nil {
		return c
	}
	longest, deepest := "", 0
	for namespace, steps := range depth {
		if steps > deepest || steps == deepest && (longest == "" || namespace < longest) {
			longest, deepest = namespace, steps
		}
	}
	c.Status, c.Message = deploymode.Healthy, "no step waits"
	if deepest == 0 {
		return c
	}
	q.mu.Lock()
	limits := q.thresholds
	q.mu.Unlock()
	c.Message = fmt.Sprintf("%d steps wait in %s", deepest, longest)
	switch {
	case deepest > limits.OverflowThreshold:
		c.Status, c.Message = deploymode.Unhealthy, fmt.Sprintf("more than %d steps wait in %s", limits.OverflowThreshold, longest)
	case deepest == limits.OverflowThreshold:
		c.Status = deploymode.Unhealthy
	case deepest >= limits.CriticalThreshold:
		c.Status = deploymode.Degraded
	}
	return c
}

// Describe implements prometheus.Collector.
func (q *queueDepth) Describe(ch chan<- *prometheus.Desc) { ch <- q.gauge }

// Collect implements prometheus.Collector. Without an answer it tells nothing,
// so that a scrape brings all the other metrics while the database is away.
func (q *queueDepth) Collect(ch chan<- prometheus.Metric) {
	for namespace, steps := range q.measure(context.Background()) {
		ch <- prometheus.MustNewConstMetric(q.gauge, prometheus.GaugeValue, float64(steps), namespace)
	}
}
