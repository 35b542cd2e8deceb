"""The lines of a trace: a header, then one line of JSON for every event, so that the trace of a killed run can be read.

    {"trace": 1, "warehouse": "city", "started": 1794736800.0, "tracks": 2, "policy": "max-benefit", ...}
    {"update": "readings", "layer": "live", "track": 0, "began": 1794736801.2, "seconds": 0.31, ...}
    {"change": {"policy": "fifo"}, "at": 1794736830.0}
    {"notice": "waiting for the directory /landing", "table": "readings", "at": 1794736831.0}
    {"tables": [{"name": "readings", ...}, ...], "at": 1794736840.0}
    {"end": 1794736860.0}

Unknown keys and kinds of lines are skipped: later versions may add some. The number in the header changes only when an
existing key changes its meaning. A last line that was cut off is skipped, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, get_args

from headgate.core.errors import DeclarationError
from headgate.core.trace.records import Change, Redeclared, RunNotice, TableKind, Trace, TraceHeader, TraceTable
from headgate.core.update import Layer, OperatorFigures, Update

VERSION = 1
#: what is written of an update; what it left to be repaired, and its operators, follow if there are any
TRACED_FIELDS = (
    *("table", "layer", "track", "released", "began", "seconds", "gained"),
    *("rows", "rejected", "freshness", "arrived", "overhead", "error"),
)
#: what making records of a line that lacks something, or has something else in its place, can raise
_MALFORMED = (LookupError, TypeError, ValueError, OverflowError)


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
    if update.operators:
        fields["operators"] = [asdict(operator) for operator in update.operators]
    return _line(_renamed(fields, {"table": "update"}))


def change_line(change: Change) -> str:
    return _line({"change": dict(change.what), "at": change.at})


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
    _, first = next(entries, (1, None))
    if first is None:
        raise TraceError(f"{where} is empty: the run that made it ended before it had begun to record")
    header = _header(first, where)
    updates: list[Update] = []
    changes: list[Change] = []
    redeclared: list[Redeclared] = []
    notices: list[RunNotice] = []
    end: float | None = None
    full: float | None = None
    for number, entry in entries:
        try:
            match entry:
                case {"update": _}:
                    updates.append(_update(entry))
                case {"change": what, "at": at}:
                    changes.append(Change(float(at), dict(what)))
                case {"tables": tables, "at": at}:
                    redeclared.append(Redeclared(float(at), tuple(map(_table, tables))))
                case {"notice": text, "table": str() | None as table, "at": at}:
                    notices.append(RunNotice(float(at), table, str(text)))
                case {"end": at}:
                    end = float(at)
                case {"full": at}:
                    full = float(at)
        except _MALFORMED as error:
            raise TraceError(f"{where} line {number}: {_complaint(error)}") from None
    return Trace(header, tuple(updates), tuple(changes), end, full, tuple(redeclared), tuple(notices))


def _entries(lines: Iterable[str], where: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The numbered objects in ``lines``, without a last one that was cut off."""
    cut: int | None = None
    for number, line in enumerate(lines, 1):
        if cut is not None:
            raise TraceError(f"{where} line {cut}: a trace has one JSON object in each line; this is none")
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if isinstance(entry, dict):
            yield number, entry
        else:
            cut = number


def _header(entry: Mapping[str, Any], where: str) -> TraceHeader:
    version = entry.get("trace")
    if version is None:
        raise TraceError(f'{where} is not a trace of a run: its first line must begin with {{"trace": {VERSION}}}')
    if version != VERSION:
        raise TraceError(f"{where} is a trace of version {version!r}; this version of Headgate reads version {VERSION}")
    try:
        return TraceHeader(
            warehouse=str(entry["warehouse"]),
            started=float(entry["started"]),
            tracks=int(entry["tracks"]),
            policy=str(entry["policy"]),
            placement=str(entry["placement"]),
            inheritance=str(entry["inheritance"]),
            chop=_number_or_none(entry["chop"]),
            tables=tuple(map(_table, entry["tables"])),
            budget=_number_or_none(entry.get("budget")),
        )
    except _MALFORMED as error:
        raise TraceError(f"{where} line 1: {_complaint(error)}") from None


def _table(entry: Mapping[str, Any]) -> TraceTable:
    return TraceTable(
        name=str(entry["name"]),
        sources=tuple(map(str, entry["sources"])),
        period=_number_or_none(entry["period"]),
        priority=float(entry["priority"]),
        importance_class=int(entry["class"]),
        patience=_number_or_none(entry["patience"]),
        target_lag=_number_or_none(entry["target_lag"]),
        kind=_one_of(entry["kind"], get_args(TableKind)),
        freshness=_micros(entry.get("freshness")),
        declared=_number_or_none(entry.get("declared")),
    )


def _update(entry: Mapping[str, Any]) -> Update:
    arrived = entry["arrived"]
    return Update(
        table=str(entry["update"]),
        layer=_one_of(entry["layer"], get_args(Layer)),
        track=int(entry["track"]),
        released=float(entry["released"]),
        began=float(entry["began"]),
        seconds=float(entry["seconds"]),
        gained=float(entry["gained"]),
        rows=int(entry["rows"]),
        rejected=int(entry["rejected"]),
        freshness=_micros(entry["freshness"]),
        arrived=None if arrived is None else (float(arrived[0]), float(arrived[1]), int(arrived[2])),
        overhead=float(entry["overhead"]),
        error=None if entry["error"] is None else str(entry["error"]),
        operators=tuple(map(_operator, entry.get("operators", ()))),
        repairs=float(entry.get("repairs", 0.0)),
        status="committed" if entry["error"] is None else "failed",
    )


def _operator(entry: Mapping[str, Any]) -> OperatorFigures:
    return OperatorFigures(
        query=str(entry["query"]),
        name=str(entry["name"]),
        kind=str(entry["kind"]),
        rows_in=int(entry["rows_in"]),
        rows_out=int(entry["rows_out"]),
        rejected=int(entry["rejected"]),
        processor=float(entry["processor"]),
        peak_rows_waiting=int(entry["peak_rows_waiting"]),
        utilisation=float(entry["utilisation"]),
        seconds=float(entry["seconds"]),
    )


def _number_or_none(value: Any) -> float | None:
    return None if value is None else float(value)


def _micros(value: Any) -> int | None:
    return None if value is None else int(value)


def _one_of(value: Any, choices: tuple[str, ...]) -> Any:
    if value not in choices:
        raise ValueError(f"expected one of {', '.join(choices)}; got {value!r}")
    return value


def _complaint(error: Exception) -> str:
    return f"the key {error} is missing" if isinstance(error, KeyError) else str(error)
