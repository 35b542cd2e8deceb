"""Traces of a warehouse in an object store: kept there in pieces, while the run goes on and after it was killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from headgate.core import Update
from headgate.core.trace import Trace, TraceError, TraceHeader
from headgate.monitor.recorded import RecordedRun
from headgate.monitor.shown import RecordedRuns
from headgate.monitor.what_if import Question, WhatIf
from headgate.places.object_path import ObjectPath
from headgate.warehouse.run import trace_copy
from headgate.warehouse.run.trace import MOST_READ, TraceWriter, newest_trace, read_trace, runs_folder, traces_in
from headgate.warehouse.run.trace_copy import TraceCopy
from tests.cli.test_replay import Headgate, headgate  # noqa: F401
from tests.services.object_store import ObjectStoreServer
from tests.services.rough_proxy import RoughProxy
from tests.sim.recording import BUSY, recorded

pytestmark = [pytest.mark.services, pytest.mark.slow]

START = 1_794_736_800.25
PATIENCE = 300.0


def header(number: int = 0) -> TraceHeader:
    return TraceHeader("city", START + number, 1, "fifo", "anywhere", "none", None, ())


def update(second: float) -> Update:
    return Update("s", "live", 0, START, START + second, 0.5, 10.0, 7, 1, None, (START, START + 1, 3), 0.1)


@pytest.fixture(autouse=True)
def slow_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of a busy machine may take its time."""
    monkeypatch.setattr(trace_copy, "PATIENCE", PATIENCE)


@pytest.fixture
def runs(object_store: ObjectStoreServer) -> ObjectPath:
    return runs_folder(object_store.bucket() / "city")


def kept(writer: TraceWriter, runs: ObjectPath, every: float = PATIENCE, piece_bytes: int = 400) -> TraceCopy:
    return TraceCopy(writer.path, runs / writer.path.name, every=every, piece_bytes=piece_bytes)


def read_when(trace: ObjectPath, updates: int) -> Trace:
    """The trace as soon as the store has so many updates of it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            found = read_trace(trace)
        except TraceError:
            continue  # its first piece is not there yet
        if len(found.updates) >= updates:
            return found
    raise AssertionError(f"{trace} does not grow")


def test_pieces_read_one_after_the_other_are_the_trace_while_it_grows_and_at_its_end(
    runs: ObjectPath, tmp_path: Path
) -> None:
    writer = TraceWriter(tmp_path, header())
    copy = kept(writer, runs, every=0.01)
    there = runs / writer.path.name
    for second in range(20):
        writer.note(update(second))
        if second in (0, 1, 12):
            assert read_when(there, second + 1) == read_trace(writer.path)
    writer.close(START + 30)
    copy.close()
    pieces = sorted(there.iterdir())
    assert [piece.name for piece in pieces] == [f"{number:06}" for number in range(len(pieces))] and len(pieces) > 5
    assert {piece.stat().st_size for piece in pieces[:-1]} == {400}
    assert b"".join(piece.read_bytes() for piece in pieces) == writer.path.read_bytes()
    assert read_trace(there) == read_trace(writer.path)
    assert newest_trace(there.parent.parent) == there


#: records a run until it is killed; says how many updates there are
RECORDER = """
import json, sys
from pathlib import Path
from headgate.core import Update
from headgate.core.trace import TraceHeader
from headgate.places.place import path_from
from headgate.warehouse.run.trace import TraceWriter
from headgate.warehouse.run.trace_copy import TraceCopy

given = json.loads(sys.stdin.readline())
writer = TraceWriter(Path(given["folder"]), TraceHeader("city", 1e9, 1, "fifo", "anywhere", "none", None, ()))
TraceCopy(writer.path, path_from(given["runs"], given["storage"]) / writer.path.name, every=0.02, piece_bytes=1000)
for number in range(1_000_000):
    writer.note(Update("s", "live", 0, 1e9, 1e9 + number, 0.5, 10.0, 7, 1, None, (1e9, 1e9 + 1, 3), 0.1))
    print(writer.path.name, number + 1, flush=True)
