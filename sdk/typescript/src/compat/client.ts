/** The client of the orchestrator's API in the style of Tasker's package: its methods return what the API answers. */

import type { Json } from "../errors.js";
import { encoded, parsed } from "../json.js";
import { readNow } from "../now.js";

declare const process: { env: Record<string, string | undefined> };

type Fields = Record<string, Json>;

export interface CreateTaskOptions {
  name: string;
  /** Default "default". */
  namespace?: string | undefined;
  context?: Record<string, unknown> | undefined;
  /** Default "1.0.0". */
  version?: string | undefined;
  initiator?: string | undefined;
  sourceSystem?: string | undefined;
  reason?: string | undefined;
  tags?: string[] | undefined;
  priority?: number | undefined;
  correlationId?: string | undefined;
  parentCorrelationId?: string | undefined;
  idempotencyKey?: string | undefined;
}

export interface ListTasksOptions {
  /** Default 50. */
  limit?: number | undefined;
  offset?: number | undefined;
  namespace?: string | undefined;
  status?: string | undefined;
}

export interface StepReadinessStatus {
  workflow_step_uuid: string;
  task_uuid: string;
  named_step_uuid: string;
  name: string;
  current_state: string;
  dependencies_satisfied: boolean;
  retry_eligible: boolean;
  ready_for_execution: boolean;
  last_failure_at: string | null;
  next_retry_at: string | null;
  total_parents: number;
  completed_parents: number;
  attempts: number;
  max_attempts: number;
  backoff_request_seconds: number | null;
  last_attempted_at: string | null;
}

export interface TaskResponse {
  task_uuid: string;
  name: string;
  namespace: string;
  version: string;
  status: string;
  created_at: string;
  updated_at: string;
  completed_at: string | null;
  context: Record<string, unknown>;
  initiator: string;
  source_system: string;
  reason: string;
  priority: number | null;
  tags: string[] | null;
  correlation_id: string;
  parent_correlation_id: string | null;
  total_steps: number;
  pending_steps: number;
  in_progress_steps: number;
  completed_steps: number;
  failed_steps: number;
  ready_steps: number;
  execution_status: string;
  recommended_action: string;
  completion_percentage: number;
  health_status: string;
  steps: StepReadinessStatus[];
}

export interface PaginationInfo {
  total: number;
  limit: number;
  offset: number;
  has_more: boolean;
}

export interface TaskListResponse {
  tasks: TaskResponse[];
  pagination: PaginationInfo;
}

export interface CancelTaskResponse {
  cancelled: boolean;
}

export interface StepResponse {
  step_uuid: string;
  task_uuid: string;
  name: string;
  created_at: string;
  updated_at: string;
  completed_at: string | null;
  results: Record<string, unknown> | null;
  current_state: string;
  dependencies_satisfied: boolean;
  retry_eligible: boolean;
  ready_for_execution: boolean;
  total_parents: number;
  completed_parents: number;
  attempts: number;
  max_attempts: number;
  last_failure_at: string | null;
  next_retry_at: string | null;
  last_attempted_at: string | null;
}

export interface StepAuditResponse {
  audit_uuid: string;
  workflow_step_uuid: string;
  transition_uuid: string;
  task_uuid: string;
  recorded_at: string;
  worker_uuid?: string;
  correlation_id?: string;
  success: boolean;
  execution_time_ms?: number;
  result?: Record<string, unknown>;
  step_name: string;
  from_state?: string;
  to_state: string;
}

export interface HealthCheckResponse {
  healthy: boolean;
}

/** A refusal by the API, or no answer; recoverable says whether another call may help. */
export class TaskerClientError extends Error {
  constructor(
    message: string,
    readonly recoverable = false,
  ) {
    super(message);
    this.name = "TaskerClientError";
  }
}

/** How one of the calls of a NapiModule ended. */
export interface NapiClientResult {
  success: boolean;
  data?: any;
  error?: string;
  recoverable?: boolean;
}

export interface NapiTaskRequest {
  name: string;
  namespace: string;
  version: string;
  context: any;
  initiator: string;
  sourceSystem: string;
  reason: string;
  tags?: string[];
  priority?: number;
  correlationId?: string;
  parentCorrelationId?: string;
  idempotencyKey?: string;
}

/** A new task in the names of the API, which older modules take as JSON. */
export interface ClientTaskRequest {
  name: string;
  namespace: string;
  version: string;
  context: Record<string, unknown>;
  initiator: string;
  source_system: string;
  reason: string;
  tags?: string[];
  requested_at?: string;
  options?: Record<string, unknown> | null;
  priority?: number | null;
  correlation_id?: string | null;
  parent_correlation_id?: string | null;
  idempotency_key?: string | null;
}

export interface NapiListTasksParams {
  limit?: number;
  offset?: number;
  namespace?: string;
  status?: string;
}

/** The calls of the API that a client needs; each returns when the API has answered. */
export interface ClientCalls {
  /** Of a request, or of a ClientTaskRequest as JSON. */
  clientCreateTask(request: NapiTaskRequest | string): NapiClientResult;
  clientGetTask(taskUuid: string): NapiClientResult;
  clientListTasks(params: NapiListTasksParams): NapiClientResult;
  clientCancelTask(taskUuid: string): NapiClientResult;
  clientListTaskSteps(taskUuid: string): NapiClientResult;
  clientGetStep(taskUuid: string, stepUuid: string): NapiClientResult;
  clientGetStepAuditHistory(taskUuid: string, stepUuid: string): NapiClientResult;
  clientHealthCheck(): NapiClientResult;
}

const part = encodeURIComponent;

