package examples_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/examples"
	"github.com/tasker-go/tasker/examples/trip"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestSequence(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, examples.Register)
	for input, last := range map[int]string{6: "2821109907456", 8: "281474976710656", 10: "10000000000000000"} {
		task := e.Run("examples", "mathematical_sequence", fmt.Sprintf(`{"even_number":%d}`, input))
		require.Equal(t, workflow.TaskComplete, task.State)
		require.Equal(t, last, enginetest.Results(task)["fourth"])
	}
	odd := e.Run("examples", "mathematical_sequence", `{"even_number":7}`)
	require.Equal(t, workflow.TaskError, odd.State)
	require.Equal(t, workflow.StepError, odd.Steps[0].State)
	require.Equal(t, 1, odd.Steps[0].Attempts, "an odd number stays odd")
	require.Contains(t, string(odd.Steps[0].Error), "VALIDATION_ERROR")
	require.Equal(t, workflow.StepPending, odd.Steps[1].State)
}

func TestDiamond(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, examples.Register)
	task := e.Run("examples", "diamond", `{"even_number":6}`)
	require.Equal(t, map[string]string{"start": "36", "branch_left": "1296", "branch_right": "1296", "end": "2821109907456"}, enginetest.Results(task))
}

func TestTree(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, examples.Register)
	task := e.Run("examples", "tree", `{"even_number":6}`)
	require.Equal(t, `"63340286662973277706162286946811886609896461828096"`, enginetest.Results(task)["convergence"])
}

func TestMixedDAG(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, examples.Register)
	task := e.Run("examples", "mixed_dag", `{"even_number":2}`)
	require.Equal(t, `"18446744073709551616"`, enginetest.Results(task)["finalize"])
}

const order = `{"customer":{"id":7,"email":"a@example.org"},
	"items":[{"sku":"WIDGET","quantity":%d,"unit_price_cents":2999}],
	"payment":{"method":"card","token":%q},"shipping":{"method":"standard","address":{"city":"Bern"}}}`

func TestOrders(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, examples.Register)
	for _, c := range []struct {
		name, token string
		quantity    int
		state       workflow.TaskState
		failed      string
		attempts    int // of process_payment
	}{
		{"plain", "tok_a", 2, workflow.TaskComplete, "", 1},
		{"flaky provider", "tok_flaky", 2, workflow.TaskComplete, "", 3},
		{"declined", "tok_declined", 2, workflow.TaskError, "process_payment", 1},
		{"out of stock", "tok_a", 101, workflow.TaskError, "reserve_inventory", 0},
		{"too large", "tok_a", 400, workflow.TaskError, "validate_order", 0},
	} {
		task := e.Run("examples", "order_fulfillment", fmt.Sprintf(order, c.quantity, c.token))
		require.Equal(t, c.state, task.State, c.name)
		for _, s := range task.Steps {
			require.Equal(t, s.Name == c.failed, s.State == workflow.StepError, "%s: %s is %s", c.name, s.Name, s.State)
			if s.Name == "process_payment" {
				require.Equal(t, c.attempts, s.Attempts, c.name)
			}
		}
	}
}

func TestTemplatesCompile(t *testing.T) {
	templates, err := examples.Templates()
	require.NoError(t, err)
	require.Len(t, templates, 9)
	for _, tmpl := range templates {
		_, err := workflow.Compile(tmpl.Resolve("test"))
		require.NoError(t, err)
		require.NotEqual(t, uuid.Nil, tmpl.Name)
	}
}

func TestApproval(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, examples.Register)
	for _, c := range []struct {
		amount string
		steps  []string
		path   string
	}{
		{"0.01", []string{"auto_approve"}, "auto"},
		{"500", []string{"auto_approve"}, "auto"},
		{"999.99", []string{"auto_approve"}, "auto"},
		{"1000", []string{"manager_approval"}, "manager_only"},
		{"3000", []string{"manager_approval"}, "manager_only"},
		{"4999.99", []string{"manager_approval"}, "manager_only"},
		{"5000", []string{"manager_approval", "finance_review"}, "dual_approval"},
		{"10000", []string{"manager_approval", "finance_review"}, "dual_approval"},
	} {
		task := e.Run("examples", "expense_approval", `{"amount":`+c.amount+`}`)
		require.Equal(t, workflow.TaskComplete, task.State, c.amount)
		results := enginetest.Results(task)
		require.Len(t, task.Steps, 3+len(c.steps), c.amount)
		for _, step := range c.steps {
			require.Contains(t, results, step, c.amount)
		}
		require.Contains(t, results["finalize"], c.path, c.amount)
	}
}

