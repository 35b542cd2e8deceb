"""``headgate bound``: how low weighted staleness could be, and how far from that policies are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from headgate.cli.comparison import times_bound
from headgate.cli.output import PlainConsole, say
from headgate.cli.simulate import TRACE_SUFFIX, ScenarioOrTrace, known_placements, known_policies, sized, start_of
from headgate.core import MOST_TRACKS, ParameterError, Placement, Policy, ScenarioError
from headgate.core.autopilot import refuse_replay
from headgate.core.lengths import plural
from headgate.places.place import AnyPath
from headgate.sim import (
    CostModel,
    LowerBound,
    TableResult,
    TableScenario,
    TraceReplay,
    read_scenario,
    replay_of,
    run_bound,
)
from headgate.sim.comparison import bounds, simulated
from headgate.warehouse.declare.durations import readable, seconds
from headgate.warehouse.run.control_commands import finite
from headgate.warehouse.run.trace import read_trace


@dataclass(frozen=True, slots=True)
class BoundRow:
    """One run and the bound for a run of its length; ``policy`` is "measured" for a recorded run as it was."""

    policy: str
    placement: str
    weighted_staleness: float
    bound: LowerBound
    times: float | None


def bound(
    what: ScenarioOrTrace,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:k=v,..]", help="A policy to compare with the bound; may be repeated."),
    ] = None,
    placement: Annotated[
        str | None, typer.Option(metavar="NAME[:k=v,..]", help="The placement of those policies.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_TRACKS, help="Number of tracks, instead of the stated one; with a trace, no row 'measured'."
        ),
    ] = None,
    events: Annotated[
        int | None, typer.Option(min=1, help="Scenarios only: stop after this many arrivals and completed updates.")
    ] = None,
    skip: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Traces only: leave out the beginning, such as '30 s'; by default until most tables had rows.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of arrivals and runs.")] = 0,
    portions: Annotated[
        bool, typer.Option("--portions", help="Compute a bound that also holds for policies that cut updates.")
    ] = False,
    certain: Annotated[
        bool,
        typer.Option("--certain", help="Scenarios only: bound every run, not only the mean, if execution times vary."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the weighted staleness that no policy can beat.

    It holds for every policy and placement, with the same data on the same number of tracks. Beside it are policies,
    by default max-benefit, and the run itself if it is a recorded one. Of that, the start does not count, until tables
    with nine tenths of the priorities had rows; --skip '0 s' counts it. docs/bound.md says what the bound relies on.
    """
    if what.suffix == TRACE_SUFFIX:
        if events is not None or certain:
            raise ParameterError("--events and --certain are for scenarios; leave them out with a trace")
        trace = read_trace(what)
        skipped = start_of(trace) if skip is None else seconds(skip, "--skip")
        replay = replay_of(trace, skipped, CostModel)
        name, notes = replay.scenario.name, replay.notes
        rows = _recorded(replay, what, policy, placement, workers, seed, portions)
    else:
        if skip is not None:
            raise ParameterError("--skip is for traces; leave it out with a scenario")
        assert isinstance(what, Path), "only traces are read from object stores"
        skipped, notes = 0.0, ()
        name, rows = _simulated(what, policy, placement, workers, events, seed, portions, certain)
    if as_json:
        whole = {"scenario": name, "seed": seed, "skipped": skipped, "notes": notes}
        whole["results"] = [asdict(row) for row in rows]
        say(json.dumps(finite(whole), indent=2, allow_nan=False))
        return
    _print(PlainConsole(), name, rows, skipped, skip is None, notes)