/** Sends one request, while the event loop stands still. */
function call(method: string, path: string, body?: Fields): NapiClientResult {
  const base = process.env["TASKER_ORCHESTRATION_URL"] ?? process.env["ORCHESTRATION_URL"] ?? "http://localhost:8080",
    token = process.env["TASKER_AUTH_TOKEN"],
    key = process.env["TASKER_API_KEY"];
  const headers = {
    accept: "application/json",
    "content-type": "application/json",
    ...(token ? { authorization: `Bearer ${token}` } : key ? { "x-api-key": key } : {}),
  };
  const sent = { method, ...(body ? { body: encoded(body) } : {}) },
    { status, text } = readNow(base.replace(/\/+$/, "") + path, headers, sent);
  if (status >= 200 && status < 300) return { success: true, data: text === "" ? undefined : parsed(text) };
  return { success: false, error: `${method} ${path}: ${status} ${text.slice(0, 500)}`, recoverable: mayHelp(status) };
}

function mayHelp(status: number): boolean {
  return status === 429 || status >= 500;
}

/** The orchestrator's API, in place of a native module. */
export const clientCalls: ClientCalls = {
  clientCreateTask(request) {
    const given = (typeof request === "string" ? parsed(request) : request) as Fields;
    const { sourceSystem, correlationId, parentCorrelationId, idempotencyKey, ...same } = given;
    const fields: Fields = {
      source_system: sourceSystem,
      correlation_id: correlationId,
      parent_correlation_id: parentCorrelationId,
      idempotency_key: idempotencyKey,
      ...same,
    };
    const set = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null);
    return call("POST", "/v1/tasks", Object.fromEntries(set));
  },
  clientGetTask: (uuid) => call("GET", `/v1/tasks/${part(uuid)}`),
  clientListTasks({ limit = 50, offset = 0, namespace, status }) {
    const query = new URLSearchParams({
      page: String(Math.floor(offset / limit) + 1),
      per_page: String(limit),
      ...(namespace ? { namespace } : {}),
      ...(status ? { status } : {}),
    });
    const answer = call("GET", `/v1/tasks?${query.toString()}`);
    if (!answer.success) return answer;
    const { tasks = [], pagination = {} } = answer.data as { tasks?: Json[]; pagination?: Fields };
    const total = Number(pagination["total"] ?? pagination["total_count"] ?? tasks.length);
    return {
      success: true,
      data: { tasks, pagination: { ...pagination, total, limit, offset, has_more: offset + tasks.length < total } },
    };
  },
  clientCancelTask: (uuid) => call("DELETE", `/v1/tasks/${part(uuid)}`),
  clientListTaskSteps: (uuid) => call("GET", `/v1/tasks/${part(uuid)}/workflow_steps`),
  clientGetStep: (uuid, step) => call("GET", `/v1/tasks/${part(uuid)}/workflow_steps/${part(step)}`),
  clientGetStepAuditHistory: (uuid, step) => call("GET", `/v1/tasks/${part(uuid)}/workflow_steps/${part(step)}/audit`),
  clientHealthCheck() {
    const answer = call("GET", "/health");
    return answer.success ? { success: true, data: { healthy: true } } : answer;
  },
};

/** What a client is made of: the layer of a process, or something like it. */
export interface ClientLayer {
  getModule(): ClientCalls;
}

/** Creates tasks and reads them. */
export class TaskerClient {
  constructor(private readonly layer: ClientLayer) {}

  createTask(options: CreateTaskOptions): TaskResponse {
    const { priority, parentCorrelationId, idempotencyKey } = options;
    return this.call((api) =>
      api.clientCreateTask({
        name: options.name,
        namespace: options.namespace ?? "default",
        version: options.version ?? "1.0.0",
        context: options.context ?? {},
        initiator: options.initiator ?? "tasker-core-typescript",
        sourceSystem: options.sourceSystem ?? "tasker-core",
        reason: options.reason ?? "Task requested",
        tags: options.tags ?? [],
        correlationId: options.correlationId ?? crypto.randomUUID(),
        ...(priority === undefined ? {} : { priority }),
        ...(parentCorrelationId === undefined ? {} : { parentCorrelationId }),
        ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
      }),
    );
  }

  getTask(taskUuid: string): TaskResponse {
    return this.call((api) => api.clientGetTask(taskUuid));
  }

  listTasks({ limit = 50, offset = 0, namespace, status }: ListTasksOptions = {}): TaskListResponse {
    const filters = { ...(namespace === undefined ? {} : { namespace }), ...(status === undefined ? {} : { status }) };
    return this.call((api) => api.clientListTasks({ limit, offset, ...filters }));
  }

  cancelTask(taskUuid: string): void {
    this.call((api) => api.clientCancelTask(taskUuid));
  }

  listTaskSteps(taskUuid: string): StepResponse[] {
    return this.call((api) => api.clientListTaskSteps(taskUuid));
  }

  getStep(taskUuid: string, stepUuid: string): StepResponse {
    return this.call((api) => api.clientGetStep(taskUuid, stepUuid));
  }

  getStepAuditHistory(taskUuid: string, stepUuid: string): StepAuditResponse[] {
    return this.call((api) => api.clientGetStepAuditHistory(taskUuid, stepUuid));
  }

  healthCheck(): HealthCheckResponse {
    return this.call((api) => api.clientHealthCheck());
  }

  private call<T>(how: (api: ClientCalls) => NapiClientResult): T {
    const { success, data, error, recoverable } = how(this.layer.getModule());
    if (!success) throw new TaskerClientError(error ?? "the API has refused the call", recoverable ?? false);
    return data as T;
  }
}
