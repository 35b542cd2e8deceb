"""The lines of a trace: a header, then one line of JSON for every event, so that the trace of a killed run can be read.

    {"trace": 1, "warehouse": "city", "started": 1794736800.0, "tracks": 2, "policy": "max-benefit", ...}
    {"update": "readings", "layer": "live", "track": 0, "began": 1794736801.2, "seconds": 0.31, ...}
    {"change": {"policy": "fifo"}, "at": 1794736830.0}
    {"notice": "waiting for the directory /landing", "table": "readings", "at": 1794736831.0}
    {"tables": [{"name": "readings", ...}, ...], "at": 1794736840.0}
    {"not_loaded": {"readings": [1794736840.0, 1794736850.0, 3]}, "unknown": [], "at": 1794736851.0}
    {"end": 1794736860.0}

Unknown keys and kinds of lines are skipped: later versions may add some. The number in the header changes only when an
existing key changes its meaning. A last line that was cut off is skipped, too.

A trace may come from somebody else, so nothing in it is taken on trust. Every value has a type and a range, and what is
outside is an error with the number of its line. The ranges are wider than any run needs, and narrow enough that neither
a report nor a replay of what is read takes for ever or leaves the range of dates and numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, TypeVar, get_args

from headgate.core.cost import MOST_SECONDS
from headgate.core.errors import DeclarationError
from headgate.core.joint import DECLARED, Together
from headgate.core.placement import MOST_TRACKS
from headgate.core.trace.measures import MOST_STEPS
from headgate.core.trace.records import (
    CatchFirst,
    Change,
    NotLoaded,
    Redeclared,
    RunNotice,
    TableKind,
    Trace,
    TraceHeader,
    TraceTable,
)
from headgate.core.update import Layer, OperatorFigures, Update

_Item = TypeVar("_Item")
#: the object in a line
_Entry = dict[str, Any]

VERSION = 1
#: what is written of an update; its work, what it left to be repaired, the tables that shared its job, and its
#: operators follow if there are any
TRACED_FIELDS = (
    *("table", "layer", "track", "released", "began", "seconds", "gained"),
    *("rows", "rejected", "freshness", "arrived", "overhead", "error"),
)
#: limits of what is read
MOST_TABLES = 10_000
MOST_CHUNKS = 10**9  # in one load
MOST_ARRIVALS = 10_000_000  # of streams, in the whole trace
MOST_LETTERS = 1_000  # of a name
MOST_LETTERS_SAID = 1_000_000  # of an error, a notice, or a policy
MOST_DEPTH = 10
#: in seconds since the epoch: about the years 1 to 9900
FIRST_MOMENT, LAST_MOMENT = -6.2e10, 2.5e11
MOST = 1e15
_MOST_WHOLE = 2**63


class TraceError(DeclarationError):
    """A file that is no trace, or one of a version that is not known here."""


# --- out --------------------------------------------------------------------------------------------------------


def header_line(header: TraceHeader) -> str:
    return _line({"trace": VERSION, **asdict(header), "tables": _tables(header.tables)})


def redeclared_line(redeclared: Redeclared) -> str:
    return _line({"tables": _tables(redeclared.tables), "at": redeclared.at})


def notice_line(notice: RunNotice) -> str:
    return _line({"notice": notice.text, "table": notice.table, "at": notice.at})


def _tables(tables: Iterable[TraceTable]) -> list[dict[str, object]]:
    return [_renamed(asdict(table), {"importance_class": "class"}) for table in tables]


def update_line(update: Update) -> str:
    fields = {name: getattr(update, name) for name in TRACED_FIELDS}
    if update.repairs:
        fields["repairs"] = update.repairs
    if update.work:
        fields["work"] = update.work
    if update.together:
        fields["together"] = list(update.together)
    if update.operators:
        fields["operators"] = [asdict(operator) for operator in update.operators]
    return _line(_renamed(fields, {"table": "update"}))


def change_line(change: Change) -> str:
    return _line({"change": dict(change.what), "at": change.at})


def not_loaded_line(waiting: NotLoaded) -> str:
    return _line({"not_loaded": dict(waiting.streams), "unknown": list(waiting.unknown), "at": waiting.at})


def end_line(at: float) -> str:
    return _line({"end": at})


def full_line(at: float, most_bytes: int) -> str:
    """Says that nothing more is recorded, because the trace has become so large."""
    return _line({"full": at, "most_bytes": most_bytes})


def _line(entry: Mapping[str, object]) -> str:
    return json.dumps(entry, separators=(",", ":")) + "\n"


def _renamed(entry: Mapping[str, object], names: Mapping[str, str]) -> dict[str, object]:
    return {names.get(key, key): value for key, value in entry.items()}


# --- in ---------------------------------------------------------------------------------------------------------


def trace_from(lines: Iterable[str], where: str = "trace") -> Trace:
    """The trace in these lines; ``where`` is what to call it in messages."""
    entries = _entries(lines, where)
    first, header = next(entries, (1, None))
    if header is None:
        raise TraceError(f"{where} is empty: the run that made it ended before it had begun to record")
    reader = _Reader(_header(header, f"{where} line {first}"))
    for number, entry in entries:
        try:
            reader.read(entry)
        except (KeyError, ValueError) as error:
            raise TraceError(f"{where} line {number}: {_complaint(error)}") from None
    return reader.trace()


class _Reader:
    """Collects what the lines after the header say."""

    def __init__(self, header: TraceHeader) -> None:
        self._header = header
        self._updates: list[Update] = []
        self._changes: list[Change] = []
        self._redeclared: list[Redeclared] = []
        self._notices: list[RunNotice] = []
        self._end: float | None = None
        self._full: float | None = None
        self._arrivals = 0
        self._not_loaded: NotLoaded | None = None

    def read(self, entry: _Entry) -> None:
        if "update" in entry:
            update = _update(entry)
            self._arrivals += 0 if update.arrived is None else min(MOST_STEPS, update.arrived[2])
            if self._arrivals > MOST_ARRIVALS:
                raise ValueError(f"at most {MOST_ARRIVALS:,} arrivals are read; with this line, there are more")
            self._updates.append(update)
        elif "change" in entry and "at" in entry:
            self._changes.append(Change(_moment(entry, "at"), _change(entry["change"])))
        elif "tables" in entry and "at" in entry:
            self._redeclared.append(Redeclared(_moment(entry, "at"), _read_tables(entry)))
        elif "notice" in entry and "at" in entry:
            text = _text(entry, "notice", MOST_LETTERS_SAID)
            self._notices.append(RunNotice(_moment(entry, "at"), _or_none(_text, entry, "table"), text))
        elif "not_loaded" in entry and "at" in entry:
            self._not_loaded = _not_loaded(entry)
        elif "end" in entry:
            self._end = _moment(entry, "end")
        elif "full" in entry:
            self._full = _moment(entry, "full")

    def trace(self) -> Trace:
        return Trace(
            self._header,
            tuple(self._updates),
            tuple(self._changes),
            self._end,
            self._full,
            tuple(self._redeclared),
            tuple(self._notices),
            self._not_loaded,
        )


def _entries(lines: Iterable[str], where: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The numbered objects in ``lines``, without a last one that was cut off."""
    cut: int | None = None
    some = False
    for number, line in enumerate(lines, 1):
        if cut is not None:
            break
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            if _is_deeper(entry, MOST_DEPTH):
                raise RecursionError
        except ValueError:
            entry = None
        except RecursionError:
            raise TraceError(f"{where} line {number}: the line is nested too deeply for one of a trace") from None
        if isinstance(entry, dict):
            yield number, entry
            some = True
        else:
            cut = number
    else:
        if some or cut is None:
            return
    raise TraceError(f"{where} line {cut}: a trace has one JSON object in each line; this is none")


