// The worker of order.yaml in TypeScript; ../README.md explains it.
import { Permanent, Retryable, Worker } from "@tasker-go/tasker";

type Item = { sku: string; quantity: number; price_cents: number };
type Order = { order_id: string; email: string; payment_token: string; items: Item[] };
type Validated = { order_id: string; total_cents: number };
type Inventory = { quantities: Record<string, number>; reservation?: string };
type Payment = { payment: string; charged_cents: number };
type Shipment = { carrier: string };

const worker = new Worker({ permits: 4, hooks: { opened: () => console.log("ready for steps") } }); // at TASKER_WORKER_URL

worker.handler("fulfillment.validate_order", (ctx) => {
  const { order_id, items } = ctx.context as Order;
  if (items.length === 0) throw new Permanent("an order needs at least one item", { code: "EMPTY_ORDER" });
  return { order_id, total_cents: items.reduce((sum, i) => sum + i.quantity * i.price_cents, 0), item_count: items.length };
});

worker.handler("fulfillment.check_inventory", (ctx) => {
  const quantities: Record<string, number> = {};
  for (const { sku, quantity } of (ctx.context as Order).items) {
    const wanted = (quantities[sku] ?? 0) + quantity;
    if (wanted > (ctx.config["stock_per_sku"] as number)) throw new Permanent(`not enough of ${sku} in stock`, { code: "OUT_OF_STOCK" });
    quantities[sku] = wanted;
  }
  return { quantities };
});

worker.step("fulfillment.reserve_inventory", { dependsOn: { inventory: "check_inventory" } }, (ctx, { inventory }) => ({
  ...(inventory as Inventory),
  reservation: `reservation-${(ctx.context as Order).order_id}`,
}));

// Calls a provider that answers tok_flaky at the third attempt.
worker.step("fulfillment.process_payment", { dependsOn: { order: "validate_order" } }, (ctx, values) => {
  const { order_id, total_cents } = values["order"] as Validated;
  const { payment_token } = ctx.context as Order;
  if (payment_token.startsWith("tok_declined")) throw new Permanent("the card was declined", { code: "CARD_DECLINED" });
  if (payment_token.startsWith("tok_flaky") && ctx.attempt < 3) throw new Retryable("the payment provider does not answer");
  return { payment: `payment-${order_id}`, charged_cents: total_cents };
});

worker.step("fulfillment.ship_order", { dependsOn: { payment: "process_payment", inventory: "reserve_inventory" } }, (ctx, { payment, inventory }) => ({
  shipment: `shipment-${(ctx.context as Order).order_id}`,
  carrier: ctx.config["carrier"],
  payment: (payment as Payment).payment,
  reservation: (inventory as Inventory).reservation,
}));

// Reads the result of the step before and that of an earlier one.
worker.step("fulfillment.send_confirmation", { dependsOn: { shipment: "ship_order", payment: "process_payment" } }, (ctx, { shipment, payment }) => {
  const { order_id, email } = ctx.context as Order;
  return { to: email, text: `${order_id}: ${(payment as Payment).charged_cents} cents were charged, ${(shipment as Shipment).carrier} brings it` };
});

await worker.run(); // until SIGTERM or SIGINT
