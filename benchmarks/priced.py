"""Past the papers: priced-benefit against Max Benefit, both under Proportional, on every job set of Golab et al.

Weighted staleness, and what no policy can beat, over that of a run in which nobody waits; at an equal virtual horizon
of whole slow cycles. Runs must be long: where updates can keep up only if they gather data, a backlog grows for a
hundred thousand events before Max Benefit has lost what it will lose. Parts:

    figures    figures 4 to 11 of Golab et al. and 24 tables as on Spark, at all loads
    random     400 warehouses drawn by chance
    held-out   400 more that nothing was tuned on
    wrong      the first 400 with costs that are 30 % wrong
    throughout those of the first 400 with slow periods, if these act on running updates: see ``Slowdown``
    parts      the policy without one of its parts, and with one part only, where it matters

The bound is that of the first seed. ``--times`` are the events of a point in thousands. After ``--seconds`` no further
point of a part is begun; a run that ended early, or was broken off, goes on with ``--go-on``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks import golab_fig08, golab_fig11
from benchmarks._golab import JOBS, heterogeneous, job, scaled, slowdown
from benchmarks._warehouses import lasting, mistaken, random_load, random_warehouse, spark_like
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from headgate.core import placement_from, policy_from
from headgate.sim import Table, TableScenario, lower_bound, simulate_tables, simulate_without_waiting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POLICIES = ("max-benefit", "priced-benefit")
OURS, THEIRS = "priced-benefit", "max-benefit"
#: each part alone, and all but one
PARTS = (
    "max-benefit",
    "priced-benefit:portions=false,density=false",
    "priced-benefit:gate=false,density=false",
    "priced-benefit:portions=false",
    "priced-benefit:density=false",
    "priced-benefit",
)
PLACEMENT = "proportional"
LOADS = (0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1)
FULL_EVENTS, RANDOM_EVENTS, SMOKE_EVENTS = 1_000_000, 250_000, 1_500
WAREHOUSES, RANDOM_SEEDS = 400, 2
WRONG = 0.3
#: what the bound of a point depends on
BOUND_OF = ("setting", "load", "scenario", "events", "seed")
#: parts that are warehouses drawn by chance, and their settings
DRAWN = {
    "random": "random",
    "held-out": "random, held out",
    "wrong": "random, costs 30 % wrong",
    "throughout": "random, slow throughout",
}
#: what is wanted of the ratio to Max Benefit: its mean, and what counts as worse; and of the ratio to the bound
MEAN, WORSE, TO_BOUND = 0.9, 1.02, 1.2


def settings() -> Mapping[str, tuple[TableScenario, tuple[float, ...]]]:
    """The job sets of the figures, each with its loads. Without the guard, which the paper does not have."""

    def of(tables: Sequence[Table], **more: Any) -> TableScenario:
        return TableScenario(tuple(tables), guard=False, **more)

    uniform = [job(f"t{i}") for i in range(JOBS)]
    by_speed = [job(f"t{i}", time_per_unit=0.1 if i % 2 else 0.01) for i in range(JOBS)]
    by_priority = [job(f"t{i}", priority=10 if i % 2 else 1) for i in range(JOBS)]
    return {
        **{f"fig. 4, S = {s}": (of(uniform, slowdown=slowdown(s)), LOADS) for s in (2, 3, 5, 10)},
        "fig. 5": (of(by_speed), (0.5, 0.8, 0.9, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4)),
        "fig. 6": (of(uniform, tracks=5), (0.5, 0.8, 0.9, 0.95, 1.0)),
        "fig. 7": (of(by_priority, slowdown=slowdown()), LOADS),
        "fig. 8": (of(golab_fig08.chains(), slowdown=slowdown()), LOADS),
        "fig. 9/10": (of(heterogeneous()), (0.3, 0.5, 0.65, 0.75, 0.8, 0.9, 1.0, 1.1)),
        "fig. 11": (of(golab_fig11.chains(), slowdown=slowdown()), LOADS),
    }


def cases(loads: Mapping[str, Sequence[float]] | None = None) -> list[tuple[str, float, TableScenario]]:
    """(setting, load, scenario) of the figures and of tables as on Spark."""
    found = []
    for name, (scenario, all_loads) in settings().items():
        for load in all_loads if loads is None else loads.get(name, ()):
            found.append((name, load, scaled(scenario, load)))
    for tracks in (2, 4):
        name = f"24 as on Spark, {tracks} tracks"
        for load in (0.5, 1.0, 2.0, 3.0, 5.0) if loads is None else loads.get(name, ()):
            found.append((name, load, spark_like(load, tracks)))
    return found


def measure(
    setting: str,
    load: float,
    scenario: TableScenario,
    policies: Sequence[str],
    events: int,
    seed: int,
    wrong: float = 0,
) -> list[Row]:
    """One row for each policy on one scenario and seed; ``wrong`` is by how much the costs they believe are wrong."""
    lasts = lasting(scenario, events)
    believed = mistaken(lasts, wrong, seed) if wrong else None
    ideal = simulate_without_waiting(lasting(scenario, max(2_000, events // 10)), policy_from("fifo"), seed)
    rows: list[Row] = []
    for policy in policies:
        result = simulate_tables(lasts, policy_from(policy), placement_from(PLACEMENT), seed, believed=believed)
        periods = lasts.periods().tolist()
        rows.append(
            {
                "setting": setting,
                "load": load,
                "policy": policy,
                "seed": seed,
                "events": result.events,
                "weighted staleness": result.weighted_staleness,
                "relative lateness": result.weighted_staleness / ideal.weighted_staleness,
                "worst table, periods": max(
                    table.max_staleness / period for table, period in zip(result.tables, periods, strict=True)
                ),
                "chained": any(table.sources for table in lasts.tables),
                "slow periods": lasts.slowdown is not None,
            }
        )
    return rows


def least(setting: str, load: float, scenario: TableScenario, events: int, seed: int) -> Row:
    """What no policy can beat."""
    bound = lower_bound(lasting(scenario, events), seed=seed, portions=True)
    return {"setting": setting, "load": load, "seed": seed, "least": bound.weighted_staleness}


def measured(context: Context, arguments: Sequence[Mapping[str, Any]], bounded: set[int]) -> list[Row]:
    """The rows of all points, with the bound of those whose seed is in ``bounded``.

    A bound takes as long as a run, and hardly differs from seed to seed.
    """
    rows = context.points(measure, arguments, within=context.seconds)
    wanted = [each for each in arguments if each["seed"] in bounded]
    bounds = context.points(least, [{name: each[name] for name in BOUND_OF} for each in wanted], within=context.seconds)
    found = {(each["setting"], each["load"], each["seed"]): each["least"] for each in bounds}
    for row in rows:
        bound = found.get((row["setting"], row["load"], row["seed"]))
        row["bound"] = bound and bound * row["relative lateness"] / row["weighted staleness"]
        row["times the bound"] = bound and row["weighted staleness"] / bound
    return rows


def events_of(context: Context, full: int) -> int:
    """How many events a point has."""
    return SMOKE_EVENTS if context.smoke else 1_000 * context.times if context.times else full


def figures(context: Context, loads: Mapping[str, Sequence[float]] | None, policies: Sequence[str]) -> list[Row]:
    """The figures and Spark-like tables; all of them with one seed, then with the next. High loads come first."""
    events = events_of(context, FULL_EVENTS)
    by_load = sorted(cases(loads), key=lambda case: -case[1])
    arguments = [
        {
            "setting": name,
            "load": load,
            "scenario": scenario,
            "policies": policies,
            "events": events,
            "seed": seed,
        }
        for seed in context.seeds
        for name, load, scenario in by_load
    ]
    return measured(context, arguments, {context.seeds[0]})


def drawn(context: Context, part: str, policies: Sequence[str] = (THEIRS, OURS)) -> list[Row]:
    """Warehouses drawn by chance, with the same seeds whatever is asked; as many loads as possible come first."""
    throughout = part == "throughout"
    scenarios = {n: random_warehouse(n, part == "held-out", throughout) for n in range(WAREHOUSES)}
    numbers = [n for n, scenario in scenarios.items() if scenario.slowdown is not None or not throughout]
    arguments = [
        {
            "setting": DRAWN[part],
            "load": random_load(number),
            "scenario": scenarios[number],
            "policies": policies,
            "events": events_of(context, RANDOM_EVENTS),
            "seed": 1000 * number + seed,
            "wrong": WRONG if part == "wrong" else 0.0,
        }
        for seed in range(min(context.reps, RANDOM_SEEDS))
        for number in (numbers[:2] if context.smoke else numbers)
    ]
    # Wrong costs do not change what is possible.
    return measured(context, arguments, set() if part == "wrong" else {1000 * number for number in numbers})


SMOKE_LOADS = {"fig. 5": (1.1,), "fig. 11": (0.9,), "24 as on Spark, 2 tracks": (3.0,)}
PART_LOADS = {
    "fig. 4, S = 10": (1.0,),
    "fig. 5": (1.1, 1.2),
    "fig. 7": (0.9,),
    "fig. 8": (0.9,),
    "fig. 9/10": (1.0, 1.1),
    "fig. 11": (0.9, 1.1),
    "24 as on Spark, 2 tracks": (3.0, 5.0),
}


def run(context: Context) -> Results:
    part = context.part
    rows: list[Row] = []
    if part in (None, "figures"):
        rows += figures(context, SMOKE_LOADS if context.smoke else None, POLICIES)
    for each in DRAWN:
        if part in (None, each):
            rows += drawn(context, each)
    if part in (None, "parts"):
        parts = figures(context, {"fig. 5": (1.1,)} if context.smoke else PART_LOADS, PARTS)
        parts += drawn(context, "random", PARTS)
        rows += [{**row, "setting": f"parts of {row['setting']}"} for row in parts]
    return Results(rows, [] if context.smoke else claims(rows))


def ratios(rows: Sequence[Row]) -> dict[tuple[str, float], float]:
    """{(setting, load): weighted staleness of priced-benefit over that of Max Benefit}, geometric mean over seeds."""
    found: dict[tuple[str, float], dict[str, list[float]]] = {}
    for row in rows:
        by_policy = found.setdefault((row["setting"], row["load"]), {})
        by_policy.setdefault(row["policy"], []).append(math.log(row["weighted staleness"]))
    both = {key: each for key, each in found.items() if OURS in each and THEIRS in each}
    return {key: math.exp(_mean(each[OURS]) - _mean(each[THEIRS])) for key, each in both.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _geometric(values: Sequence[float]) -> float:
    return math.exp(_mean([math.log(value) for value in values]))


def claims(rows: Sequence[Row]) -> list[Claim]:
    goal = "a target of this project"
    made = []
    known = [row for row in rows if not row["setting"].startswith(("parts", "random"))]
    if known:
        found = ratios(known)
        high = [ratio for (_, load), ratio in found.items() if load > 0.8]
        worst = max(found, key=found.__getitem__)
        told = f"{1 - _geometric(high):.1%} lower over {len(high)} points"
        made.append(Claim("at loads above 0.8, 10 % lower weighted staleness", goal, told, _geometric(high) <= MEAN))
        told = f"worst {found[worst]:.3f} times at {worst[0]}, load {worst[1]}"
        made.append(Claim("never more than 2 % worse", goal, told, found[worst] <= WORSE))
        made.append(_to_the_bound("figures", known))
    for setting in sorted({row["setting"] for row in rows if row["setting"].startswith("random")}):
        of_setting = [row for row in rows if row["setting"] == setting]
        made += [*_of_random(setting, of_setting), _to_the_bound(setting, of_setting)]
    return made


def _to_the_bound(setting: str, rows: Sequence[Row]) -> Claim:
    """How far the policies are from what nobody can beat; chains and slow periods make the bound low."""

    def times(policy: str, plain: bool) -> float:
        found = [
            row["times the bound"]
            for row in rows
            if row["policy"] == policy
            and row["times the bound"]
            and not (plain and (row["chained"] or row["slow periods"]))
        ]
        return _geometric(found) if found else math.nan

    ours, plain = times(OURS, plain=False), times(OURS, plain=True)
    told = f"{ours:.2f} (Max Benefit {times(THEIRS, plain=False):.2f})"
    if not math.isnan(plain):
        told += f"; without chains and slow periods {plain:.2f} ({times(THEIRS, plain=True):.2f})"
    claim = f"{setting}: within {TO_BOUND} times the bound on the mean"
    return Claim(claim, "a target of this project", told, ours <= TO_BOUND)


def _of_random(setting: str, rows: Sequence[Row]) -> list[Claim]:
    by_case: dict[int, dict[str, list[float]]] = {}
    loads = {}
    for row in rows:
        case = row["seed"] // 1000
        loads[case] = row["load"]
        by_case.setdefault(case, {}).setdefault(row["policy"], []).append(math.log(row["weighted staleness"]))
    ratio = {case: math.exp(_mean(each[OURS]) - _mean(each[THEIRS])) for case, each in by_case.items()}
    by_load = {load: _geometric([ratio[c] for c in ratio if loads[c] == load]) for load in sorted({*loads.values()})}
    mean, worse = _geometric([*ratio.values()]), sum(value > WORSE for value in ratio.values()) / len(ratio)
    told = ", ".join(f"{load:g}: {value:.3f}" for load, value in by_load.items())
    goal = "a target of this project"
    return [
        Claim(f"{setting}: mean ratio to Max Benefit at most {MEAN}", goal, f"{mean:.3f} ({told})", mean <= MEAN),
        Claim(
            f"{setting}: more than 2 % worse in at most 2 % of the warehouses",
            goal,
            f"{worse:.1%} of {len(ratio)}, worst {max(ratio.values()):.3f}",
            worse <= 0.02,
        ),
    ]


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    """The ratio to Max Benefit over the load, a line for each setting."""
    axes = figure.subplots()
    found = ratios([row for row in rows if not row["setting"].startswith(("parts", "random"))])
    for setting in dict.fromkeys(setting for setting, _ in found):
        points = sorted((load, ratio) for (name, load), ratio in found.items() if name == setting)
        axes.plot(*zip(*points, strict=True), marker="o", label=setting)
    axes.set_xlabel("offered load (share of the tracks)")
    axes.set_ylabel("weighted staleness, priced-benefit over max-benefit")
    axes.axhline(1.0, color="grey", linewidth=0.5)
    if axes.has_data():  # parts and warehouses drawn by chance have no lines
        axes.legend(fontsize="small")


BENCHMARK = Benchmark(
    name="priced",
    figure="Past the papers",
    claim="At loads above 0.8, priced-benefit has 10 % less weighted staleness than Max Benefit; nowhere 2 % more.",
    takes="10 h",
    run=run,
    draw=draw,
    pivot=Pivot("setting", "policy", "relative lateness"),
    reps=5,
    parts=("figures", *DRAWN, "parts"),
)
