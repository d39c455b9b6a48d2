package enginetest

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/client"
)

// Rows runs statements: a connection, a pool or a transaction.
type Rows interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// CreateBySQL calls tasker.create_task with what a request has set. Fields without an argument
// of the function are left out.
func CreateBySQL(ctx context.Context, db Rows, r *client.TaskRequest) (uuid.UUID, error) {
	c := sqlCall{named("namespace", r.Namespace), named("name", r.Name), named("context", string(r.Context))}
	c.text("version", r.Version)
	c.rest(r)
	return c.run(ctx, db, "create_task")
}

// EnqueueBySQL is CreateBySQL for tasker.enqueue.
func EnqueueBySQL(ctx context.Context, db Rows, r *client.EnqueueRequest) (uuid.UUID, error) {
	c := sqlCall{named("type", r.Type), named("payload", string(r.Payload))}
	c.text("queue", r.Queue)
	c.rest(&client.TaskRequest{IdempotencyKey: r.IdempotencyKey, ConflictPolicy: r.ConflictPolicy, Priority: r.Priority, Tags: r.Tags, StartAt: r.StartAt,
		DelaySeconds: r.DelaySeconds, Deadline: r.Deadline, CorrelationID: r.CorrelationID, ParentCorrelationID: r.ParentCorrelationID,
		Initiator: r.Initiator, SourceSystem: r.SourceSystem, Reason: r.Reason})
	return c.run(ctx, db, "enqueue")
}

// sqlCall are the arguments of a function.
type sqlCall []sqlArg

type sqlArg struct {
	name  string
	value any
}

func named(name string, value any) sqlArg { return sqlArg{name, value} }

func (c *sqlCall) text(name, value string) {
	if value != "" {
		*c = append(*c, named(name, value))
	}
}

func optional[T any](c *sqlCall, name string, value *T) {
	if value != nil {
		*c = append(*c, named(name, *value))
	}
}

func (c *sqlCall) rest(r *client.TaskRequest) {
	c.text("idempotency_key", r.IdempotencyKey)
	c.text("conflict_policy", r.ConflictPolicy)
	c.text("initiator", r.Initiator)
	c.text("source_system", r.SourceSystem)
	c.text("reason", r.Reason)
	optional(c, "priority", r.Priority)
	optional(c, "delay_seconds", r.DelaySeconds)
	optional(c, "correlation_id", r.CorrelationID)
	optional(c, "parent_correlation_id", r.ParentCorrelationID)
	if r.Tags != nil {
		*c = append(*c, named("tags", r.Tags))
	}
	if r.StartAt != nil {
		*c = append(*c, named("start_at", r.StartAt.Time))
	}
	if r.Deadline != nil {
		*c = append(*c, named("deadline", r.Deadline.Time))
	}
}

func (c *sqlCall) run(ctx context.Context, db Rows, function string) (id uuid.UUID, err error) {
	arguments, values := make([]string, len(*c)), make([]any, len(*c))
	for i, a := range *c {
		arguments[i], values[i] = fmt.Sprintf("%s => $%d", a.name, i+1), a.value
	}
	err = db.QueryRow(ctx, `select tasker.`+function+`(`+strings.Join(arguments, ", ")+`)`, values...).Scan((*[16]byte)(&id))
	return id, err
}
