// Package tracing carries traces of OpenTelemetry through Tasker: from the context of a
// request into the row of its task, from the row into the context of a handler, and into
// spans. The ids of the spans of a task and of the attempts of its steps follow from what
// they are, so that each daemon knows the parent of a span without asking the one that
// emits it, and no row changes for a span; docs/inside/decisions/0029-traces.md says more.
//
// A nil *Tracer is tracing that is off: its methods do nothing and allocate nothing.
//
// What may not enter: the export of spans, which is in tracing/otlp, so that programs which
// only create tasks do not link it; and metrics and logs.
package tracing
