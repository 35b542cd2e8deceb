"""Tables with target lags: for how much of the time all targets hold, under policies that know of them or not.

Random warehouses of 30 tables on 2 tracks, half of them derived, two thirds with a target. Targets are such that they
take a certain share of the tracks, as the arithmetic of `headgate.core.targets` says: with 0.6 of them they can be kept
with room, with more than all of them nobody can keep them all. The tables without a target have priorities only.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from benchmarks.harness.style import draw_lines
from headgate.core import TargetTables, derive_periods, policy_from
from headgate.core.placements import Anywhere
from headgate.core.targets import demand
from headgate.sim import Table, TableScenario, simulate_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLES, TRACKS = 30, 2
#: the share of the tracks that targets take
FEASIBLE, TIGHT, INFEASIBLE = (0.4, 0.6), (0.8,), (1.1, 1.4)
RATIO, COUNT = "target-lag", "target-lag:goal=count"
POLICIES = (RATIO, COUNT, "edf-p", "max-benefit", "edf", "fifo")
KNOWING_NOTHING = ("edf-p", "max-benefit")
#: a target counts as held if the lag is within it for this share of the time
HELD = 0.9
WANTED = "a target of this project"


def warehouse(seed: int, busy: float, smoke: bool = False) -> TableScenario:
    """A random warehouse whose targets take `busy` of its tracks."""
    rng = random.Random(seed)
    tables: list[Table] = []
    for number in range(TABLES):
        sources = (f"t{rng.randrange(TABLES // 2 + 5)}",) if number >= TABLES // 2 + 5 else ()
        if not sources and number >= TABLES // 2:
            sources = (f"t{rng.randrange(TABLES // 2)}",)
        tables.append(
            Table(
                f"t{number}",
                sources=sources,
                period=0.0 if sources else rng.uniform(1.0, 5.0),
                priority=rng.choice((1.0, 10.0, 100.0)),
                setup_time=rng.uniform(0.2, 0.8),
                time_per_unit=rng.uniform(0.002, 0.02),
                # relative to one another; how long they are is found below
                target_lag=10.0 ** rng.uniform(0.0, 1.0) if rng.random() < 2 / 3 else None,
            )
        )
    horizon = 200.0 if smoke else 600.0
    scenario = TableScenario(tuple(tables), tracks=TRACKS, name="targets", horizon=horizon, events=10**9)
    return _with_targets(scenario, busy)


def _with_targets(scenario: TableScenario, busy: float) -> TableScenario:
    """The same with targets so many times the lowest lag of each table that they take `busy` of the tracks."""
    graph = scenario.graph()
    relative = scenario.target_lags()
    tables = TargetTables(
        graph,
        relative,
        derive_periods(graph, scenario.periods_of_streams()),
        np.array([table.setup_time for table in scenario.tables]),
        np.array([table.time_per_unit for table in scenario.tables]),
        scenario.stated_priorities(),
    )
    least = demand(tables).least

    def scaled(factor: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.maximum(least * 1.5, least * relative * factor)

    low, high = 1e-3, 1e4
    for _ in range(60):
        middle = (low * high) ** 0.5
        too_much = demand(tables.with_target(scaled(middle))).tracks > busy * scenario.tracks
        low, high = (middle, high) if too_much else (low, middle)
    targets = scaled(high)
    stated = tuple(
        replace(table, target_lag=None if table.target_lag is None else float(target))
        for table, target in zip(scenario.tables, targets, strict=True)
    )
    return replace(scenario, tables=stated)


def measure(policy: str, busy: float, seed: int, smoke: bool) -> Row:
    scenario = warehouse(seed, busy, smoke)
    result = simulate_tables(scenario, policy_from(policy), Anywhere(), seed)
    met = [table.target_met for table in result.tables if table.target_met is not None]
    others = [table for table in result.tables if table.target_met is None]
    return {
        "policy": policy,
        "busy": busy,
        "verdict": scenario.target_plan().verdict,
        "seed": seed,
        "all met": result.targets_met,
        "mean met": fmean(met),
        "held": sum(share >= HELD for share in met) / len(met),
        "worst ratio": result.worst_ratio,
        "weighted staleness": result.weighted_staleness,
        "weighted staleness of others": sum(table.priority * table.mean_staleness for table in others),
    }


def mean_of(rows: Sequence[Row], policy: str, loads: Sequence[float], what: str) -> float:
    return fmean(row[what] for row in rows if row["policy"] == policy and row["busy"] in loads)


def claims(rows: Sequence[Row], smoke: bool) -> list[Claim]:
    def each(loads: Sequence[float], what: str) -> dict[str, float]:
        return {policy: mean_of(rows, policy, loads, what) for policy in POLICIES}

    near = {} if smoke else each(TIGHT, "all met")
    all_met, ratio, held = each(FEASIBLE, "all met"), each(INFEASIBLE, "worst ratio"), each(INFEASIBLE, "held")
    others = [policy for policy in POLICIES if policy not in (RATIO, COUNT)]

    def said(values: dict[str, float]) -> str:
        return ", ".join(f"{policy} {value:.3g}" for policy, value in values.items())

    return [
        Claim(
            claim="where targets have room, all of them hold for at least 99 % of the time, more than under others",
            paper=WANTED,
            measured=f"share of time in which all hold: {said(all_met)}",
            holds=None if smoke else all_met[RATIO] >= 0.99 and all_met[RATIO] > max(all_met[p] for p in others),
        ),
        Claim(
            claim="where they are tight, all of them hold for more of the time than under others",
            paper=WANTED,
            measured=f"share of time in which all hold: {said(near)}",
            holds=None if smoke else near[RATIO] > max(near[policy] for policy in others),
        ),
        Claim(
            claim="where they cannot all be kept, the largest ratio of lag to target is least under target-lag",
            paper=WANTED,
            measured=f"largest ratio: {said(ratio)}",
            holds=None if smoke else ratio[RATIO] == min(ratio.values()),
        ),
        Claim(
            claim="and with goal=count more targets are held than under others",
            paper=WANTED,
            measured=f"share of targets held {HELD:.0%} of the time: {said(held)}",
            holds=None if smoke else held[COUNT] > max(held[policy] for policy in others),
        ),
    ]


def run(context: Context) -> Results:
    loads = (FEASIBLE[0], INFEASIBLE[-1]) if context.smoke else (*FEASIBLE, *TIGHT, *INFEASIBLE)
    arguments = [
        {"policy": policy, "busy": busy, "seed": seed, "smoke": context.smoke}
        for policy in POLICIES
        for busy in loads
        for seed in context.seeds
    ]
    rows = context.points(measure, arguments)
    return Results(rows, claims(rows, context.smoke))


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    """The share of time in which all targets hold, over the share of the tracks that they take."""
    axes = figure.subplots()
    draw_lines(axes, rows, x="busy", y="all met", label="policy")
    axes.set_xlabel("tracks that the targets take, as a share of those there are")
    axes.set_ylabel("share of time in which all targets hold")


BENCHMARK = Benchmark(
    name="targets",
    figure="Target lags",
    claim="A policy that knows of target lags keeps them where that is possible, and fails evenly where it is not.",
    takes="3 min",
    run=run,
    draw=draw,
    pivot=Pivot("busy", "policy", "all met"),
    reps=3,
)
