// Package worker is the SDK for writing handlers, and the worker that runs them:
// importable into any program, without HTTP server, flags or globals.
//
//	w, err := worker.New(worker.Config{DatabaseURL: url})
//	err = w.Register("payments.charge", worker.HandlerFunc(charge))
//	err = w.LoadTemplates("templates/payments.yaml")
//	err = w.Run(ctx)
//
// What handlers see: handler.go (their forms), context.go (their task and step),
// results.go (earlier results, batches), bytes.go (what is no JSON), checkpoint.go
// (progress), isolate.go (items that failed), tasks.go (tasks they create), errors.go
// (marks of failures). resolver.go finds the handler of a template, and run.go turns what
// it returns into one ending for the engine. Publishers of domain events: publisher.go,
// publish.go, replicas.go. The worker itself: worker.go, config.go, start.go, stop.go,
// health.go.
//
// Package internal/engine claims steps and records how they ended. It owns an execution;
// a StepContext holds one.
//
// Handlers are at-least-once: a step whose worker vanished runs again. The token of the
// claim is the fence; a late result changes nothing.
//
// What may not enter: SQL and drivers (store), rules about what a result
// causes (workflow), listening and polling (coordinator and below).
package worker
