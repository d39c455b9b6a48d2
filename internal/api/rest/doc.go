// Package rest is the HTTP API of the two daemons: the /v1 routes of the orchestrator,
// the administration and health routes of both, /metrics, and the OpenAPI document that
// describes them.
//
// [NewOrchestrator] and [NewWorker] return a [Server], which starts and stops like every
// other service. A request has an id, a deadline and a bound on its body; a panic or an
// unexpected failure is answered with the id and logged with it. The JSON types are those
// of package client.
//
// What may not enter: rules about tasks (workflow, orchestration), SQL (store), and
// anything that waits without a bound.
package rest
