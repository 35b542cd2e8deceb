"""``headgate status`` and ``headgate query``: read a warehouse directory, whether a process runs it or not."""

from __future__ import annotations

import errno
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from headgate.cli.live import PAST, problem_line
from headgate.cli.output import PlainConsole, say, say_error
from headgate.core import HeadgateError, ParameterError, is_past, without_help
from headgate.places.place import AnyPath, path_from
from headgate.warehouse.declare.durations import readable
from headgate.warehouse.run.control_client import RunningWarehouse

if TYPE_CHECKING:
    from headgate.warehouse.reading import QueryResult, TableStatus

_SHOWN_ROWS = 20
#: {kind of a commit: what the update did}
_DONE = {
    "load": "rows loaded",
    "replace": "rows replaced",
    "append": "rows appended",
    "merge": "groups merged",
    "recompute": "blocks recomputed",
    "keys": "keys recomputed",
    "whole": "all recomputed",
    "backfill": "past recomputed",
    "note": "repairs noted",
}
#: seconds to wait for the statistics of the running process; without an answer, the status shows commits only
LIVE_PATIENCE = 2.0


def warehouse_directory(text: str) -> AnyPath:
    """The warehouse that ``text`` names: its directory, its URL, or a pipeline file that states either."""
    from headgate.warehouse.declare.pipeline_file import is_project, load

    path = path_from(text)
    if not isinstance(path, Path) or is_directory(path) or not (path.suffix == ".py" or is_project(path)):
        return path
    try:
        warehouse = load(path)
        # The declarations themselves do not matter here, and checking them may ask sources that are away.
        return path_from(warehouse.path, warehouse.storage) if warehouse.path else warehouse.spec().folder()
    except HeadgateError:
        if path.exists():
            say_error(
                f"headgate: {text} cannot be used now; the folder of the warehouse can be given instead of the file"
            )
        raise


def is_directory(path: Path) -> bool:
    """Whether there is such a directory. A name that is too long for the disk is that of nothing."""
    try:
        return path.is_dir()
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return False


if TYPE_CHECKING:
    WarehouseDirectory = AnyPath
else:  # the command line knows no unions, but takes what its parser returns
    WarehouseDirectory = Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            parser=warehouse_directory,
            help="The directory of a warehouse, its URL in an object store, or its pipeline file.",
        ),
    ]


