"""A warehouse whose tables do no work: the real scheduler decides, the updates only wait.

So a run of any number of tables, at any number of updates a second, needs no Spark and hardly any processor, and what
the monitor adds can be seen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headgate.core import Update
from headgate.core.trace import TraceHeader
from headgate.warehouse import Generator, Warehouse
from headgate.warehouse.declare.spec import WarehouseSpec
from headgate.warehouse.run.runtime import Runtime
from headgate.warehouse.run.trace import traced_tables
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import OpenWarehouse

MICROS = 1_000_000
#: of ten tables, one is a stream
STREAMS = 10
TRACKS = 2


class IdleNode(Node):
    """Always has a second of data to take in; an update waits for as long as `pause` says."""

    def __init__(self, table: str, sources: tuple[str, ...], pause: Callable[[], None]) -> None:
        self.table = table
        self.sources = sources
        self.store: Any = _Store()
        self._pause = pause
        self._reached = int((time.time() - 2.0) * MICROS)

    @property
    def freshness(self) -> int | None:
        return self._reached

    @property
    def repairs(self) -> None:
        return None

    def plan(self) -> Update | None:
        now, reached = time.time(), self._reached / MICROS
        return Update(self.table, gained=max(0.001, now - reached), arrived=None if self.sources else (reached, now, 1))

    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        return True

    def run(self, update: Update, *others: Any, **more: Any) -> None:
        self._pause()
        update.rows = 1_000
        self.store.rows += update.rows
        update.freshness = self._reached = int((time.time() - 0.5) * MICROS)


class _Store:
    """Of a table store what the scheduler asks for."""

    exists = True
    rows = 0

    def statistics(self) -> SimpleNamespace:
        return SimpleNamespace(rows=self.rows)


class _IdleWarehouse(OpenWarehouse):
    """Has nothing to maintain."""

    def background_nodes(self) -> Iterator[Node]:
        return iter(())


class _NoSpark:
    """Of a Spark session what tracks ask for."""

    def __init__(self) -> None:
        self.sparkContext = SimpleNamespace(
            setLocalProperty=lambda *_: None, setJobGroup=lambda *_: None, cancelJobGroup=lambda *_: None
        )
        self.conf = SimpleNamespace(getAll={}, isModifiable=lambda key: False, set=lambda *_: None)

    def newSession(self) -> _NoSpark:  # noqa: N802 - Spark's name
        return self


def declared(folder: Path, tables: int) -> WarehouseSpec:
    """A tenth of them streams, the others each computed from one."""
    wh = Warehouse("many", folder)
    streams = max(1, tables // STREAMS)
    for number in range(streams):
        wh.stream(f"stream{number:04}", Generator(), time="ts", priority=1.0 + number % 5, target_lag="30 s")
    for number in range(streams, tables):
        source = f"stream{number % streams:04}"
        wh.sql(
            f"table{number:04}",
            f"select ts from {source}",
            time="ts",
            priority=float((1, 1, 2, 5, 20)[number % 5]),
            importance_class=number % 2,
            target_lag="1 min" if number % 3 else None,
        )
    return wh.spec()


def idle_runtime(spec: WarehouseSpec, per_second: float, **told: Any) -> Runtime:
    """The run, not started; so many updates end in a second. ``told`` are its observers."""

    def pause() -> None:
        time.sleep(TRACKS / per_second)

    nodes = {each.name: IdleNode(each.name, tuple(getattr(each, "sources", ())), pause) for each in spec.nodes()}
    spark: Any = _NoSpark()
    return Runtime(_IdleWarehouse(spec, spec.graph(), nodes), spark, RunOptions(tracks=TRACKS), **told)


def header_of(spec: WarehouseSpec, options: RunOptions) -> TraceHeader:
    return TraceHeader(
        spec.name,
        time.time(),
        options.tracks,
        str(options.policy),
        str(options.placement),
        options.inheritance,
        None,
        traced_tables(spec, {}),
        options.budget,
    )
