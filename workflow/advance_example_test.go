package workflow_test

import (
	"fmt"

	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// Advance says what follows from an event. It writes nothing: the caller makes the effects
// true, in one transaction with the new progress.
func ExampleAdvance() {
	source, _, err := template.Parse("order.yaml", []byte(`
name: order
namespace_name: shop
version: 1.0.0
steps:
  - {name: charge, handler: {callable: shop.charge}}
  - {name: ship, depends_on: [charge], handler: {callable: shop.ship}}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := workflow.Compile(source)
	if err != nil {
		fmt.Println(err)
		return
	}
	state, progress := workflow.TaskPending, workflow.NewProgress(plan)
	for _, input := range []workflow.Input{
		workflow.Created{},
		workflow.Reported{Step: 0, Attempt: 1, Success: true},
		workflow.Reported{Step: 1, Attempt: 1, Success: true},
	} {
		next, effects, err := workflow.Advance(plan, state, progress, workflow.Rules{MaxCrashes: 3}, input)
		if err != nil {
			fmt.Println(err)
			return
		}
		state, progress = effects.State, next
		for _, put := range effects.Put {
			fmt.Print("put ", plan.Steps[put.Step].Name, " on the board; ")
		}
		fmt.Println("the task is", state)
	}
	// Output:
	// put charge on the board; the task is pending
	// put ship on the board; the task is steps_in_process
	// the task is complete
}
