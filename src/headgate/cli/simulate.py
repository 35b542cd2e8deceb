"""``headgate simulate``: compare policies on a scenario, or on the trace of a run."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from headgate.cli.comparison import print_about, print_comparison, print_nodes, print_replay, print_story
from headgate.cli.output import PlainConsole, say
from headgate.cli.read import is_directory, warehouse_directory
from headgate.core import (
    MOST_TRACKS,
    DeclarationError,
    ParameterError,
    Placement,
    Policy,
    ScenarioError,
    inheritance_from,
    placement_from,
    plan_lines,
    policy_from,
)
from headgate.core.trace import Trace
from headgate.places.place import AnyPath
from headgate.sim import (
    Compared,
    CostModel,
    LoopModel,
    OperatorScenario,
    ScenarioFile,
    TableScenario,
    Variant,
    compare,
    compare_replay,
    loop_from,
    read_scenario,
    replay_of,
    variants,
)
from headgate.sim.run_bound import settled
from headgate.warehouse.declare.durations import readable, seconds
from headgate.warehouse.run.control_commands import finite
from headgate.warehouse.run.trace import newest_trace, read_trace

Chosen = TypeVar("Chosen")

#: suffix of traces
TRACE_SUFFIX = ".jsonl"
#: compared if neither the command line nor the scenario says otherwise
_DEFAULT_POLICIES = {"tables": ("max-benefit", "edf-p", "fifo"), "operators": ("longest-queue", "fcfs", "hr")}


def scenario_or_trace(text: str) -> AnyPath:
    """The scenario or the trace that ``text`` names; of a warehouse, its newest trace."""
    if not text:
        raise ParameterError("the name is empty: name a scenario (.toml), a trace (.jsonl) or a warehouse")
    path = warehouse_directory(text)
    is_warehouse = is_directory(path) if isinstance(path, Path) else path.suffix != TRACE_SUFFIX
    if not is_warehouse:
        return path
    trace = newest_trace(path)
    if trace is None:
        raise ParameterError(f"{path} has no trace of a run: name the directory of a warehouse that has been run")
    return trace


if TYPE_CHECKING:
    ScenarioOrTrace = AnyPath
else:  # the command line knows no unions, but takes what its parser returns
    ScenarioOrTrace = Annotated[
        Path,
        typer.Argument(
            metavar="WHAT",
            parser=scenario_or_trace,
            help="A scenario (.toml), the trace of a run (.jsonl), or a warehouse, of which the newest trace is taken: "
            "its directory, its URL in an object store, or its pipeline file.",
        ),
    ]


def simulate(
    scenario: ScenarioOrTrace,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:k=v,..]", help="A policy to compare; may be repeated."),
    ] = None,
    placement: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:k=v,..]", help="A placement to compare; may be repeated."),
    ] = None,
    inheritance: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="Tables only: what sources inherit, instead of the scenario's: none, sum, max, max-plus, "
            "max-plus:k=3, density, or default, which is up to the policy.",
        ),
    ] = None,
    loop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND[:k=v,..]",
            help="A loop to compare (operators only): dispatch, rounds or threads; may be repeated.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_TRACKS, help="Number of workers (for tables: tracks), instead of the scenario's."),
    ] = None,
    events: Annotated[
        int | None,
        typer.Option(
            min=1, help="Stop after this many events (tables: arrivals and completed updates; operators: tuples)."
        ),
    ] = None,
    skip: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Traces only: leave out the beginning, such as '30 s'."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed gives the same run.")] = 0,
    nodes: Annotated[int, typer.Option(min=0, help="Number of tables or operators to list.")] = 20,
    story: Annotated[
        bool, typer.Option("--story", help="Scenarios of tables only: also draw mean staleness by priority.")
    ] = False,
    bound: Annotated[
        bool, typer.Option("--bound", help="Tables only: also print the weighted staleness that no policy can beat.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare policies on a scenario or a trace.

    Runs in virtual time. Without --policy, the policies that the scenario names are compared; if it names none,
    max-benefit, edf-p and fifo for tables, and longest-queue, fcfs and hr for operators. For a trace, they are the
    policy of the run, fifo and max-benefit. docs/simulator.md describes scenario files, docs/traces.md traces.
    """
    if scenario.suffix == TRACE_SUFFIX:
        _refuse(f"a trace ({scenario.name})", {"--loop": loop, "--events": events, "--story": story or None})
        _replay(scenario, policy, placement, inheritance, workers, skip, seed, nodes, as_json, bound)
        return
    assert isinstance(scenario, Path), "only traces are read from object stores"
    _refuse(f"a scenario ({scenario.name})", {"--skip": skip})
    file = read_scenario(scenario)
    chosen = sized(file.scenario, workers, events)
    if not isinstance(chosen, TableScenario):
        for_tables = {"--inheritance": inheritance, "--story": story or None, "--bound": bound or None}
        _refuse(f"a scenario of operators ({scenario.name})", for_tables)
    elif inheritance is not None:
        chosen = _inheriting(chosen, inheritance)
    rows = _run(chosen, _variants(scenario, file, chosen, policy, placement, loop), seed, bound)
    if as_json:
        _print_json(chosen, rows, seed)
        return
    console = PlainConsole()
    print_about(console, file.about)
    if isinstance(chosen, TableScenario):
        for line in plan_lines(chosen.target_plan()):
            console.print(line)
    print_comparison(console, chosen.name, rows, ("lower bound", "times the bound") if bound else ())
    print_nodes(console, rows, nodes)
    if story:
        print_story(console, rows)


