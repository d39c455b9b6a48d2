package pgclient

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
)

// Announce is how the fleet learns of a task: the client does not see the commit, so the
// signal must be part of the transaction. It must match what the fleet listens to, its
// common.signals.event_source.
type Announce = store.Announce

const (
	// AnnounceNothing leaves the task to polls and sweeps, half a minute at most. It
	// costs nothing, and always works; with the event source redis it is the only way.
	AnnounceNothing = store.AnnounceNothing
	// AnnounceNotify is for the event source notify. PostgreSQL serializes commits with a
	// NOTIFY in the whole server, so this is not for hundreds of transactions per second.
	AnnounceNotify = store.AnnounceNotify
	// AnnounceWAL is for the event sources wal and relay.
	AnnounceWAL = store.AnnounceWAL
)

// Errors of requests for callers to branch on. The transaction can continue after each of
// them.
type (
	// InvalidError says what is wrong with a request.
	InvalidError = submission.InvalidError
	// DuplicateError says that a task with the same identity exists; it names the task if
	// the request has an idempotency key.
	DuplicateError = submission.DuplicateError
	// UnknownTemplateError says that no such template version is registered.
	UnknownTemplateError = submission.UnknownTemplateError
)

// Created is a task that exists once its transaction is committed.
type Created struct {
	TaskUUID uuid.UUID
	// Existing says that the task existed already, which the conflict policy allows; then
	// only its UUID is set.
	Existing      bool
	RequestedAt   time.Time // by the database's clock
	CorrelationID uuid.UUID
}

// Result is the outcome of one request of CreateTasksTx: the task or its error.
type Result struct {
	Created
	Err error // an *InvalidError, *UnknownTemplateError or *DuplicateError
}

// Client creates tasks. It caches templates for some seconds, so keep it. It is safe for
// concurrent use.
type Client struct {
	plans    *store.TxPlans
	announce Announce
}

// New returns a client whose tasks are announced that way.
func New(how Announce) *Client { return &Client{plans: store.NewTxPlans(), announce: how} }

// Tx is a transaction of the caller: a pgx.Tx.
type Tx = store.Tx

// CreateTaskTx is CreateTasksTx for one task, whose error it returns like one of the
// database.
func (c *Client) CreateTaskTx(ctx context.Context, tx Tx, r client.TaskRequest) (Created, error) {
	results, err := c.CreateTasksTx(ctx, tx, []client.TaskRequest{r})
	if err != nil {
		return Created{}, err
	}
	return results[0].Created, results[0].Err
}

// CreateTasksTx creates up to client.MaxBatchTasks tasks within tx, a pgx.Tx to the
// engine's database. The answer has one entry per request, in order. Each request is
// separate: if it is invalid, names an unknown template or asks for an existing task, its
// entry has the error, no statement has failed, and tx can continue with the other tasks;
// roll it back to create all or none. Of requests with the same identity the first
// creates the task, and the others are duplicates of it.
//
// The number of statements does not grow with that of the tasks. Each template is looked
// up once, and every hundred missing tasks in DependsOn cost two statements.
//
// The error is an *InvalidError if there are too many requests, and tx can continue.
// After an error of the database tx can only be rolled back.
//
// The identities of the tasks (the idempotency key, or else the context) are locked until
// tx ends. During that time a request for the same task over the API is answered with
// 503, and one in another transaction waits: if two transactions create the same tasks in
// several calls, in another order, PostgreSQL ends one of them. Above read committed a
// duplicate committed after the snapshot of tx is a serialization failure. So create
// late, in one call, and commit soon.
//
// Back-pressure does not apply: it belongs to the API.
func (c *Client) CreateTasksTx(ctx context.Context, tx Tx, requests []client.TaskRequest) ([]Result, error) {
	if len(requests) > client.MaxBatchTasks {
		return nil, &InvalidError{Problems: []string{fmt.Sprintf("invalid number of tasks %d: want at most %d", len(requests), client.MaxBatchTasks)}}
	}
	now, entries := time.Now(), make([]submission.Entry, len(requests))
	for i := range requests {
		entries[i].Request, entries[i].Err = requestOf(&requests[i], now)
	}
	if _, err := submission.IntoEach(ctx, tx, c.plans.On(tx), c.announce, entries); err != nil {
		return nil, err
	}
	results := make([]Result, len(entries))
	for i := range entries {
		made := &entries[i].Created
		results[i] = Result{Created{TaskUUID: made.UUID, Existing: made.Existing, RequestedAt: made.RequestedAt, CorrelationID: made.CorrelationID}, entries[i].Err}
	}
	return results, nil
}

// requestOf converts a request of the API for the engine.
func requestOf(r *client.TaskRequest, now time.Time) (*submission.Request, error) {
	request := &submission.Request{
		Namespace: r.Namespace, Name: r.Name, Version: r.Version, Context: r.Context,
		Initiator: r.Initiator, SourceSystem: r.SourceSystem, Reason: r.Reason,
		Tags: r.Tags, IdempotencyKey: r.IdempotencyKey, Conflict: submission.ConflictPolicy(r.ConflictPolicy),
	}
	var correlation, parent, deadline error
	request.CorrelationID, correlation = submission.OptionalUUID("correlation_id", r.CorrelationID)
	request.ParentCorrelationID, parent = submission.OptionalUUID("parent_correlation_id", r.ParentCorrelationID)
	request.DeadlineIn, deadline = submission.DeadlineIn(instant(r.Deadline), now)
	return request, cmp.Or(
		request.Urgency(r.Priority, r.PriorityLevel),
		request.Retries(r.MaxAttempts, r.RetryDelays),
		request.Dependencies(r.DependsOn, r.OnDependencyFailure),
		correlation, parent,
		request.Start(instant(r.StartAt), r.DelaySeconds, now),
		deadline,
	)
}

func instant(t *client.Time) *time.Time {
	if t == nil {
		return nil
	}
	return &t.Time
}
