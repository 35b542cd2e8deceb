"""The API is as its OpenAPI description says: every request that the description allows, and many that it does not.

schemathesis makes the requests: the same ones in every run. It checks the status, the type and the schema of every
answer, that wrong requests are refused, and that nothing is an error of the server.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.openapi import from_asgi
from schemathesis.specs.openapi.schemas import OpenApiSchema

from headgate.core import Update
from headgate.core.trace import RunNotice
from headgate.monitor.api import CHANGES
from headgate.monitor.recorded import RecordedRun
from headgate.monitor.server import application
from headgate.monitor.shown import ShownRun
from headgate.monitor.watch import RunWatch
from tests.monitor.pretended import NASTY, PretendedRun
from tests.monitor.test_recorded import BUSY, written
from tests.sim.recording import recorded

#: names and errors that are hard to carry: markup, new lines, orders for terminals, halves of characters, much text
STRANGE = (
    NASTY,
    "</script><script>alert(1)</script>",
    "a\nb\r\n\r\n",
    "\ud800 \udfff",
    "x" * 100_000,
    "\x00\x85\u2028",
)

#: it goes on for as long as somebody reads, so it has its own tests
ENDLESS = "/api/events"

#: tests are made from descriptions, one for every request, so what is described is needed before the first of them
FOLDER = TemporaryDirectory()

EXAMPLES = settings(
    max_examples=15,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def described(run: ShownRun) -> OpenApiSchema:
    return from_asgi("/api/openapi.json", application(run, "127.0.0.1", ("testserver",)))


def running() -> RunWatch:
    """A run in which everything that is text is strange."""
    watch = RunWatch(every=None, clock=lambda: 0.0)
    run = PretendedRun(watch, tables=6, directory=Path(FOLDER.name) / "tables")
    run.step(20)
    for number, text in enumerate(STRANGE):
        run.held[f"table{number % 5 + 1:03}"] = text
        failed = Update("table003", began=1.0)
        failed.fails(ValueError("no"), 1.0)
        failed.error = text
        watch.updated(failed)
        watch.noticed(RunNotice(1.0, "table003", text))
        watch.changed(1.0, {"policy": text})
    watch.look()
    return watch


LIVE = described(running())
RECORDED = described(RecordedRun(written(Path(FOLDER.name), recorded(BUSY, "fifo")[1])))


@pytest.mark.slow
@LIVE.exclude(path=ENDLESS).parametrize()
@EXAMPLES
def test_a_running_warehouse_answers_as_described(case: Case) -> None:
    case.call_and_validate()


@pytest.mark.slow
@RECORDED.exclude(path=[ENDLESS, "/api/what-if"]).parametrize()
@EXAMPLES
def test_a_recorded_run_answers_as_described(case: Case) -> None:
    # A run that is over is not healthy, which is not an error.
    case.call_and_validate(excluded_checks=[not_a_server_error] if case.path == "/healthz" else [])


@pytest.mark.long
@pytest.mark.slow
@RECORDED.include(path="/api/what-if").parametrize()
@settings(EXAMPLES, max_examples=2)  # each is a process of its own
def test_a_question_what_if_is_answered_as_described(case: Case) -> None:
    case.call_and_validate()


def test_every_command_and_path_is_described() -> None:
    paths = set(LIVE.raw_schema["paths"])
    assert {f"/api/commands/{name}" for name in CHANGES} <= paths
    assert {"/api/overview", "/api/tables/{name}", "/api/what-if", ENDLESS, "/metrics", "/healthz"} <= paths
