// Package redisqueue makes tasks of the jobs that other programs push into Redis: into the
// lists and sorted sets of Distributed-Task-Queue-Engine, <prefix>:queue:<lane> and
// <prefix>:sorted:<lane> for the lanes high, normal and low.
//
// A job is moved into the hash <prefix>:processing by a script, becomes a task under its id
// as idempotency key, and leaves the hash once the task is committed. So a bridge may die at
// any point: what it has moved is taken up again after a while, by any bridge, and a job that
// is moved twice is one task. What cannot become one goes to <prefix>:dlq with the reason.
// <prefix>:bridge:taken tells when which job was moved, by the clock of Redis; jobs in the
// hash that are not in there belong to the workers of the other program.
//
// Read scripts.go first. What may not enter: what becomes of the tasks, the other program's
// idempotency keys (it has refused duplicates before it pushes), and its snapshots of jobs.
package redisqueue
