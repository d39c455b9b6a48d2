// Package worker is the SDK of the engine that runs the steps of workflows: importable
// into any program, without HTTP server, flags or globals.
//
//	w, err := worker.New(worker.Config{DatabaseURL: url})
//	err = w.Register("payments.charge", worker.HandlerFunc(charge))
//	err = w.LoadTemplates("templates/payments.yaml")
//	err = w.Run(ctx)
//
// What handlers see: handler.go, typed.go and tx.go (handlers), context.go, input.go and
// results.go (their input), batch.go and isolate.go (batches), checkpoint.go (progress),
// continue.go and create_task.go (next tasks), errors.go (failures), publisher.go (domain
// events). registry.go and resolver.go find the handler of a template, run.go calls it and
// turns what it returns into the ending of its step. worker.go, start.go and stop.go are
// the life of a worker; worker/internal/engine claims its steps and records their endings.
//
// Handlers are at-least-once: a step whose worker vanished runs again. The token of the
// claim is the fence; a late result changes nothing.
//
// What may not enter: SQL and drivers (store), rules about what a result causes
// (workflow), listening and polling (coordinator and below), and how claims, permits,
// leases and reports are managed (worker/internal/engine).
package worker
