package worker

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/worker/internal/engine"
)

// Handler is the code of a step. Call returns the result, which must have a JSON form, or
// an error (see Retryable, Permanent, WithCode). It must watch its context, after whose
// end the result is ignored. Handlers are called from many goroutines at once and may be
// called again for the same step.
type Handler interface {
	Call(ctx *StepContext) (any, error)
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx *StepContext) (any, error)

// Call implements Handler.
func (f HandlerFunc) Call(ctx *StepContext) (any, error) { return f(ctx) }

// MethodHandler is a Handler with several entry points; a template chooses one
// with handler.method. RegisterMethods makes one from functions.
type MethodHandler interface {
	Handler
	// Method returns the entry point called name.
	Method(name string) (fn HandlerFunc, ok bool)
}

// defaultMethod is the entry point of a template without a method.
const defaultMethod = "call"

// methods is a MethodHandler made of functions.
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

// Method implements MethodHandler.
func (m *methods) Method(name string) (HandlerFunc, bool) {
	fn, ok := m.byName[name]
	return fn, ok
}

// entry returns the entry point of a handler.
func entry(callable, method string, h Handler) (HandlerFunc, error) {
	if method == "" {
		method = defaultMethod
	}
	if fn, ok := h.(HandlerFunc); ok && method == defaultMethod {
		return fn, nil
	}
	if m, ok := h.(MethodHandler); ok {
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
