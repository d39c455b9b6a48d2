"""What handlers log and print, on its way to a daemon of the test."""

import io
import json
import logging
import sys
import threading
import unittest
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from fake_daemon import PATIENCE, Daemon
from test_worker import Running

from tasker import Handlers, StepContext, Worker
from tasker._lines import Lines
from tasker._session import Session
from tasker.testing import run_step

JSON = Any


def sent(daemon: Daemon) -> list[list[dict[str, JSON]]]:
    """The lines of requests, from now on."""
    requests: list[list[dict[str, JSON]]] = []

    def answer(_: Mapping[str, str], body: JSON) -> JSON:
        with daemon.changed:
            requests.append(body["lines"])
            daemon.changed.notify_all()
        return {}

    daemon.answers["/logs"] = answer
    return requests


def count(requests: Sequence[Sequence[JSON]]) -> int:
    return sum(len(r) for r in requests)


class Held:
    def __init__(self, fence: str) -> None:
        self.fence, self.task_uuid = fence, "x"


class Refusing(Session):
    """Takes lines once the test lets it."""

    def __init__(self) -> None:
        super().__init__([])
        self.sent: list[dict[str, JSON]] = []
        self.asked, self.let = threading.Semaphore(0), threading.Event()

    def keep(self, lines: Sequence[tuple[Any, str]], written: Callable[[], None]) -> None:
        self.asked.release()
        self.let.wait(PATIENCE)
        self.sent += [json.loads(f'{{"fence":"{held.fence}",{rest}') for held, rest in lines]


