// Package telemetry makes the product observable: the logger
// ([NewLogger]), the catalogue of metrics ([Metrics]) and health checks
// ([Check]).
//
// Every metric of the product is declared here, in one place, with its labels
// and help. A label never varies per request: no task, step, correlation or
// trace id; those belong in logs and spans.
//
// What may not enter: knowledge of the measured components beyond their names.
package telemetry
