// Runs steps that do nothing: the package, the daemon's address and the permits.
const [, , dist, address, permits] = process.argv;
const { Worker } = await import(dist);

const worker = new Worker({ url: address, permits: Number(permits), name: "load-node" });
worker.handler("load", (ctx) => ctx.context);
await worker.run();
