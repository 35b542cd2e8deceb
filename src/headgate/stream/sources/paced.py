"""The rate-controlled generator: rows that come when a pattern says, for demos, tests and measurements.

A row *arrives* when it is due, whether or not anybody reads it then. If an engine does not keep up, rows wait here and
the time counts as latency. A generator that slowed down with the engine would hide what is to be measured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import DeclarationError, ParameterError, user_error
from headgate.stream.sources.batches import Batches
from headgate.stream.sources.blocks import Block, Cursor, Pieces
from headgate.stream.sources.fit import fit_columns
from headgate.stream.sources.patterns import Constant, Dues, Pattern
from headgate.stream.sources.source import Chunk, Reader, Source, Wake

#: block number -> its rows, the same every time; None after the last
BlockFunction = Callable[[int], pa.RecordBatch | None]
_BLOCK_ROWS = 1 << 14


class Paced:
    """A source whose rows come at a rate.

    - ``made_from``: a table, which is repeated without end; another source, or an iterable of record batches; or a
      function that makes block number 0, 1, 2, ... and may give None after the last.
    - ``rate``: a pattern such as ``Batched(10_000)``, or just a number of rows a second. With ``Replay``, a table is
      not repeated.
    - ``rows``, ``seconds``: end after so many rows, or before the rows that are due after so long.
    """

    def __init__(
        self,
        made_from: pa.Table | pa.RecordBatch | Source | Iterable[pa.RecordBatch] | BlockFunction,
        rate: Pattern | float,
        *,
        rows: int | None = None,
        seconds: float | None = None,
    ) -> None:
        for name, limit in (("rows", rows), ("seconds", seconds)):
            if limit is not None and not limit >= 0:
                raise ParameterError(f"Paced: {name} is a limit, 0 or more; got {limit!r}")
        self._pattern = Constant(rate) if isinstance(rate, int | float) else rate
        self._most_rows = math.inf if rows is None else rows
        self._seconds = math.inf if seconds is None else seconds
        self._supply = _supply(made_from, repeated=not self._pattern.by_rows)
        self.schema = self._supply.schema
        self._pattern.check(self.schema)

    def __repr__(self) -> str:
        return f"Paced({self._supply}, {self._pattern})"

    def open(self, wake: Wake, now: float) -> PacedReader:
        cursor = Cursor(self.schema, self._supply.blocks(now))
        return PacedReader(self.schema, cursor, self._pattern, now, self._most_rows, now + self._seconds)


@dataclass(frozen=True, slots=True)
class _Ahead:
    """The rows that come next: when they are due, the first of them in its block, and how many more there may be."""

    dues: Dues
    offset: int
    rows_left: float
    last_moment: float

    @property
    def at(self) -> float:
        return self.dues.at(self.offset)

    def due_rows(self, now: float) -> int:
        due = self.dues.count(min(now, self.last_moment)) - self.offset
        return int(max(0, min(due, self.rows_left)))


class PacedReader:
    """One run. Row 0 is due when the run begins.

    ``read`` looks ahead before it returns, so that the other methods only look at what it has found: they may be called
    at any time, also while it runs.
    """

    def __init__(
        self, schema: pa.Schema, cursor: Cursor, pattern: Pattern, start: float, rows: float, stop: float
    ) -> None:
        self._schema = schema
        self._cursor = cursor
        self._timetable = pattern.timetable(start)
        self._dues: Dues | None = None
        self._dues_block = 0
        self._rows_read = 0
        self._most_rows = rows
        self._stop = stop
        self._stopped = False
        self._ahead = self._look_ahead()

    def ready_at(self, now: float) -> float:
        ahead = self._ahead
        if ahead is not None:
            return ahead.at
        return math.inf if self.ended else now

    def waiting(self, now: float) -> int:
        ahead = self._ahead
        return 0 if ahead is None else ahead.due_rows(now)

    def read(self, most: int, now: float) -> Chunk | None:
        pieces, first, last = Pieces(), now, now
        while pieces.rows < most and (ahead := self._ahead) is not None:
            rows = min(ahead.due_rows(now), self._cursor.at_hand(), most - pieces.rows)
            if not rows:
                break
            first = first if pieces.rows else ahead.at
            last = ahead.dues.at(ahead.offset + rows - 1)
            pieces.add(self._cursor.cut(rows))
            self._rows_read += rows
            self._ahead = self._look_ahead()
        if self._ahead is None:
            pieces.reject(self._cursor.remains())
            self._ahead = self._look_ahead(may_raise=pieces.is_empty)
        block = pieces.block(self._schema)
        return None if block is None else Chunk(block.batch, first, last, block.rejected)

    @property
    def ended(self) -> bool:
        return self._stopped or self._rows_read >= self._most_rows or self._cursor.ended

    def close(self) -> None:
        self._stopped, self._ahead = True, None
        self._cursor.close()

    def _look_ahead(self, *, may_raise: bool = False) -> _Ahead | None:
        """What comes next; None if there is nothing more, or only malformed rows or an error."""
        if self.ended or not self._cursor.look(may_raise=may_raise):
            return None
        offset = self._cursor.offset
        if self._dues is None or self._dues_block != self._cursor.blocks:
            self._dues = self._timetable.block(self._rows_read, self._cursor.batch)
            self._dues_block = self._cursor.blocks
        if self._dues.at(offset) >= self._stop:
            self.close()
            return None
        return _Ahead(self._dues, offset, self._most_rows - self._rows_read, math.nextafter(self._stop, -math.inf))


class _FromTable:
    """The rows of a table, repeated or once."""

    def __init__(self, table: pa.Table, repeated: bool) -> None:
        if repeated and not table.num_rows:
            raise DeclarationError("Paced cannot repeat a table without rows. Pass a table with at least one.")
        self._table = table.replace_schema_metadata(None)
        self._repeated = repeated
        self.schema = self._table.schema

    def __repr__(self) -> str:
        return f"a table of {self._table.num_rows} rows"

    def blocks(self, now: float) -> Iterator[Block]:
        batches = self._table.to_batches(max_chunksize=_BLOCK_ROWS)
        return (Block(batch) for batch in (itertools.cycle(batches) if self._repeated else batches))


class _FromFunction:
    """The blocks that a function makes."""

    def __init__(self, function: BlockFunction) -> None:
        self._function = function
        first = self._call(0)
        if first is None:
            raise DeclarationError("Paced: the function gives None for block 0, so there are no rows and no columns.")
        self.schema = first.schema.remove_metadata()

    def __repr__(self) -> str:
        return getattr(self._function, "__name__", "a function")

    def blocks(self, now: float) -> Iterator[Block]:
        for number in itertools.count():
            batch = self._call(number)
            if batch is None:
                return
            yield fit_columns(batch, self.schema, f"Paced: block {number} of {self}")

    def _call(self, number: int) -> pa.RecordBatch | None:
        try:
            batch = self._function(number)
        except Exception as error:
            raise user_error(f"Paced: {self} failed to make block {number}", error) from error
        if batch is not None and not isinstance(batch, pa.RecordBatch):
            raise DeclarationError(
                f"Paced: {self} must give a record batch, or None after the last; for block {number} it gave "
                f"{type(batch).__name__}."
            )
        return batch


class _FromSource:
    """The rows of another source, which has to have them at hand."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.schema = source.schema

    def __repr__(self) -> str:
        return repr(self._source)

    def blocks(self, now: float) -> Iterator[Block]:
        return _ReaderBlocks(self._source.open(lambda: None, now), now, repr(self))


