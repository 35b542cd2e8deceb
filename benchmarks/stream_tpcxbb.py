"""Five queries derived from TPCx-BB on the stream engine: rows per second with one worker and two, and latency.

Unofficial, not comparable with published TPCx-BB results. Section 7 of the ordered paper runs the same pipelines
(table 1) in C++ on sixteen cores; here they run on two, in Python, over Arrow packets, with the engine's own settings.

Throughput is that of the middle of a run (its 20th to 80th percentile of rows), which reads millions of rows as fast
as it can; that of the whole run, starting and draining included, is in the rows as well. Runs with one worker and with
two take turns, and ratios are medians of neighbours. Latency is the mean, from arrival to sink, in the middle of a run
in which rows come evenly at half the throughput of two workers, for 8 s or until 16 million rows have come.

What the paper's workers do not have is the interpreter's lock: the engine's own code holds it, and so do the parts of
kernels between calls of NumPy and Arrow, and those calls that do not let go of it.
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
    median_ratio,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: enough for a run of seconds
ROWS = {"q1": 4_000_000, "q2": 4_000_000, "q3": 8_000_000, "q4": 8_000_000, "q15": 8_000_000}
SMOKE_ROWS, SMOKE_PACKET = 20_000, 1_024
#: of a run at a given rate, and its most rows: they are all made in advance
SECONDS, SMOKE_SECONDS, MOST_ROWS = 8.0, 0.2, 16_000_000
WORKERS = (1, 2)
LOAD = 0.5
#: rows per second with two workers
LEAST = {"q1": 1e6, "q2": 3e5, "q3": 1e6, "q4": 1e6, "q15": 1e6}
GAIN, GAINING = 1.6, ("q1", "q2", "q3", "q4")
MOST_LATENCY = 20.0
TARGET = "a target of this project"


def throughput(query: str, workers: int, rep: int, rows: int, seed: int, packet_rows: int | None) -> Row:
    found = measure_throughput(query, rows, seed, workers=workers, packet_rows=packet_rows)
    return {"measure": "throughput", "query": query, "workers": workers, "rep": rep, **found}


def latency(query: str, rate: float, seconds: float, seed: int, packet_rows: int | None) -> Row:
    found = measure_latency(query, rate, seconds, seed, workers=WORKERS[-1], packet_rows=packet_rows)
    return {"measure": "latency", "query": query, "workers": WORKERS[-1], "rep": 1, **found}


def run(context: Context) -> Results:
    shared = {"seed": context.seed, "packet_rows": SMOKE_PACKET if context.smoke else None}
    # Repetition 0 warms up and is thrown away.
    arguments = [
        {"query": query, "workers": workers, "rep": rep, "rows": SMOKE_ROWS if context.smoke else ROWS[query], **shared}
        for query in QUERIES
        for rep in range(context.reps + 1)
        for workers in (WORKERS if rep else WORKERS[-1:])
    ]
    rows = [row for row in context.points(throughput, arguments, timed=True) if row["rep"]]
    seconds = SMOKE_SECONDS if context.smoke else SECONDS
    # A few packets have no middle to speak of: they can come to the sink all at once.
    basis = "of the whole run" if context.smoke else "rows per second"
    rates = {query: LOAD * median(rows, basis, query=query, workers=WORKERS[-1]) for query in QUERIES}
    paced = [
        {"query": query, "rate": rate, "seconds": min(seconds, MOST_ROWS / rate), **shared}
        for query, rate in rates.items()
    ]
    rows += context.points(latency, paced, timed=True)
    return Results(rows, [] if context.smoke else claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    fast = chosen(rows, measure="throughput")
    rates = {query: median(fast, "rows per second", query=query, workers=2) for query in QUERIES}
    whole = {query: median(fast, "of the whole run", query=query, workers=2) for query in QUERIES}
    gains = {
        query: median_ratio(fast, "rows per second", {"query": query, "workers": 2}, {"query": query, "workers": 1})
        for query in QUERIES
    }
    delays = {row["query"]: row["mean latency"] for row in chosen(rows, measure="latency")}
    return [
        Claim(
            claim="two workers read at least 1 million rows a second on Q1, Q3, Q4 and Q15, 300 thousand on Q2",
            paper=f"{TARGET}; CT reaches millions of tuples a second, on 8 to 16 cores ({UNOFFICIAL})",
            measured=", ".join(
                f"{query} {rate / 1e6:.2f} (whole run {whole[query] / 1e6:.2f})" for query, rate in rates.items()
            )
            + " million rows/s",
            holds=all(rates[query] >= least for query, least in LEAST.items()),
        ),
        Claim(
            claim=f"two workers read at least {GAIN} times as fast as one on Q1 to Q4",
            paper=f"{TARGET}; CT scales almost linearly up to 16 cores for Q1, 12 for Q15, 8 for Q2, Q3 and Q4",
            measured=", ".join(f"{query} {gain:.2f}x" for query, gain in gains.items()),
            holds=all(gains[query] >= GAIN for query in GAINING),
        ),
        Claim(
            claim=f"at half that rate rows take at most {MOST_LATENCY:g} ms on average, on every query",
            paper=f"{TARGET}; LP and, in many cases, CT have latencies as low as a few milliseconds",
            measured=", ".join(f"{query} {delay:.1f} ms" for query, delay in delays.items()),
            holds=all(delay <= MOST_LATENCY for delay in delays.values()),
        ),
    ]


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    """Throughput on the left, latency on the right."""
    figure.set_size_inches(9.6, 4.0)
    left, right = figure.subplots(1, 2)
    fast = [row | {"label": f"workers: {row['workers']}"} for row in chosen(rows, measure="throughput")]
    draw_bars(left, fast, x="query", y="rows per second", label="label", scale=1e6)
    left.set_ylabel("million input rows per second")
    slow = [row | {"label": "at half the rate"} for row in chosen(rows, measure="latency")]
    draw_bars(right, slow, x="query", y="mean latency", label="label")
    right.axhline(MOST_LATENCY, color="black", linewidth=0.8, linestyle=":")
    right.set_ylabel("mean latency (ms)")
    figure.suptitle(UNOFFICIAL, fontsize="small")


BENCHMARK = Benchmark(
    name="stream_tpcxbb",
    figure="ordered, section 7, table 1",
    claim="Five queries read a million rows a second on two cores, in milliseconds at half of that.",
    takes="2 min",
    run=run,
    draw=draw,
    reps=3,
)
