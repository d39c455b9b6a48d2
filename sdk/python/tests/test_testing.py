"""The test kit against the vectors: a handler's outcome is that of its report."""

import base64
import json
import unittest

from test_vectors import VECTORS, Receipts, Recorded, register

from tasker import Bytes, Cancelled, StepContext, Worker, Yield, current_step
from tasker._bytes import loads
from tasker.testing import run_step


class Kit(unittest.TestCase):
    def test_outcomes_are_those_of_reports(self) -> None:
        worker = Worker("http://localhost:1", hooks=Recorded())
        register(worker)
        with open(VECTORS, encoding="utf-8") as file:
            vectors = json.load(file)
        for v in vectors["steps"]:
            step = {**vectors["base"], **v["step"]}
            handler = worker.find(step.get("offered", step["callable"]), step.get("method", "call"))
            known = {"context", "dependency_results", "initialization", "attempt", "max_attempts", "checkpoint", "batch", "items"}
            answers = {r["path"].split("?")[0]: r["answer"] for r in v.get("requests", [])}
            read = {"root": answers.get("/results", {}).get("result")}
            batches = [b["result"] for b in answers.get("/batch-results", {}).get("batches", [])]
            end = run_step(handler, step["context"], publishers=[Receipts()], results=step["dependency_results"], config=step.get("initialization"), checkpoint=step.get("checkpoint"),
                           batch=step.get("batch"), items=step.get("items"), attempt=step["attempt"], max_attempts=step["max_attempts"],
                           ancestors=read, batch_results={"rows": batches}, **{k: x for k, x in step.items() if k not in known})
            report = v["report"]
            self.assertEqual(end.outcome, report["outcome"], v["meaning"])
            if "result_bytes" in report:
                self.assertEqual(end.result, Bytes(base64.b64decode(report["result_bytes"]), report["content_type"]), v["meaning"])
            else:
                self.assertEqual(end.result, loads(json.dumps(report.get("result"))), v["meaning"])
            self.assertEqual(end.error, report.get("error"), v["meaning"])
            self.assertEqual(end.checkpoint, report.get("checkpoint"), v["meaning"])
            self.assertEqual(end.next, report.get("next"), v["meaning"])
            self.assertEqual(list(end.isolated), report.get("isolated", []), v["meaning"])
            self.assertEqual(list(end.events), report.get("events", []), v["meaning"])
            self.assertEqual(end.metadata, report.get("metadata"), v["meaning"])
            self.assertEqual(list(end.made), report.get("made", []), v["meaning"])
            logged = [x for r in v.get("requests", []) if r["path"] == "/logs" for x in r["body"]["lines"]]
            self.assertEqual(end.logs, [{k: x[k] for k in ("level", "text", "fields")} for x in logged], v["meaning"])
            self.assertEqual(len(end.saved), len([r for r in v.get("requests", []) if r["path"] == "/checkpoint"]), v["meaning"])

    def test_bytes_arrive_as_such(self) -> None:
        picture = Bytes(b"\x00\xff", "image/png")
        envelope = {"$bytes": picture.base64, "content_type": "image/png"}
        for given in (picture, envelope):
            end = run_step(lambda ctx: [ctx.context["of"], ctx.results["a"], ctx.result("b"), ctx.batch_results("rows")[0]["result"]],
                           {"of": given}, results={"a": given}, ancestors={"b": given}, batch_results={"rows": [given]})
            self.assertEqual(end.result, [picture] * 4)

    def test_a_checkpoint_saves_isolated_items(self) -> None:
        """The next execution begins behind them."""
        def isolates(ctx: StepContext) -> object:
            ctx.checkpoint(1, 1)
            ctx.isolate({"row": 2}, "bad row")
            ctx.checkpoint(2, 2)
            return None

        end = run_step(isolates, items=[{"row": 1}, {"row": 2}])
        self.assertEqual(len(end.isolated), 1)
        self.assertEqual(end.saved, [{"cursor": 1, "items_processed": 1}, {"cursor": 2, "items_processed": 2, "isolated": end.isolated}])

    def test_coroutines_and_lost_leases(self) -> None:
        async def waits(ctx: StepContext) -> object:
            return current_step().context["n"]

        self.assertEqual(run_step(waits, {"n": 7}).result, 7)

        def saves(ctx: StepContext) -> object:
            with self.assertRaises(Cancelled):
                ctx.checkpoint(1, 1)
            ctx.check()
            return None

        self.assertEqual(run_step(saves, lease_lost=True).outcome, "returned")
        self.assertEqual(run_step(lambda ctx: ctx.result("none")).outcome, "failure")
        self.assertEqual((run_step(lambda ctx: ctx.publish("a.b", {1, 2})).error or {})["error_type"], "EventNotPublished")

        def early(ctx: StepContext) -> object:
            ctx.publish("a.b", 1)
            raise Yield(1, 1)

        self.assertEqual((run_step(early).error or {})["error_type"], "EventNotPublished")
        self.assertEqual((run_step(lambda ctx: {1, 2}).error or {})["error_type"], "ResultNotEncodable")


if __name__ == "__main__":
    unittest.main()
