"""``headgate explain``, ``pause``, ``resume``, ``refresh``, ``backfill``, ``set``, ``stop``: a warehouse that runs now.

Each sends commands to the process that runs the warehouse and prints a line for every change. The first change that is
refused ends the command; those before it stay made and are printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.read import WarehouseDirectory, event_time
from headgate.core import ParameterError, UnknownNameError
from headgate.warehouse.declare.durations import readable, seconds
from headgate.warehouse.run.control_client import ControlError, RunningWarehouse

#: before and after all event times, in microseconds
BEGINNING, END = -(1 << 62), 1 << 62

OneTable = Annotated[str, typer.Argument(metavar="TABLE", help="A stream or table of the warehouse.")]
SomeTables = Annotated[
    list[str] | None, typer.Argument(metavar="TABLE", help="Streams or tables of the warehouse.", show_default=False)
]
Everything = Annotated[bool, typer.Option("--all", help="All of them.")]


def explain(directory: WarehouseDirectory, table: OneTable) -> None:
    """Say why a table is or is not being updated at this moment."""
    try:
        print(RunningWarehouse(directory).explain(table))
    except ControlError:
        _print_committed(directory, table)
        raise


def pause(directory: WarehouseDirectory, tables: SomeTables = None, everything: Everything = False) -> None:
    """Make no more updates of tables until they are resumed; those that run are finished."""
    running = RunningWarehouse(directory)
    _each(_chosen(running, tables, everything), running.pause, "paused")


def resume(directory: WarehouseDirectory, tables: SomeTables = None, everything: Everything = False) -> None:
    """Update tables again that were paused, or are held after failures."""
    running = RunningWarehouse(directory)
    _each(_chosen(running, tables, everything), running.resume, "resumed")


def refresh(
    directory: WarehouseDirectory,
    tables: Annotated[list[str], typer.Argument(metavar="TABLE", help="Streams or tables of the warehouse.")],
) -> None:
    """Update tables now, with what they need, before everything else."""
    _each(tables, RunningWarehouse(directory).refresh, "goes first now, with what it needs")


def backfill(
    directory: WarehouseDirectory,
    table: OneTable,
    first: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="From this event time on; UTC unless stated.")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Up to this event time; UTC unless stated.")
    ] = None,
    chunk: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How much event time to compute at once, such as '1 day'."),
    ] = None,
) -> None:
    """Compute a stretch of event time of a table again, a chunk at a time, whenever no live update waits.

    Without --from it is from the beginning, without --to up to what there is. A table whose queries have states is
    always built anew as a whole.
    """
    begin = BEGINNING if first is None else event_time(first, "--from")
    end = END if last is None else event_time(last, "--to")
    if begin >= end:
        raise ParameterError(f"--from must be before --to; got {first} and {last}")
    length = None if chunk is None else seconds(chunk, "--chunk")
    if length == 0:
        raise ParameterError(f"--chunk must be longer than nothing; got {chunk!r}")
    RunningWarehouse(directory).backfill(table, begin, end, length)
    chunks = "" if length is None else f", {readable(length)} at a time"
    stretch = f"from {first or 'the beginning'} to {last or 'what there is'}"
    print(f"{table}: computed again {stretch}{chunks}, behind live updates")


def change(
    directory: WarehouseDirectory,
    policy: Annotated[str | None, typer.Option(metavar="NAME[:k=v,..]", help="Which table goes first.")] = None,
    placement: Annotated[str | None, typer.Option(metavar="NAME[:k=v,..]", help="On which tracks.")] = None,
    tracks: Annotated[int | None, typer.Option(min=1, help="How many updates may run at once.")] = None,
    priority: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE=N", help="The priority of a table; give it several times for several."),
    ] = None,
) -> None:
    """Change how a running warehouse decides, from the next decision on and until it is stopped."""
    priorities = [_priority(text) for text in priority or ()]
    if policy is None and placement is None and tracks is None and not priorities:
        raise ParameterError("say what is to change: --policy, --placement, --tracks or --priority")
    running = RunningWarehouse(directory)
    if policy is not None:
        print(f"policy: {running.replace_policy(policy)}")
    if placement is not None:
        print(f"placement: {running.replace_placement(placement)}")
    if tracks is not None:
        running.set_tracks(tracks)
        print(f"tracks: {tracks}")
    for table, number in priorities:
        running.set_priority(table, number)
        print(f"{table}: priority {number:g}")


def stop(
    directory: WarehouseDirectory,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return at once, not when the process has ended.")] = False,
) -> None:
    """Stop the process that runs a warehouse: updates that are running are finished, no more are begun."""
    running = RunningWarehouse(directory)
    process = running.stop_soon()
    who = "the process" if process is None else f"process {process}"
    if no_wait:
        print(f"{directory}: {who} has been asked to stop")
        return
    running.wait_until_released(process)
    print(f"{directory}: {who} has stopped")


def _chosen(running: RunningWarehouse, tables: Sequence[str] | None, everything: bool) -> Sequence[str]:
    if everything == bool(tables):
        raise ParameterError("name the tables, or give --all" + (", not both" if everything else ""))
    return tables or [row["name"] for row in running.statistics()]


def _each(tables: Sequence[str], do: Callable[[str], None], now: str) -> None:
    for table in tables:
        do(table)
        print(f"{table}: {now}")


def _priority(text: str) -> tuple[str, float]:
    table, equals, number = text.partition("=")
    try:
        priority = float(number)
    except ValueError:
        priority = math.nan
    if not (table and equals and 0 <= priority < math.inf):
        raise ParameterError(f"--priority takes TABLE=N with a number of at least 0, such as alerts=100; got {text!r}")
    return table, priority


def _print_committed(directory: Path, name: str) -> None:
    """What the commits of a table say, if there are any in the directory."""
    from headgate.warehouse.reading import NotAWarehouseError, tables
    from headgate.warehouse.storage.partitions import format_time

    try:
        found = {table.name: table for table in tables(directory)}
    except NotAWarehouseError:
        return
    if name not in found:
        hint = "A table exists from its first update on, and no process answers that may know of more."
        raise UnknownNameError("table", name, found, hint=hint)
    table = found[name]
    upto = "has no data yet" if table.freshness is None else f"complete up to {format_time(table.freshness)}"
    print(f"{name}: {upto}; its last update was number {table.update}, of kind {table.kind}")
