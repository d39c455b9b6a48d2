// Package otlp sends the spans of a daemon to a collector, with OTLP over HTTP: a bounded
// queue, and one loop that sends it in batches. What the queue has no room for, and what
// the collector does not take in time, is dropped and counted; no work waits for a span.
//
// What may not enter: which spans there are, which is in package tracing.
package otlp