def _refuse(what: str, options: Mapping[str, object]) -> None:
    for option, value in options.items():
        if value is not None and value != []:
            raise ParameterError(f"{option} cannot be used with {what}; leave it out")


def _replay(
    path: AnyPath,
    policy: Sequence[str] | None,
    placement: Sequence[str] | None,
    inheritance: str | None,
    tracks: int | None,
    skip: str | None,
    seed: int,
    nodes: int,
    as_json: bool,
    bound: bool,
) -> None:
    trace, skipped = read_trace(path), 0.0 if skip is None else seconds(skip, "--skip")
    replay = replay_of(trace, skipped, CostModel)
    if inheritance is not None:
        replay = replace(replay, scenario=_inheriting(replay.scenario, inheritance))
    policies = known_policies(policy, replay.policies, path)
    placements = known_placements(placement, (replay.placement,), path)
    chosen = [(one, other) for one in policies for other in placements]
    rows = list(compare_replay(replay, chosen, tracks, seed, bound))
    notes = replay.notes
    if any(row.lower_bound is not None for row in rows) and (start := start_of(trace)) > skipped:
        notes = (*notes, _counts_start(start))
    if as_json:
        whole = {"scenario": replay.scenario.name, "seed": seed, "results": [asdict(row) for row in rows]}
        whole["notes"] = notes
        say(json.dumps(finite(whole), indent=2, allow_nan=False))
        return
    print_replay(PlainConsole(), replay.about, rows, nodes, notes)


def start_of(trace: Trace) -> float:
    """How many seconds of a run are its start, as on the page; nothing if there is hardly a run beyond it."""
    from headgate.monitor.bounding import LEAST_SECONDS

    start = settled(trace)
    return start if trace.finish - trace.header.started - start >= LEAST_SECONDS else 0.0


def _counts_start(start: float) -> str:
    return (
        f"The bound counts the start of the run, until most tables had rows after {readable(start)}; headgate bound "
        f"leaves it out, and so does --skip '{math.ceil(start)} s' here."
    )


def _inheriting(scenario: TableScenario, inheritance: str) -> TableScenario:
    rule = inheritance_from(inheritance)
    if rule is None:
        return replace(scenario, inheritance=None)
    return replace(scenario, inheritance=rule.mode, inheritance_k=rule.k)


