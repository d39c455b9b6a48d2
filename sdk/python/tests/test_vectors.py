"""Plays the daemon of sdk/vectors: what the package sends must be what the vectors say."""

import http.server
import json
import os
import threading
import unittest
from datetime import datetime, timedelta, timezone
from typing import Any

from tasker import Bytes, Continue, Hooks, Permanent, Publisher, Retryable, Returned, StepContext, StepEvent, Worker, Yield
from tasker._bytes import dumps, loads

VECTORS = os.environ.get("TASKER_VECTORS", os.path.join(os.path.dirname(__file__), "../../vectors/protocol.json"))


class Methods:
    def call(self, ctx: StepContext) -> object:
        return "called"

    def refund(self, ctx: StepContext) -> object:
        return "refunded"


class Receipts(Publisher):
    name = "receipts"

    def should_publish(self, event: StepEvent) -> bool:
        return event.name != "quiet"

    async def payload(self, event: StepEvent) -> object:
        return {"receipt": event.result["n"]}

    def metadata(self, event: StepEvent) -> object:
        return {"by": "vector"}


def register(worker: Worker) -> None:
    worker.publisher(Receipts())

    @worker.handler("vector.notes")
    def notes(ctx: StepContext) -> object:
        ctx.metadata["rows"] = 2
        return True

    @worker.handler("vector.charges")
    def charges(ctx: StepContext) -> object:
        return {"n": 1}

    @worker.handler("vector.adds")
    def adds(ctx: StepContext) -> object:
        return {"n": ctx.context["n"] + 1}

    @worker.handler("vector.nothing")
    def nothing(ctx: StepContext) -> object:
        return None

    @worker.handler("vector.parents")
    def parents(ctx: StepContext) -> object:
        return {"sum": ctx.results["before"] + ctx.config["add"]}

    worker.register("vector.methods", Methods())

    @worker.handler("vector.permanent")
    def permanent(ctx: StepContext) -> object:
        raise Permanent("no stock", code="S1", details={"left": 0})

    @worker.handler("vector.retryable")
    def retryable(ctx: StepContext) -> object:
        raise Retryable("busy", after=5)

    @worker.handler("vector.yields")
    def yields(ctx: StepContext) -> object:
        if ctx.saved is None:
            raise Yield({"page": 2}, 10, {"sum": 3})
        return [ctx.saved.cursor, ctx.saved.items_processed, ctx.saved.accumulated]

    @worker.handler("vector.returned")
    def returned(ctx: StepContext) -> object:
        raise Returned()

    @worker.handler("vector.isolates")
    def isolates(ctx: StepContext) -> object:
        assert ctx.batch is not None and ctx.batch.items is not None
        ctx.isolate(ctx.batch.items[1], Permanent("bad row", code="R1"))
        return len(ctx.batch.items) - 1

    @worker.handler("vector.continues")
    def continues(ctx: StepContext) -> object:
        return Continue({"hop": 1}, name="collect", version="2.0.0", context={"hop": 2}, idempotency_key="hop-2", priority=0, tags=["hop"], delay=60)

    @worker.handler("vector.continues.whole")
    def continues_whole(ctx: StepContext) -> object:
        start = datetime(2099, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
        one = "0d4b5f5e-0000-4000-8000-00000000000"
        return Continue(
            1,
            name="collect",
            namespace="bank",
            initiator="ana",
            source_system="shop",
            reason="it is time",
            correlation_id=one + "1",
            parent_correlation_id=one + "2",
            start_at=start,
            deadline=start + timedelta(days=1),
            depends_on=[one + "3"],
            on_dependency_failure="continue",
            max_attempts=3,
            retry_delays=["1s", "2m"],
        )

    @worker.handler("vector.saves")
    def saves(ctx: StepContext) -> object:
        ctx.checkpoint(5, 5)
        return True

    @worker.handler("vector.progress")
    def progress(ctx: StepContext) -> object:
        ctx.progress(0.5, "half")
        return True

    @worker.handler("vector.logs")
    def logs(ctx: StepContext) -> object:
        ctx.logger.warning("the card is %s", "slow", extra={"cents": 5})
        return True

    @worker.handler("vector.publishes")
    def publishes(ctx: StepContext) -> object:
        ctx.publish("stock.low", {"left": 1})
        ctx.publish("stock.counted", None)
        return True

    @worker.handler("vector.draws")
    def draws(ctx: StepContext) -> object:
        return Bytes(bytes.fromhex("89504e470d0a1a0a00ff22c3"), "image/png")

    @worker.handler("vector.collects")
    def collects(ctx: StepContext) -> object:
        pictures = [ctx.context["picture"], ctx.result("before"), ctx.result("root"), *(b["result"] for b in ctx.batch_results("rows"))]
        return {"sizes": [len(p.data) for p in pictures], "pictures": pictures}

    @worker.handler("vector.reads")
    def reads(ctx: StepContext) -> object:
        return [ctx.result("root"), ctx.batch_results("rows")]


class Recorded(Hooks):
    """Hooks that fail, which changes nothing."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def note(self, call: str) -> None:
        self.calls.append(call)
        raise RuntimeError("of a hook")

    def opened(self) -> None:
        self.note("opened")

    def before(self, ctx: StepContext) -> None:
        self.note("before " + ctx.fence)

    def failed(self, ctx: StepContext, error: BaseException) -> None:
        self.note(f"failed {ctx.fence} {error}")

    def after(self, ctx: StepContext, outcome: str, seconds: float) -> None:
        assert 0 <= seconds < 60
        self.note(f"after {ctx.fence} {outcome}")

    def draining(self) -> None:
        self.note("draining")

    def stopped(self) -> None:
        self.note("stopped")


class Vectors(unittest.TestCase):
    def test_the_package_speaks_the_protocol(self) -> None:
        with open(VECTORS, encoding="utf-8") as file:
            vectors = json.load(file)
        steps = list(vectors["steps"])
        todo, requests, got = list(steps), {}, []
        ended = threading.Event()
        for v in steps:
            for r in v.get("requests", []):
                requests[(r["method"], r["path"])] = r

        class Daemon(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body = json.loads(text) if text else None
                path = self.path.removeprefix("/v1/sessions").removeprefix("/" + vectors["opened"]["session_id"])
                if path.startswith("/stream?after="):
                    self.stream()
                else:
                    self.send(self.result(path, body))

            def stream(self) -> None:
                """Tells of two steps, which may come in the middle of one another's lines."""
                if not todo:
                    ended.wait(0.2)
                text = "retry: 2000\n\n"
                for step in todo[:2] or [None]:
                    told = [{**vectors["base"], **todo.pop(0)["step"]}] if step else []
                    answer = {"answer": len(steps) - len(todo), "steps": told, "cancelled": [], "draining": False, "of_a_later_version": 1}
                    text += f"id: {answer['answer']}\nevent: told\ndata: {json.dumps(answer)}\n\n"
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for part in (text[:700], text[700:]):
                    if part:
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part.encode()))
                self.wfile.write(b"0\r\n\r\n")

            def result(self, path: str, body: Any) -> Any:
                if self.command == "POST" and path == "":
                    got.append({k: body[k] for k in vectors["open"]})
                    return vectors["opened"]
                if path == "/reports":
                    got.extend(body["reports"])
                    if len(got) > len(steps):
                        ended.set()
                    return {"rejected": []}
                if (self.command, path) in requests:
                    r = requests.pop((self.command, path))
                    if path == "/logs":
                        for line, sent in zip(r["body"]["lines"], body["lines"]):
                            line["at"] = datetime.fromisoformat(sent["at"].replace("Z", "+00:00")) and sent["at"]
                    if body != r.get("body"):
                        got.append({"unexpected": body})
                    return r["answer"]
                return {"closed": True}

            def send(self, value: Any) -> None:
                text = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Daemon)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hooks = Recorded()
        worker = Worker(f"http://127.0.0.1:{server.server_address[1]}", permits=1, hooks=hooks)
        register(worker)
        worker.start()
        self.assertTrue(ended.wait(60), got)
        worker.stop()
        server.shutdown()
        server.server_close()
        self.assertEqual(got[0], vectors["open"])
        reports = {r["fence"]: r for r in got[1:]}
        for v in steps:
            self.assertEqual(reports[v["report"]["fence"]], v["report"], v["meaning"])
        self.assertEqual(requests, {}, "not sent")
        told = ["opened"]
        for v in steps:
            r = v["report"]
            told.append("before " + r["fence"])
            if r["outcome"] == "failure":
                told.append(f"failed {r['fence']} {r['error']['message']}")
            told.append(f"after {r['fence']} {r['outcome']}")
        self.assertEqual(hooks.calls, [*told, "draining", "stopped"])

    def test_the_form_of_bytes(self) -> None:
        with open(VECTORS, encoding="utf-8") as file:
            vectors = json.load(file)
        for v in vectors["bytes"]:
            value = Bytes(bytes.fromhex(v["hex"]), v["content_type"])
            self.assertEqual(json.loads(dumps({"in": [value]})), {"in": [v["json"]]}, v["meaning"])
            self.assertEqual(loads(json.dumps({"in": [v["json"]]})), {"in": [value]}, v["meaning"])
        for v in vectors["no_bytes"]:
            self.assertEqual(loads(json.dumps([v["json"]])), [v["json"]], v["meaning"])
        for content_type in ("", "png", "image/png\n", "a/" + "b" * 254):
            with self.assertRaisesRegex(ValueError, "want a media type"):
                Bytes(b"", content_type)
        with self.assertRaisesRegex(TypeError, "invalid data of type str: want bytes"):
            Bytes("text")  # type: ignore[arg-type]
        with self.assertRaises(TypeError):
            dumps(b"not said what it is")


if __name__ == "__main__":
    unittest.main()
