"""Bobox, figure 1, on the engine: how fast packets of different sizes are processed, and why.

Packets of 1 KiB to 8 MiB go through a chain of eight cheap Arrow operators, and through a query with state (Q4, derived
from TPCx-BB, unofficial, not comparable), on one and on two workers. Throughput is that of the middle of the run.

A packet costs the interpreter the same whatever its size, tens of microseconds at each operator, where the paper's
engine, compiled, takes perhaps one. So the best size here is larger than in the paper. To see the cache alone, the time
inside Arrow's kernels is measured as well, on one worker, less what a call of them takes in the same engine for a
packet of a single row: *in kernels* is nanoseconds a row of a kernel, as a function of the size. Its best size is what
an engine without such costs would choose.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from benchmarks.harness.style import draw_lines
from benchmarks.stream.arithmetic import KERNELS, ROW_BYTES, SCHEMA, Kernel, arithmetic, endless, numbers
from benchmarks.stream.watching import rows_per_second
from headgate.stream import Engine, QuerySpec, from_batches, to_function
from headgate.stream.packet import row_bytes, rows_per_packet, second_level_cache
from workloads.tpcxbb import clicks, q4

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: with half of the L2 cache and four of it, whatever size it has
SIZES = sorted({*(1 << power for power in range(10, 24)), second_level_cache() // 2, 4 * second_level_cache()})
WORKLOADS = ("chain", "q4")
WORKERS = (1, 2)
OPERATORS = 8
SECONDS = 0.3
#: rows of the chain's input, in one piece: a multiple of every packet
NUMBERS = 4 << 20
CLICKS = 3_000_000
#: bytes of the smallest packet for which a kernel takes longer than its call
SURE = 64 << 10
PAPER = "the ideal size of packets is slightly lower than the size of the L2 cache; one half of it is taken"


# --- one run ----------------------------------------------------------------------------------------------------


@cache
def _numbers(count: int) -> pa.RecordBatch:
    return numbers(count)


@cache
def _clicks(count: int) -> pa.Table:
    return clicks.web_clickstreams(count)


def _drop(batch: pa.RecordBatch) -> None:
    """What a sink does here."""


def _query(workload: str, size: int) -> QuerySpec:
    if workload == "chain":
        return arithmetic("chain", endless(_numbers(size)), OPERATORS)
    source = from_batches(_clicks(size).to_batches())
    return q4.query(source, to_function(_drop), q4.PAPER)


def _row_bytes(workload: str) -> int:
    return ROW_BYTES if workload == "chain" else row_bytes(clicks.SCHEMA)


def measure(workload: str, workers: int, size: int, rows: int, seconds: float, rep: int) -> Row:
    packet_rows = max(1, size // _row_bytes(workload))
    with Engine(loop="locality", workers=workers, packet_rows=packet_rows) as engine:
        run = engine.add(_query(workload, rows))
        run.wait(seconds)
        if run.error is not None:
            raise run.error
    query = engine.statistics().queries[0]
    packets = sum(operator.packets for operator in query.operators)
    return {
        "workload": workload,
        "workers": workers,
        "line": f"{workload}, {workers} worker{'s' * (workers > 1)}",
        "size": size,
        "KiB": size >> 10,
        "rep": rep,
        "rows a second": rows_per_second(query),
        "us per packet and operator": query.processor / max(packets, 1) * 1e6,
    }


# --- kernels alone ----------------------------------------------------------------------------------------------


class Stopwatch:
    """Adds up the time in kernels; for one thread."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0
        self.rows = 0

    def around(self, kernel: Kernel) -> Kernel:
        def timed(values: pa.Array) -> pa.Array:
            before = time.perf_counter()
            answer = kernel(values)
            self.seconds += time.perf_counter() - before
            self.calls += 1
            self.rows += len(values)
            return answer

        return timed

    def kernels(self) -> Iterator[Kernel]:
        return itertools.cycle([self.around(kernel) for kernel in KERNELS])


