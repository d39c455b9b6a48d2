// Package bridge is what the bridges from queues of other programs have in common: how a job
// becomes a request for a task, and which ones never will. redisqueue and amqpqueue are these
// bridges; amqpevents goes the other way, and has the pauses after failures in common with them.
//
// What may not enter: connections to those queues, and what their jobs look like.
package bridge
