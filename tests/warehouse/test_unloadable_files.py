"""Files that cannot be loaded, files that come and go, and commits that fail: one file never holds its stream.

Rows are read with Arrow in place of Spark, so that many histories can be tried; the tables are real.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from headgate.core import DeclarationError, Update
from headgate.warehouse import Warehouse
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.schedule.scheduler import Scheduler
from headgate.warehouse.sources import Files, Limit, Range, SourceBroken, SourceChanged
from headgate.warehouse.sources.files import limits
from headgate.warehouse.sources.files.limits import FileLimits
from headgate.warehouse.sources.files.listing import LONGEST_TO_SETTLE
from headgate.warehouse.sources.files.source import REPLACED_WITHIN, FileRange
from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.bad_chunks import MOST_PER_LOAD, TRIES
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.load import DimensionNode, LoadedNode, StreamNode
from headgate.warehouse.updates.open_warehouse import OpenWarehouse

TIMES = pa.timestamp("us", tz="UTC")
POISON = "poison"


class NoSpark:
    """Takes every call that a session of Spark does; nothing is computed."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self


NO_SPARK: Any = NoSpark()


@dataclass(frozen=True)
class Rows:
    """A frame of the rows of files, computed when they are needed; a file with ``POISON`` in it cannot be computed."""

    paths: Mapping[str, str]

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        columns: dict[str, list[Any]] = {name: [] for name in ("ts", "n", FILE_COLUMN, RAW_COLUMN, ERROR_COLUMN)}
        for name, path in self.paths.items():
            for line in Path(path).read_text().splitlines():
                if line == POISON:
                    raise RuntimeError(f"Job aborted.\nCaused by: java.io.IOException: poison in {name}")
                n = int(line) if line.isdigit() else None
                bad = None if n is not None else "not a number"
                for column, value in zip(columns.values(), (n, n, name, line, bad), strict=True):
                    column.append(value)
        types = (TIMES, pa.int64(), pa.string(), pa.string(), pa.string())
        return pa.table(
            {name: pa.array(values, type_) for (name, values), type_ in zip(columns.items(), types, strict=True)}
        )

    @property
    def write(self) -> Any:
        return SimpleNamespace(format=lambda _: SimpleNamespace(mode=lambda _: SimpleNamespace(save=self.toArrow)))


class Numbers(Files):
    """Files with a number on each line."""

    def read(self, spark: Any, wanted: Range) -> Any:
        Files.read(self, NO_SPARK, wanted)  # its checks
        assert isinstance(wanted, FileRange)
        return Rows({name: self._batch.path(name) for name in wanted.files})


class Clock:
    """The system's clock as it was when the test began, moved by hand."""

    def __init__(self) -> None:
        self._began = time.time()
        self.ahead = 0.0

    def __call__(self) -> float:
        return self._began + self.ahead


class Loading:
    """A stream or a dimension of numbers in a directory, opened again for every ``node``."""

    def __init__(self, folder: Path, dimension: bool = False, **options: Any) -> None:
        self.landing = folder / "landing"
        self.landing.mkdir(exist_ok=True)
        self.clock = Clock()
        self.options = options
        self.folder = folder
        self.dimension = dimension
        self.node = self.opened()

    def opened(self) -> LoadedNode:
        options = {
            "schema": "ts timestamp, n bigint",
            "settle": 0,
            "clock": self.clock,
            "steady": self.clock,
        } | self.options
        wh = Warehouse("w", self.folder / "w")
        source = Numbers(self.landing, **options)
        table, rejected = TableStore(self.folder / "t", None if self.dimension else "ts"), TableStore(self.folder / "r")
        if self.dimension:
            wh.dimension("t", source)
            return DimensionNode(wh.spec().dimensions[0], table, rejected)
        wh.stream("t", source, time="ts", max_future=None)
        return StreamNode(wh.spec().streams[0], table, rejected)

    def restart(self) -> None:
        self.node = self.opened()

    def write(self, **files: str | bytes) -> None:
        for name, text in files.items():
            path = self.landing / f"{name}.tmp"
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            path.rename(self.landing / name)

    def update(self) -> Update | None:
        return self.node.update(NO_SPARK)

    def finish(self) -> int:
        """Update until there is nothing to do, as often as it takes; how often it failed."""
        failures = 0
        for _ in range(100):
            try:
                if self.update() is None:
                    return failures
            except RuntimeError:
                failures += 1
        raise AssertionError("there is always something to do")

    @property
    def rows(self) -> list[int]:
        return sorted(self.node.store.arrow().column("n").to_pylist()) if self.node.store.exists else []

    @property
    def rejected(self) -> list[str]:
        store = TableStore(self.folder / "r")
        return sorted(store.arrow().column("raw").to_pylist()) if store.exists else []

    @property
    def note(self) -> str:
        self.node.plan()
        return self.node.last_poll.note


