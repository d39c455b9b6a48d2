// Package grpc serves tasker.v1, the gRPC interface of both daemons, and the sessions of
// tasker.session.v1: another way to the operations of the REST API.
//
// Every rpc calls the operation of REST that routes names for it, inside the process, with
// the credentials of its metadata. So permissions, namespaces, circuit breakers, budgets
// and the texts of failures are those of REST; this package only converts requests and
// answers, and the statuses of failures.
//
// What may not enter: decisions about tasks, reading of the database, and operations that
// REST does not have.
package grpc
