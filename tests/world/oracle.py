"""What must be true of a world at its end: every table is its batch query over what has landed.

Nothing here uses the warehouse but to read its tables. A file that was replaced or deleted before it was surely loaded
may have been loaded in any of its versions, or not at all: then every version is right, if it is one, and whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate.warehouse.declare.spec import REJECTED_SUFFIX
from headgate.warehouse.storage.store import TableStore
from tests.world.events import Line
from tests.world.landing import Landing
from tests.world.tables import KINDS, MAX_FUTURE, ORDERS, SHOPS, Declaration, Row, expected, with_sources


def read_table(folder: Path, columns: Iterable[str], time: str | None) -> list[Row]:
    """The rows of a table, sorted; none if there is no table."""
    store = TableStore(folder, time)
    if not store.exists or not store.files():
        return []
    rows: pa.Table = store.rows(store.files())
    values = [_plain(rows.column(name)) for name in columns]
    return sorted(zip(*values, strict=True))


def _plain(column: pa.ChunkedArray) -> list[Any]:
    plain: list[Any] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return plain


class Oracle:
    """Compares the tables below ``tables`` with what the landing folders have seen.

    ``erased`` are the numbers of rows that another program deleted.
    """

    def __init__(self, tables: Path, landing: Landing) -> None:
        self._tables = tables
        self._landing = landing
        self.erased: set[int] = set()

    def problems(self, declared: Declaration, earliest: float) -> list[str]:
        """What is wrong, in sentences; nothing if all is right.

        ``earliest`` is the least time that was ever on the wall: rows far ahead of it may have been rejected.
        """
        orders = read_table(self._tables / "orders", ORDERS, "ts")
        rejected = [row[0] for row in read_table(self._tables / f"orders{REJECTED_SUFFIX}", ["raw"], None)]
        wrong = self._stream(orders, rejected, earliest)
        shops = sorted(row for rows in self._landing.states[-1].values() for row in rows)
        wrong += _differences("shops", read_table(self._tables / "shops", SHOPS, None), shops)
        wanted = expected(declared, orders, shops)
        for name in with_sources(declared.tables):
            kind = KINDS[name]
            wrong += _differences(name, read_table(self._tables / name, kind.columns, kind.time), wanted[name])
        return wrong

    def _stream(self, orders: Sequence[Row], rejected: Sequence[str], earliest: float) -> list[str]:
        loaded, refused = Counter(row[3] for row in orders), Counter(rejected)
        rows = {row[3]: row for row in orders}
        known = {line.number: line for versions in self._landing.versions.values() for v in versions for line in v}
        wrong = [f"orders has a row that nobody landed: {rows[number]}" for number in loaded if number not in known]
        landed = {number: known[number].row for number in rows if number in known}
        wrong += [f"orders has {rows[n]}, which is not {row}" for n, row in landed.items() if rows[n] != row]
        wrong += [f"orders has row {number} {count} times" for number, count in loaded.items() if count > 1]
        wrong += [f"orders{REJECTED_SUFFIX} has {text!r} {count} times" for text, count in refused.items() if count > 1]
        wrong += [f"row {number} was deleted, and is there again" for number in self.erased if number in loaded]
        for name, versions in self._landing.versions.items():
            wrong += self._file(name, versions, loaded, refused, earliest)
        return wrong

    def _file(
        self,
        name: str,
        versions: Sequence[tuple[Line, ...]],
        loaded: Collection[int],
        refused: Collection[str],
        earliest: float,
    ) -> list[str]:
        found = [lines for lines in versions if any(self._is_there(line, loaded, refused) for line in lines)]
        good = [lines for lines in found if any(line.number in loaded for line in lines)]
        if len(good) > 1:
            return [f"orders has rows of {len(good)} versions of {name}"]
        # The bad lines of a version may be there although the file was mended before its good lines were loaded.
        chosen = good or found
        if not chosen:
            must = name in self._landing.there and name not in self._landing.unreadable
            return [f"orders has no row of {name}, which has {len(versions[-1])} lines"] if must else []
        options = [self._missing(name, lines, loaded, refused, earliest) for lines in chosen]
        return min(options, key=len)

    def _is_there(self, line: Line, loaded: Collection[int], refused: Collection[str]) -> bool:
        return line.number in loaded or line.text in refused or line.number in self.erased

    def _missing(
        self, name: str, lines: Sequence[Line], loaded: Collection[int], refused: Collection[str], earliest: float
    ) -> list[str]:
        wrong = []
        for line in lines:
            is_future = line.moment / 1e6 > earliest + MAX_FUTURE
            is_rejected = line.text in refused
            if line.bad:
                if not is_rejected:
                    wrong.append(f"orders{REJECTED_SUFFIX} lacks line {line.number} of {name}")
            elif line.number in loaded or line.number in self.erased:
                if is_rejected:
                    wrong.append(f"line {line.number} of {name} is in orders and is rejected")
            elif not (is_rejected and is_future):
                why = ", which is rejected" if is_rejected else ""
                wrong.append(f"orders lacks line {line.number} of {name}{why}")
        return wrong


def _differences(name: str, rows: Sequence[Row], wanted: Sequence[Row]) -> list[str]:
    there, should = Counter(rows), Counter(wanted)
    lacks, extra = list((should - there).elements()), list((there - should).elements())
    if not lacks and not extra:
        return []
    return [f"{name} is not its query: it lacks {lacks[:3]} and has {extra[:3]} too many ({len(lacks)}, {len(extra)})"]
