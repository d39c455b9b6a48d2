// Command fulfillment is the worker of order.yaml in Go; README.md explains it, and has
// the same in Python and TypeScript.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tasker-go/tasker/daemon"
	"github.com/tasker-go/tasker/worker"
)

// Order is the context of the task.
type Order struct {
	OrderID      string `json:"order_id"`
	Email        string `json:"email"`
	PaymentToken string `json:"payment_token"`
	Items        []Item `json:"items"`
}

// Item is one line of an order.
type Item struct {
	SKU        string `json:"sku"`
	Quantity   int64  `json:"quantity"`
	PriceCents int64  `json:"price_cents"`
}

// Validated is the result of validate_order.
type Validated struct {
	OrderID    string `json:"order_id"`
	TotalCents int64  `json:"total_cents"`
	ItemCount  int    `json:"item_count"`
}

// Inventory is the result of check_inventory and, with a reservation, of reserve_inventory.
type Inventory struct {
	Quantities  map[string]int64 `json:"quantities"`
	Reservation string           `json:"reservation,omitempty"`
}

// Payment is the result of process_payment.
type Payment struct {
	Payment      string `json:"payment"`
	ChargedCents int64  `json:"charged_cents"`
}

// Shipment is the result of ship_order.
type Shipment struct {
	Shipment    string `json:"shipment"`
	Carrier     string `json:"carrier"`
	Payment     string `json:"payment"`
	Reservation string `json:"reservation"`
}

// Confirmation is the result of send_confirmation.
type Confirmation struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

func refused(code, message string) error {
	return worker.WithCode(worker.Permanent(errors.New(message)), code)
}

func validate(_ *worker.StepContext, o Order) (Validated, error) {
	if len(o.Items) == 0 {
		return Validated{}, refused("EMPTY_ORDER", "an order needs at least one item")
	}
	v := Validated{OrderID: o.OrderID, ItemCount: len(o.Items)}
	for _, item := range o.Items {
		v.TotalCents += item.Quantity * item.PriceCents
	}
	return v, nil
}

func checkInventory(ctx *worker.StepContext, o Order) (Inventory, error) {
	settings, err := worker.ConfigAs[struct {
		StockPerSKU int64 `json:"stock_per_sku"`
	}](ctx)
	if err != nil {
		return Inventory{}, worker.Permanent(err)
	}
	i := Inventory{Quantities: map[string]int64{}}
	for _, item := range o.Items {
		if i.Quantities[item.SKU] += item.Quantity; i.Quantities[item.SKU] > settings.StockPerSKU {
			return Inventory{}, refused("OUT_OF_STOCK", "not enough of "+item.SKU+" in stock")
		}
	}
	return i, nil
}

func reserveInventory(ctx *worker.StepContext, o Order) (Inventory, error) {
	i, err := worker.ResultOf[Inventory](ctx, "check_inventory")
	i.Reservation = "reservation-" + o.OrderID
	return i, err
}

// processPayment calls a provider that answers tok_flaky at the third attempt.
func processPayment(ctx *worker.StepContext, o Order) (Payment, error) {
	v, err := worker.ResultOf[Validated](ctx, "validate_order")
	switch {
	case err != nil:
		return Payment{}, err
	case strings.HasPrefix(o.PaymentToken, "tok_declined"):
		return Payment{}, refused("CARD_DECLINED", "the card was declined")
	case strings.HasPrefix(o.PaymentToken, "tok_flaky") && ctx.Attempt() < 3:
		return Payment{}, errors.New("the payment provider does not answer") // is tried again
	}
	return Payment{Payment: "payment-" + o.OrderID, ChargedCents: v.TotalCents}, nil
}

func ship(ctx *worker.StepContext, o Order) (Shipment, error) {
	settings, err := worker.ConfigAs[struct {
		Carrier string `json:"carrier"`
	}](ctx)
	payment, err2 := worker.ResultOf[Payment](ctx, "process_payment")
	inventory, err3 := worker.ResultOf[Inventory](ctx, "reserve_inventory")
	return Shipment{Shipment: "shipment-" + o.OrderID, Carrier: settings.Carrier, Payment: payment.Payment,
		Reservation: inventory.Reservation}, errors.Join(err, err2, err3)
}

// confirm reads the result of the step before and that of an earlier one.
func confirm(ctx *worker.StepContext, o Order) (Confirmation, error) {
	shipment, err := worker.ResultOf[Shipment](ctx, "ship_order")
	payment, err2 := worker.ResultOf[Payment](ctx, "process_payment")
	return Confirmation{To: o.Email, Text: fmt.Sprintf("%s: %d cents were charged, %s brings it", o.OrderID, payment.ChargedCents, shipment.Carrier)},
		errors.Join(err, err2)
}

func register(w *worker.Worker) error {
	return errors.Join(
		worker.Handle(w, "fulfillment.validate_order", validate),
		worker.Handle(w, "fulfillment.check_inventory", checkInventory),
		worker.Handle(w, "fulfillment.reserve_inventory", reserveInventory),
		worker.Handle(w, "fulfillment.process_payment", processPayment),
		worker.Handle(w, "fulfillment.ship_order", ship),
		worker.Handle(w, "fulfillment.send_confirmation", confirm),
	)
}

func main() {
	os.Exit(daemon.Main(daemon.WorkerProgram("fulfillment", register), os.Args[1:], os.Stderr))
}