def _is_deeper(value: object, most: int) -> bool:
    """Whether lists and objects are inside each other more than ``most`` times."""
    inner = value.values() if type(value) is dict else value if type(value) is list else ()
    for each in inner:
        if (type(each) is dict or type(each) is list) and (most == 0 or _is_deeper(each, most - 1)):
            return True
    return False


def _header(entry: _Entry, where: str) -> TraceHeader:
    version = entry.get("trace")
    if version is None:
        raise TraceError(f'{where}: this is not a trace of a run: it must begin with {{"trace": {VERSION}}}')
    if version != VERSION:
        raise TraceError(
            f"{where}: this is a trace of version {_shown(version)}; this version of Headgate reads version {VERSION}"
        )
    try:
        return TraceHeader(
            warehouse=_text(entry, "warehouse"),
            started=_moment(entry, "started"),
            tracks=_whole(entry, "tracks", 1, MOST_TRACKS),
            policy=_text(entry, "policy", MOST_LETTERS_SAID),
            placement=_text(entry, "placement", MOST_LETTERS_SAID),
            inheritance=_text(entry, "inheritance"),
            chop=_or_none(_number, entry, "chop"),
            tables=_read_tables(entry),
            budget=_or_none(_number, {"budget": None} | entry, "budget"),
            together=_one_of({"together": DECLARED} | entry, "together", get_args(Together)),
        )
    except (KeyError, ValueError) as error:
        raise TraceError(f"{where}: {_complaint(error)}") from None


