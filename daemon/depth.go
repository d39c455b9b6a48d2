package daemon

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
)

const (
	// depthAge is how long a count is good: health and metrics are open to all
	// and must not become load.
	depthAge = time.Second
	// depthShare: the time between two counts is this multiple of the first one's
	// duration. While an old snapshot is held a count reads dead rows.
	depthShare = 20
	// depthLongest bounds it: a count that failed slowly says nothing of what the next costs.
	depthLongest = 10 * time.Second
	// depthTimeout bounds one count, and so the wait of a scrape.
	depthTimeout = 2 * time.Second
)

// sampled keeps what is open to all from becoming load: it reads at most once per age, or
// depthAge, one at a time. It is safe for concurrent use.
type sampled[T any] struct {
	now func() time.Time
	age time.Duration

	mu   sync.Mutex
	at   time.Time
	took time.Duration
	last T
}

// get returns what was read last, or reads again.
func (s *sampled[T]) get(ctx context.Context, read func(ctx context.Context) T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.IsZero() && s.now().Sub(s.at) < max(cmp.Or(s.age, depthAge), min(depthShare*s.took, depthLongest)) {
		return s.last
	}
	// A caller that leaves must not abort the read of the others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), depthTimeout)
	defer cancel()
	begin := s.now()
	s.last = read(ctx)
	s.at = s.now()
	s.took = s.at.Sub(begin)
	return s.last
}

// forget lets the next call read again.
func (s *sampled[T]) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = time.Time{}
}

// queueDepth counts the claimable steps, as a health check and as a metric. It is safe
// for concurrent use.
type queueDepth struct {
	count    func(ctx context.Context, limit int) (map[string]int, error)
	unserved func(ctx context.Context, limit int) ([]store.Unserved, error)
	oldest   func(ctx context.Context) (map[string]time.Duration, error)
	metrics  *telemetry.Metrics
	sampled[depths]
	ages sampled[map[string]time.Duration] // of the oldest, for scrapes alone; nil: they could not be read

	limits     sync.Mutex
	thresholds config.QueueDepthThresholds
}

// depths are the claimable steps.
type depths struct {
	steps    map[string]int // by namespace; nil: the count failed
	unserved []store.Unserved
}

func newQueueDepth(count func(context.Context, int) (map[string]int, error), unserved func(context.Context, int) ([]store.Unserved, error),
	oldest func(context.Context) (map[string]time.Duration, error), thresholds config.QueueDepthThresholds, m *telemetry.Metrics,
) *queueDepth {
	return &queueDepth{count: count, unserved: unserved, oldest: oldest, thresholds: thresholds, metrics: m, sampled: sampled[depths]{now: time.Now},
		ages: sampled[map[string]time.Duration]{now: time.Now}}
}

// judgeBy sets the thresholds for the next check.
func (q *queueDepth) judgeBy(thresholds config.QueueDepthThresholds) {
	q.limits.Lock()
	more := q.thresholds.OverflowThreshold < thresholds.OverflowThreshold
	q.thresholds = thresholds
	q.limits.Unlock()
	if more {
		q.forget() // the latest count may have a lower limit
	}
}

func (q *queueDepth) judgedBy() config.QueueDepthThresholds {
	q.limits.Lock()
	defer q.limits.Unlock()
	return q.thresholds
}

// measure counts at most once per depthAge, one at a time; nil means no answer. The map
// must not be changed.
func (q *queueDepth) measure(ctx context.Context) map[string]int { return q.get(ctx, q.read).steps }

// read counts; old counts are not reported after a failure.
func (q *queueDepth) read(ctx context.Context) (d depths) {
	limit := q.judgedBy().OverflowThreshold + 1
	steps, err := q.count(ctx, limit)
	if err != nil {
		return depths{}
	}
	d.steps = steps
	if d.unserved, err = q.unserved(ctx, limit); err != nil {
		return depths{}
	}
	return d
}

func (q *queueDepth) readAges(ctx context.Context) map[string]time.Duration {
	ages, err := q.oldest(ctx)
	if err != nil {
		return nil
	}
	return ages
}

// shownCallables bounds the callables named in the check of steps without a worker.
const shownCallables = 3

// checkWorkers reports steps that no live worker can run.
func (q *queueDepth) checkWorkers(ctx context.Context) telemetry.Check {
	begin := q.now()
	d := q.get(ctx, q.read)
	c := telemetry.Check{Status: deploymode.Healthy, Message: "live workers can run all waiting steps", Duration: q.now().Sub(begin)}
	if d.steps == nil {
		c.Status, c.Message = deploymode.Unknown, "the queues could not be counted"
		return c
	}
	if len(d.unserved) == 0 {
		return c
	}
	steps := 0
	var says []string
	for i := range d.unserved {
		if steps += d.unserved[i].Steps; i < shownCallables {
			says = append(says, fmt.Sprintf("%s: %s", d.unserved[i].Namespace, &d.unserved[i]))
		}
	}
	if more := len(d.unserved) - shownCallables; more > 0 {
		says = append(says, fmt.Sprintf("and %d more", more))
	}
	c.Status, c.Message = deploymode.Degraded, fmt.Sprintf("%d steps wait for a worker that can run them (%s)", steps, strings.Join(says, "; "))
	return c
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
	limits := q.judgedBy()
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
func (q *queueDepth) Describe(ch chan<- *prometheus.Desc) {
	ch <- q.metrics.QueueDepth
	ch <- q.metrics.QueueOldest
	ch <- q.metrics.StepsWithoutWorker
}

// Collect implements prometheus.Collector. Without an answer it reports nothing, so that
// a scrape gets the other metrics while the database is unavailable.
func (q *queueDepth) Collect(ch chan<- prometheus.Metric) {
	d := q.get(context.Background(), q.read)
	if d.steps == nil {
		return
	}
	ages := q.ages.get(context.Background(), q.readAges)
	if ages == nil {
		return
	}
	without := map[string]int{}
	for i := range d.unserved {
		without[d.unserved[i].Namespace] += d.unserved[i].Steps
	}
	for namespace, steps := range d.steps {
		if q.metrics.Named("namespace", namespace) != namespace {
			continue
		}
		ch <- prometheus.MustNewConstMetric(q.metrics.QueueOldest, prometheus.GaugeValue, ages[namespace].Seconds(), namespace)
		ch <- prometheus.MustNewConstMetric(q.metrics.QueueDepth, prometheus.GaugeValue, float64(steps), namespace)
		ch <- prometheus.MustNewConstMetric(q.metrics.StepsWithoutWorker, prometheus.GaugeValue, float64(without[namespace]), namespace)
	}
}