"""


def test_a_run_that_is_killed_leaves_a_trace_up_to_its_last_piece(runs: ObjectPath, tmp_path: Path) -> None:
    given = {"folder": str(tmp_path), "runs": str(runs), "storage": dict(runs.bucket.options)}
    with subprocess.Popen(
        [sys.executable, "-c", RECORDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(given) + "\n")
        process.stdin.flush()
        name = process.stdout.readline().split()[0]
        before = read_when(runs / name, 1)
        heard = 0
        while heard < len(before.updates) + 50:
            heard = int(process.stdout.readline().split()[1])
        read_when(runs / name, len(before.updates) + 1)
        process.send_signal(signal.SIGKILL)
        written = heard + len(process.stdout.readlines())
    # as HDFS has it while a piece is written, or where a process was killed then
    (runs / name / ".000000.5f1e.part").write_bytes((runs / name / "000000").read_bytes())
    found = read_trace(runs / name)
    assert len(before.updates) < len(found.updates) <= written + 1
    assert [each.began for each in found.updates] == [1e9 + number for number in range(len(found.updates))]
    assert found.end is None


def test_a_store_that_is_away_stops_nothing_and_the_trace_stays_here(
    object_store: ObjectStoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_copy, "PATIENCE", 0.5)
    writer, told = TraceWriter(tmp_path, header()), list[str]()
    with RoughProxy(object_store.port, refuses=1) as proxy:
        runs = runs_folder(object_store.bucket(proxy.port) / "city")
        copy = TraceCopy(writer.path, runs / writer.path.name, told.append)
        writer.note(update(1))
        writer.close(START + 2)
        copy.close()
        with pytest.raises(TraceError, match=f"cannot look for traces in {runs}"):
            traces_in(runs.with_patience(0.5))
    assert len(told) == 1 and str(writer.path) in told[0] and str(runs) in told[0]
    assert len(read_trace(writer.path).updates) == 1


def test_a_store_that_was_away_gets_all_of_it_later(object_store: ObjectStoreServer, tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, header())
    with RoughProxy(object_store.port, refuses=3, loses_answers=5) as proxy:
        runs = runs_folder(object_store.bucket(proxy.port) / "city")
        copy = kept(writer, runs, every=0.01)
        for second in range(30):
            writer.note(update(second))
        writer.close(START + 40)
        copy.close()
        assert read_trace(runs / writer.path.name) == read_trace(writer.path)


def test_the_newest_traces_are_kept_and_other_objects_left_alone(runs: ObjectPath, tmp_path: Path) -> None:
    (runs / "notes.txt").write_text("mine")
    for number in range(5):
        writer = TraceWriter(tmp_path, header(number))
        writer.close(START + number + 1)
        TraceCopy(writer.path, runs / writer.path.name, piece_bytes=50, kept=3).close()
    assert [read_trace(path).header.started for path in traces_in(runs)] == [START + number for number in (4, 3, 2)]
    assert (runs / "notes.txt").read_text() == "mine"


def test_a_trace_that_somebody_copied_as_one_object_is_read_and_one_that_is_too_large_is_not(
    runs: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TraceWriter(tmp_path, header())
    writer.close(START + 1)
    (runs / "mine.jsonl").write_bytes(writer.path.read_bytes())
    assert read_trace(runs / "mine.jsonl") == read_trace(writer.path)
    monkeypatch.setattr("headgate.warehouse.run.trace.MOST_READ", 100)
    assert MOST_READ > 100
    with pytest.raises(TraceError, match="larger than a trace can be"):
        read_trace(runs / "mine.jsonl")
    with pytest.raises(TraceError, match="there is no such object"):
        read_trace(runs / "nowhere.jsonl")


@pytest.fixture
def city(object_store: ObjectStoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectPath:
    """A warehouse in an object store with the trace of a run; who asks for it has the keys in the environment."""
    _, made = recorded(BUSY, "fifo")
    writer = TraceWriter(tmp_path, made.header)
    for each in made.updates:
        writer.note(each)
    writer.close(made.finish)
    place = object_store.bucket() / "city"
    TraceCopy(writer.path, runs_folder(place) / writer.path.name).close()
    for name, value in object_store.options().items():
        monkeypatch.setenv(name, value)
    return place


@pytest.mark.parametrize("named", ["warehouse", "trace"])
def test_replays_and_bounds_take_the_url_of_a_warehouse_or_of_a_trace(
    headgate: Headgate,  # noqa: F811
    city: ObjectPath,
    named: str,
) -> None:
    what = str(city if named == "warehouse" else newest_trace(city))
    for command in ("simulate", "bound"):
        code, out, err = headgate(command, what, "--policy", "fifo", "--json")
        assert (code, err) == (0, "")
        assert "fifo" in {row["policy"] for row in json.loads(out)["results"]}


def test_a_warehouse_without_traces_is_named(headgate: Headgate, city: ObjectPath) -> None:  # noqa: F811
    elsewhere = str(city.parent / "elsewhere")
    for command in ("simulate", "bound", "ui"):
        code, _, err = headgate(command, elsewhere)
        assert code == 2 and elsewhere in err


def test_recorded_runs_are_shown_and_replayed_from_the_store(city: ObjectPath) -> None:
    trace = newest_trace(city)
    assert trace is not None
    shown = RecordedRuns(runs_folder(city))
    assert [each["name"] for each in shown.listed()] == [trace.name]
    assert shown.of(trace.name).overview()["tables"] == RecordedRun(trace).overview()["tables"]
    assert WhatIf().ask(trace, Question(tracks=3))["tables"]
    assert shown.of(trace.name).contents("air", previews=True)["exists"] is False


def test_the_page_of_recorded_runs_is_served_by_url(city: ObjectPath) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "headgate", "ui", str(city)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            with urlopen(f"{address.rstrip('/')}/api/runs") as answer:
                names = [each["name"] for each in json.load(answer)["runs"]]
        finally:
            process.terminate()
    assert names == [path.name for path in traces_in(runs_folder(city))]
