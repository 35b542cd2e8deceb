"""Haren, figure 4: each policy reaches its own goal, and beats the operating system at it under load.

Open in the paper and chosen here: a query is fed 1000 tuples a second, one by one, and takes 8 % of the four cores in
the mean, so that 5 queries leave the machine half idle and 15 are more than it can do. Tuples are *queued* between
ingress and egress; what an ingress has not fetched yet waits with its data source.

With 10 queries the policies have time to spare, and what is queued then waits for a worker that pauses, or for the next
meeting. Latency is that of results, so under overload a policy looks the better the more it leaves undone. Ingress
operators are cheap, so threads, which share time out evenly, fetch the most; it only moves the waiting into the queues.

The operating system of the simulator is fairer than a real one: one run queue for all cores, and nothing suffers from
a switch but the clock. So it loses only by the number of its switches, up to one per tuple and operator. How much that
is depends on the cost of a switch, so a second line shows a bare one of 5 µs: with 10 queries that decides who wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks._operators import CORES, Variant, haren, means, simulate, threads
from benchmarks._shapes import haren_queries, scaled_to
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from benchmarks.harness.style import draw_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POLICIES = ("fcfs", "hr", "chain")
BARE = "threads, bare switch"
VARIANTS = (*map(haren, POLICIES), threads(), threads(BARE, switch_cost=5e-6))
QUERIES = (5, 10, 15, 20)
LOADED = QUERIES[1:]
RATE = 1000.0
LOAD_PER_QUERY = 0.08
SECONDS = 12.0
MEASURES = ("throughput", "mean latency", "max latency", "queued tuples")


def measure(variant: Variant, queries: int, seconds: float, seed: int) -> Row:
    built = scaled_to(haren_queries(queries, 1e-6, RATE, seed), queries * LOAD_PER_QUERY * CORES)
    result = simulate(built, variant, seed, horizon=seconds, measure_from=seconds / 5)
    flow = result.overall
    unfetched = sum(node.queued_mean for node in result.nodes if node.name.endswith("/ingress"))
    return {
        "variant": variant.label,
        "queries": queries,
        "seed": seed,
        "throughput": flow.throughput_in,
        "mean latency": flow.latency.mean,
        "max latency": flow.latency.max,
        "queued tuples": flow.queued_mean - unfetched,
        "at the sources": unfetched + flow.outside_mean,
        "scheduling": result.scheduling.share,
        "switching": result.scheduling.switch_share,
    }


def run(context: Context) -> Results:
    seconds = 0.3 if context.smoke else SECONDS
    arguments = [
        {"variant": variant, "queries": queries, "seconds": seconds, "seed": seed}
        for queries in ((5, 20) if context.smoke else QUERIES)
        for variant in VARIANTS
        for seed in context.seeds
    ]
    rows = context.points(measure, arguments)
    if context.smoke:
        return Results(rows, [])
    goals = [
        *_goal(rows, "fcfs", "max latency", "FCFS optimises maximum latency, outperforming OS scheduling"),
        *_goal(rows, "hr", "mean latency", "HR optimises mean latency, outperforming OS scheduling"),
        *_goal(rows, "chain", "queued tuples", "meets its goal of minimising the tuples in operator queues"),
        *_goal(rows, "chain", "throughput", "for throughput, the Chain policy always performs better"),
    ]
    return Results(rows, [*goals, _unloaded(rows)])


def _goal(rows: Sequence[Row], policy: str, value: str, paper: str) -> list[Claim]:
    """A policy is the best at its own measure: among the policies, and against the threads."""
    mean = means(rows, ("queries", "variant"), value)
    sign = -1 if value == "throughput" else 1
    most = {"throughput": "highest", "queued tuples": "fewest"}.get(value, "lowest")

    def claim(others: Sequence[str], among: str) -> Claim:
        wins = [all(sign * mean[n, policy] < sign * mean[n, other] for other in others) for n in LOADED]
        names = (policy, *others, *([BARE] if "threads" in others else []))
        return Claim(
            claim=f"{policy} has the {most} {value} {among} with {LOADED[0]} queries and more",
            paper=paper,
            measured="; ".join(
                f"{n} {'yes' if won else 'no'}: " + ", ".join(f"{v} {_short(mean[n, v])}" for v in names)
                for n, won in zip(LOADED, wins, strict=True)
            ),
            holds=all(wins),
        )

    rivals = [other for other in POLICIES if other != policy]
    return [claim(rivals, "of the policies"), claim(["threads"], "compared with threads")]


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _unloaded(rows: Sequence[Row]) -> Claim:
    latency, throughput = (means(rows, ("queries", "variant"), value) for value in ("mean latency", "throughput"))
    shown = ", ".join(f"{v.label} {latency[5, v.label] * 1e3:.1f} ms" for v in VARIANTS)
    return Claim(
        claim="with 5 queries threads carry the full rate at the lowest mean latency",
        paper="OS scheduling can be optimal in throughput and latency, since there is no contention",
        measured=f"{shown}; threads {throughput[5, 'threads']:.0f} of {5 * RATE:.0f} tuples/s",
        holds=throughput[5, "threads"] > 0.99 * 5 * RATE
        and all(latency[5, "threads"] < latency[5, policy] for policy in POLICIES),
    )


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    """A panel for each measure over the number of queries, as in the paper's figure."""
    figure.set_size_inches(9.0, 6.4)
    units = ("tuples/s", "s", "s", "tuples")
    for axes, value, unit in zip(figure.subplots(2, 2).flat, MEASURES, units, strict=True):
        draw_lines(axes, rows, x="queries", y=value, label="variant")
        axes.set_ylabel(f"{value} ({unit})")
        axes.set_xticks(QUERIES)
        if value != "throughput":
            axes.set_yscale("symlog" if value == "queued tuples" else "log")
            axes.legend().remove()
        if value == "queued tuples":
            axes.set_ylim(bottom=0.0)


BENCHMARK = Benchmark(
    name="haren_fig04",
    figure="Haren fig. 4",
    claim="FCFS, HR and Chain each reach their own goal, and under load beat threads at it.",
    takes="3 min",
    run=run,
    draw=draw,
    pivot=Pivot("queries", "variant", "mean latency"),
    reps=2,
)