def in_engine(size: int, rows: int, seconds: float) -> tuple[Stopwatch, float]:
    """Kernels while the engine runs, so that what comes between two of them has its effect; and all processor time."""
    watch = Stopwatch()
    with Engine(loop="locality", workers=1, packet_rows=size // ROW_BYTES) as engine:
        run = engine.add(arithmetic("chain", endless(_numbers(rows)), OPERATORS, watch.kernels()))
        run.wait(seconds)
    return watch, engine.statistics().queries[0].processor


def call_cost(rows: int, seconds: float) -> float:
    """Seconds that the call of a kernel takes for a packet of a single row."""
    watch, _ = in_engine(ROW_BYTES, rows, seconds)
    return watch.seconds / max(watch.calls, 1)


def measure_kernels(size: int, rows: int, seconds: float, call: float, rep: int) -> Row:
    watch, processor = in_engine(size, rows, seconds)
    inside, calls = watch.seconds, watch.calls
    per_row = 1e9 / max(watch.rows, 1)
    return {
        "workload": "kernels",
        "size": size,
        "KiB": size >> 10,
        "rep": rep,
        "in calls": inside * per_row,
        "in kernels": (inside - calls * call) * per_row,
        "in all": processor * per_row,
        "call": call * 1e6,
    }


# --- all runs ---------------------------------------------------------------------------------------------------


def run(context: Context) -> Results:
    seconds, sizes, counts = (
        (0.1, (1 << 14, 1 << 18), {"chain": 1 << 16, "q4": 20_000})
        if context.smoke
        else (SECONDS, SIZES, {"chain": NUMBERS, "q4": CLICKS})
    )
    for workload in WORKLOADS:  # warms up
        measure(workload, 2, sizes[-1], counts[workload], seconds, 0)
    arguments = [
        {"workload": workload, "workers": workers, "size": size, "rows": counts[workload], "seconds": seconds}
        for workload in WORKLOADS
        for size in sizes
        for workers in WORKERS
    ]
    call = call_cost(counts["chain"], seconds)
    rows: list[Row] = []
    for rep in range(context.reps):
        rows += context.points(measure, [each | {"rep": rep} for each in arguments], timed=True)
        shared = {"rows": counts["chain"], "seconds": seconds, "call": call, "rep": rep}
        rows += context.points(measure_kernels, [{"size": size, **shared} for size in sizes], timed=True)
    return Results(rows, [] if context.smoke else _claims(rows))


# --- claims -----------------------------------------------------------------------------------------------------


def _claims(rows: Sequence[Row]) -> list[Claim]:
    made = [_best_size(rows, workload, workers) for workload in WORKLOADS for workers in WORKERS]
    return [*made, *_without_interpreter(rows)]


def _by_size(rows: Sequence[Row], column: str, **where: object) -> dict[int, float]:
    """{size: median over repetitions}."""
    mine = [row for row in rows if all(row.get(key) == value for key, value in where.items())]
    return {size: float(median(r[column] for r in mine if r["size"] == size)) for size in {r["size"] for r in mine}}


def _best(values: dict[int, float], choose: Callable[..., int]) -> int:
    return choose(sorted(values), key=values.__getitem__)


def _best_size(rows: Sequence[Row], workload: str, workers: int) -> Claim:
    speed = _by_size(rows, "rows a second", workload=workload, workers=workers)
    best, half = _best(speed, max), second_level_cache() // 2
    schema = SCHEMA if workload == "chain" else clicks.SCHEMA
    chosen = rows_per_packet(schema) * row_bytes(schema)
    nearest = min(speed, key=lambda size: abs(size - chosen))
    return Claim(
        claim=f"{workload} on {workers} worker(s): packets of half the L2 cache are within 10 % of the fastest",
        paper=PAPER,
        measured=(
            f"fastest {_kib(best)} ({speed[best] / 1e6:.1f} M rows/s); half of L2 ({_kib(half)}) has "
            f"{speed[half] / speed[best]:.0%} of it, what the engine takes by itself ({_kib(nearest)}) "
            f"{speed[nearest] / speed[best]:.0%}"
        ),
        holds=speed[half] >= 0.9 * speed[best],
    )


def _without_interpreter(rows: Sequence[Row]) -> list[Claim]:
    alone, total = (_by_size(rows, column, workload="kernels") for column in ("in kernels", "in all"))
    cache_size = second_level_cache()
    half = cache_size // 2
    # Of smaller packets the call is nearly all there is, and what is left after it is noise.
    sure = {size: value for size, value in alone.items() if size >= SURE}
    best = _best(sure, min)
    listed = ", ".join(f"{_kib(size)} {value:.2f}" for size, value in sorted(sure.items()))
    return [
        Claim(
            claim="in the kernels alone, packets of at most half the L2 cache are the fastest",
            paper=PAPER,
            measured=f"ns a row: {listed}; best {_kib(best)}, half of L2 {sure[half] / sure[best]:.2f} times it",
            holds=best <= half,
        ),
        Claim(
            claim="in the kernels alone, packets of four caches take at least 10 % longer than those of half of one",
            paper="with larger packets there is an overhead with cache misses",
            measured=f"{sure[4 * cache_size] / sure[half]:.2f} times as long",
            holds=sure[4 * cache_size] >= 1.1 * sure[half],
        ),
        Claim(
            claim="at half of L2 most of the time is not spent in kernels: the interpreter moves the best size up",
            paper="with smaller packets the overhead grows up",
            measured=", ".join(
                f"{_kib(size)} {1 - alone[size] / total[size]:.0%}" for size in (half // 8, half, 4 * cache_size)
            )
            + " outside of kernels",
            holds=1 - alone[half] / total[half] > 0.5,
        ),
    ]


def _kib(size: int) -> str:
    return f"{size >> 10} KiB" if size < 1 << 20 else f"{size / (1 << 20):.4g} MiB"


# --- figure -----------------------------------------------------------------------------------------------------


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    figure.set_size_inches(12.0, 4.2)
    panels = figure.subplots(1, 3)
    for axes, workload in zip(panels, WORKLOADS, strict=False):
        mine = [row | {"M rows/s": row["rows a second"] / 1e6} for row in rows if row["workload"] == workload]
        draw_lines(axes, mine, x="KiB", y="M rows/s", label="line")
        axes.set_title("chain of Arrow operators" if workload == "chain" else "Q4, derived from TPCx-BB, unofficial")
    for column, style in (("in kernels", "-"), ("in calls", "--"), ("in all", ":")):
        found = sorted(_by_size(rows, column, workload="kernels").items())
        found = [(size, value) for size, value in found if column != "in kernels" or size >= SURE]
        panels[2].plot([size >> 10 for size, _ in found], [v for _, v in found], style, marker="o", label=column)
    panels[2].set_title("time of a row at an operator, 1 worker")
    panels[2].set_ylabel("ns")
    panels[2].set_yscale("log")
    panels[2].legend()
    for axes in panels:
        axes.set_xscale("log", base=2)
        axes.set_xlabel("packet (KiB)")
        axes.axvline(second_level_cache() // 2 >> 10, color="black", linewidth=0.8, linestyle=":")


BENCHMARK = Benchmark(
    name="stream_packets",
    figure="Bobox fig. 1 on the engine",
    claim="Packets of half the L2 cache are the fastest; and what size would be, without the interpreter.",
    takes="2 min",
    run=run,
    draw=draw,
    pivot=Pivot("KiB", "line", "rows a second"),
    reps=2,
)