def status(
    directory: WarehouseDirectory,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show freshness and size of every table.

    If a process runs the warehouse, also show priority, state, lag, and what its sources report.
    """
    from headgate.warehouse.reading import tables
    from headgate.warehouse.run.lock import holder, running_process

    found = tables(directory)
    now = time.time()
    process = running_process(directory)
    found_holder = holder(directory)
    page = None if found_holder is None else found_holder.page
    running = None if process is None else RunningWarehouse(directory, LIVE_PATIENCE)
    live = None if running is None else _answer(running.statistics)
    notices = (None if running is None else _answer(running.notices)) or ()
    if as_json:
        entries = [asdict(table) | {"staleness": _staleness(table, now)} for table in found]
        summary = {
            "path": str(directory),
            "process": process,
            "page": page,
            "tables": entries,
            "live": live,
            "notices": notices,
        }
        say(json.dumps(summary, indent=2))
        return
    console = PlainConsole()
    if process is None:
        console.print(f"{directory}: no process runs it", soft_wrap=True)
    else:
        seen = "" if page is None else f"; watch it at {page}"
        console.print(
            f"{directory}: being run by process {process if process > 0 else 'unknown'}{seen}", soft_wrap=True
        )
    if found or live:
        console.print(_status_table(found, now, live))
    else:
        console.print("No table has been updated yet.")
    for table in found:
        if table.error:
            console.print(table.error, soft_wrap=True)
        if table.repairs is not None:
            console.print(f"{table.name}: still to be recomputed: {table.repairs}", soft_wrap=True)
    for line in _running_lines(live or (), notices):
        console.print(line, soft_wrap=True)


def _running_lines(live: Sequence[Mapping[str, Any]], notices: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What there is to say of the tables of a running process, and then what users were told."""
    for row in live:
        if line := problem_line(row["name"], row["state"], row["error"] or row["note"]):
            yield line
    # What helps a table that needs more than tracks is a part of what helps the others.
    helps = max((row.get("target_help", "") for row in live), key=len, default="")
    if helps:
        yield f"what would help the target lags: {helps}"
    notes = {(row["name"], row["note"]) for row in live}
    for notice in notices:
        if (notice["table"], notice["text"]) in notes:  # it stands above, because it still holds
            continue
        about = "" if notice["table"] is None else f"{notice['table']}: "
        at = datetime.fromtimestamp(notice["at"], UTC)
        text = without_help(notice["text"]) if helps else notice["text"]
        yield f"{at:%Y-%m-%d %H:%M:%S} UTC: {about}{text}"


def query(
    directory: WarehouseDirectory,
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="A SELECT over the tables of the warehouse, in DataFusion's SQL.")
    ],
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Read up to this event time, such as 2026-11-15T10:00:00Z (UTC unless stated)."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per row.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help=f"Rows to print; default {_SHOWN_ROWS}, with --json all."),
    ] = None,
    incomplete: Annotated[
        bool, typer.Option("--incomplete", help="Also read event times that are still to be recomputed.")
    ] = False,
) -> None:
    """Run SQL over tables of a warehouse, all cut at the same event time, up to which all are complete."""
    from headgate.warehouse import reading

    moment = None if at is None else event_time(at, "--at")
    answer = reading.query(directory, sql, moment, incomplete=incomplete)
    shown = answer.rows.num_rows if as_json else _SHOWN_ROWS
    rows = answer.rows.slice(0, shown if limit is None else limit)
    if as_json:
        _print_lines(rows)
    else:
        PlainConsole().print(_result_table(rows))
    more = answer.rows.num_rows - rows.num_rows
    if more:
        say_error(f"{more:,} more row{'s' if more > 1 else ''}; --limit {answer.rows.num_rows} prints all")
    say_error(_where_read(answer, incomplete))


def _plain_table() -> Table:
    return Table(box=None, header_style="bold", pad_edge=False)


def _staleness(table: TableStatus, now: float) -> float | None:
    return None if table.freshness is None else max(0.0, now - table.freshness / 1e6)


def _answer(ask: Callable[[], Sequence[Mapping[str, Any]]]) -> Sequence[Mapping[str, Any]] | None:
    """What the process that runs the warehouse says; None if it does not answer."""
    try:
        return ask()
    except HeadgateError:
        return None


