"""The worker process of the application."""

import os
import signal
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tasker_core import (
    EventBridge,
    EventPoller,
    HandlerRegistry,
    StepExecutionSubscriber,
    bootstrap_worker,
    get_health_check,
    stop_worker,
)  # noqa: E402
from tasker_core.domain_events import PublisherRegistry, SubscriberRegistry  # noqa: E402
from tasker_core.event_bridge import EventNames  # noqa: E402
from tasker_core.types import BootstrapConfig  # noqa: E402

shutdown = threading.Event()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: shutdown.set())

result = bootstrap_worker(BootstrapConfig(namespace="shop", log_level="info"))
bridge = EventBridge.instance()
bridge.start()
done: list[object] = []
bridge.subscribe(EventNames.STEP_COMPLETION_SENT, done.append)
registry = HandlerRegistry.instance()
print("found", registry.discover_handlers("shop.handlers"), "more handlers", flush=True)

from shop.handlers.payments import AuditSubscriber, PaymentEventPublisher, heard  # noqa: E402

from shop.handlers.services import ServiceResolver  # noqa: E402

registry.resolver_chain.register(ServiceResolver())
PublisherRegistry.instance().register(PaymentEventPublisher)
subscribers = SubscriberRegistry.instance()
subscribers.register(AuditSubscriber)
subscriber = StepExecutionSubscriber(event_bridge=bridge, handler_registry=registry, worker_id="python-worker-001")
subscriber.start()
poller = EventPoller(polling_interval_ms=10)
poller.on_step_event(lambda e: bridge.publish("step_execution_received", e))
poller.start()
subscribers.start_all()
print("ready", get_health_check().status, flush=True)
shutdown.wait()
poller.stop(timeout=10.0)
subscriber.stop()
bridge.stop()
subscribers.stop_all()
stop_worker()
print(
    f"stopped after {len(done)} steps, {sum(not r.success for r in done)} of them failed; heard {len(heard)} events",
    flush=True,
)
