// A worker process as Tasker's documentation has it.
import {
  EventEmitter,
  EventPoller,
  HandlerRegistry,
  InProcessDomainEventPoller,
  PublisherRegistry,
  ShutdownController,
  StepEventNames,
  StepExecutionSubscriber,
  SubscriberRegistry,
  createFfiPollAdapter,
  createRuntime,
  logInfo,
} from "@tasker-go/tasker/compat";
import { AuditLoggingSubscriber, PaymentEventPublisher, registerHandlers } from "./handlers.js";

const runtime = createRuntime();
await runtime.load("/path/to/libtasker_ts.so");
const result = runtime.bootstrapWorker({ namespace: "compat" });
if (!result.success) throw new Error(result.message);

const emitter = new EventEmitter();
const registry = new HandlerRegistry();
registerHandlers(registry);

const pubRegistry = PublisherRegistry.getInstance();
pubRegistry.register(PaymentEventPublisher);
pubRegistry.freeze();
const subRegistry = SubscriberRegistry.getInstance();
subRegistry.register(AuditLoggingSubscriber);
subRegistry.startAll();

emitter.on(StepEventNames.STEP_EXECUTION_COMPLETED, (payload) => {
  logInfo(`Step completed: ${payload.stepUuid}`, { component: "server" });
});

const subscriber = new StepExecutionSubscriber(emitter, registry, runtime, { workerId: "typescript-worker-001" });
subscriber.start();

const poller = new EventPoller(runtime, emitter, { pollingIntervalMs: 10 });
poller.start();

const events = new InProcessDomainEventPoller();
events.setPollFunction(createFfiPollAdapter(runtime));
events.start((event) => {
  logInfo(`Event received: ${event.eventName}`, { component: "server" });
  for (const sub of subRegistry.getMatchingSubscribers(event.eventName)) {
    sub.handle(event);
  }
});

const shutdown = new ShutdownController();
shutdown.registerSignalHandlers();
await shutdown.waitForShutdown();

poller.stop();
events.stop();
logInfo(`all handlers have ended: ${await subscriber.waitForCompletion()}`, { component: "server" });
subRegistry.stopAll();
runtime.stopWorker();