class _ReaderBlocks:
    """The blocks of a reader. Not a generator: one that was never begun cannot be closed."""

    def __init__(self, reader: Reader, now: float, name: str) -> None:
        self._reader = reader
        self._now = now
        self._name = name

    def __iter__(self) -> Iterator[Block]:
        return self

    def __next__(self) -> Block:
        while not self._reader.ended:
            chunk = self._reader.read(_BLOCK_ROWS, self._now)
            if chunk is not None:
                return Block(chunk.batch, chunk.rejected)
            if not self._reader.ended:
                raise DeclarationError(
                    f"Paced needs a source that has its rows at hand, such as files; {self._name} waits for them to "
                    f"come. Use it without Paced."
                )
        raise StopIteration

    def close(self) -> None:
        self._reader.close()


def _supply(
    made_from: pa.Table | pa.RecordBatch | Source | Iterable[pa.RecordBatch] | BlockFunction, repeated: bool
) -> _FromTable | _FromFunction | _FromSource:
    if isinstance(made_from, pa.RecordBatch):
        made_from = pa.Table.from_batches([made_from])
    if isinstance(made_from, pa.Table):
        return _FromTable(made_from, repeated)
    if isinstance(made_from, Source):
        return _FromSource(made_from)
    if callable(made_from):
        return _FromFunction(made_from)
    if isinstance(made_from, Iterable):
        return _FromSource(Batches(made_from))
    raise DeclarationError(
        f"Paced takes a table, a source, an iterable of record batches or a function of the block's number; "
        f"got {type(made_from).__name__}."
    )