def _status_table(found: Sequence[TableStatus], now: float, live: Sequence[Mapping[str, Any]] | None) -> Table:
    """The tables as committed and, if a process runs them, their priority and state."""
    table = _plain_table()
    table.add_column("table", no_wrap=True)
    if live is not None:
        table.add_column("prio", justify="right", no_wrap=True)
        table.add_column("state", no_wrap=True)
    lag = ("lag",) if live is not None else ()
    for heading in ("stale", *lag, "repair", "rows", "files", "bytes", "version", "update"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("last", no_wrap=True)
    table.add_column("complete up to", no_wrap=True)
    by_name = {row["name"]: row for row in live or ()}
    for row in found:
        name = row.name if row.rejected_of is None else f"  rejected by {row.rejected_of}"
        cells = [] if live is None else _live_cells(by_name.get(row.name))
        table.add_row(name, *cells, *_time_cells(row, now, live, by_name.get(row.name)), *_committed_cells(row))
    committed = {row.name for row in found}
    for name, only_live in by_name.items():
        if name not in committed:
            table.add_row(name, *_live_cells(only_live), *["-"] * 10)
    return table


def _time_cells(
    row: TableStatus, now: float, live: Sequence[Mapping[str, Any]] | None, running: Mapping[str, Any] | None
) -> list[str]:
    """Staleness, and if a process runs the warehouse the lag.

    Without a process, nothing is known of the data that has arrived, so staleness is shown as it is.
    """
    if running is None:
        staleness = _staleness(row, now)
        return ["-" if staleness is None else readable(staleness), *([] if live is None else ["-"])]
    stale, lag = running["staleness"], running["lag"]
    shown = "-" if stale is None else PAST if is_past(stale, lag) else readable(max(0.0, stale))
    return [shown, readable(lag)]


def _live_cells(row: Mapping[str, Any] | None) -> list[str]:
    return ["", ""] if row is None else [f"{row['priority']:g}", row["state"]]


def _committed_cells(row: TableStatus) -> list[str]:
    from headgate.warehouse.storage.partitions import format_time

    repairs = "-" if row.repairs is None else readable(row.repairs.seconds)
    counts = [f"{n:,}" for n in (row.rows, row.files, row.bytes, row.version, row.update)]
    return [repairs, *counts, last_update(row), "-" if row.complete is None else format_time(row.complete)]


def last_update(row: TableStatus) -> str:
    """What the last update of a table did; its kind as committed if it is of another version of Headgate."""
    return _DONE.get(row.kind, row.kind)


def _result_table(rows: Any) -> Table:
    import pyarrow as pa  # type: ignore[import-untyped]

    table = _plain_table()
    for field in rows.schema:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        table.add_column(field.name, justify="right" if number else "left")
    for cells in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        table.add_row(*map(_cell, cells))
    return table


def _print_lines(rows: Any) -> None:
    from headgate.warehouse.reading import SqlError

    names = rows.column_names
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise SqlError(f"the query gives several columns called {twice[0]!r}; tell them apart with AS")
    for row in rows.to_pylist():
        say(json.dumps(_finite(row), default=_other, ensure_ascii=False))


def _cell(value: object) -> str:
    if value is None or isinstance(value, bool | dict | list):
        return json.dumps(_finite(value), default=_other, ensure_ascii=False)
    return str(value) if isinstance(value, int | float | str) else _other(value)


def _finite(value: object) -> object:
    """``value`` with NaN and infinity as text, because JSON does not have them."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {key: _finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
    return value


def _other(value: object) -> str:
    """What JSON has no type for: times as ISO 8601, in UTC if they have a zone, and bytes in hexadecimal."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


def _where_read(answer: QueryResult, incomplete: bool) -> str:
    from headgate.warehouse.storage.partitions import format_time

    parts = [] if answer.edge is None else [f"read up to {format_time(answer.edge)}"]
    for name, freshness in answer.unrepaired.items():
        if incomplete:
            parts.append(f"rows of {name} may be missing or old: some of its past is still to be recomputed")
        elif answer.edge is not None and freshness > answer.edge:
            what = f"{name} has rows up to {format_time(freshness)}, but some before that are still to be recomputed"
            parts.append(f"{what} (--incomplete reads them as they are)")
    for late in answer.late:
        came = f"rows of {late.stream} from {format_time(late.first)} on came late"
        parts.append(f"{came}: {', '.join(late.missing_in)} will have them after the next update, others have them")
    if answer.whole:
        parts.append(f"read whole, because they have no event time: {', '.join(answer.whole)}")
    return "; ".join(parts) or "the tables have no data yet"


def event_time(text: str, option: str) -> int:
    """The value of an option that takes a time, in microseconds; UTC if it does not say."""
    from headgate.warehouse.storage.partitions import parse_time

    try:
        moment = datetime.fromisoformat(text)
        return parse_time((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat())
    except (ValueError, OverflowError):
        raise ParameterError(f"{option} takes a time such as 2026-11-15T10:00:00Z; got {text!r}") from None
