package pgclient

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/submission"
)

// Announce says how the fleet learns of a task: the client does not see the
// commit, so the signal has to be a part of the transaction. It must be what the
// fleet listens to, its common.signals.event_source.
type Announce = store.Announce

const (
	// AnnounceNothing leaves it to polls and sweeps to find the task, within half
	// a minute at most. It costs nothing, and is always right.
	AnnounceNothing = store.AnnounceNothing
	// AnnounceNotify is for the event source notify. PostgreSQL lets commits
	// with a NOTIFY happen one at a time in the whole server, so this is not for
	// transactions by the hundred per second.
	AnnounceNotify = store.AnnounceNotify
	// AnnounceWAL is for the event sources wal and relay.
	AnnounceWAL = store.AnnounceWAL
)

// Errors of CreateTaskTx that callers branch on. The transaction goes on after
// each of them.
type (
	// InvalidError says what is wrong with a request.
	InvalidError = submission.InvalidError
	// DuplicateError says that a task with the same identity exists; it names
	// the task where the request has an idempotency key.
	DuplicateError = submission.DuplicateError
	// UnknownTemplateError says that no such template version is registered.
	UnknownTemplateError = submission.UnknownTemplateError
)

// Created is a task that exists once its transaction is committed.
type Created struct {
	TaskUUID uuid.UUID
	// Existing says that the task existed already and the request's conflict
	// policy asked for no other; then nothing but its UUID is known.
	Existing      bool
	RequestedAt   time.Time // by the database's clock
	CorrelationID uuid.UUID
}

// Client creates tasks. It remembers templates for some seconds, so keep it. It
// is safe for concurrent use.
type Client struct {
	plans    *store.TxPlans
	announce Announce
}

// New returns a client whose tasks are announced that way.
func New(how Announce) *Client { return &Client{plans: store.NewTxPlans(), announce: how} }

// CreateTaskTx creates a task within tx, a pgx.Tx to the engine's database. The
// error is an *InvalidError, *UnknownTemplateError or *DuplicateError where the
// request is to blame: then nothing was created, no statement has failed, and tx
// goes on. After an error of the database tx can only be rolled back.
//
// The identity of the task (its idempotency key, or else its context) is locked
// until tx ends. A request for the same task over the API is answered with 503
// meanwhile, and one in another transaction waits. Above read committed a
// duplicate that was committed after the snapshot of tx is a serialization
// failure. So create late, and commit soon.
//
// Back-pressure is not asked: it is the API's.
func (c *Client) CreateTaskTx(ctx context.Context, tx store.Tx, r client.TaskRequest) (Created, error) {
	request, err := requestOf(&r, time.Now())
	if err != nil {
		return Created{}, err
	}
	created, _, err := submission.Into(ctx, tx, c.plans.On(tx), c.announce, &request)
	if err != nil {
		return Created{}, err
	}
	return Created{TaskUUID: created.UUID, Existing: created.Existing, RequestedAt: created.RequestedAt, CorrelationID: created.CorrelationID}, nil
}

// requestOf turns what the API takes into what the engine takes.
func requestOf(r *client.TaskRequest, now time.Time) (submission.Request, error) {
	request := submission.Request{
		Namespace: r.Namespace, Name: r.Name, Version: r.Version, Context: r.Context,
		Initiator: r.Initiator, SourceSystem: r.SourceSystem, Reason: r.Reason,
		Tags: r.Tags, IdempotencyKey: r.IdempotencyKey, Conflict: submission.ConflictPolicy(r.ConflictPolicy),
	}
	err := request.Urgency(r.Priority, r.PriorityLevel)
	if err != nil {
		return request, err
	}
	if err = request.Retries(r.MaxAttempts, r.RetryDelays); err != nil {
		return request, err
	}
	if err = request.Dependencies(r.DependsOn, r.OnDependencyFailure); err != nil {
		return request, err
	}
	if request.CorrelationID, err = submission.OptionalUUID("correlation_id", r.CorrelationID); err != nil {
		return request, err
	}
	if request.ParentCorrelationID, err = submission.OptionalUUID("parent_correlation_id", r.ParentCorrelationID); err != nil {
		return request, err
	}
	if err = request.Start(instant(r.StartAt), r.DelaySeconds, now); err != nil {
		return request, err
	}
	request.DeadlineIn, err = submission.DeadlineIn(instant(r.Deadline), now)
	return request, err
}

func instant(t *client.Time) *time.Time {
	if t == nil {
		return nil
	}
	return &t.Time
}
