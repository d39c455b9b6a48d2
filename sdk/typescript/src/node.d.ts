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
  export function readFile(path: string | URL, encoding: string): Promise<string>;
}
