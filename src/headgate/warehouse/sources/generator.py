"""A source of generated rows that arrive on schedule: for trials, tests and measurements.

Chunk ``k`` arrives at ``start + k * every`` and holds events of the time since the chunk before it. Its rows depend
only on the seed, on ``k`` and on when the stream began. So after a restart the same rows can be read again, and the
chunks that arrived in between are there as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from headgate.core import DeclarationError
from headgate.warehouse.declare.collecting import noting_a_mistake
from headgate.warehouse.declare.durations import readable, seconds
from headgate.warehouse.sources.generated_rows import BROKEN, CHUNK, Recipe, RowFunction, check_kind
from headgate.warehouse.sources.protocol import Limit, Offset, Pending, Range, expect_kind
from headgate.warehouse.sources.schema import Column, parse_schema
from headgate.warehouse.sources.sql import ADDED, as_json, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class GeneratorOffset(Offset, kind="generator"):
    """When the stream began, in microseconds since the epoch, and which chunks have been loaded.

    ``loaded`` are ranges of chunks (first, last), in order and with gaps between them: loading the newest first leaves
    gaps.
    """

    began: int
    loaded: tuple[tuple[int, int], ...] = ()

    def after(self, first: int, last: int) -> GeneratorOffset:
        """The offset with the chunks ``first`` to ``last`` loaded, too."""
        runs: list[tuple[int, int]] = []
        for begin, end in sorted([*self.loaded, (first, last)]):
            if runs and begin <= runs[-1][1] + 1:
                runs[-1] = (runs[-1][0], max(runs[-1][1], end))
            else:
                runs.append((begin, end))
        return GeneratorOffset(self.began, tuple(runs))

    def gaps(self, arrived: int) -> Iterator[tuple[int, int]]:
        """The runs of chunks not loaded among the first ``arrived`` ones."""
        begin = 0
        for first, last in self.loaded:
            if begin < min(first, arrived):
                yield begin, min(first, arrived) - 1
            begin = last + 1
        if begin < arrived:
            yield begin, arrived - 1

    def _content(self) -> dict[str, object]:
        return {"began": self.began, "loaded": [list(run) for run in self.loaded]}

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls(int(content["began"]), tuple((int(first), int(last)) for first, last in content["loaded"]))


@dataclass(frozen=True, slots=True)
class GeneratorRange(Range, kind="generator"):
    """The chunks ``first`` to ``last`` of a stream that began at ``began``, in microseconds since the epoch."""

    began: int
    first: int
    last: int
    bytes_per_chunk: int
    oldest: float
    newest: float

    @property
    def chunks(self) -> int:
        return self.last - self.first + 1

    @property
    def bytes(self) -> int:
        return self.chunks * self.bytes_per_chunk

    def _content(self) -> dict[str, object]:
        return {
            "began": self.began,
            "chunks": [self.first, self.last],
            "bytes_per_chunk": self.bytes_per_chunk,
            "oldest": self.oldest,
            "newest": self.newest,
        }

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        first, last = content["chunks"]
        return cls(
            began=int(content["began"]),
            first=int(first),
            last=int(last),
            bytes_per_chunk=int(content["bytes_per_chunk"]),
            oldest=float(content["oldest"]),
            newest=float(content["newest"]),
        )


_MICROS = 1_000_000


class Generator:
    """A source of generated rows.

    - ``schema``: the columns. The first timestamp is the event time unless ``time`` names another.
    - ``rows_per_chunk``, ``every``: rows per chunk, and the time between chunks.
    - ``seed``: the same seed gives the same rows.
    - ``start``: when chunk 0 arrives, in seconds since the epoch or as in ``"2026-11-15T10:00:00Z"``. If it is not
      set, that is the moment at which the stream is loaded for the first time.
    - ``kind``: ``"sensors"``, which fills columns by their type, or a function that takes a NumPy random generator and
      returns an Arrow table of as many rows as it likes. It must draw all its random numbers from that generator.
    - ``late``: the share of rows that are up to ``late_by`` older than their chunk.
    - ``malformed``: the share of rows that cannot be parsed.
    """

    @noting_a_mistake()
    def __init__(
        self,
        schema: str = "ts timestamp, sensor string, temp double",
        *,
        rows_per_chunk: int = 1_000,
        every: str | float = "2 seconds",
        seed: int = 0,
        start: float | str | None = None,
        kind: str | RowFunction = "sensors",
        time: str | None = None,
        late: float = 0.0,
        late_by: str | float = "1 minute",
        malformed: float = 0.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        where = "Generator"
        columns = parse_schema(schema, where)
        event_time = _event_time(columns, time, where)
        check_kind(kind, columns, event_time, where)
        for name, share in (("late", late), ("malformed", malformed)):
            if not 0 <= share <= 1:
                raise DeclarationError(f"{where}: {name} is a share of the rows, from 0 to 1; got {share!r}")
        for name, number, least in (("rows_per_chunk", rows_per_chunk, 1), ("seed", seed, 0)):
            if not isinstance(number, int) or number < least:
                raise DeclarationError(f"{where}: {name} is a whole number, at least {least}; got {number!r}")
        period = round(seconds(every, f"{where}: every") * _MICROS)
        if period <= 0:
            raise DeclarationError(f"{where}: every is a length of time above 0; got {every!r}")
        self._schema = schema
        self._clock = clock
        self._start = None if start is None else _moment(start, where)
        self._recipe = Recipe(
            columns=columns,
            time=event_time,
            rows=rows_per_chunk,
            every=period,
            seed=seed,
            kind=kind,
            late=late,
            late_by=round(seconds(late_by, f"{where}: late_by") * _MICROS),
            malformed=malformed,
        )

    def __repr__(self) -> str:
        recipe = self._recipe
        every = readable(recipe.every / _MICROS)
        return f"Generator({self._schema!r}, rows_per_chunk={recipe.rows}, every={every!r}, seed={recipe.seed})"

    @property
    def schema(self) -> str:
        return self._schema

    def resolve(self, base: Path) -> Generator:
        return self

    def start(self) -> GeneratorOffset:
        return GeneratorOffset(round(self._clock() * _MICROS) if self._start is None else self._start)

    def latest(self, offset: Offset) -> Pending:
        here = expect_kind(offset, GeneratorOffset, self)
        arrived = self._arrived(here)
        if arrived == 0:
            return Pending(note=f"begins at {_in_utc(here.began)}")
        gaps = list(here.gaps(arrived))
        if not gaps:
            return Pending()
        chunks = sum(last - first + 1 for first, last in gaps)
        return Pending(
            chunks=chunks,
            bytes=chunks * self._recipe.bytes_per_chunk,
            oldest=self._arrival(here.began, gaps[0][0]) / _MICROS,
            newest=self._arrival(here.began, gaps[-1][1]) / _MICROS,
        )

    def next_range(self, offset: Offset, limit: Limit) -> GeneratorRange | None:
        here = expect_kind(offset, GeneratorOffset, self)
        gaps = list(here.gaps(self._arrived(here)))
        if not gaps:
            return None
        most = self._most(limit)
        if limit.first == "oldest":
            first, last = gaps[0]
            last = last if most is None else min(last, first + most - 1)
        else:
            first, last = gaps[-1]
            first = first if most is None else max(first, last - most + 1)
        return GeneratorRange(
            began=here.began,
            first=first,
            last=last,
            bytes_per_chunk=self._recipe.bytes_per_chunk,
            oldest=self._arrival(here.began, first) / _MICROS,
            newest=self._arrival(here.began, last) / _MICROS,
        )

    def advance(self, offset: Offset, loaded: Range) -> GeneratorOffset:
        run = expect_kind(loaded, GeneratorRange, self)
        return expect_kind(offset, GeneratorOffset, self).after(run.first, run.last)

    def read(self, spark: SparkSession, wanted: Range) -> DataFrame:
        import pyarrow as pa  # type: ignore[import-untyped]

        run = expect_kind(wanted, GeneratorRange, self)
        chunks = [self._recipe.chunk(k, self._arrival(run.began, k)) for k in range(run.first, run.last + 1)]
        columns = self._recipe.columns
        schema = f"{ddl(columns)}, {CHUNK} string, {BROKEN} boolean"
        # Permissive, because a column of a user's function may be all null in one chunk.
        rows = spark.createDataFrame(pa.concat_tables(chunks, promote_options="permissive"), schema)
        text = as_json(column.quoted for column in columns)
        file, raw, error = ADDED
        return rows.selectExpr(
            *(f"IF({BROKEN}, NULL, {column.quoted}) AS {column.quoted}" for column in columns),
            f"{CHUNK} AS {file}",
            f"IF({BROKEN}, left({text}, length({text}) div 2), {text}) AS {raw}",
            f"IF({BROKEN}, 'made malformed by the generator', NULL) AS {error}",
        )

    def verify(self, loaded: Range) -> None:
        """Nothing can have changed."""

    def _arrived(self, offset: GeneratorOffset) -> int:
        """How many chunks there are by now."""
        elapsed = int(self._clock() * _MICROS) - offset.began
        return elapsed // self._recipe.every + 1 if elapsed >= 0 else 0

    def _arrival(self, began: int, number: int) -> int:
        return began + number * self._recipe.every

    def _most(self, limit: Limit) -> int | None:
        """How many chunks a limit allows; all have the same size and the same distance in time."""
        allowed = []
        if limit.chunks is not None:
            allowed.append(limit.chunks)
        if limit.bytes is not None:
            allowed.append(limit.bytes // self._recipe.bytes_per_chunk)
        if limit.seconds is not None:
            allowed.append(round(limit.seconds * _MICROS) // self._recipe.every + 1)
        return max(1, min(allowed)) if allowed else None


def _event_time(columns: tuple[Column, ...], named: str | None, where: str) -> str:
    timestamps = [column.name for column in columns if column.kind == "timestamp"]
    if named is None and timestamps:
        return timestamps[0]
    if named in timestamps:
        return named
    declared = ", ".join(f"{column.name} {column.type}" for column in columns)
    raise DeclarationError(f"{where} needs a timestamp column for the event time; got time={named!r} and {declared!r}")


def _moment(start: float | str, where: str) -> int:
    """A moment in microseconds since the epoch."""
    if isinstance(start, int | float):
        return round(start * _MICROS)
    try:
        moment = datetime.fromisoformat(start)
    except (TypeError, ValueError):
        raise DeclarationError(
            f"{where}: start takes a moment such as '2026-11-15T10:00:00Z' or seconds since the epoch; got {start!r}"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * _MICROS)


def _in_utc(micros: int) -> str:
    return datetime.fromtimestamp(micros / _MICROS, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
