"""A warehouse of random tables to which random steps happen; after each update a table is compared with its query."""

from __future__ import annotations

import random
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.warehouse.declare.spec import WarehouseSpec
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.sources import Files
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import open_warehouse
from tests.warehouse.query_oracle import Oracle, difference
from tests.warehouse.random_expressions import SCHEMAS
from tests.warehouse.random_frames import as_function
from tests.warehouse.random_queries import Query
from tests.warehouse.random_steps import SHARES, STREAMS, File, Step, micros

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: after so many rounds without an end, a warehouse will never be up to date
MOST_ROUNDS = 12
#: whether rows later than a table's freshness may be left dirty until its freshness gets there
ROWS_AHEAD_MAY_WAIT = False
#: without compiled code, a query that is run a few times only is much faster, and the results are the same
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


class PowerCutError(Exception):
    """What an update dies of."""


def with_sources(queries: Iterable[Query], names: Iterable[str]) -> list[Query]:
    """The queries of these names and those that they read."""
    queries, wanted = list(queries), set(names)
    for query in reversed(queries):
        if query.name in wanted:
            wanted.update(query.sources)
    return [query for query in queries if query.name in wanted]


def declared(queries: list[Query], folder: Path) -> WarehouseSpec:
    wh = Warehouse("random", path=str(folder / "warehouse"))
    for name, schema in SCHEMAS.items():
        (folder / name).mkdir(exist_ok=True)
        source = Files(str(folder / name), format="json", schema=schema, settle=0)
        if name in STREAMS:
            wh.stream(name, source, time="ts", partition="10 minutes")
        else:
            wh.dimension(name, source)
    for query in queries:
        options: dict[str, Any] = {"partition": query.partition, "catch_up": query.catch_up, **query.options}
        if query.sql is not None:
            wh.sql(query.name, query.sql, **options)
        else:
            wh.table(**options)(as_function(query))
    return wh.spec()


