"""What the experiments of Golab et al., section 4, have in common: table 2's parameters and how a point is measured.

Where the paper leaves a number open it is chosen here, once: arrivals have random phases; a slow period lasts a
hundred periods of the shortest job, and the normal period between two of them is as long as makes the mean execution
time twice the normal one (section 4.1); the guard against starvation, which the paper does not have, is off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Context, Row
from benchmarks.harness.style import draw_lines
from headgate.core import placement_from, policy_from
from headgate.sim import Slowdown, Table, TableScenario, simulate_tables, simulate_without_waiting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

JOBS = 30
TRACKS = 4
ALPHA = 1.0
BETA = 0.1
PERIOD = 100.0
SPREAD = 0.5

FULL_EVENTS = 1_000_000
SMOKE_EVENTS = 4_000
#: the run without waiting settles quickly, so a tenth of the events is plenty for the divisor
IDEAL_SHARE = 10


def slowdown(factor: float = 3.0, shortest_period: float = PERIOD) -> Slowdown:
    """Slow periods that double the mean execution time: a share 1 / (factor - 1) of the time is slow."""
    slow = 100 * shortest_period
    return Slowdown(factor=factor, slow=slow, normal=slow * (factor - 2))


def scaled(scenario: TableScenario, utilisation: float) -> TableScenario:
    """The same job set with alpha and beta scaled so that the offered load is ``utilisation`` of the tracks.

    Where the machine is slow for part of the time, the load counts the mean execution time.
    """
    mean = 1.0 if scenario.slowdown is None else scenario.slowdown.mean
    factor = utilisation * scenario.tracks / (mean * scenario.utilisation())
    tables = tuple(
        replace(table, setup_time=table.setup_time * factor, time_per_unit=table.time_per_unit * factor)
        for table in scenario.tables
    )
    return replace(scenario, tables=tables)


def measure(scenario: TableScenario, label: str, policy: str, placement: str, utilisation: float, seed: int) -> Row:
    """One point: weighted staleness and relative lateness of a job set under a policy and a placement."""
    scenario = scaled(scenario, utilisation)
    chosen = policy_from(policy)
    result = simulate_tables(scenario, chosen, placement_from(placement), seed)
    ideal_scenario = replace(scenario, events=max(2_000, scenario.events // IDEAL_SHARE))
    ideal = simulate_without_waiting(ideal_scenario, chosen, seed)
    return {
        "variant": label,
        "utilisation": utilisation,
        "seed": seed,
        "events": result.events,
        "weighted staleness": result.weighted_staleness,
        "relative lateness": result.weighted_staleness / ideal.weighted_staleness,
    }


def job_set(tables: Sequence[Table], context: Context, **more: Any) -> TableScenario:
    """Tables under table 2's parameters, at the size that the context asks for."""
    events = SMOKE_EVENTS if context.smoke else FULL_EVENTS
    settings = {"tracks": TRACKS, "spread": SPREAD, "guard": False, "events": events, **more}
    return TableScenario(tuple(tables), **settings)


def job(name: str, **more: Any) -> Table:
    """A base table with table 2's costs and period unless ``more`` says otherwise."""
    return Table(name, **{"period": PERIOD, "setup_time": ALPHA, "time_per_unit": BETA, **more})


def derived(name: str, source: str, **more: Any) -> Table:
    """A table built on one other, with table 2's costs."""
    return Table(name, sources=(source,), **{"setup_time": ALPHA, "time_per_unit": BETA, **more})


def heterogeneous() -> list[Table]:
    """Section 4.6: short jobs and jobs a hundred times longer; priority is the inverse of the period."""
    short = [job(f"short-{i}", period=100.0, priority=100) for i in range(JOBS // 2)]
    return short + [job(f"long-{i}", period=10_000.0, priority=1) for i in range(JOBS // 2)]


def sweep(context: Context, variants: Sequence[dict[str, Any]], utilisations: Sequence[float]) -> list[Row]:
    """Every variant at every utilisation and seed; in smoke mode at the ends of the range only."""
    loads = (utilisations[0], utilisations[-1]) if context.smoke else utilisations
    arguments = [
        {**variant, "utilisation": load, "seed": seed}
        for variant in variants
        for load in loads
        for seed in context.seeds
    ]
    return context.points(measure, arguments)


def mean_lateness(rows: Sequence[Row], variant: str, low: float = 0.0, high: float = 9.0) -> float:
    """The mean relative lateness of a variant over the utilisations between ``low`` and ``high``."""
    values = [r["relative lateness"] for r in rows if r["variant"] == variant and low <= r["utilisation"] <= high]
    return float(sum(values) / len(values))


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    """Relative lateness over offered load, a line for each variant, as in the paper's figures."""
    axes = figure.subplots()
    draw_lines(axes, rows, x="utilisation", y="relative lateness", label="variant")
    axes.set_xlabel("offered load (share of the tracks)")
    axes.set_yscale("log")
