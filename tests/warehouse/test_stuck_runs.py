"""A run goes on, and ends, whatever is called by it does: logs that cannot be written, code that never returns."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.core.trace import RunNotice
from headgate.warehouse.declare.spec import WarehouseSpec
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.run import late_updates, run, scheduler_thread, spark_life
from headgate.warehouse.run.run import PipelineWatch, SparkAwayError
from headgate.warehouse.run.runtime import Runtime
from headgate.warehouse.run.spark_life import is_alive
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.sources import Files
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.load import StreamNode
from headgate.warehouse.updates.open_warehouse import OpenWarehouse

#: how long a test waits for something that should happen at once on an idle machine
PATIENCE = 300.0
NO_SPARK: Any = None


@pytest.fixture
def opened(tmp_path: Path) -> OpenWarehouse:
    """A stream that waits for its directory, which is told in a notice; there is never anything to load."""
    wh = Warehouse("small", path=tmp_path / "warehouse")
    wh.stream("a", Files(tmp_path / "landing", schema="ts timestamp"), time="ts")
    spec = wh.spec()
    node = StreamNode(spec.streams[0], TableStore(tmp_path / "t", "ts"), TableStore(tmp_path / "r"))
    return OpenWarehouse(spec, spec.graph(), {"a": node})


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What never returns waits for this, which comes when the test is over."""
    event = threading.Event()
    yield event
    event.set()


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_log_that_cannot_be_written_stops_nothing_and_is_told_once_to_who_asks(opened: OpenWarehouse) -> None:
    tables = Runtime(opened, NO_SPARK, RunOptions(tracks=1), None, full, on_notice=full, on_redeclared=full)
    tables.start()
    tables.replace_warehouse(lambda: opened)
    (row,) = tables.statistics()
    told = [notice.text for notice in tables.notices()]
    assert tables.is_running
    tables.stop()
    assert row.state == "waiting"
    failed = "has failed: OSError: [Errno 28] No space left on device"
    assert [each for each in told if "failed" in each] == [
        f"what is called with every notice {failed}",
        f"what is called when tables were opened again {failed}",
    ]


def test_a_run_ends_although_the_scheduler_is_stuck_in_code_that_never_returns(
    opened: OpenWarehouse, release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_updates, "CANCEL_SECONDS", 0.0)
    monkeypatch.setattr(scheduler_thread, "END_SECONDS", 0.0)
    reached = threading.Event()

    def never_returns() -> OpenWarehouse:
        reached.set()
        release.wait()
        return opened

    tables = Runtime(opened, NO_SPARK, RunOptions(tracks=1))
    tables.start()
    tables.replace_warehouse(never_returns)
    assert reached.wait(PATIENCE)
    tables.stop(grace=0.0)
    assert not tables.is_running
    assert [row.name for row in tables.statistics()] == ["a"]


def test_declarations_that_end_the_thread_are_refused_and_nothing_stops(opened: OpenWarehouse) -> None:
    class AliveSpark:
        class sparkContext:  # noqa: N801 - Spark's name
            class _jsc:  # noqa: N801
                @staticmethod
                def sc() -> Any:
                    return type("Context", (), {"isStopped": lambda self: False})()

    told: list[RunNotice] = []
    alive: Any = AliveSpark()
    tables = Runtime(opened, alive, RunOptions(tracks=1), on_notice=told.append)

    def exits() -> OpenWarehouse:
        raise SystemExit("I am a script")

    tables.start()
    tables.replace_warehouse(exits)
    tables.statistics()
    tables.notices()
    assert tables.is_running
    tables.stop()
    assert "the changed declarations cannot be used, so nothing changes: I am a script" in [n.text for n in told]


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """What PySpark takes for the process of its Spark; that of other tests is put aside, or it would be ended."""
    pyspark = pytest.importorskip("pyspark")
    sql = pytest.importorskip("pyspark.sql")
    for name in ("_active_spark_context", "_jvm"):
        monkeypatch.setattr(pyspark.SparkContext, name, None)
    for name in ("_instantiatedSession", "_activeSession"):
        monkeypatch.setattr(sql.SparkSession, name, None)
    with subprocess.Popen(["tail", "-f", "/dev/null"], stdin=subprocess.PIPE) as process:
        gateway = SimpleNamespace(proc=process, shutdown=lambda: None)
        monkeypatch.setattr(pyspark.SparkContext, "_gateway", gateway)
        yield process
        process.kill()