@pytest.fixture
def stream(tmp_path: Path) -> Loading:
    return Loading(tmp_path)


# --- one bad file ---------------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_read_is_left_out_at_once_and_set_aside_after_some_tries(stream: Loading) -> None:
    stream.write(a="1\n", bad=f"2\n{POISON}\n", c="3\n")
    stream.update()
    assert stream.rows == [1, 3], "the others do not wait for it"
    assert stream.finish() == TRIES - 2, "it is tried alone, and then set aside by a commit"
    assert "bad is set aside until it changes: IOException: poison in bad" in stream.note
    stream.write(d="4\n")
    assert stream.finish() == 0
    assert stream.rows == [1, 3, 4]


def test_what_is_set_aside_is_told_once_and_kept_over_restarts(stream: Loading) -> None:
    stream.write(bad=POISON)
    stream.finish()
    stream.restart()
    assert stream.node.plan() is None
    assert [(told.chunk, told.problem) for told in stream.node.last_poll.notices] == [
        ("bad", "is set aside: IOException: poison in bad. It is tried again when it changes")
    ]
    assert stream.node.plan() is None
    assert stream.node.last_poll.notices == ()
    for number in range(60):  # beyond a commit with the whole offset
        stream.write(**{f"good-{number}": f"{number}\n"})
        stream.update()
    stream.restart()
    assert stream.node.plan() is None and "bad is set aside" in stream.note


@pytest.mark.parametrize("mend", ["other content", "other permissions", "other declaration"])
def test_what_is_set_aside_is_tried_again_when_something_has_changed(stream: Loading, mend: str) -> None:
    stream.write(bad=POISON, good="1\n")
    stream.finish()
    if mend == "other content":
        stream.write(bad="2\n")
    elif mend == "other permissions":
        os.chmod(stream.landing / "bad", 0o600)
    else:
        stream.options = {"options": {"dateFormat": "yyyy"}}
        stream.restart()
    assert stream.node.plan() is not None
    stream.write(bad="2\n")
    stream.finish()
    assert (stream.rows, stream.note) == ([1, 2], "")


def test_what_is_set_aside_and_taken_away_is_forgotten(stream: Loading) -> None:
    stream.write(bad=POISON)
    stream.finish()
    (stream.landing / "bad").unlink()
    assert stream.note == ""
    stream.write(good="1\n")
    stream.finish()
    node = stream.node
    assert isinstance(node, StreamNode)
    assert not node.offset.to_json().get("aside")


