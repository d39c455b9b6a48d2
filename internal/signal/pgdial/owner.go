package pgdial

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/panics"

	"github.com/tasker-go/tasker/internal/signal/pending"
	"github.com/tasker-go/tasker/signal"
)

// Owner is the life of a connection that one goroutine owns, as pgx wants it: the
// goroutine puts what arrives into a bounded buffer, which Receive reads. The end of
// Receive's context therefore never touches the network. Start is called once; the other
// methods are safe for concurrent use.
type Owner struct {
	Arrived *pending.Buffer
	Life    context.Context // ends with Close, and before a failure is visible

	transport signal.Transport
	end       context.CancelFunc
	done      chan struct{} // closed when the goroutine has ended
	group     conc.WaitGroup
}

// NewOwner buffers limit signals and probes over t.
func NewOwner(limit int, t signal.Transport) *Owner {
	// The life of a connection differs from that of the context that connected it.
	life, end := context.WithCancel(context.Background())
	return &Owner{Arrived: pending.NewBuffer(limit), Life: life, transport: t, end: end, done: make(chan struct{})}
}

// Start runs the goroutine: run until it returns why the connection ended, then release
// with that cause. doing is for the error of a panic.
func (o *Owner) Start(doing string, run func() error, release func(cause error)) {
	o.group.Go(func() {
		defer close(o.done)
		var err error
		if r := panics.Try(func() { err = run() }); r != nil {
			err = fmt.Errorf("%s: %w", doing, r.AsError())
		}
		o.end() // before the failure is visible: Subscribe is rejected from now on
		o.Arrived.Fail(err)
		release(err)
	})
}

// Receive implements signal.Connection.
func (o *Owner) Receive(ctx context.Context) (signal.Signal, error) { return o.Arrived.Take(ctx) }

// Probe implements signal.Connection: s is sent over the transport of all signals.
func (o *Owner) Probe(ctx context.Context, s signal.Signal) error {
	if err := o.transport.Send(ctx, []signal.Signal{s}); err != nil {
		return fmt.Errorf("probing: %w", err)
	}
	return nil
}

// Close implements signal.Connection. When it returns nil, the connection is released.
func (o *Owner) Close(ctx context.Context) error {
	o.end()
	defer o.Arrived.Close() // not before release has seen the oldest waiting signal
	select {
	case <-o.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("closing the listening connection: %w", ctx.Err())
	}
}

// Execer runs one statement outside of any transaction; *pgxpool.Pool does.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Transport sends a batch with one statement. It is safe for concurrent use when Exec is.
type Transport struct {
	Exec      Execer
	Statement func(batch []signal.Signal) (sql string, args []any, err error)
}

// Send implements signal.Transport. If one signal is malformed, none is sent and the error
// wraps signal.ErrMalformed.
func (t Transport) Send(ctx context.Context, batch []signal.Signal) error {
	if len(batch) == 0 {
		return nil
	}
	sql, args, err := t.Statement(batch)
	if err != nil {
		return err
	}
	if _, err := t.Exec.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("execute the statement: %w", err)
	}
	return nil
}
