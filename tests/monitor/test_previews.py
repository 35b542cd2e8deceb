"""Without previews, the API gives out no row of a table: whatever is asked, no cell is in any answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headgate.core import Update
from headgate.core.trace import RunNotice
from headgate.monitor.server import application
from headgate.monitor.watch import RunWatch
from tests.monitor.pretended import PretendedRun

SECRET = "CAST_INVALID_INPUT: the value '4711' of the type STRING"


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
    assert '"s0"' in found and '"s6"' in found and "4711" in found, "with previews they are there"
    hidden = answers(watch, previews=False)
    assert hidden.keys() == shown.keys()
    for path, text in hidden.items():
        for cell in ('"s0"', '"s6"', "no event time", "4711"):
            assert cell not in text, path
    contents = [text for path, text in hidden.items() if path.endswith("/contents")]
    assert contents and all('"preview"' not in text and '"rejected"' not in text for text in contents)
