// Types of the Node features that the package uses and browsers lack.
declare module "node:async_hooks" {
  export class AsyncLocalStorage<T> {
    run<R>(store: T, callback: () => R): R;
    getStore(): T | undefined;
  }
}
declare module "node:buffer" {
  interface Bytes extends Uint8Array {
    toString(encoding?: "base64"): string;
  }
  export const Buffer: {
    from(text: string, encoding: "base64"): Bytes;
    from(memory: ArrayBufferLike, offset: number, length: number): Bytes;
  };
}
declare module "node:child_process" {
  export interface Output {
    setEncoding(encoding: string): void;
    on(event: "data", listener: (text: string) => void): void;
    once(event: "close", listener: () => void): void;
  }
  export interface ChildProcess {
    readonly stdin: { end(): void; on(event: "error", listener: () => void): void };
    readonly stdout: Output;
    readonly stderr: Output;
    readonly exitCode: number | null;
    readonly signalCode: string | null;
    kill(signal: string): boolean;
    once(event: "close", listener: () => void): void;
    on(event: "error", listener: (error: Error & { code?: string }) => void): void;
  }
  export function spawn(program: string, args: string[], options: { env: Record<string, string | undefined>; detached: boolean }): ChildProcess;
}
declare module "node:fs/promises" {
  export interface Entry {
    readonly name: string;
    isDirectory(): boolean;
  }
  export function readFile(path: string | URL, encoding: string): Promise<string>;
  export function readdir(path: string, options: { withFileTypes: true }): Promise<Entry[]>;
}
declare module "node:path" {
  export function join(...parts: string[]): string;
}
declare module "node:url" {
  export function fileURLToPath(url: URL): string;
  export function pathToFileURL(path: string): URL;
}
declare module "node:util" {
  export function format(...args: unknown[]): string;
}
declare module "node:worker_threads" {
  export class Worker {
    constructor(file: URL, options: { execArgv: string[] });
    on(event: "error", listener: (error: unknown) => void): void;
    postMessage(message: unknown, transfer?: MessagePort[]): void;
    terminate(): Promise<number>;
    unref(): void;
  }
  export interface MessagePort {
    postMessage(message: unknown): void;
    close(): void;
  }
  export class MessageChannel {
    readonly port1: MessagePort;
    readonly port2: MessagePort;
  }
  export function receiveMessageOnPort(port: MessagePort): { message: unknown } | undefined;
  export const parentPort: { on(event: "message", listener: (message: unknown) => void): void } | null;
}
