"""Sends orders to an orchestrator, waits for their ends and shows the results of all steps."""

import json
import os
import urllib.request
from typing import Any

URL = os.environ.get("TASKER_ORCHESTRATION_URL", "http://localhost:8080") + "/v1/tasks?wait=30s&include=all_results"


def order(number: int, quantity: int, token: str) -> dict[str, Any]:
    return {"order_id": f"o-{number}", "email": "ana@example.org", "payment_token": token,
            "items": [{"sku": "WIDGET", "quantity": quantity, "price_cents": 2999}] if quantity else []}


for context in order(1, 2, "tok_plain"), order(2, 1, "tok_flaky"), order(3, 1, "tok_declined"), order(4, 101, "tok_plain"), order(5, 0, "tok_plain"):
    body = {"namespace": "fulfillment", "name": "order_fulfillment", "context": context,
            "initiator": "me", "source_system": "readme", "reason": "to compare languages"}
    request = urllib.request.Request(URL, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        task = json.load(answer)
    print(context["order_id"], task["status"], *(f"{s['name']} took {s['attempts']} attempts" for s in task["steps"] if s["attempts"] > 1))
    for step, result in sorted(task.get("results", {}).items()):
        print("  ", step, json.dumps(result, sort_keys=True))
    for step, error in sorted(task.get("errors", {}).items()):
        print("  ", step, "failed:", f"{error['message']}, retryable: {error['retryable']}")
