// Package telemetry is how the product tells about itself: the logger
// ([NewLogger]), the catalogue of metrics ([Metrics]) and health reports
// ([Report]).
//
// Every metric of the product is declared here, in one place, with its labels
// and help. A label never varies per request: no task, step, correlation or
// trace id; those belong in logs and spans.
//
// What may not enter: knowledge of the things measured beyond their names.
package telemetry
