// Package orders has the handlers of the order example. They show typical handlers: typed
// input, settings from the template, typed results of other steps, retryable failures and
// permanent ones.
package orders

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tasker-go/tasker/worker"
)

// Order is the context of the task.
type Order struct {
	Customer struct {
		ID    int64  `json:"id"`
		Name  string `json:"name"`
		Email string `json:"email"`
	} `json:"customer"`
	Items   []Item `json:"items"`
	Payment struct {
		Method string `json:"method"`
		Token  string `json:"token"`
	} `json:"payment"`
	Shipping struct {
		Method  string         `json:"method"`
		Address map[string]any `json:"address"`
	} `json:"shipping"`
}

// Item is one line of an order.
type Item struct {
	SKU            string `json:"sku"`
	Quantity       int64  `json:"quantity"`
	UnitPriceCents int64  `json:"unit_price_cents"`
}

// Validated is the result of validate_order.
type Validated struct {
	OrderID    string `json:"order_id"`
	TotalCents int64  `json:"total_cents"`
	Items      int    `json:"items"`
}

// Reservation is the result of reserve_inventory.
type Reservation struct {
	ReservationID string           `json:"reservation_id"`
	Reserved      map[string]int64 `json:"reserved"`
}

// Payment is the result of process_payment.
type Payment struct {
	PaymentID    string `json:"payment_id"`
	ChargedCents int64  `json:"charged_cents"`
	Attempts     int    `json:"attempts"`
}

// Shipment is the result of ship_order.
type Shipment struct {
	ShipmentID string `json:"shipment_id"`
	Carrier    string `json:"carrier"`
	PaymentID  string `json:"payment_id"`
	TotalCents int64  `json:"total_cents"`
}

// Register gives a worker the four handlers.
func Register(w *worker.Worker) error {
	return errors.Join(
		worker.Handle(w, "orders.validate", Validate),
		worker.Handle(w, "orders.reserve_inventory", ReserveInventory),
		worker.Handle(w, "orders.process_payment", ProcessPayment),
		worker.Handle(w, "orders.ship", Ship),
	)
}

// Validate adds up the order and rejects one that is too expensive.
func Validate(ctx *worker.StepContext, order Order) (Validated, error) {
	settings, err := worker.ConfigAs[struct {
		MaxTotalCents int64 `json:"max_total_cents"`
	}](ctx)
	if err != nil {
		return Validated{}, worker.Permanent(err)
	}
	var total int64
	for _, item := range order.Items {
		total += item.Quantity * item.UnitPriceCents
	}
	if total > settings.MaxTotalCents {
		return Validated{}, worker.WithCode(worker.Permanent(
			fmt.Errorf("the order costs %d cents, more than %d", total, settings.MaxTotalCents)), "ORDER_TOO_LARGE")
	}
	return Validated{OrderID: "order-" + ctx.TaskUUID().String(), TotalCents: total, Items: len(order.Items)}, nil
}

// ReserveInventory reserves every item or none.
func ReserveInventory(ctx *worker.StepContext, order Order) (Reservation, error) {
	settings, err := worker.ConfigAs[struct {
		StockPerSKU int64 `json:"stock_per_sku"`
	}](ctx)
	if err != nil {
		return Reservation{}, worker.Permanent(err)
	}
	r := Reservation{ReservationID: "reservation-" + ctx.TaskUUID().String(), Reserved: map[string]int64{}}
	for _, item := range order.Items {
		r.Reserved[item.SKU] += item.Quantity
		if r.Reserved[item.SKU] > settings.StockPerSKU {
			return Reservation{}, worker.WithCode(worker.Permanent(fmt.Errorf("not enough of %s in stock", item.SKU)), "OUT_OF_STOCK")
		}
	}
	return r, nil
}

// ProcessPayment charges the total. A token that begins with "tok_flaky" fails twice and
// then succeeds, "tok_declined" always fails: two failures of payment providers.
func ProcessPayment(ctx *worker.StepContext, order Order) (Payment, error) {
	validated, err := worker.ResultOf[Validated](ctx, "validate_order")
	if err != nil {
		return Payment{}, worker.Permanent(err)
	}
	switch {
	case strings.HasPrefix(order.Payment.Token, "tok_declined"):
		return Payment{}, worker.WithCode(worker.Permanent(errors.New("the payment was declined")), "PAYMENT_DECLINED")
	case strings.HasPrefix(order.Payment.Token, "tok_flaky") && ctx.Attempt() < 3:
		return Payment{}, worker.Retryable(errors.New("the payment provider does not answer"), 50*time.Millisecond)
	}
	return Payment{PaymentID: "payment-" + ctx.TaskUUID().String(), ChargedCents: validated.TotalCents, Attempts: ctx.Attempt()}, nil
}

// Ship hands the parcel over.
func Ship(ctx *worker.StepContext, _ Order) (Shipment, error) {
	settings, err := worker.ConfigAs[struct {
		Carrier string `json:"carrier"`
	}](ctx)
	if err != nil {
		return Shipment{}, worker.Permanent(err)
	}
	payment, err := worker.ResultOf[Payment](ctx, "process_payment")
	if err != nil {
		return Shipment{}, worker.Permanent(err)
	}
	return Shipment{ShipmentID: "shipment-" + ctx.TaskUUID().String(), Carrier: settings.Carrier,
		PaymentID: payment.PaymentID, TotalCents: payment.ChargedCents}, nil
}