# A file may come from somebody else, so it can only name what comes with Headgate. What the user names is imported.


def known_policies(stated: Sequence[str] | None, in_file: Sequence[str], file: AnyPath) -> list[Policy]:
    if stated:
        return [policy_from(text) for text in stated]
    return [_known(policy_from, text, "--policy", file) for text in in_file]


def known_placements(stated: Sequence[str] | None, in_file: Sequence[str], file: AnyPath) -> list[Placement]:
    if stated:
        return [placement_from(text) for text in stated]
    return [_known(placement_from, text, "--placement", file) for text in in_file]


def _known(make: Callable[..., Chosen], text: str, option: str, file: AnyPath) -> Chosen:
    try:
        return make(text, imports=False)
    except DeclarationError as error:
        raise ParameterError(
            f"{file.name}: {error} If you trust it, name it yourself: {option} {text[:100]}; or choose another."
        ) from None


def sized(
    scenario: TableScenario | OperatorScenario, workers: int | None, events: int | None
) -> TableScenario | OperatorScenario:
    """The scenario with as many workers, or tracks, and events as options state."""
    if isinstance(scenario, TableScenario):
        return replace(
            scenario,
            tracks=scenario.tracks if workers is None else workers,
            events=scenario.events if events is None else events,
        )
    return replace(
        scenario,
        workers=scenario.workers if workers is None else workers,
        events=scenario.events if events is None else events,
    )


def _variants(
    path: AnyPath,
    file: ScenarioFile,
    scenario: TableScenario | OperatorScenario,
    policy: Sequence[str] | None,
    placement: Sequence[str] | None,
    loop: Sequence[str] | None,
) -> list[Variant]:
    grain = "tables" if isinstance(scenario, TableScenario) else "operators"
    if loop and grain == "tables":
        raise ScenarioError("--loop is for scenarios of operators; tables always use the dispatch loop")
    policies = known_policies(policy, file.policies or _DEFAULT_POLICIES[grain], path)
    placements = known_placements(placement, file.placements or ("anywhere",), path)
    default = scenario.loop if isinstance(scenario, OperatorScenario) else None
    return list(variants(scenario, policies, placements, [_loop(text, default) for text in loop or ()]))


def _loop(text: str, default: LoopModel | None) -> LoopModel:
    """The loop that ``text`` states; if it has the kind of the scenario's loop, other settings are the scenario's."""
    kind, _, parameters = text.partition(":")
    values: dict[str, object] = {"kind": kind}
    for part in parameters.split(",") if parameters else ():
        key, _, value = part.partition("=")
        values[key] = _number(value)
    loop = loop_from(values, f"--loop {text}")
    if default is None or type(loop) is not type(default):
        return loop
    return replace(default, **{key: getattr(loop, key) for key in values if key != "kind"})


def _number(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _run(
    scenario: TableScenario | OperatorScenario, chosen: Sequence[Variant], seed: int, bound: bool
) -> list[Compared]:
    total = scenario.events or 0
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TimeRemainingColumn(),
        console=PlainConsole(file=sys.stderr),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as bar:
        by_events = isinstance(scenario, TableScenario)
        task = bar.add_task("simulating", total=max(1, total * len(chosen) if by_events else len(chosen)))

        def progress(done: int, events: int) -> None:
            bar.update(task, completed=done * total + events if by_events else done)

        return list(compare(scenario, chosen, seed, progress, bound))


def _print_json(scenario: TableScenario | OperatorScenario, rows: Sequence[Compared], seed: int) -> None:
    whole = {"scenario": scenario.name, "seed": seed, "results": [asdict(row) for row in rows]}
    # NaN is not JSON: a latency that nobody measured is null.
    say(json.dumps(finite(whole), indent=2, allow_nan=False))
