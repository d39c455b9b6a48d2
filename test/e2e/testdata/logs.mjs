// Runs steps that log, and wait for a gate: the package, the daemon's address, a directory.
import { existsSync, writeFileSync } from "node:fs";
const [, , dist, address, directory] = process.argv;
const { Retryable, Worker } = await import(dist);

const pause = () => new Promise((resolve) => setTimeout(resolve, 20));
const worker = new Worker({ url: address, permits: 2, name: "logs-node" });
worker.handler("logs_node", async (ctx) => {
  ctx.logger.debug("begins", { try: ctx.attempt });
  ctx.logger.info("charged", { cents: 5, password: "p" });
  ctx.logger.error("no answer", { of: { service: "bank", token: "t" } });
  await ctx.progress(0.5, "half");
  while (!existsSync(`${directory}/open-${ctx.attempt}`)) {
    ctx.signal.throwIfAborted();
    await pause();
  }
  ctx.logger.warn("the last words");
  if (ctx.attempt === 1) throw new Retryable("busy", { after: 0.001 });
  return true;
});
worker.handler("many_node", async (ctx) => {
  for (let n = 0; n < 1000; n++) ctx.logger.info(`line ${n}`);
  writeFileSync(`${directory}/began-${process.pid}`, "");
  for (;;) await pause();
});
await worker.run();
