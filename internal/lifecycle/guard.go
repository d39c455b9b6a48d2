package lifecycle

import (
	"errors"
	"fmt"

	"github.com/sourcegraph/conc/panics"
	"go.uber.org/zap"
)

// PanicError is a panic turned into an error. Its text omits the stack, because it reaches
// health reports and callers; log it with [StackField].
type PanicError struct {
	Value any
	Stack []byte
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value where it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Guard calls f and returns its error, or a *PanicError when it panicked.
func Guard(f func() error) error {
	var err error
	if r := panics.Try(func() { err = f() }); r != nil {
		return &PanicError{Value: r.Value, Stack: r.Stack}
	}
	return err
}

// StackField returns the stack of the panic behind err for a log line, and an empty field
// without one.
func StackField(err error) zap.Field {
	var p *PanicError
	if errors.As(err, &p) {
		return zap.ByteString("stack", p.Stack)
	}
	return zap.Skip()
}
