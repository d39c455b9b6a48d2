package rest

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// maxCachedAnswers bounds a cache; beyond it all are forgotten.
const maxCachedAnswers = 64

// answerCache keeps answers that are costly to compute. Requests for one that is missing
// wait until it is there; one answer at a time is computed.
type answerCache[K comparable, V any] struct {
	age          time.Duration
	running      chan struct{} // shared by the caches whose answers load the database together
	hits, misses prometheus.Counter

	mu      sync.Mutex
	answers map[K]cachedAnswer[V]
}

type cachedAnswer[V any] struct {
	value V
	at    time.Time
}

func newAnswerCache[K comparable, V any](name string, age time.Duration, running chan struct{}, m *telemetry.Metrics) *answerCache[K, V] {
	return &answerCache[K, V]{age: age, running: running, answers: map[K]cachedAnswer[V]{},
		hits: m.AnalyticsHits.WithLabelValues(name), misses: m.AnalyticsMisses.WithLabelValues(name)}
}

// get returns a cached answer, or computes it. Errors are not cached.
func (c *answerCache[K, V]) get(ctx context.Context, key K, compute func() (V, error)) (none V, _ error) {
	if v, ok := c.find(key); ok {
		c.hits.Inc()
		return v, nil
	}
	leave, err := c.enter(ctx)
	defer leave()
	if err != nil {
		return none, err
	}
	if v, ok := c.find(key); ok { // computed meanwhile
		c.hits.Inc()
		return v, nil
	}
	c.misses.Inc()
	v, err := compute()
	if err != nil {
		return none, err
	}
	c.put(key, v)
	return v, nil
}

// enter waits until no other answer is computed. The circuit breaker does not count the
// wait, and may refuse the request after it.
func (c *answerCache[K, V]) enter(ctx context.Context) (leave func(), err error) {
	leave = func() {}
	err = breaker.Outside(ctx, func() error {
		select {
		case c.running <- struct{}{}:
			leave = func() { <-c.running }
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return leave, err
}

func (c *answerCache[K, V]) find(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.answers[key]
	return a.value, ok && time.Since(a.at) < c.age
}

func (c *answerCache[K, V]) put(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answers) >= maxCachedAnswers {
		clear(c.answers)
	}
	c.answers[key] = cachedAnswer[V]{value, time.Now()}
}
