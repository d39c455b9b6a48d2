package rest_test

import (
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/taskmaster"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// everyNumber are numbers that a float64 would change, and some that it would not.
var everyNumber = []string{
	"9007199254740993", "-9007199254740993", "18446744073709551617", "123456789012345678901234567890",
	"1.000000000000000001", "0.1234567890123456789012345678901", "99999999999999999999.99", "1.10", "0.30000000000000004", "-0", "5e-324", "1e22",
}

// sameNumbers compares the elements of lists as numbers: a database spells some otherwise.
func sameNumbers(t *testing.T, list json.RawMessage, about string) {
	t.Helper()
	var got []json.Number
	require.NoError(t, json.Unmarshal(list, &got), about)
	require.Len(t, got, len(everyNumber), about)
	for i, text := range everyNumber {
		want, ok := new(big.Rat).SetString(text)
		require.True(t, ok)
		have, ok := new(big.Rat).SetString(got[i].String())
		require.True(t, ok, "%s: %s", about, got[i])
		require.Zero(t, want.Cmp(have), "%s: %s has become %s", about, text, got[i])
	}
}

// numbersOf is the list in a document of the kind that TestNumbersOverEveryWay sends.
func numbersOf(t *testing.T, document json.RawMessage) json.RawMessage {
	t.Helper()
	var d struct {
		Numbers json.RawMessage `json:"numbers"`
	}
	require.NoError(t, json.Unmarshal(document, &d))
	return d.Numbers
}

// TestNumbersOverEveryWay: no way to create a task changes a number, nor does the API when it
// shows the task.
func TestNumbersOverEveryWay(t *testing.T) {
	t.Parallel()
	for name, by := range allWays {
		if by.excused["exact numbers"] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWays(t).in(t, &by)
			r := w.asking(0)
			r.Context = json.RawMessage(`{"numbers":[` + strings.Join(everyNumber, ",") + `]}`)
			id, err := by.create(w, r)
			require.NoError(t, err)
			sameNumbers(t, numbersOf(t, json.RawMessage(w.value(id, w.stored))), "stored")
			task, err := w.c.Task(t.Context(), id.String(), 0)
			require.NoError(t, err)
			shown := task.Context
			if by.stored != "" {
				shown, _ = taskmaster.Queued(shown)
			}
			sameNumbers(t, numbersOf(t, shown), "shown")
		})
	}
}

// TestNumbersOfHandlers: what a handler decodes into types of its own, or into none, it returns
// as it was, and so it is read by the steps behind it and by clients.
func TestNumbersOfHandlers(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, func(w *worker.Worker) error {
		if err := enginetest.RegisterTemplates(w, `
name: echo
namespace_name: numbers
version: 1.0.0
steps:
  - {name: input, handler: {callable: input}}
  - {name: result, handler: {callable: result}, dependencies: [input]}
  - {name: config, handler: {callable: config, initialization: {numbers: [`+strings.Join(everyNumber, ", ")+`]}}}
  - {name: failed, handler: {callable: failed}, dependencies: [result], retry: {retryable: false}}`); err != nil {
			return err
		}
		for callable, h := range map[string]worker.HandlerFunc{
			"input": worker.Typed(func(_ *worker.StepContext, in map[string]any) (any, error) { return in, nil }),
			"result": func(ctx *worker.StepContext) (any, error) {
				return worker.ResultOf[any](ctx, "input")
			},
			"config": func(ctx *worker.StepContext) (any, error) { return worker.ConfigAs[map[string]any](ctx) },
			"failed": func(ctx *worker.StepContext) (any, error) {
				in, err := worker.Field[any](ctx, "numbers")
				if err != nil {
					return nil, err
				}
				return nil, worker.WithDetails(worker.Permanent(errors.New("no")), map[string]any{"numbers": in})
			},
		} {
			if err := w.Register(callable, h); err != nil {
				return err
			}
		}
		return nil
	})
	task := e.Run("numbers", "echo", `{"numbers":[`+strings.Join(everyNumber, ",")+`]}`)
	for _, step := range task.Steps {
		switch step.Name {
		case "failed":
			require.Equal(t, workflow.StepError, step.State)
			var failure client.StepError
			require.NoError(t, json.Unmarshal(step.Error, &failure))
			again, err := json.Marshal(failure.Context["numbers"])
			require.NoError(t, err)
			sameNumbers(t, again, step.Name)
		default:
			require.Equal(t, workflow.StepComplete, step.State, "%s: %s", step.Name, step.Error)
			sameNumbers(t, numbersOf(t, step.Result), step.Name)
		}
	}
}
