/** Handlers for Tasker in TypeScript. The protocol is docs/reference/protocol.md of the project. */

export { ApiResponse, apiCall, type ApiOptions } from "./api.js";
export { ApiError, Client, NotReached, hasEnded, type ClientOptions, type ExternalEvent, type NewTask, type Task } from "./client.js";
export { StepContext, type Batch, type BatchValue, type Checkpoint, type Convert, type StepLogger } from "./context.js";
export { currentStep } from "./current.js";
export { discover } from "./discover.js";
export {
  Absent, Cancelled, CheckpointError, Continue, Permanent, Retryable, Returned, TaskerError, UnknownStep, Yield,
  type CancelReason, type Json, type Marks, type NextTask,
} from "./errors.js";
export type { DomainEvent, Publisher, StepEvent, Subscriber } from "./events.js";
export {
  BatchConfig, Decision, Handlers, type BatchCursor, type Handler, type Injected, type InputNeed, type Needs, type ResultNeed, type ValuesOf,
} from "./handlers.js";
export type { Hooks } from "./hooks.js";
export { Bytes, Decimal } from "./json.js";
export type { HandlerReference, Resolver } from "./resolving.js";
export { NotFound, NotHeld, Refused, Unauthorized, Unavailable, type BatchEnd } from "./session.js";
export { Worker, type WorkerOptions } from "./worker.js";
