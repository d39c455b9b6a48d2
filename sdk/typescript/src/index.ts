/** Handlers for Tasker in TypeScript. The protocol is docs/protocol.md of the project. */

export { ApiResponse, apiCall, type ApiOptions } from "./api.js";
export { Bytes } from "./bytes.js";
export { ApiError, Client, NotReached, hasEnded, type ClientOptions, type ExternalEvent, type NewTask, type Task } from "./client.js";
export { StepContext, type Batch, type Checkpoint } from "./context.js";
export { currentStep } from "./current.js";
export { Cancelled, Continue, Permanent, Retryable, Returned, TaskerError, Yield, type Json, type Marks, type NextTask } from "./errors.js";
export { BatchConfig, Decision, Handlers, type Handler, type Injected, type Needs } from "./handlers.js";
export type { Hooks } from "./hooks.js";
export { Worker, type WorkerOptions } from "./worker.js";
