/** Runs whole workflows on a private engine of the test. */

import { spawn, type ChildProcess } from "node:child_process";
import { readFile } from "node:fs/promises";

import { Client, paced, type Task } from "./client.js";
import type { Json } from "./errors.js";
import type { Handlers } from "./handlers.js";
import { Worker } from "./worker.js";

declare const process: { env: Record<string, string | undefined> };

export interface EngineOptions {
  /** Templates to register: files (.yaml, .yml, .json) as paths or URLs, or their texts. */
  templates?: (string | URL)[];
  /** Handlers that run in this process. */
  handlers?: Handlers;
  /** The program tasker-ctl; default TASKER_CTL, then tasker-ctl on the PATH. */
  binary?: string;
  /** Chooses the overrides of templates. */
  environment?: string;
  /** Variables that configure the engine; those of this process with TASKER_ do not. */
  env?: Record<string, string>;
  /** Of an empty database; default a temporary one, for which a PostgreSQL has to be installed. */
  databaseUrl?: string;
  /** How many handlers run at once; default 8. */
  permits?: number;
  /** Of the start, in seconds; default 120. */
  timeout?: number;
}

/** How a step ended: with a result, or an error, whose message, error_type and error_code are as they are stored. */
export interface StepEnd {
  name: string;
  state: string;
  attempts: number;
  result?: Json;
  error?: Record<string, Json>;
  /** The step as the API shows it. */
  data: Record<string, Json>;
}

/** How a task ended, with its steps by their names, and the results of the completed ones. */
export interface TaskEnd {
  status: string;
  task: Task;
  steps: Record<string, StepEnd>;
  results: Record<string, Json>;
}

/** The engine cannot be started, or has ended by itself. The message has the end of its log. */
export class EngineError extends Error {}

const settled = ["complete", "error", "cancelled", "resolved_manually", "blocked_by_failures"];
const patience = 30_000; // for the engine and the handlers to end, in milliseconds
const keptLog = 16_384;

/**
 * Starts an engine with a temporary database: `tasker-ctl dev` on free ports. It ends with stop, and with the process
 * of the test.
 */
export async function startEngine(options: EngineOptions = {}): Promise<Engine> {
  const program = new Program(options);
  try {
    const addresses = await program.addresses((options.timeout ?? 120) * 1000);
    const client = new Client({ url: addresses.orchestrator, initiator: "test", sourceSystem: "tasker.testing" });
    const known: Known[] = [];
    for (const template of options.templates ?? []) known.push((await client.registerTemplate(await source(template), "test")) as unknown as Known);
    return new Engine(program, client, addresses, known, options);
  } catch (e) {
    await program.stop();
    throw e;
  }
}

interface Addresses {
  orchestrator: string;
  worker: string;
  database_url: string;
}

interface Known {
  namespace: string;
  name: string;
  version: string;
}

/** An engine that runs. */
export class Engine {
  /** Of its API, and of its sessions. */
  readonly url: string;
  readonly workerUrl: string;
  readonly databaseUrl: string;
  private readonly worker: Worker | undefined;
  private readonly working: Promise<void>;

  constructor(private readonly program: Program, /** Of its API: events, cancellations and more. */ readonly client: Client,
              addresses: Addresses, private readonly known: Known[], options: EngineOptions) {
    ({ orchestrator: this.url, worker: this.workerUrl, database_url: this.databaseUrl } = addresses);
    if (options.handlers) {
      this.worker = new Worker({ url: this.workerUrl, permits: options.permits ?? 8, name: "tasker.testing", announce: false });
      this.worker.include(options.handlers);
    }
    this.working = this.worker?.run({ signals: false }) ?? Promise.resolve();
  }

  /** The end of the engine's log. */
  get log(): string {
    return this.program.log;
  }

  /**
   * Creates a task of a template and waits until it has ended, or is blocked until an operator acts. Each call creates
   * another task, unless fields, which are those of NewTask, have an idempotency_key. Rejects if it has not ended after
   * timeout seconds (default 60), with the state of its steps.
   */
  async run(name: string, context: Record<string, Json> = {}, fields: Record<string, Json> & { timeout?: number; namespace?: string } = {}): Promise<TaskEnd> {
    const { timeout = 60, namespace, ...more } = fields;
    const found = this.known.filter((t) => t.name === name && (namespace ?? t.namespace) === t.namespace), [one] = found;
    if (found.length > 1 || (!one && namespace === undefined)) {
      throw new TypeError(`run ${JSON.stringify(name)}: ${found.length} templates of the engine have that name: want one, or namespace and version`);
    }
    const of = one ? { namespace: one.namespace, version: one.version } : { namespace: namespace ?? "" };
    const deadline = Date.now() + timeout * 1000;
    let task = await this.client.createTask({ reason: "test", idempotency_key: crypto.randomUUID(), ...of, ...more, name, context });
    while (!settled.includes(task.status)) {
      const begun = Date.now(), left = (deadline - begun) / 1000;
      if (left <= 0) throw new Error(await this.unfinished(task, timeout));
      task = await this.client.task(task.task_uuid, Math.min(left, 1));
      if (!settled.includes(task.status)) await paced(begun, deadline);
    }
    const steps = await this.steps(task), complete = Object.values(steps).filter((step) => step.state === "complete");
    return { status: task.status, task, steps, results: Object.fromEntries(complete.map((step) => [step.name, step.result])) };
  }

