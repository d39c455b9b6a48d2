package corpus_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// invalid is a permanent failure because of the task's input.
func invalid(format string, args ...any) error {
	return worker.WithCode(worker.Permanent(fmt.Errorf(format, args...)), "VALIDATION_ERROR")
}

type fulfilment struct {
	Customer struct {
		ID    int64  `json:"id"`
		Email string `json:"email"`
	} `json:"customer"`
	Items []struct {
		SKU      string  `json:"sku"`
		Quantity int64   `json:"quantity"`
		Price    float64 `json:"price"`
	} `json:"items"`
	Payment struct {
		Method, Token string
	} `json:"payment"`
}

type amount struct {
	Cents int64 `json:"cents"`
}

func orders() handlers {
	return handlers{
		"ValidateOrderHandler": worker.Typed(func(_ *worker.StepContext, in fulfilment) (amount, error) {
			var a amount
			if in.Customer.ID == 0 || len(in.Items) == 0 {
				return a, invalid("an order needs a customer and items")
			}
			for _, item := range in.Items {
				a.Cents += item.Quantity * int64(item.Price*100+0.5)
			}
			return a, nil
		}),
		"ReserveInventoryHandler": worker.Typed(func(_ *worker.StepContext, in fulfilment) (int, error) { return len(in.Items), nil }),
		"ProcessPaymentHandler": worker.Typed(func(ctx *worker.StepContext, in fulfilment) (amount, error) {
			if strings.HasPrefix(in.Payment.Token, "tok_declined") {
				return amount{}, errors.New("the card is declined")
			}
			return worker.ResultOf[amount](ctx, "validate_order")
		}),
		"ShipOrderHandler": func(ctx *worker.StepContext) (any, error) {
			paid, err := worker.ResultOf[amount](ctx, "process_payment")
			if err != nil {
				return nil, err
			}
			parcels, err := worker.ResultOf[int](ctx, "reserve_inventory")
			return map[string]any{"paid": paid.Cents, "parcels": parcels}, err
		},
	}
}

const orderJSON = `{"customer":{"id":12345,"name":"Ana","email":"ana@example.com"},
 "items":[{"sku":"WIDGET-001","quantity":2,"price":29.99},{"sku":"GADGET-002","quantity":1,"price":149.99}],
 "payment":{"method":"credit_card","token":%q},"shipping":{"method":"standard","address":{"city":"Berlin"}}}`

// Row 14: each step has all earlier ones as parents.
func TestOrderFulfilment(t *testing.T) {
	t.Parallel()
	e, template := start(t, "business_workflow.yaml", orders(), nil)
	task := run(e, template, orderJSON, "tok_1")
	requireComplete(t, task)
	require.Len(t, task.Steps, 4)
	requireOrder(t, template, task)
	for i, name := range []string{"validate_order", "reserve_inventory", "process_payment", "ship_order"} {
		require.Equal(t, i, step(t, task, name).Parents)
	}
	require.JSONEq(t, `{"paid":20997,"parcels":2}`, string(step(t, task, "ship_order").Result))
}

// Row 15: in the other engine, an order that lacks most of input_schema is accepted and
// fails at run time. Here a context that breaks the schema is rejected at creation,
// unless orchestration.create.input_schema says otherwise: then the row holds.
func TestOrderOfNothing(t *testing.T) {
	t.Parallel()
	const nothing = `{"customer":{"id":12345},"items":[]}`
	e, template := start(t, "business_workflow.yaml", orders(), nil)
	_, err := e.Orchestrator.Create(t.Context(), request(template, nothing))
	var invalid *orchestration.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Zero(t, e.DB.QueryInt(t, `select count(*) from tasker.tasks`), "a rejected request leaves no task")

	for mode, warnings := range map[string]int{"warn": 1, "off": 0} {
		core, lines := observer.New(zap.WarnLevel)
		lax := enginetest.Start(t, func(w *worker.Worker) error {
			return errors.Join(w.RegisterTemplate(template), orders().register(template)(w))
		}, func(o *orchestration.Config, _ *worker.Config) { o.InputSchema, o.Logger = mode, zap.New(core) })
		task := run(lax, template, nothing)
		require.Len(t, task.Steps, 4)
		for no, name := range []string{"validate_order", "reserve_inventory", "process_payment", "ship_order"} {
			require.Equal(t, name, task.Steps[no].Name, "the first has failed, and none was listed by its attempts")
		}
		require.Equal(t, workflow.TaskError, task.State)
		require.Equal(t, workflow.StepError, step(t, task, "validate_order").State)
		logged := lines.FilterMessage("a context breaks the input schema of its template")
		require.Equal(t, warnings, logged.Len())
		for _, line := range logged.All() {
			require.Contains(t, line.ContextMap()["problems"], "context")
		}
	}
}

