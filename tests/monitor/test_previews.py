"""Without previews, the API gives out no row of a table: whatever is asked, no cell is in any answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headgate.core import HeadgateError, Update
from headgate.core.trace import RunNotice
from headgate.monitor.server import MonitorServer, application
from headgate.monitor.watch import RunWatch
from headgate.monitor.withheld import WITHHELD
from headgate.warehouse.run.opened_table import OpenedTable
from headgate.warehouse.run.scheduler_thread import RunFailedError
from tests.monitor.pretended import PretendedRun

SECRET = "CAST_INVALID_INPUT: the value '4711-47' of the type STRING"


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[RunWatch]:
    watch = RunWatch(every=None)
    run = PretendedRun(watch, tables=6, directory=tmp_path)
    run.step(20)
    name = run.header.tables[-1].name
    run.held[name] = SECRET
    run.file_problem = SECRET
    failed = Update(name, track=0, released=1.0, began=1.0)
    failed.fails(ValueError(SECRET), 1.0)
    watch.updated(failed)
    watch.noticed(RunNotice(1.0, name, SECRET))
    watch.noticed(RunNotice(2.0, None, f"the tables cannot be opened again: {SECRET}"))
    watch.look()
    yield watch
    watch.stop()


def answers(watch: RunWatch, previews: bool) -> dict[str, str]:
    """The answers to all questions, about every table."""

    async def ask() -> dict[str, str]:
        transport = httpx.ASGITransport(app=application(watch, "127.0.0.1", previews=previews))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:4300") as client:
            described = (await client.get("/api/openapi.json")).json()["paths"]
            paths = [path for path, methods in described.items() if "get" in methods and path != "/api/events"]
            names = list((await client.get("/api/overview")).json()["tables"])
            asked = {path.replace("{name}", name) for path in paths for name in names}
            return {path: (await client.get(path)).text for path in sorted(asked)}

    return asyncio.run(ask())


@pytest.mark.slow
def test_without_previews_no_cell_is_in_any_answer(watch: RunWatch) -> None:
    shown = answers(watch, previews=True)
    found = "".join(shown.values())
    assert '"s0"' in found and '"s6"' in found and "4711-47" in found, "with previews they are there"
    hidden = answers(watch, previews=False)
    assert hidden.keys() == shown.keys()
    for path, text in hidden.items():
        for cell in ('"s0"', '"s6"', "no event time", "4711-47"):
            assert cell not in text, path
    contents = [text for path, text in hidden.items() if path.endswith("/contents")]
    assert contents and all('"preview"' not in text and '"rejected"' not in text for text in contents)


class RefusingRun(PretendedRun):
    """Refuses all that is asked of it, each command in another way, and quotes a value."""

    def pause(self, name: str) -> None:
        raise RuntimeError(SECRET)

    def resume(self, name: str) -> None:
        raise HeadgateError(SECRET)

    def refresh(self, name: str) -> None:
        raise RunFailedError(SECRET)

    def opened(self, name: str) -> OpenedTable:
        raise HeadgateError(SECRET)


@pytest.mark.parametrize("previews", [True, False])
def test_without_previews_no_refusal_quotes_a_value(previews: bool) -> None:
    watch = RunWatch(every=None)
    name = RefusingRun(watch, tables=6).header.tables[-1].name

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=application(watch, "127.0.0.1", previews=previews))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:4300") as client:
            how = {"headers": {"x-headgate": "1"}, "json": {"name": name}}
            told = [
                await client.post(f"/api/commands/{each}", **how)  # type: ignore[arg-type]
                for each in ("pause", "resume", "refresh")
            ]
            return [*told, await client.get(f"/api/tables/{name}/contents")]

    try:
        refused = asyncio.run(ask())
    finally:
        watch.stop()
    assert [each.status_code for each in refused] == [409] * 4
    for each in refused:
        assert ("4711-47" in each.text) == previews
        assert previews or ("Traceback" not in each.text and WITHHELD in each.json()["error"])


def test_without_previews_what_was_asked_wrongly_is_still_said() -> None:
    watch = RunWatch(every=None)
    PretendedRun(watch, tables=6)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=application(watch, "127.0.0.1", previews=False))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:4300") as client:
            return await client.post("/api/commands/pause", headers={"x-headgate": "1"}, json={"name": "none"})

    try:
        assert "none" in asyncio.run(ask()).json()["error"]
    finally:
        watch.stop()


@pytest.mark.parametrize("previews", [True, False])
def test_without_previews_no_event_quotes_a_value(previews: bool) -> None:
    watch = RunWatch(every=None)
    run = PretendedRun(watch, tables=6)
    name = run.header.tables[-1].name
    with (
        MonitorServer(watch, port=0, previews=previews) as server,
        httpx.stream("GET", f"{server.address}api/events", timeout=300, trust_env=False) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines).startswith("retry"), "from now on it is told what happens"
        failed = Update(name, track=0, released=1.0, began=1.0)
        failed.fails(ValueError(SECRET), 1.0)
        watch.updated(failed)
        watch.noticed(RunNotice(1.0, name, SECRET))
        watch.noticed(RunNotice(2.0, None, f"the changed declarations cannot be used: {SECRET}"))
        run.held[name], run.file_problem = SECRET, SECRET
        watch.look()
        watch.feed.close()
        told = [line for line in lines if line.startswith("data: ")]
        watch.stop()
    assert len(told) >= 4
    assert [line for line in told if "4711-47" in line] == (told[:4] if previews else [])
    assert previews or all(WITHHELD in line for line in told[:4])
