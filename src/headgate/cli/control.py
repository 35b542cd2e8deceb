"""Commands for a running warehouse: ``explain``, ``pause``, ``resume``, ``refresh``, ``backfill``, ``set``, ``stop``.

Each sends requests to the process that runs the warehouse and prints a line for every change. ``set`` changes nothing
if one of its changes would be refused. With several tables, the others end at the first that is refused; the changes
before it stay in effect.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from headgate.cli.output import say
from headgate.cli.read import LIVE_PATIENCE, WarehouseDirectory, event_time, last_update
from headgate.cli.run import budget_from, some_seconds
from headgate.core import (
    MOST_PRIORITY,
    MOST_TRACKS,
    HeadgateError,
    ParameterError,
    UnknownNameError,
    inheritance_from,
    together_from,
)
from headgate.places.place import AnyPath
from headgate.warehouse.declare.durations import readable
from headgate.warehouse.run.control_client import (
    PATIENCE,
    START_PATIENCE,
    ControlError,
    NotRunningError,
    RunningWarehouse,
    StillRunningError,
)
from headgate.warehouse.run.lock import holder

#: before and after all event times, in microseconds
BEGINNING, END = -(1 << 62), 1 << 62

_LAST_RESORT = "If it does not end, kill -9 it: what is committed stays, and the next run goes on from there"

OneTable = Annotated[str, typer.Argument(metavar="TABLE", help="A stream or table of the warehouse.")]
SomeTables = Annotated[
    list[str] | None, typer.Argument(metavar="TABLE", help="Streams or tables of the warehouse.", show_default=False)
]
Everything = Annotated[bool, typer.Option("--all", help="All streams and tables.")]


def explain(directory: WarehouseDirectory, table: OneTable) -> None:
    """Explain why a table is or is not being updated right now."""
    try:
        say(RunningWarehouse(directory).explain(table))
    except ControlError:
        _print_committed(directory, table)
        raise


def pause(directory: WarehouseDirectory, tables: SomeTables = None, everything: Everything = False) -> None:
    """Stop updating tables until they are resumed. Updates that are running finish."""
    running = _once_started(directory)
    _each(_chosen(running, tables, everything), running.pause, "paused")


def resume(directory: WarehouseDirectory, tables: SomeTables = None, everything: Everything = False) -> None:
    """Resume tables that are paused or held.

    A table is held after repeated failures.
    """
    running = _once_started(directory)
    _each(_chosen(running, tables, everything), running.resume, "resumed")


def refresh(
    directory: WarehouseDirectory,
    tables: Annotated[list[str], typer.Argument(metavar="TABLE", help="Streams or tables of the warehouse.")],
) -> None:
    """Update tables next, before all others.

    The tables that they are computed from are updated first.
    """
    _each(tables, _once_started(directory).refresh, "will be updated next, with its sources")


def backfill(
    directory: WarehouseDirectory,
    table: OneTable,
    first: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Start of the range (event time; UTC unless stated).")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="End of the range (event time; UTC unless stated).")
    ] = None,
    chunk: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Event time to recompute per update, such as '1 day'."),
    ] = None,
) -> None:
    """Recompute a range of event time of a table.

    It is recomputed in chunks, while no live update is waiting. Without --from the range starts at the first row,
    without --to it ends at the last. A table whose stream queries keep state is always rebuilt as a whole.
    """
    begin = BEGINNING if first is None else event_time(first, "--from")
    end = END if last is None else event_time(last, "--to")
    if begin >= end:
        raise ParameterError(f"--from must be before --to; got {first} and {last}")
    length = None if chunk is None else some_seconds(chunk, "--chunk", "'1 day'")
    _once_started(directory).backfill(table, begin, end, length)
    chunks = "" if length is None else f", {readable(length)} per update"
    span = f"from {first or 'the first row'} to {last or 'the last row'}"
    say(f"{table}: backfill scheduled {span}{chunks}; live updates go first")


def change(
    directory: WarehouseDirectory,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:k=v,..]", help="Decides which table is updated next; auto changes it by itself from now on."
        ),
    ] = None,
    placement: Annotated[
        str | None, typer.Option(metavar="NAME[:k=v,..]", help="Decides on which tracks a table may be updated.")
    ] = None,
    inheritance: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="What sources inherit from the tables built on them: none, sum, max, max-plus, max-plus:k=3, density, "
            "or default.",
        ),
    ] = None,
    together: Annotated[
        str | None,
        typer.Option(metavar="MODE", help="Which tables share jobs: auto, declared, never, or default."),
    ] = None,
    tracks: Annotated[
        int | None, typer.Option(min=1, max=MOST_TRACKS, help="Number of updates that may run at the same time.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long one update should take at most; 'none' for no limit."),
    ] = None,
    priority: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE=N", help="New priority of a table; may be repeated."),
    ] = None,
) -> None:
    """Change the settings of a running warehouse.

    Changes hold from the next decision until the process ends. If one of several is refused, none is made.
    """
    priorities = [_priority(text) for text in priority or ()]
    limit = None if budget is None else budget_from(budget)
    if inheritance is not None:
        inheritance_from(inheritance)
    if together is not None:
        together_from(together)
    if all(option is None for option in (policy, placement, inheritance, together, tracks, limit)) and not priorities:
        raise ParameterError(
            "nothing to change; give --policy, --placement, --inheritance, --together, --tracks, --budget or --priority"
        )
    running = _once_started(directory)
    running.check_settings(policy, placement, tracks, [table for table, _ in priorities])
    if policy is not None:
        say(f"policy: {running.replace_policy(policy)}")
    if placement is not None:
        say(f"placement: {running.replace_placement(placement)}")
    if inheritance is not None:
        running.set_inheritance(inheritance)
        say(f"inheritance: {inheritance}")
    if together is not None:
        running.set_together(together)
        say(f"together: {together}")
    if tracks is not None:
        running.set_tracks(tracks)
        say(f"tracks: {tracks}")
    if limit is not None:
        running.set_budget(None if limit == math.inf else limit)
        say(f"budget: {'none' if limit == math.inf else readable(limit)}")
    for table, number in priorities:
        running.set_priority(table, number)
        say(f"{table}: priority {number:g}")


def stop(
    directory: WarehouseDirectory,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Return at once instead of waiting for the process to end.")
    ] = False,
    grace: Annotated[
        str,
        typer.Option(metavar="DURATION", help="How long to wait for the process to end."),
    ] = "1 min",
) -> None:
    """Stop the process that runs a warehouse. Updates that are running finish; no new ones start."""
    limit = some_seconds(grace, "--grace", "'1 min'")
    end = time.monotonic() + limit
    half = limit / 2  # one for a process that is starting, one for its answer
    running = RunningWarehouse(directory, min(half, PATIENCE), min(half, START_PATIENCE))
    try:
        process = running.stop_soon()
    except NotRunningError:
        raise
    except ControlError as error:
        raise ControlError(f"{error}. {_LAST_RESORT}") from None
    who = "the process" if process is None else f"process {process}"
    if no_wait:
        say(f"{directory}: {who} is stopping")
        return
    to_ask = min(LIVE_PATIENCE, limit / 4)
    if running.wait_until_released(process, end - to_ask - time.monotonic()):
        say(f"{directory}: {who} has stopped")
        return
    doing = _still_doing(directory, to_ask)
    raise StillRunningError(
        f"{directory}: {who} was asked to stop and still runs after {readable(limit)}. {doing}. {_LAST_RESORT}"
    )


def _still_doing(directory: AnyPath, patience: float) -> str:
    """What a process that has been asked to stop still does, as it tells within ``patience`` seconds."""
    if (found := holder(directory)) is not None and found.control is None:
        return "It updates no table any more; it is closing the warehouse, and writing its report if it has one"
    try:
        rows = RunningWarehouse(directory, patience).statistics()
    except HeadgateError:
        return "It does not say what it is doing"
    if names := [row["name"] for row in rows if row["state"] == "updating"]:
        return f"It is updating {', '.join(names)}, and ends when that is done"
    return "It updates no table any more, but the program that runs the warehouse has not closed it yet"


def _once_started(directory: AnyPath) -> RunningWarehouse:
    """The warehouse for a command, which waits for a process that is just starting instead of being refused."""
    return RunningWarehouse(directory, start_patience=START_PATIENCE)


def _chosen(running: RunningWarehouse, tables: Sequence[str] | None, everything: bool) -> Sequence[str]:
    if everything == bool(tables):
        raise ParameterError("name the tables, or give --all" + (", not both" if everything else ""))
    return tables or [row["name"] for row in running.statistics()]


def _each(tables: Sequence[str], do: Callable[[str], None], now: str) -> None:
    for table in tables:
        do(table)
        say(f"{table}: {now}")


def _priority(text: str) -> tuple[str, float]:
    table, equals, number = text.partition("=")
    try:
        priority = float(number)
    except ValueError:
        priority = math.nan
    if not (table and equals and 0 <= priority <= MOST_PRIORITY):
        raise ParameterError(
            f"--priority takes TABLE=N with a number from 0 to {MOST_PRIORITY:g}, such as alerts=100; got {text!r}"
        )
    return table, priority


def _print_committed(directory: AnyPath, name: str) -> None:
    """Print how far a table is complete, read from its commits."""
    from headgate.warehouse.reading import NotAWarehouseError, tables
    from headgate.warehouse.storage.partitions import format_time

    try:
        found = {table.name: table for table in tables(directory)}
    except NotAWarehouseError:
        return
    if not found:
        return
    if name not in found:
        hint = "A table exists after its first update, and no process answers that could know of others."
        raise UnknownNameError("table", name, found, hint=hint)
    table = found[name]
    upto = "no data yet" if table.complete is None else f"complete up to {format_time(table.complete)}"
    say(f"{name}: {upto}; last update: number {table.update}, {last_update(table)}")
    if table.repairs is not None:
        say(f"  still to be recomputed: {table.repairs}")
