"""The judge of the promise that a table equals its query, independent of how tables are kept.

After a commit, let the sources of a table be as they were at the versions that the commit names. If several of them
have event times, each has only its rows up to the trailing edge, the least freshness of them at these versions. Spark
computes the query over these rows in one go. The table has the same rows, each equally often; exempt are only event
times that the commit says are dirty, and they are not after everything has been brought up to date.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.warehouse.storage.store import TableStore
from tests.warehouse.random_frames import as_function
from tests.warehouse.random_queries import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = tuple[Any, ...]
#: event times from a moment to a moment, both included, in microseconds
Span = tuple[int, int]
#: so many rows of a difference are shown
SHOWN = 5
PARTITION = "_partition"


class Oracle:
    """Computes queries in one go over versions of their sources, in a session of its own."""

    def __init__(self, spark: SparkSession, queries: Iterable[Query], stores: Mapping[str, TableStore]) -> None:
        self.queries = {query.name: query for query in queries}
        self.stores = stores
        self._spark = spark
        self._frames: dict[tuple[str, int, int | None], DataFrame] = {}
        self._results: dict[tuple[Any, ...], pa.Table] = {}

    def edge(self, versions: Mapping[str, int]) -> int:
        """The least freshness of the sources that have event times."""
        states = [self.stores[name].snapshot(version).state for name, version in versions.items()]
        return min(int(str(state["freshness"])) for state in states if state.get("freshness") is not None)

    def batch(self, name: str, versions: Mapping[str, int]) -> pa.Table:
        """The rows of a table, were it computed from those versions of its sources."""
        query = self.queries[name]
        timed = [source for source in query.sources if self.stores[source].time_column is not None]
        edge = self.edge(versions) if len(timed) > 1 else None
        key = (name, tuple(sorted(versions.items())), edge)
        if key not in self._results:
            frames = {source: self._frame(source, versions[source], edge) for source in query.sources}
            self._results[key] = self._compute(query, frames).toArrow()
        return self._results[key]

    def _compute(self, query: Query, frames: Mapping[str, DataFrame]) -> DataFrame:
        if query.sql is None:
            result: DataFrame = as_function(query)(**frames)
            return result
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        return self._spark.sql(query.sql)

    def _frame(self, source: str, version: int, edge: int | None) -> DataFrame:
        time = self.stores[source].time_column
        key = (source, version, None if time is None else edge)
        if key not in self._frames:
            rows = self.stores[source].arrow(at_version=version)
            rows = rows.select([column for column in rows.column_names if column != PARTITION])
            if time is not None and edge is not None:
                rows = rows.filter(pc.less_equal(pc.cast(rows.column(time), pa.int64()), edge))
            self._frames[key] = self._spark.createDataFrame(rows if rows.num_rows else rows.schema.empty_table())
        return self._frames[key]


@dataclass(frozen=True, slots=True)
class Difference:
    """How a table differs from its query."""

    missing: Sequence[Row] = ()
    surplus: Sequence[Row] = ()
    columns: str = ""

    def __bool__(self) -> bool:
        return bool(self.missing or self.surplus or self.columns)

    def __str__(self) -> str:
        told = [self.columns] if self.columns else []
        for what, rows in (("not in the table", self.missing), ("not in the result", self.surplus)):
            told += [f"{len(rows)} rows {what}:", *(f"    {shown(row)}" for row in rows[:SHOWN])] if rows else []
        return "\n".join(told)


def shown(row: Row) -> str:
    return "(" + ", ".join(f"{v:%d %H:%M:%S}" if isinstance(v, datetime) else repr(v) for v in row) + ")"


def difference(table: pa.Table, batch: pa.Table, exempt: Sequence[Span] = (), time: str = "ts") -> Difference:
    """How the rows of ``table`` differ from those of ``batch``, as multisets, outside of the ``exempt`` event times."""
    there = table.select([name for name in table.column_names if name != PARTITION])
    columns, expected = types_of(there), types_of(batch)
    if columns != expected:
        return Difference(columns=f"the table has the columns {columns}, the result {expected}")
    there = there.select(batch.column_names)
    one, other = rows_of(outside(there, exempt, time)), rows_of(outside(batch, exempt, time))
    missing, surplus = other - one, one - other
    for row in list(missing.elements()):
        near = next((each for each in surplus if alike(row, each)), None)
        if near is not None:
            missing -= Counter([row])
            surplus -= Counter([near])
    return Difference(sorted(missing.elements(), key=repr), sorted(surplus.elements(), key=repr))


def types_of(rows: pa.Table) -> dict[str, str]:
    """Tables do not say whether a value can be null, also inside a list."""
    return {field.name: str(field.type).replace(" not null", "") for field in rows.schema}


def outside(rows: pa.Table, spans: Sequence[Span], time: str) -> pa.Table:
    """The rows whose event times lie in none of ``spans``."""
    if not spans:
        return rows
    micros = pc.cast(rows.column(time), pa.int64())
    for first, last in spans:
        inside = pc.and_(pc.greater_equal(micros, first), pc.less_equal(micros, last))
        rows, micros = rows.filter(pc.invert(inside)), micros.filter(pc.invert(inside))
    return rows


def rows_of(table: pa.Table) -> Counter[Row]:
    columns = [[_hashable(value) for value in column.to_pylist()] for column in table.columns]
    return Counter(zip(*columns, strict=True))


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    return "not a number" if isinstance(value, float) and math.isnan(value) else value


def alike(one: Row, other: Row) -> bool:
    """Whether two rows are equal but for the last digits of doubles."""
    return all(
        a == b or (isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9))
        for a, b in zip(one, other, strict=True)
    )
