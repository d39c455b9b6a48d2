package workertest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/examples"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/workertest"
	"github.com/tasker-go/tasker/workflow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// varying is what differs between two runs: identifiers and times.
var varying = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)`)

// shape is what both ways of playing a task have in common.
func shape(t *testing.T, o *workertest.Outcome) (list []string) {
	t.Helper()
	list = append(list, o.State.String())
	for _, s := range o.Steps {
		line := fmt.Sprintf("%s: %s after %d", s.Name, s.State, s.Attempts)
		if s.Result != nil {
			var value any
			require.NoError(t, json.Unmarshal(s.Result, &value))
			if fields, ok := value.(map[string]any); ok {
				delete(fields, "event_uuid")
			}
			doc, err := json.Marshal(value)
			require.NoError(t, err)
			line += " " + string(doc)
		}
		if f := s.Failure; f != nil && s.State == workflow.StepError {
			line += fmt.Sprintf(" %s %s %v %s", f.Type, f.Code, f.Retryable, f.Message)
		}
		list = append(list, varying.ReplaceAllString(line, "…"))
	}
	return list
}

const orderJSON = `{"customer":{"id":7,"email":"a@example.org"},
	"items":[{"sku":"WIDGET","quantity":%d,"unit_price_cents":2999}],
	"payment":{"method":"card","token":%q},"shipping":{"method":"standard","address":{"city":"Bern"}}}`

// TestMemoryIsLikePostgreSQL plays every template of the examples both ways.
func TestMemoryIsLikePostgreSQL(t *testing.T) {
	t.Parallel()
	db := enginetest.Migrated(t)
	seen := map[string]bool{}
	for _, c := range []struct{ name, context string }{
		{"mathematical_sequence", `{"even_number":6}`}, {"mathematical_sequence", `{"even_number":7}`},
		{"diamond", `{"even_number":6}`}, {"tree", `{"even_number":6}`}, {"mixed_dag", `{"even_number":2}`},
		{"order_fulfillment", fmt.Sprintf(orderJSON, 2, "tok_a")}, {"order_fulfillment", fmt.Sprintf(orderJSON, 2, "tok_flaky")},
		{"order_fulfillment", fmt.Sprintf(orderJSON, 2, "tok_declined")}, {"order_fulfillment", fmt.Sprintf(orderJSON, 101, "tok_a")},
		{"expense_approval", `{"amount":500}`}, {"expense_approval", `{"amount":10000}`},
		{"count_primes", `{"below":0}`}, {"count_primes", `{"below":100000}`},
		{"book_trip", `{"traveller":"a"}`}, {"book_trip", `{"traveller":"a","fails_at":"pay"}`}, {"book_trip", `{"traveller":"a","fails_at":"book_hotel"}`},
		{"vacation", `{"traveller":"a","order":"o-1"}`}, {"vacation", `{"traveller":"b","order":"o-2"}`},
	} {
		seen[c.name] = true
		task := workertest.Task{Name: c.name, Context: json.RawMessage(c.context),
			Events: []workertest.Event{{Name: "payment.received", Key: "o-1", Payload: map[string]int{"cents": 7}}}}
		if c.name == "vacation" {
			task.Verdicts = []workertest.Verdict{{Step: "approve", Approved: c.context[14] == 'a', Actor: "ana", Comment: "fine"}}
		}
		memory := workertest.Play(t, examples.Register, task)
		postgres := workertest.PlayOn(t, db.DSN, examples.Register, task)
		require.Equal(t, shape(t, &postgres), shape(t, &memory), "%s %s", c.name, c.context)
	}
	templates, err := examples.Templates()
	require.NoError(t, err)
	for _, tmpl := range templates {
		require.True(t, seen[tmpl.Name], "template %s is not played", tmpl.Name)
	}
}

func TestPlayOnSaysWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	db := enginetest.Migrated(t)
	register := registering(map[string]worker.HandlerFunc{"c": fails(worker.Permanent(errors.New("no")))},
		"{name: w, namespace_name: n, version: 1.0.0, steps: [{name: ok, type: approval}]}")
	var f failing
	require.Panics(t, func() { workertest.PlayOn(panicking{&f}, db.DSN, register, workertest.Task{Limit: 2 * time.Second}) })
	require.Contains(t, f.message, "has not ended within 2s")
}

// TestTransactionsOnPostgreSQL: what a handler writes in its transaction, and the task that it
// creates, are there after its step.
func TestTransactionsOnPostgreSQL(t *testing.T) {
	t.Parallel()
	db := enginetest.Migrated(t)
	db.Exec(t, "create table payments (cents int)")
	charge := worker.InTx(func(ctx *worker.StepContext, tx worker.Tx) (any, error) {
		if _, err := tx.Exec(ctx, "insert into payments values (7)"); err != nil {
			return nil, err
		}
		_, err := ctx.CreateTask(tx, worker.TaskRequest{Name: "other", Namespace: "n", Version: "1.0.0", Context: json.RawMessage(`{}`)})
		return "charged", err
	})
	const one = "{name: %s, namespace_name: n, version: 1.0.0, steps: [{name: s, handler: {callable: %s}}]}"
	o := workertest.PlayOn(t, db.DSN, registering(map[string]worker.HandlerFunc{"charge": charge, "rest": func(*worker.StepContext) (any, error) { return nil, nil }},
		fmt.Sprintf(one, "pay", "charge"), fmt.Sprintf(one, "other", "rest")), workertest.Task{Name: "pay"})
	require.Equal(t, workflow.TaskComplete, o.State, "%v", o.Steps)
	require.Equal(t, 1, db.QueryInt(t, "select count(*) from payments where cents = 7"))
	require.Equal(t, 2, db.QueryInt(t, "select count(*) from tasker.tasks"))
}
