"""A query inside a table with a state of five million keys: how long until a fresh worker has it, and what it costs.

The query keeps a count, a sum and the last time of each key. Updates that touch 1 % of the keys are compared with those
of the same rows on empty states, in turn, in a JVM that has done such updates before; the time is that of the table's
update, from the stream's files to the commit. Then another process opens the warehouse, with workers that have
never seen the states but are started and warm, and its first update, which has to take up all states from
their files, is timed as a whole.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Benchmark, Claim, Context, Results, Row
from benchmarks.stream.bars import draw_bars
from benchmarks.stream.ordered_queries import median, median_ratio
from benchmarks.stream_spark.process import measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FULL: dict[str, Any] = {"keys": 5_000_000, "loads": 2, "touched": 50_000, "updates": 6}
SMOKE: dict[str, Any] = {"keys": 20_000, "loads": 1, "touched": 200, "updates": 1}
BUCKETS = 8
MOST_SECONDS, MOST_TIMES = 10.0, 3.0
EMPTY, HELD, FRESH, LATER = "empty states", "all keys held", "fresh workers", "fresh workers, later"


def updates(keys: int, loads: int, touched: int, updates: int, smoke: bool) -> list[Row]:
    shared = {"keys": keys, "touched": touched, "buckets": 2 if smoke else BUCKETS, "updates": updates}
    with tempfile.TemporaryDirectory() as folder:
        found = measured("state", part="grow", folder=folder, loads=loads, **shared)
        rows: list[Row] = [
            {"what": what, "rep": rep, "seconds": pair[name], "state MB": found["state bytes"] / 1e6}
            for rep, pair in enumerate(found["pairs"], start=1)
            for what, name in ((EMPTY, "empty"), (HELD, "full"))
        ]
        rows += [{"what": "bringing the keys", "rep": n, "seconds": s} for n, s in enumerate(found["filling"], start=1)]
        if not smoke:
            again = measured("state", part="restore", folder=folder, after=loads + updates + 1, **shared)
            rows.append({"what": FRESH, "rep": 1, "seconds": again["first"]})
            rows += [{"what": LATER, "rep": n, "seconds": s} for n, s in enumerate(again["later"], start=1)]
    return rows


def run(context: Context) -> Results:
    size = SMOKE if context.smoke else FULL
    rows = context.points(updates, [{**size, "smoke": context.smoke}], timed=True)
    return Results(rows, [] if context.smoke else claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    empty, held, later = (median(rows, "seconds", what=what) for what in (EMPTY, HELD, LATER))
    fresh = median(rows, "seconds", what=FRESH)
    ratio = median_ratio(rows, "seconds", {"what": HELD}, {"what": EMPTY})
    return [
        Claim(
            "a state of 5 million keys is restored in a fresh worker within 10 s",
            "a target of this project",
            f"the whole first update {fresh:.1f} s, later ones {later:.1f} s",
            fresh <= MOST_SECONDS,
        ),
        Claim(
            "an update that touches 1 % of it takes at most 3 times as long as on an empty state",
            "a target of this project",
            f"{ratio:.1f} times: {held:.2f} s against {empty:.2f} s",
            ratio <= MOST_TIMES,
        ),
    ]


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    draw_bars(axes, [row | {"label": "an update"} for row in rows], x="what", y="seconds", label="label")
    axes.tick_params(axis="x", labelsize="small", labelrotation=20)
    axes.set_ylabel("seconds")


BENCHMARK = Benchmark(
    name="stream_spark_state",
    figure="Spark, queries inside tables",
    claim="5 million keys: restored within 10 s, and an update of 1 % takes at most 3 times that of an empty state.",
    takes="4 min",
    run=run,
    draw=draw,
    reps=1,
)
