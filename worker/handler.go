package worker

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker/internal/engine"
)

// Handler is the code of a step. Call returns the result, which must have a JSON form, or
// an error (see Retryable, Permanent, WithCode). It must watch its context, after whose
// end the result is ignored. Handlers are called from many goroutines at once and may be
// called again for the same step.
//
// A template chooses an entry point with handler.method. A Handler has others than Call
// if it has a method Method(name string) (HandlerFunc, bool), as those of RegisterMethods.
type Handler interface {
	Call(ctx *StepContext) (any, error)
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx *StepContext) (any, error)

// Call implements Handler.
func (f HandlerFunc) Call(ctx *StepContext) (any, error) { return f(ctx) }

// methodHandler is a Handler with several entry points.
type methodHandler interface {
	Handler
	// Method returns the entry point called name.
	Method(name string) (fn HandlerFunc, ok bool)
}

// defaultMethod is the entry point of a template without a method.
const defaultMethod = "call"

// methods is a methodHandler made of functions.
type methods struct {
	callable string
	byName   map[string]HandlerFunc
}

// Call implements Handler.
func (m *methods) Call(ctx *StepContext) (any, error) {
	fn, ok := m.byName[defaultMethod]
	if !ok {
		return nil, methodNotFound(m.callable, defaultMethod, m)
	}
	return fn(ctx)
}

// Method implements methodHandler.
func (m *methods) Method(name string) (HandlerFunc, bool) {
	fn, ok := m.byName[name]
	return fn, ok
}

// entry returns the entry point of a handler.
func entry(callable, method string, h Handler) (HandlerFunc, error) {
	method = cmp.Or(method, defaultMethod)
	if fn, ok := h.(HandlerFunc); ok && method == defaultMethod {
		return fn, nil
	}
	if m, ok := h.(methodHandler); ok {
		if fn, ok := m.Method(method); ok && fn != nil {
			return fn, nil
		}
	}
	if method == defaultMethod {
		return h.Call, nil
	}
	return nil, methodNotFound(callable, method, h)
}

// methodNotFound is permanent: another attempt finds the same handler.
func methodNotFound(callable, method string, h Handler) error {
	hint := ""
	if m, ok := h.(*methods); ok {
		hint = "; it has " + strings.Join(slices.Sorted(maps.Keys(m.byName)), ", ")
	}
	return Permanent(engine.Errorf(engine.TypeMethodNotFound, "MethodNotFound: Handler '%s' does not respond to '%s'%s", callable, method, hint))
}

// encodeResult encodes a handler's result as JSON. A result that cannot be stored is a
// permanent failure: the handler would return it again.
func encodeResult(value any, limit int) (json.RawMessage, error) {
	if value == nil {
		return json.RawMessage("null"), nil
	}
	doc, err := json.Marshal(value)
	if err != nil {
		return nil, Permanent(engine.Errorf(engine.TypeResultNotEncoded, "the handler's result has no JSON form: %w", err))
	}
	if err := engine.CheckStorable(doc, limit); err != nil {
		return nil, Permanent(engine.Errorf(engine.TypeResultNotStored, "the handler's result cannot be stored: %w", err))
	}
	return doc, nil
}

// HandleOption configures how Handle decodes and what HandleTx begins.
type HandleOption func(*handleOptions)

type handleOptions struct {
	strict bool
	tx     TxOptions
}

func optionsOf(options []HandleOption) (o handleOptions) {
	for _, option := range options {
		option(&o)
	}
	return o
}

// decode reads the input of a typed handler.
func (o *handleOptions) decode(ctx *StepContext, in any) error {
	if err := decodeInto(ctx.Input(), in, o.strict); err != nil {
		return Permanent(engine.Errorf(engine.TypeInvalidInput, "the task's context does not fit the handler: %w", err))
	}
	return nil
}

