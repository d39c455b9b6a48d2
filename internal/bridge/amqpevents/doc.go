// Package amqpevents publishes the durable domain events of a namespace to an exchange of
// RabbitMQ.
//
// It is an event consumer with a name of its own, which all orchestrators share: one of them at a
// time has claimed events. The position moves once the broker has confirmed every event up to it,
// so each event is published at least once, whichever process crashes in between, and its id is
// the id of the message.
//
// The first copies of the events of a task are published in the order of their commits, and that
// needs no clock: an event is sent only after the one before it of the same task was confirmed,
// to this publisher or to one before it, which has moved the position. So neither a message that
// the broker rejects in the middle, nor a lost connection, nor a publisher that was frozen and
// continues after its lease, puts a later event before an earlier one. Each of them can add
// duplicates of earlier events, out of order: a reader that drops known ids reads each task in
// order. The lease bounds their number: a publisher stops when its lease ends.
//
// While the broker blocks its publishers nothing is claimed, and at most one round of each
// orchestrator is on its way.
//
// Read bridge.go from publish on. What may not enter: how events are created, and connections
// (internal/signal/amqp).
package amqpevents
