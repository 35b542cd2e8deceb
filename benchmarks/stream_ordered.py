"""Partitioning and reordering schemes of the ordered paper (figures 9 to 14) on the stream engine.

Experiments, each with contenders in turn; throughputs of whole runs, medians of repetitions:

- *skew* (fig. 9): a partitioned operator, keys partitioned by ranges and drawn from a normal distribution around the
  middle. HYBRID has 100 buckets, PARTITIONED as many as workers. Speedups are over one worker with one bucket. Two
  halves of a symmetric distribution are always equal, so there are three workers on the two cores; and eight where the
  work is only waiting.
- *latency* (fig. 10): from the beginning of work on a row to its leaving the operator, keys spread evenly. Packets have
  one row here and are the paper's tuples; then a hand-over costs more than 10 or 100 microseconds of work.
- *queries* (fig. 11 and 14): five queries derived from TPCx-BB (unofficial, not comparable) under CT: HYBRID against
  PARTITIONED, both with as many buckets as workers, HYBRID with 100 (once), and the lock-based buffer. Latency at
  half the throughput of HYBRID.
- *light* (fig. 12): an operator of 2 microseconds a row, in packets of 100; *selective* (fig. 13): one of 100
  microseconds that gives out 50 rows for each, before a partitioned one. Non-blocking against lock-based buffer.

The interpreter can be expected to change the picture in two ways. A packet has parts in all buckets that its rows fall
into: every bucket costs a few calls for every packet, so 100 buckets suit heavy operators only. A packet is answered
when the slowest of its parts is. And handing on a packet holds the interpreter's lock: who delivers keeps others from
much of their work under both buffers, which leaves less for the lock-based one to lose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from benchmarks.harness import Benchmark, Claim, Context, Results, Row
from benchmarks.harness.style import draw_lines
from benchmarks.stream.bars import draw_bars
from benchmarks.stream.ordered_operators import (
    keyed_rows,
    partitioned_rate,
    processing_latency,
    selective_rate,
    stateless_rate,
)
from benchmarks.stream.ordered_queries import (
    QUERIES,
    chosen,
    measure_latency,
    measure_throughput,
    median,
    median_ratio,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HYBRID, PARTITIONED = "hybrid", "partitioned"
SCHEMES = (HYBRID, PARTITIONED)
NON_BLOCKING, LOCKED = "non-blocking", "locked"
BUFFERS = (NON_BLOCKING, LOCKED)
FINE = 100

# --- skew
#: keys are spread evenly, to within half a percent
EVEN = 10.0
SIGMAS = (0.1, 0.25, 0.5, EVEN)
SKEW_COST, SKEW_PACKET, SKEW_PACKETS, SKEW_CAPACITY = 100.0, 1_024, 12, 8
#: {kind of work: workers}
SKEW_WORKERS = {"burning": 3, "waiting": 8}
# --- latency: {microseconds a row: rows}
LATENCY_ROWS = {10.0: 1_000, 100.0: 1_000, 1_000.0: 400, 10_000.0: 60}
LATENCY_CAPACITY = 1_000
# --- queries
ROWS, PACKET, SECONDS, LOAD = 1_000_000, 16_384, 1.5, 0.5
CT = "ct:slice_seconds=0.005"
FINE_HYBRID = f"hybrid, {FINE} buckets"
#: what a variant of the queries' runs sets
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    HYBRID: {},
    PARTITIONED: {"scheme": "partitioned"},
    LOCKED: {"buffer": "locked"},
    FINE_HYBRID: {"buckets": FINE},
}
# --- light and selective
BUFFER_WORKERS = (1, 2, 4)
LIGHT_COST, LIGHT_PACKET, LIGHT_PACKETS = 2.0, 100, 1_000
SELECTIVE_COST, SELECTIVITY, READER_COST, SELECTIVE_PACKET, SELECTIVE_PACKETS = 100.0, 50, 2.0, 10, 300

THROUGHPUT = "of the whole run"
#: differences that runs of the same thing show
SAME = 0.1


@lru_cache(maxsize=8)
def _rows(count: int, sigma: float, seed: int) -> pa.RecordBatch:
    return keyed_rows(count, sigma, seed)


def skew(work: str, sigma: float, scheme: str, workers: int, buckets: int, rep: int, packets: int, seed: int) -> Row:
    found = partitioned_rate(
        work,
        SKEW_COST,
        _rows(packets * SKEW_PACKET, sigma, seed),
        buckets,
        workers=workers,
        scheme=scheme,
        packet_rows=SKEW_PACKET,
        capacity=SKEW_CAPACITY,
    )
    cells = {"work": work, "sigma": sigma, "scheme": scheme, "workers": workers, "buckets": buckets, "rep": rep}
    return {"experiment": "skew", **cells, **found}


def latency(cost: float, scheme: str, rep: int, rows: int, seed: int) -> Row:
    found = processing_latency(
        "burning",
        cost,
        _rows(rows, EVEN, seed),
        FINE if scheme == HYBRID else 2,
        workers=2,
        scheme=scheme,
        packet_rows=1,
        capacity=LATENCY_CAPACITY,
    )
    return {"experiment": "latency", "cost": cost, "scheme": scheme, "rep": rep, **found}


def light(buffer: str, workers: int, rep: int, packets: int, seed: int) -> Row:
    rows = _rows(packets * LIGHT_PACKET, EVEN, seed)
    found = stateless_rate("burning", LIGHT_COST, rows, workers=workers, buffer=buffer, packet_rows=LIGHT_PACKET)
    return {"experiment": "light", "buffer": buffer, "workers": workers, "rep": rep, **found}


def selective(buffer: str, workers: int, rep: int, packets: int, seed: int) -> Row:
    rows = _rows(packets * SELECTIVE_PACKET, EVEN, seed)
    costs = (SELECTIVE_COST, SELECTIVITY, READER_COST)
    found = selective_rate("burning", *costs, rows, workers=workers, buffer=buffer, packet_rows=SELECTIVE_PACKET)
    return {"experiment": "selective", "buffer": buffer, "workers": workers, "rep": rep, **found}


def query_throughput(query: str, variant: str, rep: int, rows: int, packet: int, seed: int) -> Row:
    options = {"workers": 2, "policy": CT, "packet_rows": packet, **VARIANTS[variant]}
    found = measure_throughput(query, rows, seed, **options)
    return {"experiment": "query throughput", "query": query, "variant": variant, "rep": rep, **found}


def query_latency(query: str, variant: str, rep: int, rate: float, seconds: float, packet: int, seed: int) -> Row:
    options = {"workers": 2, "policy": CT, "packet_rows": packet, **VARIANTS[variant]}
    found = measure_latency(query, rate, seconds, seed, **options)
    return {"experiment": "query latency", "query": query, "variant": variant, "rep": rep, **found}


# --- all of it ----------------------------------------------------------------------------------------------------


def run(context: Context) -> Results:
    rows = [*_run_skew(context), *_run_latency(context), *_run_buffers(context), *_run_queries(context)]
    return Results(rows, [] if context.smoke else claims(rows))


def _run_skew(context: Context) -> list[Row]:
    packets = 2 if context.smoke else SKEW_PACKETS
    sigmas = SIGMAS[:1] if context.smoke else SIGMAS
    shared = {"packets": packets, "seed": context.seed}
    arguments = []
    for work, workers in SKEW_WORKERS.items():
        for rep in range(1, 1 + min(context.reps, 2)):
            alone = {"sigma": EVEN, "scheme": PARTITIONED, "workers": 1, "buckets": 1}
            contenders = [
                {"sigma": sigma, "scheme": scheme, "workers": workers, "buckets": buckets}
                for sigma in sigmas
                for scheme, buckets in ((HYBRID, FINE), (PARTITIONED, workers))
            ]
            arguments += [{"work": work, "rep": rep, **each, **shared} for each in (alone, *contenders)]
    return context.points(skew, arguments, timed=True)


def _run_latency(context: Context) -> list[Row]:
    arguments = [
        {"cost": cost, "scheme": scheme, "rep": rep, "rows": 30 if context.smoke else rows, "seed": context.seed}
        for cost, rows in LATENCY_ROWS.items()
        for rep in range(1, 1 + context.reps)
        for scheme in SCHEMES
    ]
    return context.points(latency, arguments, timed=True)


def _run_buffers(context: Context) -> list[Row]:
    rows = []
    for function, packets in ((light, LIGHT_PACKETS), (selective, SELECTIVE_PACKETS)):
        arguments = [
            {
                "buffer": buffer,
                "workers": workers,
                "rep": rep,
                "packets": 30 if context.smoke else packets,
                "seed": context.seed,
            }
            for workers in BUFFER_WORKERS
            for rep in range(1, 1 + context.reps)
            for buffer in BUFFERS
        ]
        rows += context.points(function, arguments, timed=True)
    return rows


def _run_queries(context: Context) -> list[Row]:
    size, packet, seconds = (8_000, 512, 0.1) if context.smoke else (ROWS, PACKET, SECONDS)
    shared = {"packet": packet, "seed": context.seed}
    # Repetition 0 warms up and is thrown away.
    arguments = [
        {"query": query, "variant": variant, "rep": rep, "rows": size, **shared}
        for query in QUERIES
        for rep in range(context.reps + 1)
        for variant in _variants(rep)
    ]
    rows = [row for row in context.points(query_throughput, arguments, timed=True) if row["rep"]]
    rates = {query: LOAD * median(rows, THROUGHPUT, query=query, variant=HYBRID) for query in QUERIES}
    paced = [
        {"query": query, "variant": variant, "rep": 1, "rate": rate, "seconds": seconds, **shared}
        for query, rate in rates.items()
        for variant in SCHEMES
    ]
    return rows + context.points(query_latency, paced, timed=True)


def _variants(rep: int) -> Sequence[str]:
    """Those of a repetition. A hundred buckets take so long on packets of this size that once has to do."""
    if not rep:
        return (HYBRID,)
    return [variant for variant in VARIANTS if variant != FINE_HYBRID or rep == 1]


# --- claims -------------------------------------------------------------------------------------------------------


def claims(rows: Sequence[Row]) -> list[Claim]:
    return [
        *(_skew_claim(chosen(rows, experiment="skew", work=work), work) for work in SKEW_WORKERS),
        _latency_claim(chosen(rows, experiment="latency")),
        *_query_claims(rows),
        _buffer_claim(chosen(rows, experiment="light"), "a light operator", "figure 12"),
        _buffer_claim(chosen(rows, experiment="selective"), "an operator of high selectivity", "figure 13"),
    ]


def speedups(rows: Sequence[Row]) -> dict[str, dict[float, float]]:
    """Of each scheme, by sigma: how many times as fast as one worker with one bucket."""
    alone = median(rows, THROUGHPUT, workers=1)
    many = [row for row in rows if row["workers"] > 1]
    sigmas = sorted({row["sigma"] for row in many})
    return {
        scheme: {sigma: median(many, THROUGHPUT, scheme=scheme, sigma=sigma) / alone for sigma in sigmas}
        for scheme in SCHEMES
    }


def _skew_claim(rows: Sequence[Row], work: str) -> Claim:
    found = speedups(rows)
    hybrid, partitioned = found[HYBRID], found[PARTITIONED]
    worst, even = min(hybrid), max(hybrid)
    listed = "; ".join(
        f"sigma {sigma:g}: hybrid {hybrid[sigma]:.2f}, partitioned {partitioned[sigma]:.2f}" for sigma in hybrid
    )
    steady = hybrid[worst] >= 0.8 * hybrid[even] and partitioned[worst] <= 0.7 * partitioned[even]
    similar = abs(hybrid[even] / partitioned[even] - 1) <= SAME
    return Claim(
        claim=f"{work}, {SKEW_WORKERS[work]} workers: the speedup of HYBRID stays with skew (80 %), that of "
        "PARTITIONED drops (below 70 %); without skew they are alike (10 %)",
        paper="HYBRID-QUEUE performs consistently while scalability of PARTITIONED-QUEUE drops heavily (figure 9)",
        measured=f"speedups over one worker: {listed}",
        holds=steady and similar,
    )


def _latency_claim(rows: Sequence[Row]) -> Claim:
    found = {
        cost: {scheme: median(rows, "processing latency", cost=cost, scheme=scheme) for scheme in SCHEMES}
        for cost in LATENCY_ROWS
    }
    listed = (f"{cost:g}: hybrid {of[HYBRID]:.0f}, partitioned {of[PARTITIONED]:.0f}" for cost, of in found.items())
    return Claim(
        claim="processing latency is near the cost (2 times) with HYBRID, and at least 2 times that with PARTITIONED",
        paper="much higher for PARTITIONED-QUEUE, while for HYBRID-QUEUE close to the per-tuple cost (figure 10)",
        measured="microseconds, by cost of a row: " + "; ".join(listed),
        holds=all(of[HYBRID] <= 2 * cost and of[PARTITIONED] >= 2 * of[HYBRID] for cost, of in found.items()),
    )


def _query_claims(rows: Sequence[Row]) -> list[Claim]:
    fast = chosen(rows, experiment="query throughput")
    slow = chosen(rows, experiment="query latency")
    gains = {variant: _gains(fast, variant) for variant in VARIANTS if variant != HYBRID}
    delays = {q: {v: median(slow, "mean latency", query=q, variant=v) for v in SCHEMES} for q in QUERIES}
    return [
        Claim(
            claim="HYBRID carries more than PARTITIONED on every query but Q15",
            paper="much higher throughput in all queries; for Q15 the difference is unclear (figure 11)",
            measured=f"{_listed(gains[PARTITIONED])}; to HYBRID with {FINE} buckets: {_listed(gains[FINE_HYBRID])}",
            holds=all(gain > 1 for query, gain in gains[PARTITIONED].items() if query != "q15"),
        ),
        Claim(
            claim="HYBRID has the lower latency on at least 3 of 5 queries",
            paper="better in 3 out of 5 queries and almost similar for the rest (figure 11)",
            measured="ms: " + "; ".join(f"{q}: {of[HYBRID]:.1f} and {of[PARTITIONED]:.1f}" for q, of in delays.items()),
            holds=sum(of[HYBRID] < of[PARTITIONED] for of in delays.values()) >= 3,
        ),
        Claim(
            claim="the non-blocking buffer carries more than the lock-based one on every query",
            paper="NON-BLOCKING consistently yields a better throughput than LOCK-BASED (figure 14)",
            measured=_listed(gains[LOCKED]),
            holds=all(gain > 1 for gain in gains[LOCKED].values()),
        ),
    ]


def _gains(rows: Sequence[Row], variant: str) -> dict[str, float]:
    """Of each query: the throughput as it is to that of the variant."""
    return {
        query: median_ratio(rows, THROUGHPUT, {"query": query, "variant": HYBRID}, {"query": query, "variant": variant})
        for query in QUERIES
    }


def _listed(gains: Mapping[str, float]) -> str:
    return ", ".join(f"{query} {gain:.2f}x" for query, gain in gains.items())


def _buffer_claim(rows: Sequence[Row], what: str, figure: str) -> Claim:
    gains, listed = {}, []
    for workers in BUFFER_WORKERS:
        cells = {buffer: {"buffer": buffer, "workers": workers} for buffer in BUFFERS}
        gains[workers] = median_ratio(rows, THROUGHPUT, cells[NON_BLOCKING], cells[LOCKED])
        of = [
            f"{buffer} {median(rows, THROUGHPUT, **cells[buffer]) / 1e3:.1f} thousand rows/s, "
            f"{median(rows, 'processing cost', **cells[buffer]):.3g} us a row"
            for buffer in BUFFERS
        ]
        listed.append(f"workers {workers}: {' and '.join(of)} ({gains[workers]:.2f}x)")
    return Claim(
        claim=f"with 2 and 4 workers the non-blocking buffer carries more than the lock-based one, on {what}",
        paper=f"NON-BLOCKING scales better, and its processing cost grows less steeply ({figure})",
        measured="; ".join(listed),
        holds=all(gain > 1 for workers, gain in gains.items() if workers > 1),
    )


# --- picture ------------------------------------------------------------------------------------------------------


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    """A panel for each figure of the paper."""
    figure.set_size_inches(16.0, 8.0)
    panels = list(figure.subplots(2, 4).flat)
    for axes, (work, workers) in zip(panels[:2], SKEW_WORKERS.items(), strict=True):
        _draw_skew(axes, chosen(rows, experiment="skew", work=work))
        axes.set_title(f"skew, {work}, {workers} workers")
    draw_lines(panels[2], chosen(rows, experiment="latency"), x="cost", y="processing latency", label="scheme")
    panels[2].set(xscale="log", yscale="log", xlabel="cost of a row (us)", ylabel="processing latency (us)")
    for axes, name in zip(panels[3:5], ("light", "selective"), strict=True):
        draw_lines(axes, chosen(rows, experiment=name), x="workers", y=THROUGHPUT, label="buffer")
        axes.set(title=f"{name} operator", ylabel="rows per second", xticks=BUFFER_WORKERS)
    fast = chosen(rows, experiment="query throughput")
    draw_bars(panels[5], fast, x="query", y=THROUGHPUT, label="variant", scale=1e6)
    panels[5].set(title="derived from TPCx-BB, unofficial", ylabel="million input rows per second")
    draw_bars(panels[6], chosen(rows, experiment="query latency"), x="query", y="mean latency", label="variant")
    panels[6].set(title="derived from TPCx-BB, unofficial", ylabel="mean latency (ms)")
    panels[7].axis("off")


def _draw_skew(axes: Axes, rows: Sequence[Row]) -> None:
    found = speedups(rows)
    places = {sigma: place for place, sigma in enumerate(found[HYBRID])}
    lines = [
        {"place": places[sigma], "speedup": speedup, "scheme": scheme}
        for scheme, by_sigma in found.items()
        for sigma, speedup in by_sigma.items()
    ]
    draw_lines(axes, lines, x="place", y="speedup", label="scheme")
    axes.set_xticks(list(places.values()), [f"{sigma:g}" for sigma in places])
    axes.set_xlabel("sigma of the keys")
    axes.set_ylim(bottom=0)


BENCHMARK = Benchmark(
    name="stream_ordered",
    figure="ordered, fig. 9-14",
    claim="HYBRID queues withstand skew and keep latency low; the non-blocking buffer carries more.",
    takes="4 min",
    run=run,
    draw=draw,
    reps=3,
)
