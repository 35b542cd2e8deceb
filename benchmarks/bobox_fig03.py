"""Bobox, figure 3: the locality scheduler against per-thread FIFO queues, with N times M queries at once.

Both schedulers get packets of half the L2 cache, so that only the order of tasks differs; the paper's simple one had a
constant size that is not stated. Sixteen queries run in every load: the paper does not say how many.

With fewer queries than NUMA nodes the locality scheduler leaves nodes idle until its balancer, which looks every
100 ms, lends a query to them. A simulated query takes only twice that time, and the paper does not say how long its own
took, so a second line shows the scheduler with a balancer that looks every 5 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from benchmarks.harness.style import draw_lines
from benchmarks.locality_sim import LocalityConfig, Machine, QueryLoad, simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUERIES = 16
CONCURRENT = (1, 2, 4, 8, 16)
QUICK = "locality, 5 ms balance"
VARIANTS = {
    "locality": ("locality", Machine()),
    QUICK: ("locality", Machine(balance_ns=5_000_000)),
    "fifo": ("fifo-steal", Machine()),
}
NODES = Machine().nodes


def measure(label: str, concurrent: int, queries: int, input_kib: int, seed: int) -> Row:
    scheduler, machine = VARIANTS[label]
    rounds = queries // concurrent
    load = QueryLoad(rounds=rounds, concurrent=concurrent, input_kib=input_kib)
    result = simulate(LocalityConfig(scheduler, machine, load, seed))
    return {
        "variant": label,
        "load": f"{rounds}x{concurrent}",
        "concurrent": concurrent,
        "seed": seed,
        "seconds": result.makespan_seconds,
        "read from L2": result.reads.l2_hit_rate,
        "read from caches": result.reads.cache_hit_rate,
        "utilisation": result.mean_utilisation,
    }


def run(context: Context) -> Results:
    queries, input_kib = (2, 512) if context.smoke else (QUERIES, 10 * 1024)
    arguments = [
        {"label": label, "concurrent": concurrent, "queries": queries, "input_kib": input_kib, "seed": seed}
        for concurrent in CONCURRENT
        if concurrent <= queries
        for label in VARIANTS
        for seed in context.seeds
    ]
    rows = context.points(measure, arguments)
    return Results(rows, [] if context.smoke else _claims(rows))


def _claims(rows: Sequence[Row]) -> list[Claim]:
    gain, quick = _gains(rows, "locality"), _gains(rows, QUICK)
    full = [gain[concurrent] for concurrent in CONCURRENT if concurrent >= NODES]
    measured = ", ".join(
        f"{QUERIES // c}x{c} {gain[c]:+.1%}" + (f" ({quick[c]:+.1%} with {QUICK})" if c < NODES else "")
        for c in CONCURRENT
    )
    return [
        Claim(
            claim="the locality scheduler takes less time at every load",
            paper="improves the performance about 8 - 12 % according to the load of the system",
            measured=f"time saved: {measured}",
            holds=all(value > 0 for value in gain.values()),
        ),
        Claim(
            claim="with a query for each NUMA node, or more, it saves at least 8 % of the time",
            paper="the new scheduler is about 8 - 12 percent more efficient and is NUMA aware",
            measured=f"time saved: {measured}",
            holds=min(full) >= 0.08,
        ),
    ]


def _gains(rows: Sequence[Row], label: str) -> dict[int, float]:
    """{queries at once: share of the simple scheduler's time saved}, by medians over repetitions as in the paper."""

    def seconds(variant: str, concurrent: int) -> float:
        mine = [row for row in rows if row["variant"] == variant and row["concurrent"] == concurrent]
        return float(median(row["seconds"] for row in mine))

    return {concurrent: 1 - seconds(label, concurrent) / seconds("fifo", concurrent) for concurrent in CONCURRENT}


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    draw_lines(axes, rows, x="concurrent", y="seconds", label="variant")
    loads = {row["concurrent"]: row["load"] for row in rows}
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(loads), list(loads.values()))
    axes.set_xlabel("load (N times M queries at once)")
    axes.set_ylabel("time until all queries are done (s)")
    axes.set_ylim(bottom=0.0)


BENCHMARK = Benchmark(
    name="bobox_fig03",
    figure="Bobox fig. 3",
    claim="The locality scheduler is about 8 to 12 % faster than per-thread FIFO queues.",
    takes="1 min",
    run=run,
    draw=draw,
    pivot=Pivot("load", "variant", "seconds"),
    reps=3,
)