func TestPrimes(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, examples.Register)
	for below, c := range map[int]struct {
		primes  int
		batches int
	}{0: {0, 1}, 1: {0, 1}, 100: {25, 1}, 100_000: {9592, 5}, 1_000_000: {78498, 10}} {
		task := e.Run("examples", "count_primes", fmt.Sprintf(`{"below":%d}`, below))
		require.Equal(t, workflow.TaskComplete, task.State, below)
		require.Len(t, task.Steps, 2+c.batches, below)
		require.JSONEq(t, fmt.Sprintf(`{"numbers":%d,"primes":%d,"batches":%d}`, below, c.primes, min(c.batches, below)), enginetest.Results(task)["total"])
	}
}

// A vacation waits for its approval and then for its payment, which arrived before, and
// then is a trip.
func TestVacation(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, examples.Register)
	id := e.Submit("examples", "vacation", `{"traveller":"a","order":"o-1"}`)
	_, err := e.Orchestrator.ReceiveEvent(t.Context(), orchestration.Event{Namespace: "examples", Name: "payment.received", Key: "o-1"})
	require.NoError(t, err)
	var open store.ApprovalPage
	require.Eventually(t, func() bool {
		open, err = e.Orchestrator.Approvals(t.Context(), store.ApprovalFilter{TaskUUID: &id, Limit: 1})
		return err == nil && len(open.Approvals) == 1
	}, 30*time.Second, 5*time.Millisecond)
	_, err = e.Orchestrator.Decide(t.Context(), open.Approvals[0].Token, orchestration.Verdict{Approved: true, Actor: "ana"})
	require.NoError(t, err)
	task := e.Await(id)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Contains(t, enginetest.Results(task)["trip"], `"status": "complete"`)
}

// A trip that fails at any step ends with everything cancelled that was booked.
func TestTrip(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, examples.Register)
	good := e.Run("examples", "book_trip", `{"traveller":"a"}`)
	require.Equal(t, workflow.TaskComplete, good.State)
	require.Len(t, good.Steps, 4)
	booked := []string{"book_flight", "book_hotel", "book_car", "pay"}
	undo := []string{"cancel_flight", "cancel_hotel", "cancel_car"}
	for i, step := range booked {
		task := e.Run("examples", "book_trip", fmt.Sprintf(`{"traveller":"b","fails_at":%q}`, step))
		require.Equal(t, workflow.TaskError, task.State, step)
		var cancelled []store.Step
		for _, s := range task.Steps {
			switch {
			case s.Name == step:
				require.Equal(t, workflow.StepError, s.State)
			case slices.Contains(undo, s.Name):
				require.Equal(t, workflow.StepComplete, s.State)
				require.Equal(t, 1, s.Parents)
				cancelled = append(cancelled, s)
			}
		}
		slices.SortFunc(cancelled, func(a, b store.Step) int { return b.StartedAt.Compare(*a.StartedAt) })
		require.Len(t, cancelled, i)
		for n, s := range cancelled {
			require.Equal(t, undo[n], s.Name, "the last that was booked is cancelled first")
			require.Contains(t, string(s.Result), undo[n][len("cancel_"):]+"-", "it received the booking")
		}
	}
}

// A cancelled trip is undone before the task ends.
func TestCancelledTrip(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	e := enginetest.Start(t, func(w *worker.Worker) error {
		pay := worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			close(hold)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		templates, err := examples.Templates()
		if err != nil {
			return err
		}
		for _, tmpl := range templates {
			if tmpl.Name == "book_trip" {
				err = errors.Join(w.RegisterTemplate(tmpl), worker.Handle(w, "trip.book", trip.Book), worker.Handle(w, "trip.cancel", trip.Cancel),
					w.Register("trip.pay", pay))
			}
		}
		return err
	})
	id := e.Submit("examples", "book_trip", `{"traveller":"c"}`)
	<-hold
	require.NoError(t, e.Orchestrator.Cancel(t.Context(), id, "ana", "changed her mind"))
	task := e.Await(id)
	require.Equal(t, workflow.TaskCancelled, task.State)
	results := enginetest.Results(task)
	for _, step := range []string{"cancel_flight", "cancel_hotel", "cancel_car"} {
		require.Contains(t, results, step)
	}
}
