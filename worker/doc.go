// Package worker runs the steps of workflows. It is the SDK for writing
// handlers and the engine that feeds them: importable into any program, without
// HTTP server, flags or globals.
//
//	w, err := worker.New(worker.Config{DatabaseURL: url})
//	err = w.Register("payments.charge", worker.HandlerFunc(charge))
//	err = w.LoadTemplates("templates/payments.yaml")
//	err = w.Run(ctx)
//
// The SDK: handler.go and typed.go (what a handler is), context.go, input.go
// and results.go (what it is given), checkpoint.go (what it saves on the way),
// continue.go (what it names as coming next), errors.go (how it fails), registry.go and resolver.go (how a template finds
// it).
//
// The engine: look.go claims as many steps as there are free permits, job.go
// works out once per claim what its steps have in common, slots.go keeps account
// of permits and claims, leases.go of leases, deadlines.go of time limits,
// run.go runs one step, life.go is the context it runs in, outcome.go turns what
// a handler returned into a report, reporter.go hands reports over in batches
// and repeats them until they are accepted or refused, saver.go does the same
// with checkpoints, yield.go has what yielded run again, heartbeat.go keeps the
// leases, stop.go ends it all in order.
//
// Handlers are at-least-once: a step whose worker vanished runs again. The
// token of the claim is the fence; a result that comes too late changes nothing.
//
// What may not enter: SQL and drivers (store), rules about what a result
// causes (workflow), listening and polling (coordinator and below).
package worker