def _read_tables(entry: _Entry) -> tuple[TraceTable, ...]:
    tables = _list(entry, "tables", dict)
    if len(tables) > MOST_TABLES:
        raise ValueError(f"a trace has at most {MOST_TABLES:,} tables; this one has {len(tables):,}")
    return tuple(map(_table, tables))


def _table(given: _Entry) -> TraceTable:
    entry = {"freshness": None, "declared": None, "catch_up": "oldest"} | given
    return TraceTable(
        name=_text(entry, "name"),
        sources=tuple(_list(entry, "sources", str)),
        period=_or_none(_number, entry, "period"),
        priority=_number(entry, "priority"),
        importance_class=_whole(entry, "class"),
        patience=_or_none(_number, entry, "patience"),
        target_lag=_or_none(_number, entry, "target_lag"),
        kind=_one_of(entry, "kind", get_args(TableKind)),
        freshness=_or_none(_whole, entry, "freshness"),
        declared=_or_none(_moment, entry, "declared"),
        catch_up=_one_of(entry, "catch_up", get_args(CatchFirst)),
    )


def _update(entry: _Entry) -> Update:
    update = Update(
        table=_text(entry, "update"),
        layer=_one_of(entry, "layer", get_args(Layer)),
        # An update that could not begin has no track.
        track=_whole(entry, "track", -1, MOST_TRACKS - 1),
        released=_moment(entry, "released"),
        began=_moment(entry, "began"),
        seconds=_number(entry, "seconds", 0.0, MOST_SECONDS),
        gained=_number(entry, "gained"),
        rows=_whole(entry, "rows"),
        rejected=_whole(entry, "rejected"),
        freshness=_or_none(_whole, entry, "freshness"),
        arrived=None if entry["arrived"] is None else _arrived(entry["arrived"]),
        overhead=_number(entry, "overhead"),
        error=None if entry["error"] is None else _text(entry, "error", MOST_LETTERS_SAID),
        operators=tuple(map(_operator, _list(entry, "operators", dict))) if "operators" in entry else (),
        repairs=_number(entry, "repairs") if "repairs" in entry else 0.0,
        together=_together(entry),
        status="committed" if entry["error"] is None else "failed",
    )
    # Older traces do not tell planning and committing apart.
    without = max(0.0, update.seconds - max(0.0, update.overhead))
    update.work = _number(entry, "work", 0.0, MOST_SECONDS) if "work" in entry else without
    return update


def _together(entry: _Entry) -> tuple[str, ...]:
    names = _list(entry, "together", str) if "together" in entry else []
    if len(names) > MOST_TABLES or any(len(name) > MOST_LETTERS for name in names):
        raise ValueError(f"the key 'together' takes the names of at most {MOST_TABLES:,} tables; got {_shown(names)}")
    return tuple(names)


def _arrived(value: Any) -> tuple[float, float, int]:
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError(f"the key 'arrived' takes two moments and a count; got {_shown(value)}")
    entry = dict(zip(("first arrived", "last arrived", "chunks"), value, strict=True))
    return _moment(entry, "first arrived"), _moment(entry, "last arrived"), _whole(entry, "chunks", 0, MOST_CHUNKS)


