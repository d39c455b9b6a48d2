// Runs steps that wait for a gate: the package, the daemons' addresses, a directory.
import { appendFileSync, existsSync } from "node:fs";
const [, , dist, addresses, directory] = process.argv;
const { Worker } = await import(dist);

const worker = new Worker({ url: addresses, permits: 2, name: "gate-node" });
worker.handler("wait_node", async (ctx) => {
  appendFileSync(`${directory}/began-${process.pid}-${ctx.taskUuid}`, `${ctx.attempt}\n`);
  while (!existsSync(`${directory}/open`)) {
    ctx.signal.throwIfAborted();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await ctx.checkpoint(1, 1);
  return { by: process.pid };
});
await worker.run();
