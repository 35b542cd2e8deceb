"""Messages of pgoutput and values that PostgreSQL has printed, by examples that a server has written."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from headgate.warehouse.sources import SourceError
from headgate.warehouse.sources.postgres.changes_offsets import (
    ChangesOffset,
    ChangesRange,
    SeenTransactions,
    lsn_text,
)
from headgate.warehouse.sources.postgres.pgoutput import (
    UNCHANGED,
    BeginMessage,
    CommitMessage,
    RelationMessage,
    RowMessage,
    TruncateMessage,
    parse,
)
from headgate.warehouse.sources.postgres.texts import column_of
from headgate.warehouse.sources.schema import Column

MESSAGES: dict[str, tuple[bytes, Any]] = {
    "begin": (
        b"B\0\0\0\0\x01\x92a\xb0\0\x03\x03l8\xbbp^\0\0\x02\xd8",
        BeginMessage(0x19261B0, 1794873073291358, 728),
    ),
    "commit": (
        b"C\0\0\0\0\0\x01\x92a\xb0\0\0\0\0\x01\x92c \0\x03\x03l8\xbbp^",
        CommitMessage(0x19261B0, 0x1926320),
    ),
    "relation": (
        b"R\0\0@\x01public\0t\0d\0\x02\x01id\0\0\0\0\x17\xff\xff\xff\xff\0a\0\0\0\0\x19\xff\xff\xff\xff",
        RelationMessage(16385, "public", "t", "d", ("id", "a")),
    ),
    "insert": (b"I\0\0@\x01N\0\x02t\0\0\0\x012n", RowMessage("insert", 16385, new=("2", None))),
    "update": (b"U\0\0@\x01N\0\x02t\0\0\0\x012u", RowMessage("update", 16385, new=("2", UNCHANGED))),
    "update of a key": (
        b"U\0\0@\x01K\0\x02t\0\0\0\x012nN\0\x02t\0\0\0\x013t\0\0\0\x02\xc3\xbc",
        RowMessage("update", 16385, old=("2", None), new=("3", "ü")),
    ),
    "update of a whole row": (
        b"U\0\0@\x01O\0\x01t\0\0\0\x012N\0\x01t\0\0\0\x013",
        RowMessage("update", 16385, old=("2",), new=("3",), old_is_whole=True),
    ),
    "delete": (b"D\0\0@\x01K\0\x02t\0\0\0\x013n", RowMessage("delete", 16385, old=("3", None))),
    "truncate": (b"T\0\0\0\x02\0\0\0@\x01\0\0@\x02", TruncateMessage((16385, 16386))),
    "type": (b"Y\0\0@\x01public\0mood\0", None),
}


@pytest.mark.parametrize(("data", "expected"), MESSAGES.values(), ids=MESSAGES)
def test_a_message_is_understood(data: bytes, expected: Any) -> None:
    assert parse(data) == expected


@pytest.mark.parametrize("data", [data for name, (data, _) in MESSAGES.items() if name != "type"])
def test_a_message_that_is_cut_off_is_refused(data: bytes) -> None:
    for length in range(1, len(data)):
        with pytest.raises(SourceError, match="cannot be understood"):
            parse(data[:length])


SEEN = SeenTransactions(before=1000, running=(990,), since=300, until=500)
TRANSACTIONS = {
    "committed before": (999, 400, True),
    "was running": (990, 400, False),
    "began after": (1000, 400, False),
    "committed after, numbers begin anew": (5, 600, False),
}


@pytest.mark.parametrize(("transaction", "commit", "is_seen"), TRANSACTIONS.values(), ids=TRANSACTIONS)
def test_a_snapshot_has_the_transactions_that_were_committed_before_it(
    transaction: int, commit: int, is_seen: bool
) -> None:
    assert SEEN.has(transaction, commit) == is_seen
    around = SeenTransactions((7 << 32) + 10, ((6 << 32) + 0xFFFFFFF0,), 300, 500)
    assert around.has(9, 400) and around.has(0xFFFFFFF1, 400)
    assert not around.has(10, 400) and not around.has(0xFFFFFFF0, 400)


VALUES: dict[str, tuple[str, Any]] = {
    "boolean": ("t", True),
    "smallint": ("-3", -3),
    "bigint": ("9223372036854775807", 2**63 - 1),
    "double": ("1e-320", 1e-320),
    "float": ("-Infinity", float("-inf")),
    "decimal(10, 2)": ("1.50", Decimal("1.50")),
    "decimal(38, 0)": ("9" * 38, Decimal("9" * 38)),
    "date": ("2026-11-16", date(2026, 11, 16)),
    "timestamp": ("2026-11-16 23:51:13.289704+00", datetime(2026, 11, 16, 23, 51, 13, 289704, UTC)),
    "timestamp_ntz": ("2026-11-16 23:51:13", datetime(2026, 11, 16, 23, 51, 13)),
    "binary": ("\\x00ff", b"\x00\xff"),
    "string": ("ü", "ü"),
    "array<int>": ("{1,NULL,3}", [1, None, 3]),
    "array<string>": (r'{a,"b,\"c\\",NULL,"NULL",""}', ["a", 'b,"c\\', None, "NULL", ""]),
}


@pytest.mark.parametrize(("kind", "text", "value"), [(kind, *pair) for kind, pair in VALUES.items()], ids=VALUES)
def test_a_printed_value_has_its_type(kind: str, text: str, value: Any) -> None:
    found, problems = column_of([text, None], Column("c", kind))
    assert (found.to_pylist(), problems) == ([value, None], {})


MISFITS = {
    "timestamp": "infinity",
    "date": "0044-03-15 BC",
    "decimal(10, 2)": "NaN",
    "int": "x",
    "boolean": "maybe",
    "binary": "abc",
    "array<int>": "{{1,2},{3,4}}",
}


@pytest.mark.parametrize(("kind", "text"), MISFITS.items(), ids=MISFITS)
def test_a_printed_value_that_does_not_fit_is_null_and_named(kind: str, text: str) -> None:
    good = VALUES.get(kind, ("7", None))[0]
    found, problems = column_of([good, text, good], Column("c", kind))
    assert problems == {1: f"column c: {text!r} is not a {kind} of Spark"}
    assert [value is None for value in found.to_pylist()] == [False, True, False]


def test_places_are_kept_and_a_range_counts_once() -> None:
    some: dict[str, Any] = {"blocks": 1, "size": 9, "oldest": 1.0, "newest": 2.0}
    seen = SeenTransactions(9, (7,), 100, 150)
    begun = ChangesRange((0, 0, 0), (1, 100, 0), 0, 2, "name", seen, "me", **some)
    part = ChangesRange((1, 100, 0), (1, 120, 3), 2, 3, **some)
    rest = ChangesRange((1, 120, 3), (1, 200, 0), 5, 4, **some)
    offset = ChangesOffset()
    for loaded in (begun, part, part, rest, begun):
        offset = offset.after(ChangesRange.from_json(loaded.to_json()))
        assert ChangesOffset.from_json(offset.to_json()) == offset
        if loaded is part:
            assert offset == ChangesOffset((1, 120, 3), 5, begun.seen, "me")
    assert offset == ChangesOffset((1, 200, 0), 9, None, "me")
    assert lsn_text(0x1_0000_ABCD) == "1/ABCD"
