/**
 * Handlers that were written for Tasker's TypeScript package run unmodified but for the name of the package that they
 * import. Names that are types there are values here too, so that programs run whose imports do not tell the two
 * apart.
 */

export * from "./batch.js";
export { FfiStepEvent, StepContext, TaskSequenceStep } from "./context.js";
export {
  BasePublisher,
  BaseSubscriber,
  DefaultPublisher,
  DomainEvent,
  InProcessDomainEvent,
  InProcessDomainEventPoller,
  PublisherRegistry,
  StepEventContext,
  SubscriberRegistry,
  SubscriberResult,
  type PollFunction,
} from "./events.js";
export {
  APICapable,
  APIHandler,
  APIMixin,
  ApiHandler,
  ApiResponse,
  BaseStepHandler,
  BatchableHandler,
  BatchableStepHandler,
  DecisionCapable,
  DecisionHandler,
  DecisionMixin,
  DecisionPointOutcome,
  StepHandler,
  applyAPI,
  applyDecision,
  type RequestOptions,
} from "./handler.js";
export * from "./log.js";
export {
  BaseResolver,
  ClassLookupResolver,
  ExplicitMappingResolver,
  HandlerDefinition,
  HandlerRegistry,
  MethodDispatchWrapper,
  ResolutionContext,
  ResolverChain,
  StepHandlerResolver,
  type Registered,
  ResolvedHandler,
  type StepHandlerClass,
} from "./registry.js";
export {
  BatchableResult,
  ConfigurationError,
  ErrorType,
  MethodDispatchError,
  PermanentError,
  ResolutionError,
  RetryableError,
  StepExecutionError,
  StepExecutionResult,
  StepHandlerResult,
  TaskerError,
  ValidationError,
} from "./result.js";
export * from "./runtime.js";