// Strict rejects contexts with fields unknown to the input type.
func Strict() HandleOption { return func(o *handleOptions) { o.strict = true } }

// Handle registers a typed handler: In is decoded from the task's context, Out is the
// result. A context that does not fit In is a permanent failure of type InvalidInput. The
// errors are those of Worker.Register.
func Handle[In, Out any](w *Worker, name string, fn func(ctx *StepContext, in In) (Out, error), options ...HandleOption) error {
	if fn == nil {
		return w.Register(name, nil)
	}
	return w.Register(name, Typed(fn, options...))
}

// Typed turns a typed function into a HandlerFunc, for RegisterMethods and for tests; see
// Handle.
func Typed[In, Out any](fn func(ctx *StepContext, in In) (Out, error), options ...HandleOption) HandlerFunc {
	o := optionsOf(options)
	return func(ctx *StepContext) (any, error) {
		var in In
		if err := o.decode(ctx, &in); err != nil {
			return nil, err
		}
		return fn(ctx, in)
	}
}

// decodeInto decodes exactly one JSON document.
func decodeInto(doc json.RawMessage, into any, strict bool) error {
	if len(doc) == 0 {
		return fmt.Errorf("no JSON document: %w", ErrAbsent)
	}
	if !strict {
		return jsonscan.Unmarshal(doc, into)
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the JSON document")
	}
	return nil
}

// Tx is the transaction of a handler: a pgx.Tx, whose Commit and Rollback belong to the worker.
type Tx = store.Tx

// TxOptions say how such a transaction begins: pgx.TxOptions.
type TxOptions = store.TxOptions

// WithTxOptions sets the options of a handler's transactions; the default is read
// committed. At higher levels concurrent commits can make the transaction fail
// (SerializationFailure, and the step runs again), including those that change the step
// itself. Read only, deferrable, and custom statements for begin or commit are rejected.
func WithTxOptions(o TxOptions) HandleOption {
	return func(h *handleOptions) { h.tx = o }
}

// HandleTx registers a typed handler that works in a transaction; see Handle. The errors
// are those of Worker.Register, and unsupported options.
//
// The writes of fn over tx, a pgx.Tx, and the end of its step are committed together or
// not at all. The engine begins the transaction and commits it when fn has returned a
// result; after an error, a panic or a timeout it rolls back. fn cannot commit or roll
// back tx, but may use savepoints (tx.Begin). tx is invalid after fn has returned. Use
// ctx for its statements: they end with the execution.
//
// tx holds a connection while fn runs, so slow work (calls to other services) should be
// done before: in a step of its own.
func HandleTx[In, Out any](w *Worker, name string, fn func(ctx *StepContext, tx Tx, in In) (Out, error), options ...HandleOption) error {
	if fn == nil {
		return w.Register(name, nil)
	}
	if err := store.CheckWorkTx(optionsOf(options).tx); err != nil {
		return w.remember(fmt.Errorf("register handler %q: %w", name, err))
	}
	return w.Register(name, TypedTx(fn, options...))
}

// TypedTx turns a typed function that works in a transaction into a HandlerFunc, for
// RegisterMethods; see HandleTx. It begins no transaction if the input does not fit.
func TypedTx[In, Out any](fn func(ctx *StepContext, tx Tx, in In) (Out, error), options ...HandleOption) HandlerFunc {
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

// InTx turns a function that works in a transaction (HandleTx) into a HandlerFunc, for
// Register and RegisterMethods.
//
// The outcome of the step ends the transaction, not the return of fn: a HandlerFunc
// around this one may still replace its result by an error, and then the transaction is
// rolled back.
func InTx(fn func(ctx *StepContext, tx Tx) (any, error), options ...HandleOption) HandlerFunc {
	o := optionsOf(options)
	return func(ctx *StepContext) (any, error) {
		tx, err := ctx.x.Begin(o.tx)
		if err != nil {
			return nil, err
		}
		return fn(ctx, tx)
	}
}