def _not_loaded(entry: _Entry) -> NotLoaded:
    given, unknown = entry["not_loaded"], _list(entry, "unknown", str) if "unknown" in entry else []
    if not isinstance(given, dict):
        raise ValueError(f"the key 'not_loaded' takes an object; got {_shown(given)}")
    if len(given) > MOST_TABLES or len(unknown) > MOST_TABLES:
        raise ValueError(f"at most {MOST_TABLES:,} streams may wait; with this line, there are more")
    return NotLoaded(_moment(entry, "at"), {name: _arrived(value) for name, value in given.items()}, tuple(unknown))


def _operator(given: _Entry) -> OperatorFigures:
    entry = {"in_queue": 0.0, "for_a_turn": 0.0, "computing": 0.0, "inputs": []} | given
    return OperatorFigures(
        query=_text(entry, "query"),
        name=_text(entry, "name"),
        kind=_text(entry, "kind"),
        rows_in=_whole(entry, "rows_in"),
        rows_out=_whole(entry, "rows_out"),
        rejected=_whole(entry, "rejected"),
        processor=_number(entry, "processor"),
        peak_rows_waiting=_whole(entry, "peak_rows_waiting"),
        utilisation=_number(entry, "utilisation"),
        seconds=_number(entry, "seconds"),
        in_queue=_number(entry, "in_queue"),
        for_a_turn=_number(entry, "for_a_turn"),
        computing=_number(entry, "computing"),
        inputs=tuple(_list(entry, "inputs", str)),
    )


def _change(what: Any) -> Mapping[str, Any]:
    if not isinstance(what, dict):
        raise ValueError(f"the key 'change' takes an object; got {_shown(what)}")
    for key in ("policy", "placement", "inheritance"):
        if key in what:
            _text(what, key, MOST_LETTERS_SAID)
    if "together" in what:
        _one_of(what, "together", get_args(Together))
    if "tracks" in what:
        _whole(what, "tracks", 1, MOST_TRACKS)
    match what.get("priority", ["", 0]):
        case [str(), int() | float() as priority] if not isinstance(priority, bool):
            _number({"priority": priority}, "priority")
        case other:
            raise ValueError(f"the key 'priority' takes a table and a number; got {_shown(other)}")
    return what


# --- single values ----------------------------------------------------------------------------------------------


def _text(entry: _Entry, key: str, most: int = MOST_LETTERS) -> str:
    value = entry[key]
    if not isinstance(value, str) or len(value) > most:
        raise ValueError(f"the key {key!r} takes a text of at most {most:,} letters; got {_shown(value)}")
    return value


def _number(entry: _Entry, key: str, least: float = -MOST, most: float = MOST) -> float:
    value = entry[key]
    if type(value) not in (int, float) or not least <= value <= most:
        raise ValueError(f"the key {key!r} takes a number from {least:g} to {most:g}; got {_shown(value)}")
    return float(value)


def _moment(entry: _Entry, key: str) -> float:
    return _number(entry, key, FIRST_MOMENT, LAST_MOMENT)


def _whole(entry: _Entry, key: str, least: int = -_MOST_WHOLE, most: int = _MOST_WHOLE) -> int:
    value = entry[key]
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"the key {key!r} takes a whole number from {least} to {most}; got {_shown(value)}")
    return value


def _list(entry: _Entry, key: str, kind: type[_Item]) -> list[_Item]:
    value = entry[key]
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        what = "objects" if kind is dict else "texts"
        raise ValueError(f"the key {key!r} takes a list of {what}; got {_shown(value)}")
    return value


def _one_of(entry: _Entry, key: str, choices: tuple[str, ...]) -> Any:
    if entry[key] not in choices:
        raise ValueError(f"the key {key!r} takes one of {', '.join(choices)}; got {_shown(entry[key])}")
    return entry[key]


def _or_none(read: Callable[[_Entry, str], _Item], entry: _Entry, key: str) -> _Item | None:
    return None if entry[key] is None else read(entry, key)


def _shown(value: object, most: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."


def _complaint(error: Exception) -> str:
    return f"the key {error} is missing" if isinstance(error, KeyError) else str(error)