@dataclass
class Trial:
    """A warehouse to which the steps of a seed happen. ``wrong`` says of each table what was found first."""

    seed: int
    queries: list[Query]
    steps: list[Step]
    folder: Path
    spark: SparkSession
    wrong: dict[str, str] = field(default_factory=dict)
    compared: int = 0

    def __post_init__(self) -> None:
        self.tables = {query.name: query for query in self.queries}
        self._checked: dict[str, int] = {}
        self._now = "begin"
        self._later: list[File] = []
        self._oracle: Oracle | None = None
        self.reopen()

    def reopen(self) -> None:
        self.warehouse = open_warehouse(declared(self.queries, self.folder), self.spark)
        stores = {name: node.store for name, node in self.warehouse.nodes.items()}
        if self._oracle is None:
            self._oracle = Oracle(interpreted(self.spark), self.queries, stores)
        self.oracle = self._oracle
        self.oracle.stores = stores

    def play(self) -> None:
        for step in self.steps:
            self._now = f"step {step.number}"
            if step.restart:
                self.reopen()
            self._later = list(step.later)
            self._arrive(step.files, step.chop)
            for name in self.tables:
                self._table(name, step)
            self._arrive_later()
        self._now = "the end"
        self._finish()

    def _arrive(self, files: Iterable[File], most_seconds: float = float("inf")) -> None:
        """Files land and are loaded."""
        for file in files:
            file.land(self.folder)
        for name in SCHEMAS:
            while self._update(self.warehouse.nodes[name], most_seconds):
                pass

    def _arrive_later(self) -> None:
        files, self._later = self._later, []
        self._arrive(files)

    def _table(self, name: str, step: Step) -> None:
        """What happens to a table in a step: the same, whichever other tables there are."""
        chance = random.Random(f"{self.seed} {step.number} {name}")
        node = self.warehouse.nodes[name]
        happens = {what: chance.random() < getattr(step, what) for what in SHARES}
        if name in self.wrong:
            return
        if happens["upkeep"] and node.store.exists:
            self._maintain(name, chance)
        if happens["backfill"] and node.store.exists:
            first = chance.uniform(-700, 200)
            node.backfill(micros(first), micros(first + chance.uniform(5, 400)))  # type: ignore[attr-defined]
            self._check(name)
        if happens["dies"]:
            self._die(node, chance.random() < 0.5)
        if happens["behind"] and step.number:
            return
        for _ in range(chance.choice([1, 1, 3])):
            if not self._update(node, step.chop, happens["meanwhile"]):
                break
        if happens["backfill"]:
            for other in self.backfills():
                if other.table == name:
                    self._update(other, step.chop)

    def _die(self, node: Node, committed: bool) -> None:
        """An update fails just before its commit is written, or just after."""
        commit = node.store.commit

        def failing(*arguments: Any, **options: Any) -> int:
            if committed:
                commit(*arguments, **options)
            raise PowerCutError

        node.store.commit = failing  # type: ignore[method-assign]
        try:
            node.update(self.spark)
        except PowerCutError:
            self.warehouse.updated(node.table)
        finally:
            del node.store.commit  # type: ignore[method-assign]
        self._check(node.table)

    def backfills(self) -> Iterator[Node]:
        return (node for node in self.warehouse.background_nodes() if node.layer == "backfill")

    def _maintain(self, name: str, chance: random.Random) -> None:
        """Merge files of a table or of a stream; that changes no row."""
        store = self.warehouse.nodes[chance.choice([name, *STREAMS])].store
        if chance.random() < 0.5:
            store.compact()
        else:
            store.roll_up(micros(chance.uniform(0, 100)), 6 * 3600)

    def _update(self, node: Node, most_seconds: float, meanwhile: bool = False) -> bool:
        """One update of a table, compared with its query; whether there was anything to do."""
        if node.table in self.wrong:
            return False
        try:
            if not meanwhile:
                updated = node.update(self.spark, most_seconds) is not None
            else:
                updated = self._update_while_files_come(node, most_seconds)
        except Exception as error:
            self._failed(node.table, error)
            return False
        if updated:
            self.warehouse.updated(node.table)
        if node.table in self.tables:
            self._check(node.table)
        return updated

    def _failed(self, name: str, error: Exception) -> None:
        """An update failed: that is wrong, unless Spark cannot compute the query at all."""
        if name in self.tables:
            newest = {source: self.warehouse.nodes[source].store.version for source in self.tables[name].sources}
            try:
                self.oracle.batch(name, newest)
            except Exception as other:
                lines = str(other).splitlines()[:3]
                self._note(name, "Spark cannot compute it: " + "\n".join(line[:400] for line in lines))
                return
        lines = "".join(traceback.format_exception(error)).splitlines()
        told = [line for line in lines if "Error" in line or "Exception" in line or "/headgate/" in line]
        self._note(name, "\n".join(line[:400] for line in told[-12:]))

    def _update_while_files_come(self, node: Node, most_seconds: float) -> bool:
        update = node.plan()
        if update is None or not node.begin(update, most_seconds):
            return False
        try:
            self._arrive_later()
            node.run(update, self.spark)
            update.commits(update.work)
        finally:
            node.end(update)
        return True

    def _check(self, name: str) -> None:
        """That a table is its query over the versions that its newest commit names."""
        node = self.warehouse.nodes[name]
        if name in self.wrong or not node.store.exists or self._checked.get(name) == node.store.version:
            return
        self._checked[name] = node.store.version
        state = node.state
        edge = self.oracle.edge(state.sources)
        if not state.dirty and state.freshness != edge:
            self._note(name, f"its freshness is {state.freshness}, but that of its sources {edge}")
        self._compare(name, self.oracle.batch(name, state.sources), state.dirty)

    def _compare(self, name: str, batch: pa.Table, exempt: Any) -> None:
        self.compared += 1
        found = difference(self.warehouse.nodes[name].store.arrow(), batch, exempt)
        if found:
            self._note(name, str(found))

    def _finish(self) -> None:
        """Bring everything up to date: nothing is exempt then. After a restart there is nothing to do."""
        for _ in range(MOST_ROUNDS):
            nodes = [*self.warehouse.nodes.values(), *self.backfills()]
            if not sum([self._update(node, float("inf")) for node in nodes]):
                break
        else:
            busy = [node.name for node in nodes if node.plan() is not None]
            raise AssertionError(f"seed {self.seed}: after {MOST_ROUNDS} rounds there is still something to do: {busy}")
        for name, query in self.tables.items():
            state = self.warehouse.nodes[name].state
            if state.freshness is None and not any(source in self.wrong for source in query.sources):
                self._note(name, "it was never computed")
            if name not in self.wrong and state.freshness is not None:
                newest = {source: self.warehouse.nodes[source].store.version for source in query.sources}
                ahead = [(first, last) for first, last in state.dirty if first > state.freshness]
                self._compare(name, self.oracle.batch(name, newest), ahead if ROWS_AHEAD_MAY_WAIT else ())
        self._check_streams()
        versions = {name: node.store.version for name, node in self.warehouse.nodes.items()}
        self.reopen()
        for node in [*self.warehouse.nodes.values(), *self.backfills()]:
            name = node.table
            if name not in self.wrong and (self._update(node, float("inf")) or node.store.version != versions[name]):
                self._note(name, "there was something to do after a restart")

    def _check_streams(self) -> None:
        for stream in STREAMS:
            files = [file for step in self.steps for file in (*step.files, *step.later) if file.folder == stream]
            came, there = sum(len(file.rows) for file in files), self.warehouse.nodes[stream].store.statistics().rows
            if came != there:
                self._note(stream, f"{came} rows came, {there} are there")

    def _note(self, name: str, text: str) -> None:
        node = self.warehouse.nodes[name]
        how = getattr(self.warehouse, "whole", {}).get(name)
        state = f"newest commit: {node.state}\nwhole: {how}"
        query = self.tables[name].text if name in self.tables else ""
        self.wrong.setdefault(name, f"{name} at {self._now}: {text}\n{query}\n{state}")

    def report(self) -> str:
        steps = "\n".join(f"  step {step.number}: {step}" for step in self.steps)
        again = f"HEADGATE_SEED={self.seed} HEADGATE_TABLES={','.join(self.wrong)}"
        return f"seed {self.seed}, again with {again}\n{steps}\n\n" + "\n\n".join(self.wrong.values())


def interpreted(spark: SparkSession) -> SparkSession:
    """A session of its own, without compiled code."""
    session = spark.newSession()
    for key, value in INTERPRETED.items():
        session.conf.set(key, value)
    return session
