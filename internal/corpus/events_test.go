package corpus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/events"
)

// paying are the handlers of domain_event_publishing.
func paying() handlers {
	type order struct {
		ID       string `json:"order_id"`
		Customer string `json:"customer_id"`
		Fails    bool   `json:"simulate_failure"`
	}
	of := func(answer func(ctx *worker.StepContext, in order) (map[string]any, error)) worker.HandlerFunc {
		return func(ctx *worker.StepContext) (any, error) {
			in, err := worker.InputAs[order](ctx)
			if err != nil {
				return nil, err
			}
			return answer(ctx, in)
		}
	}
	return handlers{
		"ValidateOrderHandler": of(func(_ *worker.StepContext, in order) (map[string]any, error) {
			return map[string]any{"order_id": in.ID, "validation_timestamp": "2026-01-01T00:00:00Z", "validation_checks": []string{"amount"}}, nil
		}),
		"ProcessPaymentHandler": of(func(ctx *worker.StepContext, in order) (map[string]any, error) {
			if in.Fails {
				return nil, worker.WithCode(worker.Permanent(errors.New("the card was declined")), "CARD_DECLINED")
			}
			return map[string]any{"transaction_id": "TXN-" + ctx.StepUUID().String(), "card": "4111"}, nil
		}),
		"UpdateInventoryHandler": of(func(_ *worker.StepContext, in order) (map[string]any, error) {
			return map[string]any{"order_id": in.ID, "items": []any{}, "success": true}, nil
		}),
		"SendNotificationHandler": of(func(_ *worker.StepContext, in order) (map[string]any, error) {
			return map[string]any{"notification_id": "N", "channel": "email", "recipient": in.Customer}, nil
		}),
	}
}

// overheard are the events received by a subscriber to all.
type overheard struct {
	mu   sync.Mutex
	list []events.Event
}

func (o *overheard) names(task uuid.UUID) (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.list {
		if e.Metadata.TaskUUID == task.String() {
			names = append(names, e.Name)
		}
	}
	return names
}

// publish registers the publishers that the template names, and a subscriber.
func (o *overheard) publish(w *worker.Worker) error {
	return errors.Join(
		w.RegisterPublisher(worker.Publisher{Name: "PaymentEventPublisher",
			Payload: func(_ context.Context, e *worker.StepEvent) (any, error) {
				var r struct {
					ID string `json:"transaction_id"`
				}
				var in struct {
					Amount float64 `json:"amount"`
				}
				err := errors.Join(json.Unmarshal(e.Result, &r), json.Unmarshal(e.Context, &in))
				return map[string]any{"transaction_id": r.ID, "amount": in.Amount, "payment_method": "card"}, err
			},
			Metadata: func(context.Context, *worker.StepEvent) (map[string]any, error) {
				return map[string]any{"provider": "mock"}, nil
			},
		}),
		w.RegisterPublisher(worker.Publisher{Name: "NotificationEventPublisher"}),
		w.Subscribe(events.Subscriber{Name: "everything", Patterns: []string{"*"}, Handle: func(_ context.Context, e events.Event) error {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.list = append(o.list, e)
			return nil
		}}))
}

const paymentInput = `{"order_id": "0197f5a0-0000-7000-8000-%012d", "customer_id": "c%d", "amount": %d, "simulate_failure": %t}`

// durable returns the names and payloads of a task's published events.
func durable(t *testing.T, e *enginetest.Engine, task uuid.UUID) (list []string) {
	t.Helper()
	rows, err := e.DB.Pool(t).Query(t.Context(), `select name || ' ' || payload::text from tasker.domain_events where task_uuid = $1 order by position`, task)
	require.NoError(t, err)
	list, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return list
}

