package decision_test

import (
	"encoding/json"
	"fmt"

	"github.com/tasker-go/tasker/worker/decision"
)

// A large amount needs two approvals, a small one none.
func ExampleCreate() {
	route := func(amount int) decision.Outcome {
		if amount < 1000 {
			return decision.None()
		}
		return decision.Create("manager_approval", "finance_review").With("amount", amount)
	}
	for _, amount := range []int{20, 5000} {
		result, err := json.Marshal(route(amount))
		fmt.Println(string(result), err)
	}
	// Output:
	// {"decision_point_outcome":{"type":"no_branches"}} <nil>
	// {"amount":5000,"decision_point_outcome":{"step_names":["manager_approval","finance_review"],"type":"create_steps"}} <nil>
}
