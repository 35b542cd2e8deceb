"""A fake of Spark that computes with Arrow: just what nodes need, for the tables of ``tables``.

A frame is computed when its result is asked for, as on Spark, so that files may change or vanish in between. Whoever
makes the session passes ``job``, which is called before every computation and may raise.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.warehouse.sources.files.batch import FileBatch
from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN

MICROS = 1_000_000
HOUR = 3_600 * MICROS
TIME = pa.timestamp("us", tz="UTC")
ARROW_TYPES = {"timestamp": TIME, "string": pa.string(), "bigint": pa.int64()}


class SparkFailed(Exception):  # noqa: N818 - what a job of Spark raises
    """A job of the fake Spark has failed."""


# --- columns: just enough for the conditions that headgate itself writes ----------------------------------------


class FakeColumn:
    """An expression over the rows of a table; ``pairs`` are the equalities of a join's condition."""

    def __init__(
        self, values: Callable[[pa.Table], Any], pairs: Sequence[tuple[FakeColumn, str]] = (), name: str = ""
    ) -> None:
        self.values = values
        self.pairs = tuple(pairs)
        self.name = name

    def _with(self, other: FakeColumn, function: Callable[[Any, Any], Any]) -> FakeColumn:
        return FakeColumn(
            lambda rows: function(self.values(rows), other.values(rows)), (*self.pairs, *other.pairs), self.name
        )

    def __le__(self, other: FakeColumn) -> FakeColumn:
        return self._with(other, pc.less_equal)

    def __ge__(self, other: FakeColumn) -> FakeColumn:
        return self._with(other, pc.greater_equal)

    def __and__(self, other: FakeColumn) -> FakeColumn:
        return self._with(other, pc.and_)

    def __or__(self, other: FakeColumn) -> FakeColumn:
        return self._with(other, pc.or_)

    def eqNullSafe(self, other: FakeColumn) -> FakeColumn:  # noqa: N802 - as Spark calls it
        return FakeColumn(self.values, [(self, other.name)])

    def alias(self, name: str) -> FakeColumn:
        return FakeColumn(self.values, name=name)


def _col(name: str) -> FakeColumn:
    bare = name.strip("`")
    return FakeColumn(lambda rows: rows.column(bare), name=bare)


def _expr(sql: str) -> FakeColumn:
    if not sql.startswith("`"):
        raise NotImplementedError(f"the fake Spark does not know {sql}")
    return _col(sql)


#: takes the place of ``pyspark.sql.functions``
FUNCTIONS = SimpleNamespace(
    col=_col,
    expr=_expr,
    lit=lambda value: FakeColumn(lambda rows: pa.scalar(int(value), pa.int64())),
    unix_micros=lambda column: FakeColumn(lambda rows: pc.cast(column.values(rows), pa.int64())),
    broadcast=lambda frame: frame,
)


# --- frames -----------------------------------------------------------------------------------------------------


class FakeFrame:
    """Rows that are computed when they are asked for."""

    def __init__(self, session: FakeSession, compute: Callable[[], pa.Table]) -> None:
        self.sparkSession = session
        self.compute = compute

    def map(self, function: Callable[..., pa.Table], *others: FakeFrame) -> FakeFrame:
        """What ``function`` makes of the rows, and those of other frames."""
        return FakeFrame(self.sparkSession, lambda: function(self.compute(), *(other.compute() for other in others)))

    def toArrow(self) -> pa.Table:  # noqa: N802 - as Spark calls it
        self.sparkSession.job(self.sparkSession.group)
        return self.compute()

    def where(self, condition: FakeColumn) -> FakeFrame:
        return self.map(lambda rows: rows.filter(condition.values(rows)))

    def select(self, *columns: FakeColumn) -> FakeFrame:
        return self.map(lambda rows: pa.table({column.name: column.values(rows) for column in columns}))

    def unionAll(self, other: FakeFrame) -> FakeFrame:  # noqa: N802
        return self.map(lambda one, two: pa.concat_tables([one, two]), other)

    def distinct(self) -> FakeFrame:
        return self.map(lambda rows: rows.group_by(rows.column_names, use_threads=False).aggregate([]))

    def join(self, other: FakeFrame, condition: FakeColumn, how: str) -> FakeFrame:
        assert how == "left_semi"

        def joined(left: pa.Table, right: pa.Table) -> pa.Table:
            wanted = set(zip(*(right.column(name).to_pylist() for _, name in condition.pairs), strict=True))
            keys = zip(*(column.values(left).to_pylist() for column, _ in condition.pairs), strict=True)
            return left.filter(pa.array([key in wanted for key in keys], pa.bool_()))

        return self.map(joined, other)

    def persist(self) -> FakeFrame:
        return self

    def unpersist(self) -> None:
        pass