def test_a_spark_that_does_not_answer_is_not_alive_and_its_process_is_ended(
    release: threading.Event, java: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Frozen:
        @property
        def sparkContext(self) -> Any:  # noqa: N802 - Spark's name
            release.wait()

    frozen: Any = Frozen()
    assert not is_alive(frozen, 0.01)
    monkeypatch.setattr(spark_life, "LAST_ANSWER_SECONDS", 0.01)
    spark_life.stop_session(frozen)
    assert java.returncode is not None
    assert java.stdin is not None and java.stdin.closed, "a pipe that is left open is a warning, some tests later"


# --- the pipeline file ----------------------------------------------------------------------------------------------


class Watched:
    """A pipeline file that is watched: what it declared, and what was said of it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "pipeline.py"
        self.folder = folder
        self._news = threading.Condition()
        self.loaded: list[WarehouseSpec] = []
        self.told: list[str] = []
        self.refused: list[str] = []
        self.refuse: Exception | None = None
        self.watch = PipelineWatch(self.file, None, self.reload, self.message, self.refused.append)

    def save(self, code: str) -> None:
        part = self.folder / "part"
        part.write_text(code)
        part.rename(self.file)

    def reload(self, spec: WarehouseSpec) -> None:
        if self.refuse is not None:
            error, self.refuse = self.refuse, None
            raise error
        self.loaded.append(spec)

    def message(self, line: str) -> None:
        with self._news:
            self.told.append(line)
            self._news.notify_all()

    def until_told(self, times: int) -> str:
        with self._news:
            assert self._news.wait_for(lambda: len(self.told) >= times, PATIENCE), self.told
        return self.told[times - 1]


GOOD = "import headgate\nwh = headgate.Warehouse('small')\n"


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(run, "WATCH_SECONDS", 0.01)
    monkeypatch.setattr(run, "WATCH_END_SECONDS", 0.01)
    watched = Watched(tmp_path)
    yield watched
    watched.watch.stop()


@pytest.mark.parametrize(
    "code",
    [
        "import sys\nsys.exit(3)\n",
        "import asyncio\nraise asyncio.CancelledError\n",
        "raise KeyboardInterrupt\n",
        "raise type('Own', (BaseException,), {'__str__': lambda self: 1 / 0})\n",
        "this is not Python",
        "",
    ],
)
def test_a_file_that_fails_in_any_way_is_told_and_the_next_one_is_taken(watched: Watched, code: str) -> None:
    watched.save(code)
    assert "pipeline.py has changed, but cannot be used, so nothing changes" in watched.until_told(1)
    watched.save(GOOD)
    assert watched.until_told(2) == "pipeline.py has changed"
    assert watched.refused == [watched.told[0], ""], "those who watch are told until it is mended"
    assert [spec.name for spec in watched.loaded] == ["small"]


def test_a_file_that_is_saved_while_spark_is_lost_is_taken_when_it_is_back(watched: Watched) -> None:
    watched.refuse = SparkAwayError("Spark was lost; it is tried again when Spark is there")
    watched.save(GOOD)
    assert watched.until_told(1) == "pipeline.py has changed, but cannot be used now: " + str(
        SparkAwayError("Spark was lost; it is tried again when Spark is there")
    )
    assert watched.until_told(2) == "pipeline.py has changed"
    assert [spec.name for spec in watched.loaded] == ["small"]


#: for a file that never returns; the file finds them by the name of this module
ENTERED, RELEASED = threading.Event(), threading.Event()


def test_a_run_ends_although_its_file_never_returns(watched: Watched) -> None:
    watched.save(f"from {__name__} import ENTERED, RELEASED\nENTERED.set()\nRELEASED.wait()\n{GOOD}")
    try:
        assert ENTERED.wait(PATIENCE)
        watched.watch.stop()
    finally:
        RELEASED.set()
    assert watched.told == []
