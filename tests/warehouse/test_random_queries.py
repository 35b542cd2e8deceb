"""The judge of the promise: after every commit, a table equals its query over its sources, whatever the query.

Each seed gives a warehouse with many random tables (``random_queries``) and a random sequence of what happens to it
(``random_steps``): rows come in order and late, the dimension changes, updates are cut into pieces, tables lag behind,
the past is computed again, files are merged, everything is restarted. After every update the table that was updated is
compared with its query, computed by Spark in one go (``query_oracle``).

``HEADGATE_SEED=7`` plays one seed, ``HEADGATE_TABLES=q3,q5`` only these tables of it and what they read; what happens
to each stays the same. ``HEADGATE_SEEDS=100`` plays the seeds 0 to 99.
"""

from __future__ import annotations

import os
import random
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headgate.warehouse.declare.spec import WarehouseSpec
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.sources import Files
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import open_warehouse
from tests.warehouse.query_oracle import Oracle, difference
from tests.warehouse.random_expressions import SCHEMAS
from tests.warehouse.random_frames import as_function
from tests.warehouse.random_queries import Query, random_queries
from tests.warehouse.random_steps import STREAMS, Step, micros, random_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: the size of what is tried by default: seeds, tables of each, steps of each
SEEDS, TABLES, STEPS = 8, 40, 4
#: after so many rounds without an end, a warehouse will never be up to date
MOST_ROUNDS = 12
#: without compiled code, a query that is run a few times only is much faster, and the results are the same
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def seeds() -> list[int]:
    if "HEADGATE_SEED" in os.environ:
        return [int(os.environ["HEADGATE_SEED"])]
    return list(range(int(os.environ.get("HEADGATE_SEEDS", SEEDS))))


def chosen(queries: list[Query]) -> list[Query]:
    """The queries named in HEADGATE_TABLES and those that they read; all, if there is none."""
    names = set(filter(None, os.environ.get("HEADGATE_TABLES", "").split(",")))
    if not names:
        return queries
    for query in reversed(queries):
        if query.name in names:
            names.update(query.sources)
    return [query for query in queries if query.name in names]


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
        options: dict[str, Any] = {"time": "ts", "partition": query.partition, "catch_up": query.catch_up}
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
        for number, step in enumerate(self.steps):
            self._now = f"step {number}"
            if step.restart:
                self.reopen()
            for file in step.files:
                file.land(self.folder)
            self._load(step)
            for name in self.tables:
                self._table(name, number, step)
        self._now = "the end"
        self._finish()

    def _load(self, step: Step) -> None:
        for name in SCHEMAS:
            while self._update(self.warehouse.nodes[name], step.chop):
                pass

    def _table(self, name: str, number: int, step: Step) -> None:
        """What happens to a table in a step: the same, whichever other tables there are."""
        chance = random.Random(f"{self.seed} {number} {name}")
        node = self.warehouse.nodes[name]
        draws = {what: chance.random() < getattr(step, what) for what in ("upkeep", "behind", "backfill")}
        if draws["upkeep"] and node.store.exists:
            self._maintain(name, chance)
        if draws["backfill"] and node.store.exists:
            first = chance.uniform(-700, 200)
            node.backfill(micros(first), micros(first + chance.uniform(5, 400)))  # type: ignore[attr-defined]
            self._check(name)
        if draws["behind"] and number:
            return
        for _ in range(chance.choice([1, 1, 3])):
            if not self._update(node, step.chop):
                break
        if draws["backfill"]:
            for other in self.backfills():
                if other.table == name:
                    self._update(other, step.chop)

    def backfills(self) -> Iterator[Node]:
        return (node for node in self.warehouse.background_nodes() if node.layer == "backfill")

    def _maintain(self, name: str, chance: random.Random) -> None:
        """Merge files of a table or of a stream; that changes no row."""
        store = self.warehouse.nodes[chance.choice([name, *STREAMS])].store
        if chance.random() < 0.5:
            store.compact()
        else:
            store.roll_up(micros(chance.uniform(0, 100)), 6 * 3600)

    def _update(self, node: Node, most_seconds: float) -> bool:
        """One update of a table, compared with its query; whether there was anything to do."""
        if node.table in self.wrong:
            return False
        try:
            updated = node.update(self.spark, most_seconds) is not None
        except Exception as error:
            lines = "".join(traceback.format_exception_only(error)).splitlines()
            self._note(node.table, "\n".join(line[:400] for line in lines[:6]))
            return False
        if updated:
            self.warehouse.updated(node.table)
        if node.table in self.tables:
            self._check(node.table)
        return updated

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
            if name not in self.wrong and state.freshness is not None:
                newest = {source: self.warehouse.nodes[source].store.version for source in query.sources}
                self._compare(name, self.oracle.batch(name, newest), ())
        versions = {name: node.store.version for name, node in self.warehouse.nodes.items()}
        self.reopen()
        for name, node in self.warehouse.nodes.items():
            if name not in self.wrong and (self._update(node, float("inf")) or node.store.version != versions[name]):
                self._note(name, "there was something to do after a restart")

    def _note(self, name: str, text: str) -> None:
        node = self.warehouse.nodes[name]
        how = getattr(self.warehouse, "whole", {}).get(name)
        state = f"newest commit: {node.state}\nwhole: {how}"
        query = self.tables[name].text if name in self.tables else ""
        self.wrong.setdefault(name, f"{name} at {self._now}: {text}\n{query}\n{state}")

    def report(self) -> str:
        steps = "\n".join(f"  step {number}: {step}" for number, step in enumerate(self.steps))
        again = f"HEADGATE_SEED={self.seed} HEADGATE_TABLES={','.join(self.wrong)}"
        return f"seed {self.seed}, again with {again}\n{steps}\n\n" + "\n\n".join(self.wrong.values())


def interpreted(spark: SparkSession) -> SparkSession:
    """A session of its own, without compiled code."""
    session = spark.newSession()
    for key, value in INTERPRETED.items():
        session.conf.set(key, value)
    return session


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seed", seeds())
def test_after_every_update_a_table_equals_its_query(seed: int, tmp_path: Path, spark: SparkSession) -> None:
    queries = chosen(random_queries(seed, TABLES))
    trial = Trial(seed, queries, random_steps(seed, STEPS), tmp_path, interpreted(spark))
    trial.play()
    assert not trial.wrong, trial.report()
