// Package worker runs the steps of workflows. It is the SDK for writing handlers and the
// engine that runs them: importable into any program, without HTTP server, flags or
// globals.
//
//	w, err := worker.New(worker.Config{DatabaseURL: url})
//	err = w.Register("payments.charge", worker.HandlerFunc(charge))
//	err = w.LoadTemplates("templates/payments.yaml")
//	err = w.Run(ctx)
//
// The SDK: handler.go and typed.go (handlers), context.go, input.go and results.go (their
// input), checkpoint.go (progress), continue.go (next tasks), errors.go (failures),
// registry.go and resolver.go (how a template finds its handler).
//
// The engine: look.go claims as many steps as there are free permits, job.go computes per
// claim what its steps have in common, slots.go accounts for permits and draws the states
// of an execution, room.go says how many steps may be claimed, leases.go accounts for
// leases, deadlines.go for time limits, run.go runs one step and turns what its handler
// returned into its ending, lazy_context.go is its context, ending.go records the ending,
// delivery.go sends what is to be stored in batches and retries them until they are
// answered, reporter.go so delivers reports, settle.go decides what follows from
// successes, saver.go delivers checkpoints, yield.go reruns steps that yielded,
// heartbeat.go extends the leases, stop.go stops in order.
//
// Handlers are at-least-once: a step whose worker vanished runs again. The token of the
// claim is the fence; a late result changes nothing.
//
// What may not enter: SQL and drivers (store), rules about what a result
// causes (workflow), listening and polling (coordinator and below).
package worker
