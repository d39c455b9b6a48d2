// Package otlp sends the spans and the metrics of a daemon to a collector, with OTLP over
// HTTP. Spans: a bounded queue, and one loop that sends it in batches. What the queue has no
// room for, and what the collector does not take in time, is dropped and counted; no work
// waits for a span. Metrics: a loop that sends those that are exposed.
//
// What may not enter: which spans there are, which is in package tracing, and which metrics,
// which is in telemetry.
package otlp
