// Package bridge has the shared parts of the bridges from queues of other programs: how a job
// becomes a request for a task, and which jobs never can. redisqueue and amqpqueue are these
// bridges; amqpevents works in the other direction, and shares the pauses after failures.
//
// What may not enter: connections to those queues, and the formats of their jobs.
package bridge
