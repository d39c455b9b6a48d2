// Package amqp carries signals through RabbitMQ.
//
// A signal is a transient message to the direct exchange of the fleet, with a routing key
// that says its topic. Each listening connection has a queue of its own, which ends with it,
// and one binding per topic: so every listener receives every signal that it subscribed to,
// and the broker returns signals without a listener to the sender, which counts them. The queue is
// bounded: a signal that the broker drops leaves one message in a second queue, and the
// connection then says "anything" on each of its topics.
//
// Delayed signals, of steps that back off, wait in queues of the broker whose messages return to the direct exchange
// (delay.go): one queue per power of two of seconds, because a queue expires from its head
// only, so that a long delay would hold back a short one behind it.
//
// The rest of the topology is for messages of other programs: for each queue key a durable
// queue, and a retry queue whose messages return to it; a dead-letter exchange with its queue.
// A Receiver (receiver.go) takes them, for internal/bridge/amqpqueue. Signals never enter them: their routing keys begin with "signal.", which no
// queue key may. topology.go has all the names. A Publisher (publisher.go) publishes to an exchange of others, for
// internal/bridge/amqpevents, and touches none of this topology.
//
// Publishing waits for the broker's confirmation. A broker that is short of memory or disk
// blocks its publishers: then a transport fails at once, instead of filling up buffers that
// the broker does not read.
//
// Read session.go first (one connection to the broker, and how every wait on it is bounded),
// then transport.go, and connection.go.
//
// What may not enter: reconnecting of listeners (listener) and of receivers, the meaning of
// signals and messages, work that only a message holds.
package amqp
