// Package metrics runs what an operator deploys, rules and dashboards, with a real Prometheus
// over real daemons at work: `make metrics-test`. It is built with the tag metricstest only,
// because it takes a minute and needs Prometheus.
//
// What may not enter: what the catalogue knows without a fleet; that is tested in
// internal/telemetry.
package metrics