def _simulated(
    path: Path,
    policy: list[str] | None,
    placement: str | None,
    workers: int | None,
    events: int | None,
    seed: int,
    portions: bool,
    certain: bool,
) -> tuple[str, list[BoundRow]]:
    file = read_scenario(path)
    scenario = sized(file.scenario, workers, events)
    if not isinstance(scenario, TableScenario):
        raise ScenarioError(f"{path.name}: there is a bound for tables only; this scenario is one of operators")
    placed = known_placements([placement] if placement else None, file.placements or ("anywhere",), path)[0]

    least = bounds(scenario, seed, portions, certain)

    def run(one: Policy) -> BoundRow:
        result = simulated(scenario, one, placed, seed)
        if not result.seconds > 0:
            raise ScenarioError(f"{path.name}: the run ends at 0 s: state more events or a horizon")
        return _row(result, least(one, result.seconds))

    return scenario.name, [run(one) for one in known_policies(policy, ("max-benefit",), path)]


def _recorded(
    replay: TraceReplay,
    path: AnyPath,
    policy: list[str] | None,
    placement: str | None,
    workers: int | None,
    seed: int,
    portions: bool,
) -> list[BoundRow]:
    placed: Placement = known_placements([placement] if placement else None, (replay.placement,), path)[0]
    policies = known_policies(policy, ("max-benefit",), path)
    for one in policies:
        refuse_replay(one)
    least_of = cache(replay.lower_bound)

    def rows() -> Iterator[BoundRow]:
        if workers is None:
            own = run_bound(replay, portions or None, everything=True)
            least = LowerBound(own.least, own.price, own.seconds, own.tracks, on_average=False, portions=own.portions)
            yield BoundRow("measured", replay.placement, own.weighted_staleness, least, own.times)
        for one in policies:
            cut = portions or replay.scenario.cuts_under(one)
            yield _row(replay.run(one, placed, workers, seed), least_of(workers, cut))

    return list(rows())


def _row(result: TableResult, least: LowerBound) -> BoundRow:
    weighted = result.weighted_staleness
    times = weighted / least.weighted_staleness if least.weighted_staleness > 0 else None
    return BoundRow(result.policy, result.placement, weighted, least, times)


def _print(
    console: PlainConsole, name: str, rows: list[BoundRow], skipped: float, is_start: bool, notes: tuple[str, ...]
) -> None:
    """The rows as a table; ``is_start`` if what is ``skipped`` of a run is its start, and not what a user has said."""
    first = rows[0].bound
    # What differs from row to row is a column of its own.
    same_tracks = len({row.bound.tracks for row in rows}) == 1
    on = f" on {first.tracks} {plural('track', first.tracks)}" if same_tracks else ""
    without = f", without its first {readable(skipped)}" if skipped > 0 else ""
    console.print(f"{name}{on}, for {readable(first.seconds)}{without}", style="bold")
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("", overflow="fold")
    for heading in (*(() if same_tracks else ("tracks",)), "weighted", "lower bound", "times the bound", "price"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        tracks = () if same_tracks else (str(row.bound.tracks),)
        value = f"{row.bound.weighted_staleness:,.4g}"
        times = times_bound(row.weighted_staleness, row.bound.weighted_staleness)
        table.add_row(row.policy, *tracks, f"{row.weighted_staleness:,.4g}", value, times, f"{row.bound.price:,.3g}")
    console.print(table)
    start = " The start, until most tables had rows, does not count; --skip '0 s' counts it."
    console.print(
        f"Weighted: sum over all tables of priority times mean staleness. {_holds_for(rows)}"
        " Price: what a second of a track is worth, in weighted staleness times seconds; 0 if tracks are not scarce."
        f"{start if is_start and skipped > 0 else ''}",
        style="dim",
    )
    for note in notes:
        console.print(note)


def _holds_for(rows: list[BoundRow]) -> str:
    """What the bounds hold for; of one for updates of any size and one for whole updates, that is not the same."""
    runs = "the mean over all runs" if rows[0].bound.on_average else "every run"
    any_policy = [row.policy for row in rows if row.bound.portions]
    if any_policy and len(any_policy) < len(rows):
        return (
            f"The bound beside {', '.join(any_policy)} holds for any policy, the others for any policy that loads all "
            f"that waits, and all of them for {runs}."
        )
    whom = "any policy" if any_policy else "any policy that loads all that waits"
    return f"The bound holds for {whom}, and for {runs}."
