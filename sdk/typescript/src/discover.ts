/** Finds handlers in the modules of a folder. */

import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

import { textOf } from "./errors.js";
import { Handlers } from "./handlers.js";

const sources = /\.(js|mjs|cjs|ts|mts|cts)$/,
  others = /\.d\.[mc]?ts$|\.(test|spec)\.\w+$/;

/** The modules below a folder, in the order of their names; a compiled one stands for its source. */
export async function modulesOf(folder: string | URL): Promise<string[]> {
  const root = folder instanceof URL ? fileURLToPath(folder) : folder,
    found: string[] = [];
  const entries = await readdir(root, { withFileTypes: true }).catch((e: unknown) => {
    throw new TypeError(`discover handlers: ${textOf(e)}`);
  });
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    if (entry.name.startsWith(".") || entry.name === "node_modules") continue;
    const path = join(root, entry.name);
    if (entry.isDirectory()) found.push(...(await modulesOf(path)));
    else if (sources.test(entry.name) && !others.test(entry.name)) found.push(path);
  }
  const compiled = new Set(found.filter((path) => /js$/.test(path)));
  return found.filter((path) => /js$/.test(path) || !compiled.has(path.replace(/ts$/, "js")));
}

/** Imports a module. */
export async function imported(path: string): Promise<Record<string, unknown>> {
  try {
    return (await import(pathToFileURL(path).href)) as Record<string, unknown>;
  } catch (e) {
    const typed =
      /ts$/.test(path) &&
      typeof e === "object" &&
      e !== null &&
      (e as { code?: string }).code === "ERR_UNKNOWN_FILE_EXTENSION";
    throw new Error(
      `import ${path}: ${typed ? "this Node does not run TypeScript: compile it, or use Node 22.18 or later" : textOf(e)}`,
      { cause: e },
    );
  }
}

/**
 * Imports the modules of a folder and of the folders in it, except tests, and collects the Handlers that they export,
 * under any name.
 */
export async function discover(folder: string | URL): Promise<Handlers> {
  const all = new Handlers(),
    seen = new Set<Handlers>();
  for (const path of await modulesOf(folder)) {
    for (const exported of Object.values(await imported(path))) {
      if (!(exported instanceof Handlers) || seen.has(exported)) continue;
      seen.add(exported);
      all.include(exported);
    }
  }
  return all;
}
