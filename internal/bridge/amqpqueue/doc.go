// Package amqpqueue creates tasks from the messages that other programs publish to the durable
// queues of RabbitMQ (internal/signal/amqp has their names), and signals from messages about
// existing tasks.
//
// A message is acknowledged after the commit of its task, whose idempotency key is its id: so a
// bridge may crash at any point, and a message that is redelivered is the same task. While
// new tasks are rejected the bridge holds a batch and takes no other message; the broker keeps
// the rest. Any other message goes to the dead-letter queue with the reason.
//
// Read bridge.go from move on. What may not enter: the names of queues, and the later life of the
// tasks.
package amqpqueue
