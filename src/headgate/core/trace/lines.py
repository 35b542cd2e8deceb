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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, get_args

from headgate.core.cost import MOST_SECONDS
from headgate.core.errors import DeclarationError, ParameterError
from headgate.core.features import MOST_CLASS
from headgate.core.inheritance import inheritance_from
from headgate.core.joint import DECLARED, Together
from headgate.core.placement import MOST_TRACKS
from headgate.core.trace import values as read
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
from headgate.core.trace.tables import refuse_impossible
from headgate.core.trace.values import FIRST_START, LAST_MOMENT, MOST_LETTERS, Entry
from headgate.core.update import Layer, OperatorFigures, Update

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
MOST_LETTERS_SAID = 1_000_000  # of an error, a notice, or a policy
MOST_DEPTH = 10


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
            raise TraceError(f"{where} line {number}: {read.complaint(error)}") from None
    return reader.trace()


class _Reader:
    """Collects what the lines after the header say."""

    def __init__(self, header: TraceHeader) -> None:
        self._header = header
        self._started = header.started
        self._updates: list[Update] = []
        self._changes: list[Change] = []
        self._redeclared: list[Redeclared] = []
        self._notices: list[RunNotice] = []
        self._end: float | None = None
        self._full: float | None = None
        self._arrivals = 0
        self._not_loaded: NotLoaded | None = None

    def read(self, entry: Entry) -> None:
        if "update" in entry:
            update = _update(entry, self._started)
            self._arrivals += 0 if update.arrived is None else min(MOST_STEPS, update.arrived[2])
            if self._arrivals > MOST_ARRIVALS:
                raise ValueError(f"at most {MOST_ARRIVALS:,} arrivals are read; with this line, there are more")
            self._updates.append(update)
        elif "change" in entry and "at" in entry:
            self._changes.append(Change(self._moment(entry, "at"), _change(entry["change"])))
        elif "tables" in entry and "at" in entry:
            self._redeclared.append(Redeclared(self._moment(entry, "at"), _read_tables(entry, self._started)))
        elif "notice" in entry and "at" in entry:
            text = read.text(entry, "notice", MOST_LETTERS_SAID)
            self._notices.append(RunNotice(self._moment(entry, "at"), read.or_none(read.text, entry, "table"), text))
        elif "not_loaded" in entry and "at" in entry:
            self._not_loaded = _not_loaded(entry, self._started)
        elif "end" in entry:
            self._end = self._moment(entry, "end")
        elif "full" in entry:
            self._full = self._moment(entry, "full")

    def _moment(self, entry: Entry, key: str) -> float:
        return read.moment_of_run(entry, key, self._started)

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


def _header(entry: Entry, where: str) -> TraceHeader:
    version = entry.get("trace")
    if version is None:
        raise TraceError(f'{where}: this is not a trace of a run: it must begin with {{"trace": {VERSION}}}')
    if version != VERSION:
        raise TraceError(
            f"{where}: this is a trace of version {read.shown(version)};"
            f" this version of Headgate reads version {VERSION}"
        )
    try:
        started = read.number(entry, "started", FIRST_START, LAST_MOMENT)
        return TraceHeader(
            warehouse=read.text(entry, "warehouse"),
            started=started,
            tracks=read.whole(entry, "tracks", 1, MOST_TRACKS),
            policy=read.text(entry, "policy", MOST_LETTERS_SAID),
            placement=read.text(entry, "placement", MOST_LETTERS_SAID),
            inheritance=_inheritance(entry),
            chop=read.or_none(read.above_zero, entry, "chop"),
            tables=_read_tables(entry, started),
            budget=read.or_none(read.above_zero, {"budget": None} | entry, "budget"),
            together=read.one_of({"together": DECLARED} | entry, "together", get_args(Together)),
        )
    except (KeyError, ValueError) as error:
        raise TraceError(f"{where}: {read.complaint(error)}") from None


def _read_tables(entry: Entry, started: float) -> tuple[TraceTable, ...]:
    tables = read.items(entry, "tables", dict)
    if len(tables) > MOST_TABLES:
        raise ValueError(f"a trace has at most {MOST_TABLES:,} tables; this one has {len(tables):,}")
    found = tuple(_named_table(table, started) for table in tables)
    refuse_impossible(found)
    return found


def _named_table(entry: Entry, started: float) -> TraceTable:
    try:
        return _table(entry, started)
    except (KeyError, ValueError) as error:
        raise ValueError(f"table {read.shown(entry.get('name'))}: {read.complaint(error)}") from None


def _table(given: Entry, started: float) -> TraceTable:
    entry = {"freshness": None, "declared": None, "catch_up": "oldest"} | given
    return TraceTable(
        name=read.text(entry, "name"),
        sources=tuple(read.items(entry, "sources", str)),
        period=read.or_none(read.above_zero, entry, "period"),
        priority=read.number(entry, "priority", 0.0),
        importance_class=read.whole(entry, "class", -MOST_CLASS, MOST_CLASS),
        patience=read.or_none(read.above_zero, entry, "patience"),
        target_lag=read.or_none(read.above_zero, entry, "target_lag"),
        kind=read.one_of(entry, "kind", get_args(TableKind)),
        freshness=read.or_none(read.whole, entry, "freshness"),
        declared=None if entry["declared"] is None else read.moment_of_run(entry, "declared", started),
        catch_up=read.one_of(entry, "catch_up", get_args(CatchFirst)),
    )