class FakeSession:
    """A session; ``group`` is the name of the job group that was set last, such as ``headgate large``."""

    def __init__(self, job: Callable[[str], None]) -> None:
        self.job = job
        self.group = ""
        settings: dict[str, str] = {}
        self.conf = SimpleNamespace(get=settings.get, set=settings.__setitem__, getAll=settings)
        self.sparkContext = SimpleNamespace(
            setJobGroup=self._set_group,
            setLocalProperty=lambda key, value: None,
            cancelJobGroup=lambda group: None,
            _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False)),
        )
        self.read = SimpleNamespace(schema=lambda schema: SimpleNamespace(parquet=self._parquet_reader(schema)))

    def _set_group(self, group: str, description: str, interrupt: bool) -> None:
        self.group = group

    def newSession(self) -> FakeSession:  # noqa: N802
        return FakeSession(self.job)

    def createDataFrame(self, rows: Any, schema: Any = None) -> FakeFrame:  # noqa: N802
        table = rows if isinstance(rows, pa.Table) else arrow_schema(schema).empty_table()
        return FakeFrame(self, lambda: table)

    def _parquet_reader(self, schema: Any) -> Callable[..., FakeFrame]:
        columns = arrow_schema(schema)

        def read(*paths: str) -> FakeFrame:
            def compute() -> pa.Table:
                files = [path.removeprefix("file://") for path in paths]
                tables = [pq.read_table(file, columns=columns.names, partitioning=None) for file in files]
                return pa.concat_tables([table.cast(columns) for table in tables])

            return FakeFrame(self, compute)

        return read


def arrow_schema(schema: Any) -> pa.Schema:
    """The Arrow types of a schema of Spark."""
    return pa.schema([(field.name, ARROW_TYPES[field.dataType.simpleString()]) for field in schema])


# --- reading landed files ---------------------------------------------------------------------------------------


def read_json(session: FakeSession, batch: FileBatch) -> FakeFrame:
    """Takes the place of the reader of JSON lines: good rows, and bad ones with the reason."""
    names = [column.name for column in batch.columns]
    types = [ARROW_TYPES[column.kind] for column in batch.columns]

    def compute() -> pa.Table:
        rows: list[Sequence[Any]] = []
        for name in batch.names:
            for line in lines_of(batch.path(name)):
                values, error = _parsed(line, names, types)
                rows.append((*values, name, line, error))
        columns = list(zip(*rows, strict=True)) if rows else [()] * (len(names) + 3)
        all_types = [*types, pa.string(), pa.string(), pa.string()]
        arrays = [pa.array(values, kind) for values, kind in zip(columns, all_types, strict=True)]
        return pa.table(arrays, names=[*names, FILE_COLUMN, RAW_COLUMN, ERROR_COLUMN])

    return FakeFrame(session, compute)


def lines_of(path: str) -> list[str]:
    try:
        with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as file:
            return [line for line in file.read().splitlines() if line.strip()]
    except (OSError, EOFError) as error:
        raise SparkFailed(f"{path} cannot be read: {error}") from error


def _parsed(line: str, names: Iterable[str], types: Iterable[pa.DataType]) -> tuple[list[Any], str | None]:
    try:
        found: Mapping[str, Any] = json.loads(line)
        if not isinstance(found, dict):
            raise ValueError("not an object")
    except ValueError:
        return [None for _ in names], "it is not a JSON object"
    values = [found.get(name) for name in names]
    return [
        round(datetime.fromisoformat(value).timestamp() * MICROS) if kind == TIME and value is not None else value
        for value, kind in zip(values, types, strict=True)
    ], None