class Logs(unittest.TestCase):
    def test_lines_come_in_order_with_their_fields(self) -> None:
        handlers, goes = Handlers(), threading.Event()

        @handlers.handler("logs")
        def logs(ctx: StepContext) -> object:
            ctx.logger.debug("first %d", 1, extra={"n": 1, "name": "not of logging", "task_uuid": "not another"})
            ctx.logger.warning("second", extra={"of": object, "deep": {"password": "p"}})
            goes.wait(PATIENCE)
            try:
                raise ValueError("no card")
            except ValueError:
                ctx.logger.exception("third")
            ctx.logger.critical("fourth")
            return None

        with Running(handlers) as daemon:
            requests = sent(daemon)
            fence = daemon.step("logs")
            daemon.wait(lambda: count(requests) == 2, "not while the handler runs")
            goes.set()
            daemon.report(fence)
            daemon.wait(lambda: count(requests) == 4)
            lines = [line for r in requests for line in r]
            self.assertEqual([line["text"] for line in lines], ["first 1", "second", "third", "fourth"])
            self.assertEqual([line["level"] for line in lines], ["debug", "warn", "error", "error"])
            self.assertEqual({line["fence"] for line in lines}, {fence})
            self.assertEqual(lines[0]["fields"], {"n": 1})
            self.assertEqual(lines[1]["fields"], {"of": "<class 'object'>", "deep": {"password": "p"}})
            self.assertIn("ValueError: no card", lines[2]["fields"]["traceback"])
            self.assertNotIn("fields", lines[3])
            self.assertEqual(sorted(line["at"] for line in lines), [line["at"] for line in lines])

    def test_nothing_is_sent_when_nothing_is_logged(self) -> None:
        handlers = Handlers()
        handlers.handler("silent")(lambda ctx: 1)
        handlers.handler("logs")(lambda ctx: ctx.logger.error("kept by nobody"))
        for name, limit in (("silent", 1000), ("logs", 0)):
            running = Running(handlers, max_log_bytes=limit)
            with redirect_stderr(io.StringIO()), running as daemon:
                daemon.report(daemon.step(name))
            self.assertEqual(daemon.asked("POST /logs"), 0)
            self.assertIsNone(running.worker._lines._thread)
        with self.assertRaisesRegex(ValueError, "invalid max_log_bytes -1: want at least 0"):
            Worker("http://localhost:1", max_log_bytes=-1)

    def test_a_report_goes_when_lines_do_not(self) -> None:
        handlers, goes = Handlers(), threading.Event()
        handlers.handler("logs")(lambda ctx: ctx.logger.info("a line"))
        with Running(handlers) as daemon:
            kept: list[JSON] = []

            def answer(_: Mapping[str, str], body: JSON) -> JSON:
                if not goes.wait(PATIENCE):
                    return {}
                kept.extend(body["lines"])
                return (503, {}) if len(kept) == 1 else {}

            daemon.answers["/logs"] = answer
            fences = []
            for _ in range(2):  # the request of the first one is under way when the second is reported
                fences.append(daemon.step("logs"))
                self.assertEqual(daemon.report(fences[-1])["outcome"], "success")
            goes.set()
            daemon.wait(lambda: daemon.asked("POST /logs") == 3, "not again")
        self.assertEqual([line["fence"] for line in kept], [fences[0], *fences])

    def test_a_daemon_without_the_route_is_asked_once_a_session(self) -> None:
        for status in (404, 405):
            handlers = Handlers()
            handlers.handler("logs")(lambda ctx: ctx.logger.info("a line"))
            with self.assertLogs("tasker", logging.INFO) as shown, Running(handlers) as daemon:
                daemon.answers["/logs"] = lambda query, body: (status, {"detail": "no such page"})
                for _ in range(3):
                    daemon.report(daemon.step("logs"))
            self.assertEqual(daemon.asked("POST /logs"), 1)
            self.assertEqual({r.getMessage()[:9] for r in shown.records}, {"connected", "a line"})

    def test_a_lost_session_keeps_its_lines(self) -> None:
        handlers, opened = Handlers(), []
        handlers.handler("logs")(lambda ctx: ctx.logger.info("a line"))
        with Running(handlers) as daemon:

            def answer(_: Mapping[str, str], body: JSON) -> JSON:
                opened.append(body)
                return (404, {"detail": "the session does not exist or is lost"}) if len(opened) == 1 else {}

            daemon.answers["/logs"] = answer
            daemon.step("logs")
            daemon.wait(lambda: daemon.asked("POST /logs") == 2)
        self.assertEqual(opened[0], opened[1])

    def test_the_middle_is_dropped_and_counted(self) -> None:
        session, one, two = Refusing(), Held("1.1"), Held("2.1")
        lines = Lines(session, 50_000)
        lines.write(one, "info", "of the request that does not end")
        self.assertTrue(session.asked.acquire(timeout=PATIENCE))
        for n in range(2000):
            lines.write(one, "info", f"one {n}")
        for n in range(2000):
            lines.write(two, "info", f"two {n}")
            self.assertLessEqual(lines._size, 50_000)
        parts = [w.size for w in lines._waiting.values()]
        self.assertTrue(all(20_000 < size <= 25_000 for size in parts), parts)
        session.let.set()
        lines.settle(PATIENCE)
        lines.close()
        for fence, name in (("1.1", "one"), ("2.1", "two")):
            got = [line for line in session.sent if line["fence"] == fence][1 if name == "one" else 0 :]
            texts = [line["text"] for line in got]
            gap = next(n for n, line in enumerate(got) if line["level"] == "warn")
            self.assertEqual(texts[:gap], [f"{name} {n}" for n in range(gap)])
            self.assertEqual(texts[gap], f"{2000 - len(got) + 1} lines were dropped")
            self.assertEqual(texts[gap + 1 :], [f"{name} {n}" for n in range(2000 - len(got) + 1 + gap, 2000)])

    def test_one_line_and_one_request_are_bounded(self) -> None:
        session, held = Refusing(), Held("1.1")
        session.let.set()
        lines = Lines(session)
        lines.write(held, "info", "é" * 20_000)
        for _ in range(2500):
            lines.write(held, "info", "x")
        lines.settle(PATIENCE)
        lines.close()
        self.assertEqual(len(session.sent), 2501)
        self.assertEqual(session.sent[0]["text"], "é" * ((16 * 1024 - 3) // 2) + "…")
        asked = 0
        while session.asked.acquire(blocking=False):
            asked += 1
        self.assertEqual(asked, 3)

        def logs(ctx: StepContext) -> None:
            ctx.logger.info("long", extra={"a": "x" * 20_000})
            ctx.logger.info("%s of %d", "wrong")
            try:
                raise ValueError("x" * 20_000)
            except ValueError as e:
                ctx.logger.error("failed", exc_info=e, extra={"a": "x" * 20_000})

        with redirect_stderr(io.StringIO()):
            end = run_step(logs)
        self.assertEqual(end.logs[0]["fields"], {"fields_left_out_bytes": 20_008})
        self.assertIn("wrong", end.logs[1]["text"])
        self.assertGreater(end.logs[2]["fields"]["fields_left_out_bytes"], 20_000)
        self.assertLess(len(end.logs[2]["fields"]["traceback"]), 9000)

    def test_what_handlers_print_is_captured(self) -> None:
        handlers, out, errors = Handlers(), io.StringIO(), io.StringIO()

        @handlers.handler("prints")
        async def prints(ctx: StepContext) -> object:
            print("one\ntwo", end="")
            print(" and more")
            print("wrong", file=sys.stderr)
            ctx.logger.error("logged once")
            sys.stdout.writelines(["the end"])
            return None

        with redirect_stdout(out), redirect_stderr(errors):
            before = sys.stdout, sys.stderr
            running = Running(handlers, capture_output=True)
            with running as daemon:
                requests = sent(daemon)
                daemon.wait(lambda: daemon.asked("GET /stream") > 0)
                print("not of a handler")
                daemon.report(daemon.step("prints"))
                daemon.wait(lambda: count(requests) == 5)
            self.assertEqual((sys.stdout, sys.stderr), before, "restored")
            run_step(handlers.find("prints"))
        lines = [(line["level"], line["text"]) for r in requests for line in r]
        self.assertEqual(
            lines,
            [
                ("info", "one"),
                ("info", "two and more"),
                ("warn", "wrong"),
                ("error", "logged once"),
                ("info", "the end"),
            ],
        )
        self.assertEqual(out.getvalue(), "not of a handler\n" + 2 * "one\ntwo and more\nthe end")
        self.assertEqual(errors.getvalue().count("wrong\n"), 2)

    def test_the_logger_shows_what_it_did(self) -> None:
        shown = io.StringIO()
        handler = logging.StreamHandler(shown)
        handler.setFormatter(logging.Formatter("%(funcName)s %(message)s %(step_name)s %(cents)s"))
        logger = logging.getLogger("tasker.step")
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)

        def charge(ctx: StepContext) -> None:
            ctx.logger.info("not shown", extra={"cents": 1})
            ctx.logger.warning("shown", extra={"cents": 5})

        end = run_step(charge, step_name="pay")
        self.assertEqual(shown.getvalue(), "charge shown pay 5\n")
        self.assertEqual([line["text"] for line in end.logs], ["not shown", "shown"])


if __name__ == "__main__":
    unittest.main()
