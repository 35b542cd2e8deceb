"""Readings as lines of SenML: ``epoch_ms,{"e":[{"u":unit,"n":name,"sv" or "v":value},...],"bt":base time}``.

Most lines have one layout, that of ``write``. Those are cut at the places where the layout says that values are, and
written again from what was cut out: if that gives the same line, they have been read as JSON would read them. All
others, with entries in another order, left out, or not even JSON, are read one by one. A line's own content decides
which way it goes, and both ways give the same.

The time of a reading is its base time; the one before the first comma only says when the line was sent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.stream import Ints, Output, Rejected
from workloads.riot.numbers import NULL, is_whole, parse_number, parse_numbers, transposed
from workloads.riot.schema import READINGS, UNITS, Floats, nullable

#: milliseconds since 1970 have so many digits until the year 2286
_EPOCH_DIGITS = 13
_HEAD = b',{"e":[{"u":"string","n":"source","sv":"'
_BETWEEN = b'"},{"v":"'
_TAILS = tuple(f'","u":"{unit}","n":"{name}'.encode() for name, unit in UNITS.items())
_END = b'"}],"bt":'
#: beyond every line; without an end, Arrow multiplies the greatest integer by the number of rows
_LONGEST = 1 << 31


class _LineError(Exception):
    """The line cannot be read; the message says why."""


@dataclass(frozen=True)
class _Cut:
    """Lines of the usual layout, cut: which rows, and their values."""

    rows: Ints
    timestamps: pa.Array
    sources: pa.Array
    #: a row for each of ``UNITS``, NaN for null
    numbers: Floats


def write(readings: pa.RecordBatch) -> pa.Array:
    """The lines of a batch of readings, absent values as ``"null"``."""
    times = readings.column("timestamp").cast(pa.string()).cast(pa.binary())
    count = readings.num_rows
    numbers = pc.fill_null(pa.concat_arrays([readings.column(name) for name in UNITS]).cast(pa.string()), NULL)
    texts = [numbers.slice(place * count, count).cast(pa.binary()) for place in range(len(UNITS))]
    sources = _quoted(readings.column("source")).cast(pa.binary())
    return _laid_out(times, sources, texts, times).cast(pa.string())


def write_annotated(readings: pa.RecordBatch) -> pa.Array:
    """SenML without the leading time, with entries for location and type; entries of absent values are left out."""
    entries = _entry_pieces(readings)
    times = readings.column("timestamp").cast(pa.string())
    between = [piece for entry in entries for piece in (",", *entry)][1:]
    # Rows with an absent value come out as null here, and are few.
    messages = pc.binary_join_element_wise('{"e":[', *between, '],"bt":', times, "}", "")
    if not messages.null_count:
        return messages
    rows = messages.is_null()
    texts = [pc.binary_join_element_wise(*entry, "") for entry in entries]
    joined = pc.binary_join_element_wise(*(text.filter(rows) for text in texts), ",", null_handling="skip")
    others = pc.binary_join_element_wise('{"e":[', joined, '],"bt":', times.filter(rows), "}", "")
    return pc.replace_with_mask(messages, rows, others)


def _entry_pieces(readings: pa.RecordBatch) -> list[tuple[str, pa.Array, str]]:
    """Of each entry: what stands before the value, the value as text, what stands after it."""
    names = ("source", "location", "type")
    quoted = _quoted(pa.concat_arrays([readings.column(name) for name in names]))
    numbers = pa.concat_arrays([readings.column(name) for name in UNITS]).cast(pa.string())
    count = readings.num_rows
    source, *others = (
        (f'{{"u":"string","n":"{name}","sv":"', quoted.slice(place * count, count), '"}')
        for place, name in enumerate(names)
    )
    measured = [
        ('{"v":"', numbers.slice(place * count, count), f'","u":"{unit}","n":"{name}"}}')
        for place, (name, unit) in enumerate(UNITS.items())
    ]
    return [source, *measured, *others]


def parse(batch: pa.RecordBatch) -> Output:
    """``LINES`` as ``READINGS``, rejected lines left out."""
    cut = _cut(batch.column("line"))
    if len(cut.rows) == batch.num_rows:
        return Output(_readings(batch.column("msgid"), cut))
    return _with_odd_lines(batch, cut)


def _readings(msgids: pa.Array, cut: _Cut) -> pa.RecordBatch:
    numbers = [nullable(values) for values in cut.numbers]
    return pa.record_batch([msgids, cut.timestamps, cut.sources, *numbers], schema=READINGS)


def _laid_out(epochs: pa.Array, sources: pa.Array, texts: list[pa.Array], base_times: pa.Array) -> pa.Array:
    """Lines of the usual layout; all is bytes."""
    pieces = [epochs, _HEAD, sources]
    for text, tail in zip(texts, _TAILS, strict=True):
        pieces += [_BETWEEN, text, tail]
    return pc.binary_join_element_wise(*pieces, _END, base_times, b"}", b"")


def _quoted(texts: pa.Array) -> pa.Array:
    """Texts as JSON has them between quotes."""
    present = texts.drop_null() if texts.null_count else texts
    if _plain(present).all() and not _mask(pc.match_substring(present, '"')).any():
        return texts
    return pa.array([None if text is None else json.dumps(text)[1:-1] for text in texts.to_pylist()], pa.string())


# --- lines of the usual layout ------------------------------------------------------------------------------


def _cut(lines: pa.Array) -> _Cut:
    parts = pc.split_pattern(lines, _BETWEEN.decode())
    usual = pc.equal(pc.list_value_length(parts), len(UNITS) + 1).fill_null(False)
    rows = np.flatnonzero(usual.to_numpy(zero_copy_only=False))
    if len(rows) < len(lines):
        parts, lines = parts.filter(usual), lines.filter(usual)
    # As bytes: in a line of another layout a cut may go through a character. Such lines are dropped again.
    columns = transposed(parts.flatten().cast(pa.binary()), len(UNITS) + 1)
    epochs = pc.binary_slice(columns[0], 0, _EPOCH_DIGITS)
    sources = pc.binary_slice(columns[0], _EPOCH_DIGITS + len(_HEAD), _LONGEST)
    base_times = pc.binary_slice(columns[-1], -_EPOCH_DIGITS - 1, -1)
    texts = [pc.binary_slice(column, 0, -len(tail)) for column, tail in zip(columns[1:-1], _TAILS, strict=False)]
    texts.append(pc.binary_slice(columns[-1], 0, -len(_TAILS[-1]) - len(_END) - _EPOCH_DIGITS - 1))
    good = _mask(pc.equal(_laid_out(epochs, sources, texts, base_times), lines.cast(pa.binary())))
    good &= _mask(pc.ascii_is_decimal(epochs.cast(pa.string(), safe=False)))
    good &= _mask(pc.ascii_is_decimal(base_times.cast(pa.string(), safe=False)))
    good &= ~_mask(pc.starts_with(base_times, "0"))  # JSON has no such numbers
    good &= _plain(lines) & ~_mask(pc.match_substring(sources, '"')) & (_mask(pc.binary_length(sources)) > 0)
    cut = [base_times, sources, *texts]
    if not good.all():
        rows, kept = rows[good], pa.array(np.flatnonzero(good))
        cut = [column.take(kept) for column in cut]
    return _with_numbers(rows, *cut)


def _with_numbers(rows: Ints, base_times: pa.Array, sources: pa.Array, *texts: pa.Array) -> _Cut:
    values, bad = parse_numbers(pa.concat_arrays(texts).cast(pa.string()))
    numbers, refused = values.reshape(len(texts), -1), bad.reshape(len(texts), -1).any(axis=0)
    if refused.any():
        good = np.flatnonzero(~refused)
        rows, base_times, sources = rows[good], base_times.take(pa.array(good)), sources.take(pa.array(good))
        numbers = numbers[:, good]
    return _Cut(rows, base_times.cast(pa.string()).cast(pa.int64()), sources.cast(pa.string()), numbers)


def _plain(texts: pa.Array) -> NDArray[np.bool_]:
    """Which texts have no escapes, control characters or others that JSON might write in several ways."""
    plain: NDArray[np.bool_] = _mask(pc.ascii_is_printable(texts)) & ~_mask(pc.match_substring(texts, "\\"))
    return plain


def _mask(column: pa.Array) -> NDArray[Any]:
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


# --- all others ---------------------------------------------------------------------------------------------


def _with_odd_lines(batch: pa.RecordBatch, cut: _Cut) -> Output:
    rejected = []
    rows, odd = [], []
    for row in np.setdiff1d(np.arange(batch.num_rows), cut.rows).tolist():
        line = batch.column("line")[row].as_py() or ""
        try:
            odd.append(_parse_one(line))
            rows.append(row)
        except _LineError as error:
            rejected.append(Rejected(row, str(error), line))
    readings = _readings(batch.column("msgid").take(pa.array(cut.rows)), cut)
    all_rows = cut.rows
    if odd:
        columns = zip(*odd, strict=True)
        msgids = batch.column("msgid").take(pa.array(rows))
        arrays = [pa.array(column, READINGS.types[1 + place]) for place, column in enumerate(columns)]
        all_rows = np.concatenate([cut.rows, np.array(rows, dtype=np.int64)])
        order = np.argsort(all_rows)
        both = pa.concat_batches([readings, pa.record_batch([msgids, *arrays], schema=READINGS)])
        readings, all_rows = both.take(pa.array(order)), all_rows[order]
    return Output(readings, all_rows, (), tuple(rejected))


def _parse_one(line: str) -> tuple[Any, ...]:
    """(timestamp, source, the seven numbers) of a line in any layout."""
    epoch, comma, text = line.partition(",")
    if not comma:
        raise _LineError("expected a time, a comma and SenML; there is no comma")
    if not is_whole(epoch):
        raise _LineError(f"before the first comma: expected milliseconds as a whole number, got {epoch!r}")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _LineError(f"not JSON: {error}") from None
    entries = message.get("e") if isinstance(message, dict) else None
    if not isinstance(entries, list):
        raise _LineError("expected a JSON object with a list of entries 'e'")
    base_time = str(message.get("bt"))
    if isinstance(message.get("bt"), bool) or not is_whole(base_time):
        raise _LineError(f"bt: expected milliseconds as a whole number, got {base_time!r}")
    values = _entries(entries)
    source = values.get("source")
    if not isinstance(source, str) or not source:
        raise _LineError(f"source: expected a name, got {source!r}")
    return (int(base_time), _encodable(source), *(_number(name, values.get(name)) for name in UNITS))


def _entries(entries: list[Any]) -> dict[str, Any]:
    """{name: value}; of several entries of one name the last counts, and unknown names are passed over."""
    values = {}
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("n"), str):
            raise _LineError(f"expected an entry with a name 'n', got {entry!r}")
        values[entry["n"]] = entry.get("sv" if entry["n"] == "source" else "v")
    return values


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _LineError(f"source: expected text that can be written as UTF-8, got {text!r}") from None
    return text


def _number(name: str, value: Any) -> float | None:
    """Numbers are written as text; a JSON number is taken too."""
    if value is None:
        return None
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        try:
            return parse_number(str(value))
        except ValueError:
            pass
    raise _LineError(f"{name}: expected a number or null, got {value!r}")
