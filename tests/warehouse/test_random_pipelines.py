"""Tables equal the batch query over their sources: random pipelines, random arrivals, any order of scheduling.

What is promised of a derived table T, at any moment. Let F be its freshness, and let its sources be as they were at the
versions that T says it has consumed; over several sources with event time, let each have only its rows up to F. Let B
be the result of T's query over them, computed by Spark in one go. Then

1. outside of the event times that T says are dirty, T and B have the same rows up to F, each equally often;
2. rows of T later than F are rows of B (times that are rounded up, or lie ahead, come early; not all of them must);
3. if nothing is dirty, F is the least freshness of the sources with event time, at the versions consumed.

When everything has been brought up to date, nothing up to F is dirty (what lies beyond is to be computed when F gets
there), B is that of the newest versions, no node has anything to do, also after a restart, and F is what the files that
came say. Streams are compared with the files: every line that is not blank is a row of the stream or rejected, exactly
once. By induction every table is the batch result over everything that ever came.

``HEADGATE_RANDOM_PIPELINES=100`` tries the seeds 0 to 99.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headgate.core.update import Update
from headgate.warehouse.sources.errors import SourceChanged
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.derived_table import BackfillNode, TableNode
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import open_warehouse
from tests.warehouse.pipelines import MENU, Pipeline, Stream, Table
from tests.warehouse.random_trial import interpreted
from tests.warehouse.scenarios import (
    START,
    Again,
    Arrive,
    Begin,
    End,
    Event,
    Line,
    Reopen,
    Replace,
    Run,
    Scenario,
    Upkeep,
    micros,
    random_scenario,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = os.environ.get("HEADGATE_RANDOM_PIPELINES")
#: unless told otherwise, a few that are quick and have chains, joins, lookback, a dimension and large results in them
SEEDS = (6, 81, 82, 84) if COUNT is None else range(int(COUNT))

#: rows as (event time in microseconds, key, n), with how often each is there
Rows = Counter[tuple[Any, ...]]
Span = tuple[int, int]


class PowerCutError(Exception):
    """What the process dies of."""


# --- the oracle ----------------------------------------------------------------------------------------------


def rows_of(table: pa.Table) -> Rows:
    times = pc.cast(table.column("ts"), pa.int64()).to_pylist()
    return Counter(zip(times, table.column("key").to_pylist(), table.column("n").to_pylist(), strict=True))


def without(rows: Rows, spans: Iterable[Span]) -> Rows:
    """The rows whose event times lie in none of ``spans``."""
    spans = tuple(spans)
    return Counter({row: n for row, n in rows.items() if not any(first <= row[0] <= last for first, last in spans)})


class Oracle:
    """Computes queries in one go, in a session of its own."""

    def __init__(self, spark: SparkSession, stores: Mapping[str, TableStore]) -> None:
        self._spark = interpreted(spark)
        self._stores = stores

    def batch(self, table: Table, versions: Mapping[str, int], freshness: int) -> Rows:
        """The rows of a table, were it computed from those versions of its sources."""
        for name in table.all_sources:
            source = self._stores[name].arrow(at_version=versions[name])
            if name in table.sources and len(table.sources) > 1:
                source = source.filter(pc.less_equal(pc.cast(source.column("ts"), pa.int64()), freshness))
            columns = [column for column in source.column_names if column != "_partition"]
            self._spark.createDataFrame(source.select(columns)).createOrReplaceTempView(name)
        return rows_of(self._spark.sql(table.sql).toArrow())


# --- a warehouse to which things happen ----------------------------------------------------------------------


@dataclass
class Begun:
    """An update that has begun, and whether it has been run."""

    node: Node
    update: Update
    ran: bool = False


@dataclass
class World:
    folder: Path
    scenario: Scenario
    spark: SparkSession
    begun: dict[str, Begun] = field(default_factory=dict)
    landed: list[Arrive] = field(default_factory=list)
    #: {table: the version that was last found to be right}
    checked: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tables = {table.name: table for table in self.scenario.pipeline.tables}
        self.reopen()

    def store(self, name: str) -> TableStore:
        return self.warehouse.nodes[name].store

    def reopen(self) -> None:
        self.begun.clear()
        self.warehouse = open_warehouse(self.scenario.pipeline.declared(self.folder), self.spark)
        self.oracle = Oracle(self.spark, {name: node.store for name, node in self.warehouse.nodes.items()})

    def happens(self, event: Event) -> None:
        match event:
            case Arrive() | Replace():
                self.arrives(event)
            case Begin() | Upkeep() if event.table in self.begun:
                pass  # nodes of one table never run at once
            case Begin():
                self.begin(event)
            case Upkeep():
                self.maintain(event)
            case Run(name, dies) if name in self.begun and not self.begun[name].ran:
                self.run(name, self.begun[name], dies)
            case End(name) if name in self.begun:
                self.end(name, self.begun.pop(name))
            case Again(name, first, last):
                self.table_node(name).backfill(micros(first), micros(last))
            case Reopen():
                self.reopen()
        for name, node in self.warehouse.nodes.items():
            if name not in self.begun:
                node.plan()  # as often as a running warehouse asks

    def table_node(self, name: str) -> TableNode:
        node = self.warehouse.nodes[name]
        assert isinstance(node, TableNode)
        return node

    def arrives(self, event: Arrive | Replace) -> None:
        if isinstance(event, Arrive):
            self.landed.append(event)
            self.land(event.stream, event.file, [line.text for line in event.lines])
            return
        rows = [{"key": key, "label": label, "weight": weight} for key, (label, weight) in event.labels.items()]
        self.land(event.dimension, event.file, [json.dumps(row) for row in rows])

    def land(self, folder: str, file: str, lines: Iterable[str]) -> None:
        (self.folder / folder).mkdir(exist_ok=True)
        path = self.folder / folder / f"{file}.json"
        path.with_suffix(".tmp").write_text("".join(f"{line}\n" for line in lines))
        path.with_suffix(".tmp").replace(path)

    def begin(self, event: Begin) -> None:
        node = BackfillNode(self.table_node(event.table)) if event.backfill else self.warehouse.nodes[event.table]
        planned = node.plan()
        update = planned or Update(node.table, node.layer)
        begins = node.begin(update, event.most_seconds)
        if not any(begun.ran for begun in self.begun.values()):  # others know of all that has been committed
            assert (planned is not None) == begins, f"{node.name} planned {planned}, and then began: {begins}"
        if begins:
            self.begun[event.table] = Begun(node, update)

    def run(self, name: str, begun: Begun, dies: str | None) -> None:
        begun.ran = True
        store, commit = self.store(name), self.store(name).commit

        def dying_commit(*args: Any, **options: Any) -> int:
            if dies == "after the commit":
                commit(*args, **options)
            raise PowerCutError

        if dies is None:
            with contextlib.suppress(SourceChanged):  # a file of a dimension was replaced meanwhile: to be tried again
                begun.node.run(begun.update, self.spark)
                begun.update.commits(begun.update.work)
        else:
            store.commit = dying_commit  # type: ignore[method-assign]
            with pytest.raises((PowerCutError, SourceChanged)):
                begun.node.run(begun.update, self.spark)
            del store.commit  # type: ignore[method-assign]

    def end(self, name: str, begun: Begun) -> None:
        begun.node.end(begun.update)
        if begun.update.committed:
            self.warehouse.updated(name)

    def maintain(self, event: Upkeep) -> None:
        store = self.store(event.table)
        spec = self.warehouse.spec
        lengths = {node.name: node.partition for node in (*spec.streams, *spec.tables)}
        if event.what == "compact":
            store.compact()
        elif event.what == "vacuum":
            store.vacuum()
        else:
            store.roll_up(micros(event.until), round(lengths[event.table]) * event.partitions)

    # --- what must be true --------------------------------------------------------------------------------------

    def check(self, name: str) -> None:
        """That a table is what its promise says."""
        table, store = self.tables[name], self.store(name)
        if not store.exists or self.checked.get(name) == store.version:
            return
        state = self.warehouse.nodes[name].state
        freshness = state.freshness
        assert freshness is not None
        if not state.dirty:
            edges = [self.store(source).snapshot(state.sources[source]).state["freshness"] for source in table.sources]
            assert freshness == min(edges), name
        self.compare(name, self.oracle.batch(table, state.sources, freshness), freshness, state.dirty)
        self.checked[name] = store.version

    def compare(self, name: str, batch: Rows, freshness: int, dirty: Iterable[Span]) -> None:
        """That the rows outside of ``dirty`` are those of the batch result."""
        store = self.store(name)
        there = without(rows_of(store.arrow()) if store.exists else Counter(), dirty)
        batch = without(batch, dirty)
        missing = Counter({row: n for row, n in (batch - there).items() if row[0] <= freshness})
        assert not missing and not there - batch, f"{name}: missing {dict(missing)}, too many {dict(there - batch)}"

    def finish(self) -> None:
        """Bring everything up to date and check what is true then."""
        for name in list(self.begun):
            self.happens(End(name))
        self.warehouse.bring_up_to_date(self.spark)
        self.check_streams()
        for name, table in self.tables.items():
            expected, state = self.expected_freshness(name), self.warehouse.nodes[name].state
            if expected is not None:
                newest = {source: self.store(source).version for source in table.all_sources}
                batch = self.oracle.batch(table, newest, expected)
                self.compare(name, batch, expected, [])
            assert state.freshness == expected, name
            assert expected is None or all(first > expected for first, _ in state.dirty), f"{name}: {state.dirty}"
        nodes = [*self.warehouse.nodes.values(), *map(BackfillNode, self.warehouse.tables())]
        assert not [node.name for node in nodes if node.plan() is not None]
        self.check_that_nothing_more_is_needed()

    def check_streams(self) -> None:
        for stream in self.scenario.pipeline.streams:
            lines = [line for arrived in self.landed if arrived.stream == stream.name for line in arrived.lines]
            store = self.store(stream.name)
            rows = rows_of(store.arrow()) if store.exists else Counter()
            assert rows == Counter(line.row for line in lines if line.row is not None), stream.name
            rejected = TableStore(store.directory.with_name(f"{stream.name}__rejected"))
            raw = rejected.arrow().column("raw").to_pylist() if rejected.exists else []
            assert Counter(raw) == Counter(line.text for line in lines if line.row is None and line.text)

    def expected_freshness(self, name: str) -> int | None:
        """What the files that came say; None if there is nothing to compute a table from."""
        if name not in self.tables:
            lines = (line for arrived in self.landed if arrived.stream == name for line in arrived.lines)
            return max((line.row[0] for line in lines if line.row is not None), default=None)
        table = self.tables[name]
        if table.dimension is not None and not (self.folder / table.dimension).exists():
            return None
        edges = [self.expected_freshness(source) for source in table.sources]
        return None if None in edges else min(edge for edge in edges if edge is not None)

    def check_that_nothing_more_is_needed(self) -> None:
        """What lies on the disk besides the newest versions can be deleted, and a restart finds nothing to do."""
        before = {name: rows_of(self.store(name).arrow()) for name in self.tables if self.store(name).exists}
        for node in self.warehouse.nodes.values():
            node.store.vacuum(retention_seconds=0)
            node.store.sweep(older_than_seconds=0)
        self.reopen()
        versions = {name: node.store.version for name, node in self.warehouse.nodes.items()}
        self.warehouse.bring_up_to_date(self.spark)
        again = [name for name, version in versions.items() if self.store(name).version != version]
        assert not again, f"there was something to do after a restart: {again}"
        assert before == {name: rows_of(self.store(name).arrow()) for name in before}


def play(scenario: Scenario, folder: Path, spark: SparkSession) -> None:
    """Let everything happen, and check after every step and at the end."""
    world = World(folder, scenario, interpreted(spark))
    for step in scenario.steps:
        for event in step:
            world.happens(event)
        for name in world.tables:
            world.check(name)
    world.finish()


# --- tests ---------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed {seed}")
def test_tables_equal_the_batch_query_whatever_happens(
    seed: int, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = random_scenario(seed)
    if scenario.pipeline.large:
        for module in ("load", "derive"):
            monkeypatch.setattr(f"headgate.warehouse.updates.{module}.LARGE_BYTES", 0)
    try:
        play(scenario, tmp_path, spark)
    except Exception as error:
        error.add_note(f"seed {seed}: {scenario.pipeline}")
        raise


def row(minute: float, key: str = "a", n: int = 1) -> Line:
    text = json.dumps({"ts": (START + timedelta(minutes=minute)).isoformat(), "key": key, "n": n})
    return Line(text, (micros(minute), key, n))


def file(stream: str, name: str, *lines: Line) -> list[Event]:
    """A file comes and is loaded."""
    return [Arrive(stream, name, lines), *update(stream)]


def labels(**known: str) -> list[Event]:
    """The file of the dimension comes anew and is loaded."""
    return [Replace("labels", "first", {key: (label, 1) for key, label in known.items()}), *update("labels")]


def update(table: str, *meanwhile: Event, backfill: bool = False, dies: str | None = None) -> list[Event]:
    return [Begin(table, backfill=backfill), *meanwhile, Run(table, dies), End(table)]


ONE, TWO = (Stream("s0", 600),), (Stream("s0", 600), Stream("s1", 600))
SOME, LABELLED = Table("t0", "some", ("s0",), None, 600), Table("t0", "labelled", ("s0",), "labels", 600)
LOST = "after the commit"

#: {what happens: (streams, dimension, tables, events)}: each was wrong once
CASES: Mapping[str, tuple[tuple[Stream, ...], str | None, tuple[Table, ...], list[Event]]] = {
    "the source of an appended table is backfilled": (
        ONE,
        None,
        (SOME, Table("t1", "doubled", ("t0",), None, 600)),
        [
            *file("s0", "1", row(1), row(30)),
            *update("t0"),
            *update("t1"),
            Again("t0", 0, 20),
            *update("t0", backfill=True),
            *update("t1"),
        ],
    ),
    "a dimension changes during the first update": (
        ONE,
        "labels",
        (LABELLED,),
        [*file("s0", "1", row(1), row(30)), *labels(a="x"), *update("t0", *labels(a="y"))],
    ),
    "a dimension changes during a later update": (
        ONE,
        "labels",
        (LABELLED,),
        [
            *file("s0", "1", row(1)),
            *labels(a="x"),
            *update("t0"),
            *file("s0", "2", row(30)),
            *update("t0", *labels(a="y")),
        ],
    ),
    "a row comes before the first of a rolled-up partition": (
        ONE,
        "labels",
        (LABELLED,),
        [
            *file("s0", "1", row(25), row(45), row(130)),
            *labels(a="x"),
            *update("t0"),
            Upkeep("s0", "roll_up", 6, 120),
            *file("s0", "2", row(11, "b")),
            *update("t0"),
            *labels(a="x", b="y"),
        ],
    ),
    "a row was there only while a table was repaired": (
        TWO,
        None,
        (Table("t0", "missing", ("s0", "s1"), None, 600, 600), Table("t1", "sums", ("t0",), None, 600, 600)),
        [
            *file("s0", "1", row(100)),
            *file("s1", "1", row(100, "b")),
            *update("t0"),
            *update("t1"),
            *file("s0", "2", row(1)),
            Again("t1", 0, 10),
            Begin("t0"),
            Run("t0"),
            *update("t1", backfill=True),
            End("t0"),
            *file("s1", "2", row(2)),
            *update("t0"),
            Reopen(),
        ],
    ),
    "an update brings no rows": (
        TWO,
        None,
        (SOME, Table("t1", "doubled", ("t0",), None, 600), Table("t2", "both", ("t1", "s1"), None, 600)),
        [*file("s0", "1", row(1, n=3)), *file("s1", "1", row(90)), *update("t0"), *update("t1"), *update("t2")],
    ),
    "rows lie ahead of the freshness of their table": (
        (Stream("s0", 60),),
        None,
        (
            Table("t0", "delayed", ("s0",), None, 60, reach=1200),
            Table("t1", "doubled", ("t0",), None, 60, mode="recompute"),
        ),
        [e for i in range(3) for e in [*file("s0", f"{i}", row(60 * i)), *update("t0"), *update("t1")]],
    ),
    "a backfill reaches beyond the end of the table": (
        ONE,
        None,
        (Table("t0", "sums", ("s0",), None, 600, 60),),
        [*file("s0", "1", row(1)), *update("t0"), Again("t0", 0, 60)],
    ),
    "a query that filters by a subquery is not row-wise": (
        ONE,
        None,
        (Table("t0", "highest", ("s0",), None, 600, 600),),
        [*file("s0", "1", row(1)), *update("t0"), *file("s0", "2", row(2, n=5)), *update("t0")],
    ),
    "the answer to a commit is lost": (
        ONE,
        None,
        (SOME,),
        [Arrive("s0", "1", (row(1),)), *update("s0", dies=LOST), *update("s0"), *update("t0", dies=LOST)],
    ),
}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_tables_equal_the_batch_query_when(
    case: tuple[tuple[Stream, ...], str | None, tuple[Table, ...], list[Event]], tmp_path: Path, spark: SparkSession
) -> None:
    streams, dimension, tables, events = case
    play(Scenario(Pipeline(streams, dimension, tables), (tuple(events),)), tmp_path, spark)


def test_scenarios_are_the_same_for_the_same_seed_and_use_all_of_the_menu() -> None:
    scenarios = [random_scenario(seed) for seed in range(100)]
    assert scenarios == [random_scenario(seed) for seed in range(100)]
    tables = [table for scenario in scenarios for table in scenario.pipeline.tables]
    assert {table.query for table in tables} == set(MENU)
    assert {table.mode for table in tables} == {"auto", "append", "recompute"}