  private async steps(task: Task): Promise<Record<string, StepEnd>> {
    return Object.fromEntries((await this.client.steps(task.task_uuid)).map((data) => [String(data["name"]), ended(data)]));
  }

  private async unfinished(task: Task, timeout: number): Promise<string> {
    const states = Object.values(await this.steps(task)).map((step) => `${step.name} is ${step.state}`);
    return `task ${task.task_uuid} has not ended after ${timeout} s, it is ${task.status}: ${states.join(", ")}`;
  }

  /** Stops the worker and the engine. A handler that does not return keeps running. */
  async stop(): Promise<void> {
    await this.worker?.stop();
    await within(patience / 3, this.working.catch(() => undefined));
    await this.program.stop();
  }
}

function ended(data: Record<string, Json>): StepEnd {
  const stored = data["results"] as { success?: boolean; result?: Json; error?: Record<string, Json>; metadata?: { error_code?: string } } | null;
  const code = stored?.metadata?.error_code;
  return { name: String(data["name"]), state: String(data["current_state"]), attempts: Number(data["attempts"]), data,
    ...(stored?.success ? { result: stored.result } : {}),
    ...(stored?.error ? { error: code ? { ...stored.error, error_code: code } : stored.error } : {}) };
}

/** The process of the engine. */
class Program {
  log = "";
  private failure: Error | undefined;
  private readonly child: ChildProcess;
  private readonly name: string;
  private readonly closed: Promise<void>;

  constructor(options: EngineOptions) {
    const given = process.env["TASKER_CTL"], own = (name: string): boolean => name.startsWith("TASKER_") || ["DATABASE_URL", "WORKER_NAMESPACES"].includes(name);
    this.name = options.binary || given || "tasker-ctl";
    const args = ["dev", "--attached", "--ephemeral", "--log-level", "warn", "--orchestrator-address", "127.0.0.1:0", "--worker-address", "127.0.0.1:0"];
    const env = { ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !own(name))),
      ...(options.databaseUrl ? { DATABASE_URL: options.databaseUrl } : {}), ...(options.environment ? { TASKER_ENV: options.environment } : {}), ...options.env };
    // In a session of its own: Ctrl-C ends the test, and the engine ends with that.
    this.child = spawn(this.name, args, { env, detached: true });
    let gone = (): void => undefined;
    this.closed = new Promise((resolve) => this.child.once("close", (gone = resolve)));
    this.child.on("error", (e) => {
      gone();
      const missing = e.code === "ENOENT" || e.code === "EACCES";
      if (!missing) this.failure = new EngineError(`start ${this.name}: ${e.message}`);
      else if (options.binary || given) this.failure = new EngineError(`invalid ${options.binary ? "binary" : "TASKER_CTL"} "${this.name}": want the program tasker-ctl`);
      else this.failure = new EngineError("find tasker-ctl: it is not on the PATH, TASKER_CTL is not set, and startEngine was given no binary");
    });
    this.child.stdin.on("error", () => undefined); // it has ended
    this.child.stderr.setEncoding("utf8");
    this.child.stderr.on("data", (text) => (this.log = (this.log + text).slice(-keptLog)));
  }

  /** Waits for the line with the addresses of the engine. */
  async addresses(timeout: number): Promise<Addresses> {
    let line = "";
    const told = new Promise<void>((resolve) => {
      this.child.stdout.setEncoding("utf8");
      this.child.stdout.on("data", (text) => (line += text).includes("\n") && resolve());
    });
    await within(timeout, Promise.race([told, this.closed]));
    if (this.failure) throw this.failure;
    if (line.includes("\n")) return JSON.parse(line) as Addresses;
    const { exitCode, signalCode } = this.child;
    if (exitCode === null && signalCode === null) throw new EngineError(`${this.name} was not ready within ${timeout / 1000} s:\n${this.log}`);
    throw new EngineError(`${this.name} ended with ${exitCode ?? signalCode}:\n${this.log}`);
  }

  async stop(): Promise<void> {
    this.child.stdin.end(); // it ends with its input
    if (!(await within(patience, this.closed))) {
      this.child.kill("SIGKILL");
      await this.closed;
    }
  }
}

/** Waits for a promise, at most for some milliseconds. Resolves to whether it has settled. */
async function within(ms: number, done: Promise<void>): Promise<boolean> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<boolean>((resolve) => (timer = setTimeout(resolve, ms, false)));
  try {
    return await Promise.race([done.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}

/** The text of a template. */
async function source(template: string | URL): Promise<string> {
  return template instanceof URL || /\.(ya?ml|json)$/.test(template) ? readFile(template, "utf8") : template;
}