// Row 80 with a worker: the payment fails twice, its limit.
func TestOrderThatIsNotPaid(t *testing.T) {
	t.Parallel()
	e, template := start(t, "business_workflow.yaml", orders(), quickly)
	task := run(e, template, orderJSON, "tok_declined")
	require.Equal(t, workflow.TaskError, task.State)
	counts := task.Counts()
	require.Equal(t, [3]int{4, 2, 0}, [3]int{counts.Total, counts.Complete, counts.Ready})
	payment := step(t, task, "process_payment")
	require.Equal(t, workflow.StepError, payment.State)
	require.Equal(t, 2, payment.Attempts)
	require.Zero(t, step(t, task, "ship_order").Attempts)
}

// quickly shortens the delays of retries.
func quickly(w *workflow.Template) {
	for i := range w.Steps {
		w.Steps[i].Retry.Backoff, w.Steps[i].Retry.BaseMS = workflow.BackoffFixed, 10
	}
}

// echo is a handler for steps whose work does not matter: it returns the names of the
// steps whose results it has.
func echo(ctx *worker.StepContext) (any, error) {
	from := []string{}
	for name := range ctx.DependencyResults() {
		from = append(from, name)
	}
	return map[string]any{"step": ctx.StepName(), "namespace": ctx.Namespace(), "after": from}, nil
}

// echoing makes echo the handler of every step of templates, except those in h.
func echoing(h handlers, templates ...*workflow.Template) handlers {
	all := handlers{}
	for _, template := range templates {
		for i := range template.Steps {
			name := lastPart(template.Steps[i].Handler.Callable)
			all[name] = echo
			if fn, ok := h[name]; ok {
				all[name] = fn
			}
		}
	}
	return all
}

const cartJSON = `{"cart_items":[{"product_id":1,"quantity":2},{"product_id":2,"quantity":1}],
 "customer_info":{"email":"ana@example.com","name":"Ana","phone":"+49"},"payment_info":{"method":"credit_card","token":"tok_test_valid","amount":124.76}}`

// Row 16: a cart goes through five steps in a row, and the amount is the validated one.
func TestCartIsOrdered(t *testing.T) {
	t.Parallel()
	prices := map[int64]int64{1: 4999, 2: 1478} // with tax and shipping below: 124.76
	template := load(t, "ecommerce_order_processing_rs.yaml")
	h := handlers{
		"ecommerce_validate_cart": worker.Typed(func(_ *worker.StepContext, in struct {
			Items []struct {
				ID       int64 `json:"product_id"`
				Quantity int64 `json:"quantity"`
			} `json:"cart_items"`
		}) (amount, error) {
			var a amount
			for _, item := range in.Items {
				price, known := prices[item.ID]
				if !known || item.Quantity < 1 {
					return a, invalid("product %d cannot be had", item.ID)
				}
				a.Cents += price * item.Quantity
			}
			a.Cents += 1000 // shipping
			return a, nil
		}),
		"ecommerce_process_payment": worker.Typed(func(ctx *worker.StepContext, in struct {
			Payment struct {
				Amount float64 `json:"amount"`
				Token  string  `json:"token"`
			} `json:"payment_info"`
		}) (amount, error) {
			due, err := worker.ResultOf[amount](ctx, "validate_cart")
			if err == nil && due.Cents != int64(in.Payment.Amount*100+0.5) {
				err = invalid("%d are due, and %.2f offered", due.Cents, in.Payment.Amount)
			}
			return due, err
		}),
		// Not a direct parent: it is read on first use.
		"ecommerce_send_confirmation": func(ctx *worker.StepContext) (any, error) { return worker.ResultOf[amount](ctx, "process_payment") },
	}
	e := engine(t, echoing(h, template).register(template), template)
	task := run(e, template, cartJSON)
	requireComplete(t, task)
	require.Equal(t, []string{"create_order", "process_payment", "send_confirmation", "update_inventory", "validate_cart"}, names(task))
	requireOrder(t, template, task)
	require.JSONEq(t, `{"cents":12476}`, string(step(t, task, "send_confirmation").Result))
}

