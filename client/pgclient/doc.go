// Package pgclient creates tasks, one or many, within a transaction of the caller, in the
// database of the engine: the task exists if that transaction commits. A program that
// writes an order and wants it processed needs no outbox.
//
//	tasks := pgclient.New(pgclient.AnnounceNotify)
//	tx, err := pool.Begin(ctx)
//	_, err = tx.Exec(ctx, `insert into orders …`)
//	_, err = tasks.CreateTaskTx(ctx, tx, client.TaskRequest{…})
//	err = tx.Commit(ctx)
//
// CreateTasksTx creates up to client.MaxBatchTasks tasks with as many statements
// as one, and returns the outcome of each request.
//
// The request is that of package client and the rules are those of
// POST /v1/tasks, by the same code. What the program's role needs in the
// database: usage of the schema tasker and of the sequence tasker.step_seq;
// select on namespaces and plans; select, insert and update on
// task_identities; select and insert on tasks and board; insert on task_counts; execute on the functions
// plan_for_use, is_followed, record_transition and task_standing. For requests with DependsOn also: update on tasks and board; insert on task_dependencies and
// task_messages.
//
// It is a package of its own and not a part of package client, because it needs
// the database driver and the engine's rows. A program that only uses HTTP
// should not compile, link and start those: a stripped program that calls client.CreateTask
// has 6 MB, with this package 9 MB (linux/amd64).
//
// What may not enter: SQL (store), rules about requests (submission).
package pgclient
