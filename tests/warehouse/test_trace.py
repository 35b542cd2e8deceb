"""Recording a run: every line is out at once, files stay few and small, and trouble with them stops nobody."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.core import MOST_PRIORITY, MOST_SECONDS
from headgate.core.trace import Change, NotLoaded, Trace, TraceError, TraceHeader, TraceTable
from headgate.core.update import Update
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.run.trace import (
    TraceWriter,
    newest_trace,
    read_trace,
    runs_folder,
    traced_tables,
)

START = 1_794_736_800.25
HEADER = TraceHeader("city", START, 2, "max-benefit", "proportional", "max", 3.0, (TraceTable("s", kind="stream"),))
SOURCE: Any = object()


def header(started: float) -> TraceHeader:
    return TraceHeader("city", started, 1, "fifo", "anywhere", "none", None, ())


def update(began: float, error: str | None = None) -> Update:
    fresh, came = round((START + began) * 1e6), (START, START + 1, 3)
    return Update("s", "live", 0, START, START + began, 0.5, 10.0, 7, 1, fresh, came, 0.1, error)


NewWriter = Callable[..., TraceWriter]


@pytest.fixture
def new_writer(tmp_path: Path) -> Iterator[NewWriter]:
    """Makes writers in the test's folder, which are closed at its end."""
    made: list[TraceWriter] = []

    def make(header: TraceHeader = HEADER, folder: str = "", **limits: int) -> TraceWriter:
        made.append(TraceWriter(tmp_path / folder, header, **limits))
        return made[-1]

    yield make
    for writer in made:
        writer.close(START + 1_000)


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """As if the disk were full: no file of this process can become larger."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_is_noted_is_read_back(new_writer: NewWriter) -> None:
    writer = new_writer(folder="runs")
    writer.note(update(1.0))
    writer.change(START + 2, {"priority": ["s", 3.0]})
    writer.note(update(3.0, "it is »broken«\nin two lines"))
    writer.close(START + 4)
    writer.close(START + 5)
    changes = (Change(START + 2, {"priority": ["s", 3.0]}),)
    assert read_trace(writer.path) == Trace(
        HEADER, (update(1.0), update(3.0, "it is »broken«\nin two lines")), changes, START + 4
    )
    assert writer.trouble is None


def test_what_waited_last_is_read_back_and_ends_the_trace_of_a_killed_run(new_writer: NewWriter) -> None:
    writer = new_writer()
    first, last = (NotLoaded(START + at, {"s": (START, START + at, 2)}, ("t",)) for at in (60.0, 120.0))
    writer.not_loaded(first)
    writer.not_loaded(last)
    trace = read_trace(writer.path)
    assert (trace.not_loaded, trace.finish) == (last, START + 120)


def test_a_trace_is_called_by_the_start_of_its_run_in_utc(new_writer: NewWriter) -> None:
    assert new_writer().path.name == "20261115T100000.250000Z.jsonl"


def test_a_run_that_is_killed_leaves_all_that_it_had_noted(new_writer: NewWriter) -> None:
    writer = new_writer()
    writer.note(update(1.0))
    assert read_trace(writer.path) == Trace(HEADER, (update(1.0),), (), None)


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param(b'{"update": "s", "la', id="in the middle of a line"),
        pytest.param('{"update": "Größe'.encode()[:-3], id="in the middle of a letter"),
        pytest.param(b"\0\0\0\0", id="into blocks never written"),
    ],
)
def test_a_trace_that_was_cut_off_is_read_up_to_there(new_writer: NewWriter, tail: bytes) -> None:
    writer = new_writer()
    writer.note(update(1.0))
    with writer.path.open("ab") as file:
        file.write(tail)
    assert read_trace(writer.path) == Trace(HEADER, (update(1.0),), (), None)


def test_a_trace_that_becomes_too_large_says_so_and_records_no_more(new_writer: NewWriter) -> None:
    writer = new_writer(most_bytes=2_000)
    for second in range(100):
        writer.note(update(float(second)))
    writer.close(START + 101)
    trace = read_trace(writer.path)
    last = json.loads(writer.path.read_text().splitlines()[-1])
    assert 3 <= len(trace.updates) < 10
    assert (trace.end, trace.full) == (None, START + len(trace.updates) + 0.5)
    assert last == {"full": trace.full, "most_bytes": 2_000}
    assert writer.path.stat().st_size < 2_100
    assert writer.trouble is not None and "too large" in writer.trouble


def test_the_newest_traces_are_kept_and_other_files_left_alone(new_writer: NewWriter, tmp_path: Path) -> None:
    other = tmp_path / "notes.jsonl"
    other.write_text("mine")
    paths = [new_writer(header(START + day * 86_400), kept=3).path for day in range(6)]
    assert sorted(tmp_path.iterdir()) == [*paths[-3:], other]


def test_two_runs_of_the_same_moment_have_a_trace_each(new_writer: NewWriter) -> None:
    first, second = new_writer(), new_writer()
    assert first.path < second.path
    first.note(update(1.0))
    assert [len(read_trace(path).updates) for path in (first.path, second.path)] == [1, 0]


def test_the_newest_trace_of_a_warehouse_is_found(new_writer: NewWriter, tmp_path: Path) -> None:
    assert newest_trace(tmp_path) is None
    paths = [new_writer(header(START + n), folder=runs_folder(tmp_path).name).path for n in (5, 9, 7)]
    assert newest_trace(tmp_path) == paths[1]


def test_a_run_goes_on_if_it_cannot_be_recorded(new_writer: NewWriter, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    writer = new_writer(folder="runs")
    writer.note(update(1.0))
    assert writer.trouble is not None and str(tmp_path / "runs") in writer.trouble


@pytest.mark.parametrize("room", [pytest.param(0, id="none"), pytest.param(20, id="for a part of a line")])
def test_a_run_goes_on_if_there_is_no_more_room_to_record_it(new_writer: NewWriter, room: int) -> None:
    writer = new_writer()
    writer.note(update(1.0))
    with files_limited_to(writer.path.stat().st_size + room):
        writer.note(update(2.0))
    writer.note(update(3.0))
    assert read_trace(writer.path) == Trace(HEADER, (update(1.0),), (), None)
    assert writer.trouble is not None and "no longer recorded" in writer.trouble


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"nowhere\.jsonl"):
        read_trace(tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("target_lag", MOST_SECONDS),
        ("target_lag", 5e-324),
        ("patience", MOST_SECONDS),
        ("period", MOST_SECONDS),
        ("priority", MOST_PRIORITY),
        ("priority", 5e-324),
        ("importance_class", 2**53),
        ("importance_class", -(2**53)),
    ],
)
def test_whatever_may_be_declared_can_be_read_again(new_writer: NewWriter, option: str, value: float) -> None:
    warehouse = Warehouse("city")
    options: dict[str, Any] = {option: value}
    warehouse.stream("readings", SOURCE, time="ts", **options)
    tables = traced_tables(warehouse.spec(), {})
    writer = new_writer(replace(HEADER, tables=tables))
    assert read_trace(writer.path).header.tables == tables


def test_the_tables_of_a_warehouse_are_recorded_as_declared() -> None:
    warehouse = Warehouse("city")
    warehouse.stream("readings", SOURCE, time="ts", period="10 s", patience="1 min")
    warehouse.dimension("zones", SOURCE, priority=0.5)
    options: dict[str, Any] = {"target_lag": "5 s", "importance_class": 2, "catch_up": "newest"}
    warehouse.sql("hot", "select * from readings join zones", time="ts", priority=9, **options)
    assert traced_tables(warehouse.spec(), {"hot": 7}) == (
        TraceTable("readings", period=10.0, patience=60.0, kind="stream"),
        TraceTable("zones", priority=0.5, kind="dimension"),
        TraceTable(
            "hot",
            ("readings", "zones"),
            priority=9,
            importance_class=2,
            target_lag=5.0,
            freshness=7,
            catch_up="newest",
        ),
    )
