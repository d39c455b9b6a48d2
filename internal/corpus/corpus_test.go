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
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const folder = "../../../shared/corpus"

// handlers by the last part of the address that templates call them by.
type handlers map[string]worker.HandlerFunc

// start runs an engine with one template of the corpus, after change.
func start(t *testing.T, file string, h handlers, change func(*workflow.Template)) (*enginetest.Engine, *workflow.Template) {
	t.Helper()
	return startWith(t, file, h, change, func(*worker.Worker) error { return nil })
}

// startWith is start with more to give to the worker.
func startWith(t *testing.T, file string, h handlers, change func(*workflow.Template), more func(*worker.Worker) error) (*enginetest.Engine, *workflow.Template) {
	t.Helper()
	template := load(t, file)
	if change != nil {
		change(template)
	}
	register := h.register(template)
	return engine(t, func(w *worker.Worker) error { return errors.Join(register(w), more(w)) }, template), template
}

// load reads a template of the corpus, with the overrides of the environment test.
func load(t *testing.T, file string) *workflow.Template {
	t.Helper()
	path := filepath.Join(folder, "templates", file)
	src, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the corpus of templates is not here")
	}
	require.NoError(t, err)
	return parse(t, path, src)
}

// own reads a template of this package, in the style of the corpus, which lacks it.
func own(t *testing.T, file string) *workflow.Template {
	t.Helper()
	path := filepath.Join("testdata", file)
	src, err := os.ReadFile(path)
	require.NoError(t, err)
	return parse(t, path, src)
}

func parse(t *testing.T, path string, src []byte) *workflow.Template {
	t.Helper()
	template, problems, err := template.Parse(path, src)
	require.NoError(t, err, "%v", problems)
	return template.Resolve("test")
}

// engine runs templates; register adds the worker's handlers.
func engine(t *testing.T, register func(*worker.Worker) error, templates ...*workflow.Template) *enginetest.Engine {
	t.Helper()
	return enginetest.Start(t, func(w *worker.Worker) error {
		for _, template := range templates {
			if err := w.RegisterTemplate(template); err != nil {
				return err
			}
		}
		return register(w)
	})
}

// register registers those handlers that the templates call.
func (h handlers) register(templates ...*workflow.Template) func(*worker.Worker) error {
	return func(w *worker.Worker) error {
		known := map[string]bool{}
		for _, template := range templates {
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
		}
		return nil
	}
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

// requireOrder requires that no step began before the steps that it depends on had
// reported.
func requireOrder(t *testing.T, template *workflow.Template, task *store.Task) {
	t.Helper()
	for i := range template.Steps {
		s := step(t, task, template.Steps[i].Name)
		require.Equal(t, len(template.Steps[i].Dependencies), s.Parents, s.Name)
		for _, parent := range template.Steps[i].Dependencies {
			p := step(t, task, parent)
			require.False(t, s.StartedAt.Before(*p.ReportedAt), "%s began at %s, %s was done at %s", s.Name, s.StartedAt, parent, p.ReportedAt)
		}
	}
}

// failure is a stored error.
type failure struct {
	Message string `json:"message"`
	Type    string `json:"error_type"`
	Code    string `json:"error_code"`
	Retry   bool   `json:"retryable"`
}
