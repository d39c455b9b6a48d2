package store_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

const sagaYAML = `
name: saga
namespace_name: flows
version: 1.0.0
steps:
  - {name: book, handler: {callable: book}, compensation: unbook}
  - {name: unbook, type: compensation, handler: {callable: unbook}}
  - {name: pay, depends_on: [book], handler: {callable: pay}, compensation: refund, retry: {max_attempts: 3, backoff: none}}
  - {name: refund, type: compensation, handler: {callable: refund}}
  - {name: send, depends_on: [pay], handler: {callable: send}}
`

// A saga is called off while a report waits to be applied: both are applied, and the
// records agree.
func TestASagaIsCalledOffWhileAReportWaits(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, sagaYAML)
	reports := map[string]func(store.Claimed) store.Report{
		"success": func(c store.Claimed) store.Report { return succeed(c, `1`) },
		"failure": func(c store.Claimed) store.Report { return fail(c, true, "no") },
		// The integrity check replays it together with the action, too.
		"failure for good": func(c store.Claimed) store.Report { return fail(c, false, "no") },
	}
	for name, in := range map[string]workflow.Input{workflow.ActionCancel: workflow.Operation{Action: workflow.ActionCancel, Reason: "no"}, workflow.ActionFail: workflow.Operation{Action: workflow.ActionFail, Reason: "no"}} {
		for how, reported := range reports {
			task := create(t, s, p, 1)[0]
			report(t, s, succeed(claim(t, s, p, 1)[0], `1`))
			applyAll(t, s)
			report(t, s, reported(claim(t, s, p, 1)[0]))
			taken, err := s.TakeTask(t.Context(), task)
			require.NoError(t, err)
			c := change(t, &taken.Tasks[0], append(inputsOf(&taken.Tasks[0]), in)...)
			c.Action = &store.Performed{Kind: name, Step: -1, Reason: "no"}
			_, err = taken.Commit(t.Context(), uuid.Nil, []store.Change{c})
			require.NoError(t, err, "%s beside a %s", name, how)
			for !read(t, s, task).State.Terminal() {
				report(t, s, succeed(claim(t, s, p, 1)[0], `1`))
				applyAll(t, s)
			}
			requireIntegrity(t, s)
		}
	}
}