// TestEventsOfAPayment is row 66: durable events are stored with the task, fast ones are
// received in the process.
func TestEventsOfAPayment(t *testing.T) {
	var received overheard
	e, tmpl := startWith(t, "domain_event_publishing.yaml", paying(), nil, received.publish)
	task := run(e, tmpl, paymentInput, 1, 1, 100, false)
	requireComplete(t, task)
	require.Len(t, task.Steps, 4)
	pay := step(t, task, "domain_events_process_payment")
	require.Equal(t, []string{fmt.Sprintf(`payment.processed {"amount": 100, "payment_method": "card", "transaction_id": "TXN-%s"}`, pay.UUID)}, durable(t, e, task.UUID))
	require.Equal(t, "PaymentEventPublisher mock "+pay.UUID.String(), e.DB.QueryString(t,
		`select concat_ws(' ', fired_by, metadata->>'provider', message->'metadata'->>'step_uuid') from tasker.domain_events join tasker.v_domain_events using (event_uuid)`))
	want := []string{"order.validated", "inventory.updated", "notification.sent"}
	require.Eventually(t, func() bool { return slices.Equal(want, received.names(task.UUID)) }, 30*time.Second, 5*time.Millisecond)
	require.Eventually(t, func() bool {
		s := e.Worker.Host().EventStats()
		return s.Durable == 1 && s.Fast == 3 && s.Broadcast == 0 && s.Bus.Dispatched == 3 && s.Bus.Delivered == 3 && s.DurableFailed == 0
	}, 30*time.Second, 5*time.Millisecond)
}

// TestEventsOfPaymentsAtOnce is row 67: events of different tasks are never mixed up.
func TestEventsOfPaymentsAtOnce(t *testing.T) {
	var received overheard
	e, tmpl := startWith(t, "domain_event_publishing.yaml", paying(), nil, received.publish)
	var ids []uuid.UUID
	for i := range 3 {
		ids = append(ids, e.SubmitVersion(tmpl.Namespace, tmpl.Name, tmpl.Version, fmt.Sprintf(paymentInput, i, i, 10+i, false)))
	}
	for i, id := range ids {
		task := e.Await(id)
		requireComplete(t, task)
		require.Equal(t, []string{fmt.Sprintf(`payment.processed {"amount": %d, "payment_method": "card", "transaction_id": "TXN-%s"}`, 10+i,
			step(t, task, "domain_events_process_payment").UUID)}, durable(t, e, id))
		require.Equal(t, task.CorrelationID.String(), e.DB.QueryString(t, `select correlation_id::text from tasker.domain_events where task_uuid = $1`, id))
		require.Eventually(t, func() bool { return len(received.names(id)) == 3 }, 30*time.Second, 5*time.Millisecond)
	}
	received.mu.Lock()
	defer received.mu.Unlock()
	for _, event := range received.list {
		task := e.Read(uuid.MustParse(event.Metadata.TaskUUID))
		require.Equal(t, task.CorrelationID.String(), event.Metadata.CorrelationID)
	}
}

// TestEventsOfAPaymentThatFails is row 68: of the failed step only its failure is
// published, and the steps behind it publish nothing.
func TestEventsOfAPaymentThatFails(t *testing.T) {
	var received overheard
	e, tmpl := startWith(t, "domain_event_publishing.yaml", paying(), nil, received.publish)
	task := run(e, tmpl, paymentInput, 1, 1, 100, true)
	require.Equal(t, "error", task.State.String())
	require.Equal(t, []string{`payment.failed {"error": {"message": "the card was declined", "retryable": false, "error_code": "CARD_DECLINED", "error_type": "PermanentError"}, ` +
		`"error_code": "CARD_DECLINED", "error_message": "the card was declined"}`}, durable(t, e, task.UUID))
	require.Eventually(t, func() bool { return slices.Equal([]string{"order.validated"}, received.names(task.UUID)) }, 30*time.Second, 5*time.Millisecond)
}

// TestEventsWithoutTheirPublisher: an event whose publisher is missing is published with
// the result of its step, and checked against its schema. So the notification is
// published, and the payment, whose publisher adds the amount, is not.
func TestEventsWithoutTheirPublisher(t *testing.T) {
	e, tmpl := start(t, "domain_event_publishing.yaml", paying(), nil)
	task := run(e, tmpl, paymentInput, 1, 1, 100, false)
	requireComplete(t, task)
	require.Empty(t, durable(t, e, task.UUID))
	require.Eventually(t, func() bool { s := e.Worker.Host().EventStats(); return s.Fast == 3 && s.DurableFailed == 1 }, 30*time.Second, 5*time.Millisecond)
}