def _update(entry: Entry, started: float) -> Update:
    update = Update(
        table=read.text(entry, "update"),
        layer=read.one_of(entry, "layer", get_args(Layer)),
        # An update that could not begin has no track.
        track=read.whole(entry, "track", -1, MOST_TRACKS - 1),
        released=read.moment_of_run(entry, "released", started),
        began=_began(entry, started),
        seconds=read.number(entry, "seconds", 0.0, MOST_SECONDS),
        gained=read.number(entry, "gained"),
        rows=read.whole(entry, "rows"),
        rejected=read.whole(entry, "rejected"),
        freshness=read.or_none(read.whole, entry, "freshness"),
        arrived=None if entry["arrived"] is None else _arrived(entry["arrived"]),
        overhead=read.number(entry, "overhead"),
        error=None if entry["error"] is None else read.text(entry, "error", MOST_LETTERS_SAID),
        operators=tuple(map(_operator, read.items(entry, "operators", dict))) if "operators" in entry else (),
        repairs=read.number(entry, "repairs") if "repairs" in entry else 0.0,
        together=_together(entry),
        status="committed" if entry["error"] is None else "failed",
    )
    # Older traces do not tell planning and committing apart.
    without = max(0.0, update.seconds - max(0.0, update.overhead))
    update.work = read.number(entry, "work", 0.0, MOST_SECONDS) if "work" in entry else without
    return update


def _began(entry: Entry, started: float) -> float:
    """When an update began; 0 if it failed before: it was withdrawn before its turn in a job."""
    if read.moment(entry, "began") == 0.0 and entry["error"] is not None:
        return 0.0
    return read.moment_of_run(entry, "began", started)


def _together(entry: Entry) -> tuple[str, ...]:
    names = read.items(entry, "together", str) if "together" in entry else []
    if len(names) > MOST_TABLES or any(len(name) > MOST_LETTERS for name in names):
        raise ValueError(
            f"the key 'together' takes the names of at most {MOST_TABLES:,} tables; got {read.shown(names)}"
        )
    return tuple(names)


def _arrived(value: Any) -> tuple[float, float, int]:
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError(f"the key 'arrived' takes two moments and a count; got {read.shown(value)}")
    entry = dict(zip(("first arrived", "last arrived", "chunks"), value, strict=True))
    return (
        read.moment(entry, "first arrived"),
        read.moment(entry, "last arrived"),
        read.whole(entry, "chunks", 0, MOST_CHUNKS),
    )


def _not_loaded(entry: Entry, started: float) -> NotLoaded:
    given, unknown = entry["not_loaded"], read.items(entry, "unknown", str) if "unknown" in entry else []
    if not isinstance(given, dict):
        raise ValueError(f"the key 'not_loaded' takes an object; got {read.shown(given)}")
    if len(given) > MOST_TABLES or len(unknown) > MOST_TABLES:
        raise ValueError(f"at most {MOST_TABLES:,} streams may wait; with this line, there are more")
    streams = {name: _arrived(value) for name, value in given.items()}
    return NotLoaded(read.moment_of_run(entry, "at", started), streams, tuple(unknown))


def _operator(given: Entry) -> OperatorFigures:
    entry = {"in_queue": 0.0, "for_a_turn": 0.0, "computing": 0.0, "inputs": []} | given
    return OperatorFigures(
        query=read.text(entry, "query"),
        name=read.text(entry, "name"),
        kind=read.text(entry, "kind"),
        rows_in=read.whole(entry, "rows_in"),
        rows_out=read.whole(entry, "rows_out"),
        rejected=read.whole(entry, "rejected"),
        processor=read.number(entry, "processor"),
        peak_rows_waiting=read.whole(entry, "peak_rows_waiting"),
        utilisation=read.number(entry, "utilisation"),
        seconds=read.number(entry, "seconds"),
        in_queue=read.number(entry, "in_queue"),
        for_a_turn=read.number(entry, "for_a_turn"),
        computing=read.number(entry, "computing"),
        inputs=tuple(read.items(entry, "inputs", str)),
    )


def _change(what: Any) -> Mapping[str, Any]:
    if not isinstance(what, dict):
        raise ValueError(f"the key 'change' takes an object; got {read.shown(what)}")
    for key in ("policy", "placement"):
        if key in what:
            read.text(what, key, MOST_LETTERS_SAID)
    if "inheritance" in what:
        _inheritance(what)
    if "together" in what:
        read.one_of(what, "together", get_args(Together))
    if "tracks" in what:
        read.whole(what, "tracks", 1, MOST_TRACKS)
    if "budget" in what:
        read.or_none(read.above_zero, what, "budget")
    match what.get("priority", ["", 0]):
        case [str(), int() | float() as priority] if not isinstance(priority, bool):
            read.number({"priority": priority}, "priority", 0.0)
        case other:
            raise ValueError(f"the key 'priority' takes a table and a number; got {read.shown(other)}")
    return what


def _inheritance(entry: Entry) -> str:
    text = read.text(entry, "inheritance")
    try:
        inheritance_from(text)
    except ParameterError as error:
        raise ValueError(f"the key 'inheritance' is wrong: {error}") from None
    return text
