"""The four heuristics of the ordered paper (figure 8) on the stream engine, on five queries, with two workers.

The queries are derived from TPCx-BB, unofficial, not comparable. Throughput is that of whole runs over 2 million rows:
runs of seconds are too short to look at their middle alone, where a policy that fills queues at the start is credited
with draining them. Latency is the mean, from arrival to sink, in the middle of a run in which rows come evenly at 60 %
of the best heuristic's throughput. Policies take turns, repetition by repetition; figures are medians.

What differs from the paper: the unit is a packet, not a tuple, and a turn is at least one packet. Packets have at most
16,384 rows here, an eighth of what the engine takes by itself, so that a run has more than a hundred of them and
policies have something to decide. CT's time slice is the engine's, 5 ms. QST's queues may hold four packets each (M,
which the paper leaves open, is that times the operators). Queues are bounded at 16 packets under every policy, and an
operator whose reader's queue is full cannot run: no policy can put off the end of a pipeline for ever, as ET can in the
paper. And one lock for all threads may narrow what a choice can gain: part of every turn excludes all others, whichever
operator it is of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Claim, Context, Results, Row
from benchmarks.stream.bars import draw_bars
from benchmarks.stream.ordered_queries import (
    QUERIES,
    UNOFFICIAL,
    chosen,
    measure_latency,
    measure_throughput,
    median,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORKERS = 2
ROWS, PACKET = 2_000_000, 16_384
SMOKE_ROWS, SMOKE_PACKET = 10_000, 512
SECONDS, SMOKE_SECONDS = 2.0, 0.1
LATENCY_REPS = 2
LOAD = 0.6
#: packets in a queue, and about how many operators share QST's capacity
QST_PACKETS, OPERATORS = 4, 5
POLICIES = ("qst", "lp", "et", "ct")
THROUGHPUT = "of the whole run"
#: what counts as "or near": shares of the best, and milliseconds that nobody would notice
NEAR_THROUGHPUT, NEAR_LATENCY, UNNOTICED = 0.95, 1.2, 1.0


def policy_text(policy: str, packet: int) -> str:
    """A policy with its parameters."""
    parameters = {"qst": f":capacity={QST_PACKETS * packet * OPERATORS}", "ct": ":slice_seconds=0.005"}
    return policy + parameters.get(policy, "")


def throughput(query: str, policy: str, rep: int, rows: int, packet: int, seed: int) -> Row:
    found = measure_throughput(
        query, rows, seed, workers=WORKERS, policy=policy_text(policy, packet), packet_rows=packet
    )
    return {"measure": "throughput", "query": query, "policy": policy, "rep": rep, **found}


def latency(query: str, policy: str, rep: int, rate: float, seconds: float, packet: int, seed: int) -> Row:
    found = measure_latency(
        query, rate, seconds, seed, workers=WORKERS, policy=policy_text(policy, packet), packet_rows=packet
    )
    return {"measure": "latency", "query": query, "policy": policy, "rep": rep, **found}


def run(context: Context) -> Results:
    size, packet, seconds = (SMOKE_ROWS, SMOKE_PACKET, SMOKE_SECONDS) if context.smoke else (ROWS, PACKET, SECONDS)
    shared = {"packet": packet, "seed": context.seed}
    # Repetition 0 warms up and is thrown away.
    arguments = [
        {"query": query, "policy": policy, "rep": rep, "rows": size, **shared}
        for query in QUERIES
        for rep in range(context.reps + 1)
        for policy in (POLICIES if rep else POLICIES[:1])
    ]
    rows = [row for row in context.points(throughput, arguments, timed=True) if row["rep"]]
    paced = [
        {"query": query, "policy": policy, "rep": rep, "rate": rate, "seconds": seconds, **shared}
        for query in QUERIES
        for rate in [LOAD * max(median(rows, THROUGHPUT, query=query, policy=each) for each in POLICIES)]
        for rep in range(1, 1 + min(context.reps, LATENCY_REPS))
        for policy in POLICIES
    ]
    rows += context.points(latency, paced, timed=True)
    return Results(rows, [] if context.smoke else claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    fast, slow = chosen(rows, measure="throughput"), chosen(rows, measure="latency")
    rates = {q: {p: median(fast, THROUGHPUT, query=q, policy=p) for p in POLICIES} for q in QUERIES}
    delays = {q: {p: median(slow, "mean latency", query=q, policy=p) for p in POLICIES} for q in QUERIES}
    return [
        Claim(
            claim="CT has the best throughput, or is within 5 % of it, on every query",
            paper="CT is best; LP is as good for Q1 and Q15; ET and QST do not perform as well",
            measured=_listed(rates, 1e6, "million rows/s"),
            holds=all(of["ct"] >= NEAR_THROUGHPUT * max(of.values()) for of in rates.values()),
        ),
        Claim(
            claim="LP has the lowest latency, or is near it (20 %, or 1 ms), on every query",
            paper="LP is the best heuristic for low latency, followed closely by CT",
            measured=_listed(delays, 1.0, "ms"),
            holds=all(
                of["lp"] <= max(NEAR_LATENCY * min(of.values()), min(of.values()) + UNNOTICED) for of in delays.values()
            ),
        ),
        Claim(
            claim="ET and QST have at least twice the latency of LP, on most queries",
            paper="ET and QST have quite high latencies",
            measured=", ".join(
                f"{q}: et {of['et'] / of['lp']:.1f}x, qst {of['qst'] / of['lp']:.1f}x" for q, of in delays.items()
            ),
            holds=2 * sum(min(of["et"], of["qst"]) >= 2 * of["lp"] for of in delays.values()) > len(QUERIES),
        ),
    ]


def _listed(values: dict[str, dict[str, float]], scale: float, unit: str) -> str:
    each = (f"{q}: " + " ".join(f"{p} {value / scale:.3g}" for p, value in of.items()) for q, of in values.items())
    return "; ".join(each) + f" ({unit})"


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    """Throughput on the left, latency on the right."""
    figure.set_size_inches(9.6, 4.0)
    left, right = figure.subplots(1, 2)
    draw_bars(left, chosen(rows, measure="throughput"), x="query", y=THROUGHPUT, label="policy", scale=1e6)
    left.set_ylabel("million input rows per second")
    draw_bars(right, chosen(rows, measure="latency"), x="query", y="mean latency", label="policy")
    right.set_ylabel("mean latency (ms)")
    right.set_yscale("log")
    figure.suptitle(UNOFFICIAL, fontsize="small")


BENCHMARK = Benchmark(
    name="stream_heuristics",
    figure="ordered, fig. 8",
    claim="CT has the best throughput and LP the lowest latency of the four heuristics.",
    takes="3 min",
    run=run,
    draw=draw,
    reps=3,
)
