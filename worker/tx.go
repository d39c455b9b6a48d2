package worker

import (
	"github.com/tasker-go/tasker/store"
)

// TxHandlerFunc is the code of a step that works in a transaction: its writes over tx and
// the end of its step are committed together or not at all.
//
// The engine begins the transaction and commits it when the function has returned a
// result; after an error, a panic or a timeout it rolls back. The function cannot commit
// or roll back tx, but may use savepoints (tx.Begin). tx is invalid after the function
// has returned. Use ctx for its statements: they end with the execution.
//
// tx is a pgx.Tx. It holds a connection while the function runs, so slow work (calls to
// other services) should be done before: in a step of its own.
type TxHandlerFunc func(ctx *StepContext, tx store.Tx) (any, error)

// WithTxOptions sets the options of a handler's transactions; the default is read
// committed. At higher levels concurrent commits can make the transaction fail
// (SerializationFailure, and the step runs again), including those that change the step
// itself. Read only, deferrable, and custom statements for begin or commit are rejected.
func WithTxOptions(o store.TxOptions) HandleOption {
	return func(h *handleOptions) { h.tx = o }
}

// HandleTx registers a typed handler that works in a transaction; see Handle and
// TxHandlerFunc. fn gets a pgx.Tx. The errors are those of Worker.Register, and
// unsupported options.
func HandleTx[In, Out any](w *Worker, name string, fn func(ctx *StepContext, tx store.Tx, in In) (Out, error), options ...HandleOption) error {
	if fn == nil {
		return w.Register(name, nil)
	}
	if err := store.CheckWorkTx(optionsOf(options).tx); err != nil {
		return w.remember(registering(name, err))
	}
	return w.Register(name, TypedTx(fn, options...))
}

// TypedTx turns a typed function that works in a transaction into a HandlerFunc, for
// RegisterMethods; see HandleTx. It begins no transaction if the input does not fit.
func TypedTx[In, Out any](fn func(ctx *StepContext, tx store.Tx, in In) (Out, error), options ...HandleOption) HandlerFunc {
	o := optionsOf(options)
	return func(ctx *StepContext) (any, error) {
		var in In
		if err := o.decode(ctx, &in); err != nil {
			return nil, err
		}
		tx, err := ctx.x.Begin(o.tx)
		if err != nil {
			return nil, err
		}
		return fn(ctx, tx, in)
	}
}

// InTx turns a function that works in a transaction into a HandlerFunc, for Register and
// RegisterMethods.
//
// The outcome of the step ends the transaction, not the return of fn: a HandlerFunc
// around this one may still replace its result by an error, and then the transaction is
// rolled back.
func InTx(fn TxHandlerFunc, options ...HandleOption) HandlerFunc {
	o := optionsOf(options)
	return func(ctx *StepContext) (any, error) {
		tx, err := ctx.x.Begin(o.tx)
		if err != nil {
			return nil, err
		}
		return fn(ctx, tx)
	}
}
