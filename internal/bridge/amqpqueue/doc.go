// Package amqpqueue makes tasks of the messages that other programs publish to the durable
// queues of RabbitMQ (internal/signal/amqp has their names), and signals of those about tasks
// that are there.
//
// A message is acknowledged after the commit of its task, whose idempotency key is its id: so a
// bridge may die at any point, and a message that is delivered again is the same task. While
// new tasks are refused the bridge holds a batch and takes nothing else; the broker keeps the
// rest. What is neither a task nor a signal goes to the dead-letter queue with the reason.
//
// Read bridge.go from move on. What may not enter: the names of queues, and what becomes of the
// tasks.
package amqpqueue