def test_many_bad_files_among_many_good_ones_are_found_and_the_good_ones_are_loaded(stream: Loading) -> None:
    bad = set(range(0, 200, 8))
    stream.write(**{f"{number:03}": POISON if number in bad else f"{number}\n" for number in range(200)})
    assert len(bad) > 2 * MOST_PER_LOAD
    assert stream.finish() <= TRIES * len(bad) / MOST_PER_LOAD
    assert stream.rows == [number for number in range(200) if number not in bad]
    assert f"000 is set aside until it changes (and {len(bad) - 1} more)" in stream.note


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("Caused by: java.io.IOException: No space left on device"),
        RuntimeError("[SPARK_JOB_CANCELLED] Job 7 cancelled"),
        ConnectionError("Answer from Java side is empty"),
    ],
    ids=str,
)
def test_a_failure_that_is_not_about_a_file_sets_nothing_aside(
    stream: Loading, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(_: Rows) -> pa.Table:
        raise error

    stream.write(a="1\n", b="2\n")
    with monkeypatch.context() as patch:
        patch.setattr(Rows, "toArrow", fail)
        for _ in range(2 * TRIES):
            with pytest.raises(type(error)):
                stream.update()
    assert (stream.finish(), stream.rows, stream.note) == (0, [1, 2], "")


def test_after_a_death_of_spark_files_are_loaded_one_by_one_and_the_one_it_dies_of_again_is_set_aside(
    stream: Loading,
) -> None:
    node = stream.node
    assert isinstance(node, StreamNode)
    stream.write(a="1\n", b="2\n", deadly="3\n", d="4\n")
    deaths, loads = 0, []
    while (update := node.plan()) is not None and node.begin(update):
        loads.append(sorted(update.plan.range.files))
        if "deadly" in update.plan.range.files:
            deaths += 1
            node.note_death(update, "Spark died while it was loaded")
            update.fails(ConnectionError("Answer from Java side is empty"))
        else:
            node.run(update, NO_SPARK)
            update.commits(1.0)
        node.end(update)
    assert (deaths, stream.rows) == (3, [1, 2, 4])
    assert loads == [["a", "b", "d", "deadly"], ["a"], ["b"], ["d"], ["deadly"], ["deadly"], []]
    assert stream.note == "deadly is set aside until it changes: Spark died while it was loaded"
    stream.write(deadly="3\n", e="5\n", f="6\n")
    update = node.plan()
    assert update is not None and node.begin(update)
    assert sorted(update.plan.range.files) == ["deadly", "e", "f"], "it is another file now, and all is as before"


def test_a_file_that_grows_whenever_it_is_loaded_is_waited_for_and_the_others_go_on(
    stream: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Rows.toArrow

    def grow(rows: Rows) -> pa.Table:
        if "log" in rows.paths:
            with open(rows.paths["log"], "a") as file:
                file.write("7\n")
        return read(rows)

    stream.write(log="1\n", a="2\n")
    with monkeypatch.context() as patch:
        patch.setattr(Rows, "toArrow", grow)
        for name in "bcd":
            stream.write(**{name: "3\n"})
            with suppress(SourceChanged):
                stream.update()
        assert stream.finish() == 0
    assert stream.rows == [2, 3, 3, 3]
    assert stream.note == "1 file is not complete yet: log"
    stream.clock.ahead = LONGEST_TO_SETTLE
    assert (stream.finish(), stream.rows) == (0, [1, 2, 3, 3, 3, 7, 7])


class CountedStore(TableStore):
    """A table that counts how often its whole state is copied, which may name a hundred thousand files."""

    copies = 0

    @property
    def state(self) -> dict[str, object]:
        self.copies += 1
        return super().state


@pytest.mark.parametrize("dimension", [False, True], ids=["stream", "dimension"])
def test_polling_does_not_copy_the_state_of_the_table(tmp_path: Path, dimension: bool) -> None:
    loading = Loading(tmp_path, dimension=dimension)
    loading.node.store = store = CountedStore(tmp_path / "t", loading.node.store.time_column)
    loading.write(a="1\n")
    loading.finish()
    copies = store.copies
    for _ in range(5):
        assert (loading.node.plan(), loading.node.repairs) == (None, None)
    assert store.copies == copies


def test_what_is_set_aside_is_in_the_statistics_the_notices_and_the_explanation(stream: Loading) -> None:
    stream.write(a="1\n", bad=POISON)
    stream.finish()
    stream.restart()
    node = stream.node
    assert isinstance(node, StreamNode)
    wh = Warehouse("w", stream.folder / "w")
    wh.stream("t", node.source, time="ts")
    scheduler = Scheduler(OpenWarehouse(wh.spec(), wh.spec().graph(), {"t": node}), RunOptions(), 100.0)
    scheduler.poll(100.0)
    (row,) = scheduler.statistics(100.0)
    said = "bad is set aside until it changes: IOException: poison in bad"
    assert (row.state, row.note) == ("ok", said)
    assert [str(notice) for notice in scheduler.notices] == [
        "t: bad is set aside: IOException: poison in bad. It is tried again when it changes"
    ]
    explanation = str(scheduler.explain("t", 100.0))
    assert f"its source says: {said}" in explanation and "cannot be read" not in explanation


# --- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [bytes, gzip.compress], ids=["plain", "gz"])
@pytest.mark.parametrize(
    ("text", "is_long"),
    [
        (b"1\n" * 500, False),
        (b"1" * 100 + b"\n", False),
        (b"1" * 101 + b"\n", True),
        (b"1" * 101, True),
        (b"1\n" * 90 + b"1" * 101 + b"\n2\n", True),
        (b"1\r\n" * 90 + b"1" * 100 + b"\r\n2", False),
        (b"1\r" * 90 + b"1" * 100 + b"\r2", False),
        (b"1\r" * 90 + b"1" * 101 + b"\r2", True),
        ((b"1" * 100 + b"\n") * 7, False),
        (b"", False),
    ],
    ids=lambda value: str(value)[:12] if isinstance(value, bytes) else str(value),
)
def test_a_file_with_a_line_longer_than_the_limit_is_never_read(
    tmp_path: Path, packed: Any, text: bytes, is_long: bool
) -> None:
    name = "a.gz" if packed is gzip.compress else "a"
    (tmp_path / name).write_bytes(packed(text))
    files = Files(tmp_path, format="text", settle=0, max_line=100)
    wanted = files.next_range(files.start(), Limit())
    assert wanted is not None
    if not is_long:
        files.read(NO_SPARK, wanted)
        return
    with pytest.raises(SourceBroken, match=r"is longer than max_line allows \(100 bytes\)") as raised:
        files.read(NO_SPARK, wanted)
    begin = max(text.rfind(b"\n", 0, 190), text.rfind(b"\r", 0, 190)) + 1 if len(text) > 150 else 0
    assert f"begins at byte {begin:,} " in raised.value.chunks[name]


def test_long_lines_are_found_wherever_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)
    for number in range(300):
        lengths = [chance.choice([0, 1, 30, 49, 50, 51, 99, 100]) for _ in range(chance.randrange(12))]
        longest = chance.choice([0, 101, 102, 149, 150, 151, 250])
        if longest:
            lengths.insert(chance.randrange(len(lengths) + 1), longest)
        text = chance.choice([b"\n", b"\r", b"\r\n"]).join(b"x" * length for length in lengths)
        (tmp_path / "a").write_bytes(text)
        (tmp_path / "a.gz").write_bytes(gzip.compress(text))
        monkeypatch.setattr(limits, "_BLOCK", chance.choice([1, 30, 1000]))
        monkeypatch.setattr(limits, "_PIECE", chance.choice([1, 30, 100, 1000]))
        for name in ("a", "a.gz"):
            problem = FileLimits(100, 10**6).problem(str(tmp_path / name), len(text), has_lines=True)
            assert bool(problem) == bool(longest), (number, name, lengths)


def test_a_line_that_is_too_long_sets_its_file_aside_at_once_and_the_others_go_on(tmp_path: Path) -> None:
    stream = Loading(tmp_path, max_line="1 kB", max_file="1 MB")
    stream.write(a="1\n", long="2\n" + "9" * 2000 + "\n", huge=b"3\n" * 600_000, d="4\n")
    stream.update()
    assert (stream.rows, stream.node.plan()) == ([1, 4], None)
    assert "huge is set aside until it changes (and 1 more): it has 1,200,000 bytes, more than max_file" in stream.note
    stream.write(long="2\n", huge="3\n")
    assert (stream.finish(), stream.rows) == (0, [1, 2, 3, 4])


@pytest.mark.parametrize(
    "content",
    [b"not gzip at all", gzip.compress(b"1\n" * 10_000)[:-9], gzip.compress(b"1\n" * 10_000)[:40] + b"\0" * 100],
    ids=["no archive", "cut off", "overwritten"],
)
def test_a_broken_archive_is_set_aside_at_once(stream: Loading, content: bytes) -> None:
    stream.write(**{"a": "1\n", "bad.gz": content})
    stream.update()
    assert (stream.rows, stream.node.plan()) == ([1], None)
    assert "bad.gz is set aside until it changes: it is damaged: " in stream.note


@pytest.mark.parametrize("wrong", [{"max_line": 0}, {"max_line": "long"}, {"max_file": "3 apples"}, {"max_file": True}])
def test_a_limit_that_is_no_size_is_a_mistake(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match="takes a size such as '16 MB', or a number of bytes"):
        Files(tmp_path, format="text", **wrong)


# --- commits that fail ------------------------------------------------------------------------------------------------


def failing_commit(monkeypatch: pytest.MonkeyPatch, store: TableStore) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the disk is gone")

    monkeypatch.setattr(store, "commit", fail)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_file_that_is_mended_after_a_failed_commit_is_loaded_as_it_is_then(
    stream: Loading, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    stream.write(a="1\ntwo\nthree\n")
    with monkeypatch.context() as patch:
        failing_commit(patch, stream.node.store)
        with pytest.raises(RuntimeError, match="disk is gone"):
            stream.update()
    assert stream.rejected == [], "nothing has happened"
    stream.write(a="1\n2\nthree\n")
    if restarts:
        stream.restart()
    assert stream.finish() == 0
    assert (stream.rows, stream.rejected) == ([1, 2], ["three"])


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("more", [False, True], ids=["nothing more", "another file"])
def test_rejected_rows_whose_commit_fails_are_committed_later_once(
    stream: Loading, monkeypatch: pytest.MonkeyPatch, restarts: bool, more: bool
) -> None:
    stream.write(a="1\ntwo\n")
    with monkeypatch.context() as patch:
        failing_commit(patch, stream.node._rejected)
        update = stream.update()
    assert update is not None and update.committed, "the rows of the table stand"
    assert (stream.rows, stream.rejected, update.rejected) == ([1], [], 1)
    if more:
        stream.write(b="3\nfour\n")
    if restarts:
        stream.restart()
    assert stream.finish() == 0
    assert stream.rejected == (["four", "two"] if more else ["two"])
    assert stream.node.plan() is None


def test_rejected_rows_of_a_dimension_are_those_of_its_files_now(tmp_path: Path) -> None:
    dimension = Loading(tmp_path, dimension=True)
    dimension.write(a="1\ntwo\n")
    dimension.finish()
    assert (dimension.rows, dimension.rejected) == ([1], ["two"])
    dimension.write(a="1\n22\n")
    dimension.finish()
    assert (dimension.rows, dimension.rejected) == ([1, 22], [])


# --- dimensions -------------------------------------------------------------------------------------------------------


@pytest.fixture
def dimension(tmp_path: Path) -> Loading:
    loading = Loading(tmp_path, dimension=True)
    loading.write(a="1\n", b="2\n")
    loading.finish()
    assert loading.rows == [1, 2]
    return loading


def test_a_file_that_is_replaced_and_settles_does_not_take_the_rows_away_meanwhile(tmp_path: Path) -> None:
    dimension = Loading(tmp_path, dimension=True, settle="10 s")
    dimension.write(a="1\n", b="2\n")
    dimension.clock.ahead = 11.0
    dimension.finish()
    dimension.clock.ahead = 0.0
    dimension.write(b="3\n")
    assert dimension.node.plan() is None
    assert (dimension.rows, dimension.note) == ([1, 2], "")
    dimension.clock.ahead = 22.0
    dimension.finish()
    assert dimension.rows == [1, 3]


def test_a_file_that_is_away_for_a_moment_does_not_take_its_rows_with_it(dimension: Loading) -> None:
    (dimension.landing / "b").rename(dimension.folder / "b")
    assert dimension.finish() == 0
    assert dimension.note == "waiting for b, which is not there now; is it being replaced?"
    dimension.clock.ahead = 0.9 * REPLACED_WITHIN
    dimension.write(b="3\n")
    dimension.finish()
    assert dimension.rows == [1, 3]


def test_a_file_that_is_away_for_good_takes_its_rows_with_it(dimension: Loading) -> None:
    (dimension.landing / "b").unlink()
    assert dimension.node.plan() is None
    dimension.clock.ahead = REPLACED_WITHIN + 0.1
    dimension.finish()
    assert dimension.rows == [1]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_dimension_whose_files_are_all_deleted_is_empty(dimension: Loading, restarts: bool) -> None:
    for name in "ab":
        (dimension.landing / name).unlink()
    assert dimension.node.plan() is None
    if restarts:
        dimension.restart()
        assert dimension.node.plan() is None
    dimension.clock.ahead = REPLACED_WITHIN + 0.1
    dimension.finish()
    assert (dimension.rows, dimension.node.plan()) == ([], None)
    dimension.write(c="3\n")
    dimension.finish()
    assert dimension.rows == [3]


@pytest.mark.parametrize("instead", ["nothing", "an empty directory"])
def test_a_dimension_whose_directory_is_away_stays_as_it_was(dimension: Loading, instead: str) -> None:
    dimension.landing.rename(dimension.folder / "unmounted")
    if instead != "nothing":
        dimension.landing.mkdir()
    for seconds in (0.0, 10.0, 1000.0):
        dimension.clock.ahead = seconds
        assert dimension.finish() == 0
    assert dimension.rows == [1, 2]
    expected = "which does not exist" if instead == "nothing" else "is something to be mounted there?"
    assert expected in dimension.note


def test_a_dimension_with_a_bad_file_stays_as_it_was_until_the_file_changes(dimension: Loading) -> None:
    dimension.write(b=POISON)
    assert dimension.finish() == TRIES
    assert dimension.rows == [1, 2]
    assert dimension.note == "the table stays as it was: b cannot be loaded: IOException: poison in b"
    dimension.write(b="3\n")
    dimension.finish()
    assert (dimension.rows, dimension.note) == ([1, 3], "")


# --- a table that is declared as something else ---------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [False, True], ids=["stream", "dimension"])
def test_a_table_that_was_computed_is_not_taken_for_a_loaded_one(tmp_path: Path, dimension: bool) -> None:
    time_column = None if dimension else "ts"
    state = CommitState(1, "append", freshness=0, sources={"other": 3}, time=time_column)
    columns = pa.schema([("ts", TIMES), ("n", pa.int64())])
    TableStore(tmp_path / "t", time_column).commit(1, (), replace=None, state=state.to_json(), schema=columns)
    with pytest.raises(DeclarationError, match="the table that is there was computed from others"):
        Loading(tmp_path, dimension)


def test_a_stream_by_another_event_time_is_not_opened(tmp_path: Path) -> None:
    columns = pa.schema([("ts", TIMES), ("late", TIMES)])
    state = CommitState(1, "load", freshness=0, time="ts").to_json()
    TableStore(tmp_path / "t", "ts").commit(1, (), replace=None, state=state, schema=columns)
    wh = Warehouse("w", tmp_path / "w")
    wh.stream("t", Numbers(tmp_path, schema="ts timestamp, late timestamp"), time="late")
    with pytest.raises(DeclarationError, match="declared as 'late', but the table that is there goes by 'ts'"):
        StreamNode(wh.spec().streams[0], TableStore(tmp_path / "t", "late"), TableStore(tmp_path / "r"))


def test_offsets_and_ranges_written_before_files_could_be_set_aside_are_understood() -> None:
    stored = {"kind": "files", "files": [["a", 1, 2]], "oldest": 0.5, "newest": 0.5, "gone": ["b"]}
    found = Range.from_json(json.loads(json.dumps(stored)))
    assert isinstance(found, FileRange)
    assert (found.to_json(), found.gone, dict(found.aside)) == (stored, ("b",), {})
