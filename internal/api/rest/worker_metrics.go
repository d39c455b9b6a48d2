package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/tasker-go/tasker/client"
)

const metricsTag = "metrics"

// QueueState is what waits in a namespace.
type QueueState struct {
	Depth  int           // claimable steps, counted up to a bound
	Oldest time.Duration // for how long the oldest of them has been claimable
}

// workerMetrics are the numbers of a worker as JSON.
type workerMetrics struct {
	worker  *Worker
	started time.Time
}

func (m *workerMetrics) add(a *api) {
	add(a, operation{tag: metricsTag, failure: shapeFlat}.at(http.MethodGet, "/metrics/worker", "worker-metrics", "Numbers of this worker as JSON"), m.get)
}

func (m *workerMetrics) get(ctx context.Context, _ *struct{}) (*client.WorkerMetrics, error) {
	w := &client.WorkerMetrics{Metrics: map[string]client.WorkerMetric{}, Timestamp: client.Time{Time: time.Now()}, WorkerID: m.worker.ID}
	set := func(name string, value float64, labels map[string]string, help string) {
		w.Metrics[name] = client.WorkerMetric{Value: value, MetricType: "gauge", Labels: labels, Help: help}
	}
	set("uptime_seconds", time.Since(m.started).Seconds(), map[string]string{}, "Seconds since the worker was started.")
	if m.worker.Database != nil {
		set("database_pool_size", float64(m.worker.Database.PoolStat().Total), map[string]string{}, "Connections to the database.")
	}
	if m.worker.Queues == nil {
		return w, nil
	}
	queues := m.worker.Queues(ctx)
	for _, name := range m.worker.namespaces() {
		q, ok := queues[name]
		if !ok {
			continue // it could not be counted
		}
		labels := map[string]string{"namespace": name}
		set("queue_depth_"+name, float64(q.Depth), labels, "Claimable steps of the namespace, counted up to a bound.")
		set("queue_oldest_message_age_"+name, q.Oldest.Seconds(), labels, "Seconds that the oldest of them has waited.")
	}
	return w, nil
}
