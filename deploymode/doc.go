// Package deploymode holds the rules of the deployment modes: how an event
// system learns of work, when a listener counts as healthy, how eagerly the
// poller must look meanwhile, and when a fleet of replicas has a gap.
//
// The heart is [Machine], the listener's life as a pure state machine:
//
//	connecting → listening → deaf → reconnecting → listening
//
// It is stepped with events and the present time and answers with effects
// (send a probe, drop the connection, connect again after a delay). Package
// listener carries the effects out; package coordinator turns the resulting
// [Snapshot] into the pace of a poller.
//
// What may not enter: a clock, a goroutine, randomness, input or output.
// Times are durations since a beginning the caller chooses, jitter is a number
// the caller draws.
package deploymode
