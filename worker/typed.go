package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/tasker-go/tasker/worker/internal/engine"

	"github.com/tasker-go/tasker/store"
)

// HandleOption configures how Handle decodes and what HandleTx begins.
type HandleOption func(*handleOptions)

type handleOptions struct {
	strict bool
	tx     store.TxOptions
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
		return json.Unmarshal(doc, into)
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the JSON document")
	}
	return nil
}
