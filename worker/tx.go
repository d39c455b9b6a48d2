package worker

import (
	"github.com/tasker-go/tasker/store"
)

// TxHandlerFunc is the code of a step that works in a transaction: what it
// writes over tx and the end of its step become true together, or neither does.
//
// The engine begins the transaction, and commits it when the function has
// returned a result; after an error, a panic or the end of its time it rolls
// back. tx cannot be committed or rolled back by the function, but savepoints
// (tx.Begin) are its own. It is of no use once the function has returned. Use ctx
// for its statements: then they end when nobody waits for them any more.
//
// tx is a pgx.Tx. It holds a connection for as long as the function runs, so
// the function should do what takes long (calls to other services) before it
// asks for one: in a step of its own.
type TxHandlerFunc func(ctx *StepContext, tx store.Tx) (any, error)

// WithTxOptions has the transactions of a handler begin that way; the default is
// read committed. Above that, what others commit meanwhile can make the
// transaction fail (SerializationFailure, and the step runs again), also what
// they do to the step itself. Read only, deferrable, and statements of one's own
// for the beginning or the end are refused.
func WithTxOptions(o store.TxOptions) HandleOption {
	return func(h *handleOptions) { h.tx = o }
}

// HandleTx registers a handler with types that works in a transaction; see
// Handle and TxHandlerFunc. fn gets a pgx.Tx. The errors are those of
// Worker.Register, and that no such transaction can be begun.
func HandleTx[In, Out any](w *Worker, name string, fn func(ctx *StepContext, tx store.Tx, in In) (Out, error), options ...HandleOption) error {
	if fn == nil {
		return w.Register(name, nil)
	}
	if err := store.CheckWorkTx(optionsOf(options).tx); err != nil {
		return w.remember(registering(name, err))
	}
	return w.Register(name, TypedTx(fn, options...))
}

// TypedTx turns a function with types that works in a transaction into a
// HandlerFunc, for RegisterMethods; see HandleTx. It begins no transaction for
// input that does not fit.
func TypedTx[In, Out any](fn func(ctx *StepContext, tx store.Tx, in In) (Out, error), options ...HandleOption) HandlerFunc {
	o := optionsOf(options)
	return func(ctx *StepContext) (any, error) {
		var in In
		if err := o.decode(ctx, &in); err != nil {
			return nil, err
		}
		tx, err := ctx.begin(o.tx)
		if err != nil {
			return nil, err
		}
		return fn(ctx, tx, in)
	}
}

// InTx turns a function that works in a transaction into a HandlerFunc, for
// Register and RegisterMethods.
//
// The transaction is ended by what the step comes to, not by the end of fn: a
// HandlerFunc around this one may still make an error of its result, and then
// the transaction is rolled back.
func InTx(fn TxHandlerFunc, options ...HandleOption) HandlerFunc {
	o := optionsOf(options)
	return func(ctx *StepContext) (any, error) {
		tx, err := ctx.begin(o.tx)
		if err != nil {
			return nil, err
		}
		return fn(ctx, tx)
	}
}

// begin begins the transaction of the execution.
func (c *StepContext) begin(o store.TxOptions) (store.Tx, error) {
	if c.run == nil {
		return nil, Permanent(typed(TypeTransaction, "a handler in a transaction runs in a worker only"))
	}
	return c.run.engine.begin(c.run, o)
}
