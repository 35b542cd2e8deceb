"""The placement by-length against the two that it chooses from: figures 4 to 11, Spark-like sets, random warehouses.

Every job set runs under Max Benefit with each placement, for the same virtual time, and by-length is compared with
whichever of `anywhere` and `proportional` is better there.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks._golab import SPREAD, scaled, slowdown
from benchmarks._warehouses import lasting
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from benchmarks.priced import cases
from headgate.core import placement_from, policy_from
from headgate.sim import Table, TableScenario, simulate_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHOICES = ("anywhere", "proportional")
CHOSEN = "by-length"
#: how much worse than the better of the two it may be
ALLOWED = 1.02
WANTED = "a target of this project"
EVENTS, SMOKE_EVENTS = 20_000, 1_500
RANDOM, SMOKE_RANDOM = 100, 2
#: offered loads of random warehouses, as shares of the tracks
LOADS = (0.6, 0.8, 0.95, 1.1, 1.3, 1.6)
_SLOW_LOADS, _SPARK_LOADS = (0.5, 0.8, 1.0, 1.1), (1.0, 2.0, 3.0, 5.0)
#: the settings of ``priced`` that run, each with its loads
FIGURES = {
    **dict.fromkeys(("fig. 4, S = 2", "fig. 4, S = 3", "fig. 4, S = 5", "fig. 4, S = 10"), _SLOW_LOADS),
    "fig. 5": (0.8, 1.0, 1.1, 1.2, 1.4),
    "fig. 6": (0.5, 0.8, 0.95, 1.0),
    **dict.fromkeys(("fig. 7", "fig. 8", "fig. 11"), _SLOW_LOADS),
    "fig. 9/10": (0.5, 0.7, 0.8, 0.9, 1.0, 1.1),
    **dict.fromkeys(("24 as on Spark, 2 tracks", "24 as on Spark, 4 tracks"), _SPARK_LOADS),
}


def random_set(seed: int) -> tuple[float, TableScenario]:
    """A load, and 8 to 39 tables that have it, whose periods and speeds differ by up to 300 and 30 times."""
    rng = random.Random(seed)
    width, speeds = rng.choice((1, 3, 10, 30, 100, 300)), rng.choice((1, 3, 10, 30))
    setup, chained = rng.choice((0.03, 0.1, 0.3, 0.6, 0.9, 0.97)), rng.random() < 0.5
    tables: list[Table] = []
    periods: list[float] = []
    for i in range(rng.randint(8, 39)):
        source = rng.randrange(i) if chained and i and rng.random() < 0.5 else None
        period = periods[source] if source is not None else 100.0 * width ** rng.random()
        speed, share = speeds ** rng.random(), min(0.99, setup * rng.uniform(0.8, 1.2))
        periods.append(period)
        tables.append(
            Table(
                f"t{i}",
                sources=() if source is None else (f"t{source}",),
                period=period if source is None else 0.0,
                priority=rng.choice((1.0, 1.0, 10.0, 100.0)),
                setup_time=share * period * speed,
                time_per_unit=(1 - share) * speed,
            )
        )
    slow = slowdown(rng.choice((3.0, 5.0, 10.0)), min(periods)) if rng.random() < 1 / 3 else None
    scenario = TableScenario(tuple(tables), tracks=rng.randint(1, 8), spread=SPREAD, guard=False, slowdown=slow)
    load = rng.choice(LOADS)
    return load, scaled(scenario, load)


# --- measuring ------------------------------------------------------------------------------------------------------


def measure(setting: str, load: float, number: int, scenario: TableScenario, seeds: Sequence[int], events: int) -> Row:
    """One job set under all three, each a mean over `seeds`."""
    scenario, policy = lasting(scenario, events), policy_from("max-benefit")
    found = {
        placement: fmean(
            simulate_tables(scenario, policy, placement_from(placement), seed).weighted_staleness for seed in seeds
        )
        for placement in (*CHOICES, CHOSEN)
    }
    better = min(found[placement] for placement in CHOICES)
    return {"setting": setting, "load": load, "number": number, **found, "to the better": found[CHOSEN] / better}


def claims(rows: Sequence[Row], smoke: bool) -> list[Claim]:
    found = []
    for kind, those in (
        ("figures and Spark-like sets", [row for row in rows if row["setting"] != "random"]),
        ("random warehouses", [row for row in rows if row["setting"] == "random"]),
    ):
        worst = max(those, key=lambda row: row["to the better"])
        mean = {
            placement: math.exp(fmean(math.log(row[CHOSEN] / row[placement]) for row in those)) for placement in CHOICES
        }
        share = fmean(row["to the better"] > ALLOWED for row in those)
        found.append(
            Claim(
                claim=f"{kind}: never more than 2 % worse than the better of the two",
                paper=WANTED,
                measured=(
                    f"worst {worst['to the better']:.3f} ({worst['setting']} {worst['number']} at {worst['load']:g}), "
                    f"more than 2 % worse in {share:.1%} of {len(those)}; against anywhere {mean['anywhere']:.3f}, "
                    f"against proportional {mean['proportional']:.3f} (geometric means)"
                ),
                holds=None if smoke else worst["to the better"] <= ALLOWED,
            )
        )
    return found


def run(context: Context) -> Results:
    events = SMOKE_EVENTS if context.smoke else EVENTS
    loads = {setting: of[-1:] if context.smoke else of for setting, of in FIGURES.items()}
    chosen = [(setting, 0, load, scenario) for setting, load, scenario in cases(loads)]
    first = context.seeds[0] % 1_000_000
    chosen += [("random", n, *random_set(n)) for n in range(first, first + (SMOKE_RANDOM if context.smoke else RANDOM))]
    arguments: list[dict[str, object]] = [
        {"setting": setting, "number": number, "load": load, "scenario": scenario}
        for setting, number, load, scenario in chosen
    ]
    rows = context.points(measure, [{**each, "seeds": context.seeds, "events": events} for each in arguments])
    return Results(rows, claims(rows, context.smoke))


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    """How much worse each placement is than the better of the two, over the load."""
    axes = figure.subplots()
    for placement in (*CHOICES, CHOSEN):
        better = [min(row[choice] for choice in CHOICES) for row in rows]
        axes.plot(
            [row["load"] for row in rows],
            [row[placement] / best for row, best in zip(rows, better, strict=True)],
            "o",
            label=placement,
            alpha=0.5,
        )
    axes.set_xlabel("offered load (share of the tracks)")
    axes.set_ylabel("weighted staleness, to the better of the two")
    axes.set_yscale("log")
    axes.legend()


BENCHMARK = Benchmark(
    name="by_length",
    figure="Placement",
    claim="A placement that partitions only where jobs differ in length is as good as the better of the two.",
    takes="8 min",
    run=run,
    draw=draw,
    pivot=Pivot("setting", "load", "to the better"),
    reps=2,
)
