package operators

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow/template"
)

// Namespace and version of the templates.
const (
	namespace = "operated"
	version   = "1.0.0"
)

// documents are the templates. Their handlers fail at random, for good or not.
const documents = `
name: quick
steps:
  - {name: only, handler: {callable: operated.work}, retry: {max_attempts: 3, backoff: fixed, backoff_base_ms: 100}}
---
name: line
steps:
  - {name: first, handler: {callable: operated.work}, retry: {max_attempts: 2, backoff: fixed, backoff_base_ms: 100}}
  - {name: second, depends_on: [first], handler: {callable: operated.work}}
  - {name: third, depends_on: [second], handler: {callable: operated.work}}
---
name: fan
steps:
  - {name: left, handler: {callable: operated.work}}
  - {name: right, handler: {callable: operated.work}, retry: {max_attempts: 2, backoff: fixed, backoff_base_ms: 100}}
  - {name: aside, handler: {callable: operated.work}}
  - {name: last, depends_on: [left, right, aside], handler: {callable: operated.work}}
---
name: saga
steps:
  - {name: book, handler: {callable: operated.work}, compensation: unbook}
  - {name: unbook, type: compensation, handler: {callable: operated.sure}}
  - {name: pay, depends_on: [book], handler: {callable: operated.work}, compensation: refund, retry: {max_attempts: 3, backoff: fixed, backoff_base_ms: 100}}
  - {name: refund, type: compensation, handler: {callable: operated.sure}}
  - {name: send, depends_on: [pay], handler: {callable: operated.work}}
---
name: nap
steps:
  - {name: nap, type: sleep, wait: {for: 50ms}}
  - {name: after, depends_on: [nap], handler: {callable: operated.work}}
---
name: told
steps:
  - {name: told, type: wait_for_event, wait: {event: news, key: $.context.key, timeout: 1s, on_timeout: continue}}
  - {name: after, depends_on: [told], handler: {callable: operated.work}}
---
name: asked
steps:
  - {name: ask, type: approval, wait: {prompt: May it?, timeout: 1s, on_timeout: continue}}
  - {name: after, depends_on: [ask], handler: {callable: operated.work}}
---
name: endless
steps:
  - {name: never, type: wait_for_event, wait: {event: never}}
---
name: parent
steps:
  - {name: sub, type: task, task: {name: line, version: 1.0.0}, retry: {max_attempts: 2, backoff: fixed, backoff_base_ms: 100}}
  - {name: after, depends_on: [sub], handler: {callable: operated.work}}
---
name: keeper
steps:
  - {name: sub, type: task, task: {name: endless, version: 1.0.0, timeout: 500ms}}
  - {name: beside, handler: {callable: operated.work}}
  - {name: after, depends_on: [sub, beside], handler: {callable: operated.work}}
---
name: tree
steps:
  - {name: first, handler: {callable: operated.work}}
  - {name: left, type: task, depends_on: [first], task: {name: keeper, version: 1.0.0}}
  - {name: right, type: task, depends_on: [first], task: {name: parent, version: 1.0.0}}
`

// roots are the templates that operators create tasks of.
var roots = []string{"quick", "line", "line", "fan", "fan", "saga", "saga", "nap", "told", "asked", "parent", "keeper", "keeper", "tree"}

// Register gives a worker the templates and their handlers.
func Register(w *worker.Worker) error {
	for text := range strings.SplitSeq(documents, "\n---\n") {
		t, problems, err := template.Parse("operated.yaml", []byte("namespace_name: "+namespace+"\nversion: "+version+"\n"+strings.TrimSpace(text)+"\n"))
		if err == nil && len(problems) > 0 {
			err = errors.New(problems.String())
		}
		if err != nil {
			return fmt.Errorf("parse a template of the operators: %w", err)
		}
		if err := w.RegisterTemplate(t); err != nil {
			return fmt.Errorf("register template %s: %w", t.Name, err)
		}
	}
	return errors.Join(
		w.Register("operated.work", worker.HandlerFunc(func(*worker.StepContext) (any, error) {
			switch rand.IntN(12) {
			case 0:
				return nil, worker.Permanent(errors.New("it cannot be done"))
			case 1, 2:
				return nil, errors.New("not yet")
			}
			return map[string]any{"done": true}, nil
		})),
		w.Register("operated.sure", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return map[string]any{"undone": true}, nil })))
}