// meeting is where some handlers wait for each other, so that they must run concurrently.
type meeting struct {
	mu      sync.Mutex
	missing int
	all     chan struct{}
}

func newMeeting(n int) *meeting { return &meeting{missing: n, all: make(chan struct{})} }

func (m *meeting) attend(ctx *worker.StepContext) (any, error) {
	m.mu.Lock()
	if m.missing--; m.missing == 0 {
		close(m.all)
	}
	m.mu.Unlock()
	select {
	case <-m.all:
		return ctx.StepName(), nil
	case <-ctx.Done():
		return nil, errors.New("the others do not arrive")
	}
}

// Row 17: three extracts run at the same time, and three transformations.
func TestPipelineInParallel(t *testing.T) {
	t.Parallel()
	extracts, transforms := newMeeting(3), newMeeting(3)
	template := load(t, "data_pipeline_analytics_pipeline_rs.yaml")
	h := handlers{}
	for _, what := range []string{"sales", "inventory", "customers"} {
		h["data_pipeline_extract_"+what], h["data_pipeline_transform_"+what] = extracts.attend, transforms.attend
	}
	e := engine(t, echoing(h, template).register(template), template)
	task := run(e, template, `{"pipeline_id":"p1","date_range":{"start_date":"2025-11-01","end_date":"2025-11-30"}}`)
	requireComplete(t, task)
	require.Len(t, task.Steps, 8)
	requireOrder(t, template, task)
}

// Rows 18 and 19: five steps for every plan; steps that a free plan does not need
// complete as well.
func TestRegistrations(t *testing.T) {
	t.Parallel()
	template := load(t, "microservices_user_registration_rs.yaml")
	billing := worker.Typed(func(_ *worker.StepContext, in struct {
		User struct{ Plan string } `json:"user_info"`
	}) (map[string]string, error) {
		if in.User.Plan == "free" {
			return map[string]string{"status": "skipped"}, nil
		}
		return map[string]string{"status": "active", "plan": in.User.Plan}, nil
	})
	e := engine(t, echoing(handlers{"microservices_setup_billing_profile": billing}, template).register(template), template)
	for plan, status := range map[string]string{"pro": "active", "free": "skipped", "enterprise": "active"} {
		task := run(e, template, `{"user_info":{"email":"ana@example.com","name":"Ana","plan":%q,"source":"api_test"}}`, plan)
		requireComplete(t, task)
		require.Len(t, task.Steps, 5)
		requireOrder(t, template, task)
		require.Equal(t, status, decode[map[string]string](t, step(t, task, "setup_billing_profile").Result)["status"])
	}
}

const (
	paymentsJSON = `{"payment_id":"pay_test_12345abc","refund_amount":4999,"refund_reason":"customer_request","customer_email":"ana@example.com","partial_refund":false,"n":%d}`
	ticketsJSON  = `{"ticket_id":"T-1","customer_id":"C-1","refund_amount":4999,"refund_reason":"broken","customer_email":"ana@example.com","requires_approval":true,"n":%d}`
)

// Rows 20 to 22: refunds of two teams. The templates have one name here and stay
// separate, whatever runs concurrently.
func TestRefundsOfTwoTeams(t *testing.T) {
	t.Parallel()
	payments, tickets := load(t, "payments_process_refund_rs.yaml"), load(t, "customer_success_process_refund_rs.yaml")
	payments.Name, tickets.Name = "process_refund", "process_refund"
	e := engine(t, echoing(nil, payments, tickets).register(payments, tickets), payments, tickets)
	const each = 10
	ids := map[uuid.UUID]*workflow.Template{}
	for i := range each {
		ids[e.SubmitVersion(payments.Namespace, payments.Name, payments.Version, fmt.Sprintf(paymentsJSON, i))] = payments
		ids[e.SubmitVersion(tickets.Namespace, tickets.Name, tickets.Version, fmt.Sprintf(ticketsJSON, i))] = tickets
	}
	require.Len(t, ids, 2*each)
	for id, template := range ids {
		task := e.Await(id)
		requireComplete(t, task)
		require.Len(t, task.Steps, map[*workflow.Template]int{payments: 4, tickets: 5}[template])
		requireOrder(t, template, task)
		for i := range task.Steps {
			got := decode[struct{ Namespace string }](t, task.Steps[i].Result)
			require.Equal(t, template.Namespace, got.Namespace)
		}
	}
}
