"""Runs a batch whose steps stop in their middle, where they wait to be killed: the daemon's address, a
directory."""

import os
import sys
import time

from tasker import Batch, BatchConfig, StepContext, Worker

directory = sys.argv[2]
worker = Worker(sys.argv[1], permits=4, name="batch-python")


@worker.batch_analyzer("divide", worker_template="work", inputs=["items"])
def divide(ctx: StepContext, items: int) -> BatchConfig:
    return BatchConfig(items, items // 4)


@worker.batch_worker("work")
def work(ctx: StepContext, batch: Batch) -> object:
    begin = ctx.saved.cursor if ctx.saved else batch.start
    for item in range(begin, batch.end):
        with open(os.path.join(directory, f"item-{item}"), "a") as log:
            log.write(f"{os.getpid()}\n")
        ctx.checkpoint(item + 1, item + 1 - batch.start)
        if begin == batch.start and item + 1 == (batch.start + batch.end) // 2:
            with open(os.path.join(directory, f"began-{batch.id}"), "a") as log:
                log.write(f"{ctx.attempt}\n")
            time.sleep(600)
    return {"from": begin - batch.start}


worker.run()
