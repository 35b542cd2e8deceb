"""Policies compared on real Spark at twice the load it can carry, beside what the simulator predicts from the trace."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Claim, Context, Results, Row
from benchmarks.spark.contest import Course, contend
from benchmarks.spark_tables import OFFERED, headgate_contender, replay_after
from headgate.core import placement_from, policy_from

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: {label: (policy, placement)}
CHOICES = {
    # its defaults: all tracks handed out, taken aggressively
    "max-benefit": ("max-benefit", "proportional"),
    "edf-p": ("edf-p", "edf-partitioned"),
    "fifo": ("fifo", "anywhere"),
    "random": ("random", "anywhere"),
    "round-robin": ("round-robin", "anywhere"),
}
#: files come so many times as often as the streams state: about twice what two cores can do
SPEED = 6.0
WITHIN = 0.25


def measure(label: str, policy: str, placement: str, course: Mapping[str, float], seed: int) -> Row:
    with tempfile.TemporaryDirectory() as temporary:
        figures = Path(temporary) / "figures.json"
        options = ("--policy", policy, "--placement", placement, "--alone")
        outcome = contend(
            headgate_contender(SPEED, figures, *options), Course(SPEED, **course), Path(temporary) / "run"
        )
        replay = replay_after(json.loads(figures.read_text("utf-8")), course["warm_up"])
        measured = replay.measured().weighted_staleness
        predicted = replay.run(policy_from(policy), placement_from(placement), seed=seed).weighted_staleness
    return {
        "policy": label,
        "weighted staleness": outcome.achieved.weighted,
        "updates per second": outcome.achieved.updates_per_second,
        "measured": measured,
        "predicted": predicted,
        "predicted / measured": predicted / measured,
    }


def run(context: Context) -> Results:
    course = {"warm_up": 15.0, "seconds": 6.0} if context.smoke else {"warm_up": 60.0, "seconds": 60.0}
    chosen = {"fifo": CHOICES["fifo"]} if context.smoke else CHOICES
    arguments = [
        {"label": label, "policy": policy, "placement": placement, "course": course, "seed": context.seed}
        for label, (policy, placement) in chosen.items()
    ]
    rows = context.points(measure, arguments, timed=True)
    return Results(rows, [] if context.smoke else claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    stale = {row["policy"]: float(row["weighted staleness"]) for row in rows}
    best = min(stale, key=stale.__getitem__)
    worst = max(abs(float(row["predicted / measured"]) - 1) for row in rows)
    shown = ", ".join(f"{row['policy']} {row['predicted / measured']:.2f}" for row in rows)
    return [
        Claim(
            "Max Benefit with Proportional is the least stale, weighted by priority",
            "Golab et al., 4.2 and 4.3, in simulation",
            ", ".join(f"{label} {value:.2f} s" for label, value in sorted(stale.items(), key=lambda item: item[1])),
            best.startswith("max-benefit"),
        ),
        Claim(
            "the simulator predicts the weighted staleness of every run within 25 %",
            "a target of this project",
            shown,
            worst <= WITHIN,
        ),
    ]


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    places = range(len(rows))
    axes.barh([place - 0.2 for place in places], [row["measured"] for row in rows], 0.4, label="measured")
    axes.barh([place + 0.2 for place in places], [row["predicted"] for row in rows], 0.4, label="predicted")
    axes.set_yticks(list(places), [row["policy"] for row in rows])
    axes.set_xlabel("sum of priority times mean staleness")
    axes.legend()


BENCHMARK = Benchmark(
    name="spark_policies",
    figure="Golab on Spark",
    claim=f"Policies on Spark with {OFFERED * SPEED:.0f} updates a second offered, and the simulator's prediction.",
    takes="13 min",
    run=run,
    draw=draw,
    reps=1,
)
