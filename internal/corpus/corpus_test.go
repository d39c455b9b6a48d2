package corpus_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const folder = "../../../shared/corpus"

// handlers by the last part of the address that templates call them by.
type handlers map[string]worker.HandlerFunc

// start runs an engine with one template of the corpus, after change.
func start(t *testing.T, file string, h handlers, change func(*workflow.Template)) (*enginetest.Engine, *workflow.Template) {
	t.Helper()
	path := filepath.Join(folder, "templates", file)
	src, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the corpus of templates is not here")
	}
	require.NoError(t, err)
	template, _, err := workflow.ParseTemplate(path, src)
	require.NoError(t, err)
	template = template.Resolve("test")
	if change != nil {
		change(template)
	}
	e := enginetest.Start(t, func(w *worker.Worker) error {
		known := map[string]bool{}
		for i := range template.Steps {
			c := template.Steps[i].Handler.Callable
			fn, ok := h[lastPart(c)]
			if !ok || known[c] {
				continue
			}
			known[c] = true
			if err := w.Register(c, fn); err != nil {
				return err
			}
		}
		return w.RegisterTemplate(template)
	})
	return e, template
}

func lastPart(callable string) string {
	for i := len(callable) - 2; i > 0; i-- {
		if callable[i:i+2] == "::" {
			return callable[i+2:]
		}
	}
	return callable
}

// run submits a task and waits for its end.
func run(e *enginetest.Engine, t *workflow.Template, input string, args ...any) *store.Task {
	return e.Await(e.SubmitVersion(t.Namespace, t.Name, t.Version, fmt.Sprintf(input, args...)))
}

func names(task *store.Task) []string {
	var list []string
	for i := range task.Steps {
		list = append(list, task.Steps[i].Name)
	}
	slices.Sort(list)
	return list
}

func step(t *testing.T, task *store.Task, name string) *store.Step {
	t.Helper()
	for i := range task.Steps {
		if task.Steps[i].Name == name {
			return &task.Steps[i]
		}
	}
	require.Failf(t, "no such step", "%s among %v", name, names(task))
	return nil
}

func requireComplete(t *testing.T, task *store.Task) {
	t.Helper()
	require.Equal(t, workflow.TaskComplete, task.State, "%v: %s", task.FinalReason, describe(task))
	for i := range task.Steps {
		require.Equal(t, workflow.StepComplete, task.Steps[i].State, task.Steps[i].Name)
	}
}

func describe(task *store.Task) string {
	text := ""
	for i := range task.Steps {
		s := &task.Steps[i]
		text += fmt.Sprintf("%s %s %s; ", s.Name, s.State, s.Error)
	}
	return text
}

func decode[T any](t *testing.T, raw json.RawMessage) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(raw, &v), string(raw))
	return v
}
