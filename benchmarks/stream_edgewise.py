"""EdgeWise, figures 7 to 10, on the engine: a pool of two workers that runs the longest queue against one thread for
each operator.

RIoTBench's STATS and ETL are fed as in the paper (section 7.1): a timer lets go of a tenth of the rate every 100 ms,
from lines that are in memory and repeat. A packet has 50 rows: that is the paper's at-most-50, what a worker takes at
one turn, and both contenders hand over the same packets. At the rates measured here a batch of the timer makes many of
them, so there are queues to choose between. Operators with state have one bucket: the paper, too, gives both
contenders the same physical operators.

Packets of 50 rows were chosen before anything was measured. A first look then showed that they cost the interpreter
nearly as much as packets of 500, and that the pool's lead depends on it; so the rates are swept with packets of 500 as
well, and what is carried is reported for both. Evenness and the breakdown are those of packets of 50. The same look
had two buckets in the pool, its default, and one in threads; the pool carried about a third less so.

What a topology *carries* is the input rate at which its mean latency, of all rows at the sinks from their arrival on,
crosses 100 ms, on a line between the two rates around it. Rates are shares of what the pool does when nobody limits
its input. After the first rate at which a contender's latency has left 400 ms behind it is asked for no more.

An engine makes the interpreter's turns short while it runs (0.1 ms instead of 5), which helps two workers; but every
thread that waits for its turn wakes up that often to ask. So threads are measured with the interpreter's own turns as
well, and the pool is held against whichever carries more.

Where time goes (figures 9 and 10): T_Q is the wait in the middle of an operator's queue, T_S at its head, T_C how long
the packet that a row is in is computed. With threads, T_C has the waits for a core and for the interpreter in it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import linear_regression, median
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from benchmarks._operators import carried_rate
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from benchmarks.harness.style import draw_lines
from benchmarks.stream.watching import begin_measuring, demand_running, rows_per_second
from headgate.stream import Batched, Engine, Paced, QuerySpec, QueryStatistics, from_batches, to_function
from headgate.stream.sources.source import Source
from workloads.riot import City, EtlSettings, StatsSettings, etl_query, stats_query

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: rows; the first is the one that was chosen, see above
PACKETS = (50, 500)
POOL, THREADS, SWITCHING = "longest-queue", "threads", "threads, short turns"
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    POOL: {"loop": "dispatch", "policy": "longest-queue", "workers": 2},
    THREADS: {"loop": "threads", "switch_interval": None},
    SWITCHING: {"loop": "threads"},
}
TOPOLOGIES = {
    "stats": "a 3x throughput improvement with low latency",
    "etl": "from 1000 to 1350 results/s under 50 ms latency, that is 1.35x",
}
SHARES = (0.2, 0.5, 0.7, 0.85, 1.0, 1.15, 1.35, 1.6, 2.0)
#: seconds of one run, the first third of which is warm-up
SECONDS = 1.5
#: mean latency in ms that a rate is carried at, and from which on no higher rate is tried
LIMIT, COLLAPSED = 100.0, 400.0
GAIN = 1.5
#: lines in memory: several for each of the city's sources
LINES = 20_480
PARTS = {"T_Q": "in queue", "T_S": "for a turn", "T_C": "computing"}


# --- one run ----------------------------------------------------------------------------------------------------


@cache
def _lines(topology: str) -> pa.RecordBatch:
    city = City()
    return city.csv_lines(0, LINES) if topology == "stats" else city.lines(0, LINES)


def _query(topology: str, source: Source) -> QuerySpec:
    dropped = to_function(_drop)
    if topology == "stats":
        known = City().annotations().column("source").combine_chunks()
        return stats_query(source, dropped, known, StatsSettings(buckets=1))
    return etl_query(source, dropped, dropped, City().annotations(), EtlSettings(buckets=1))


def _drop(batch: pa.RecordBatch) -> None:
    """What a sink of this experiment does."""


def engine_for(variant: str, packet: int) -> Engine:
    return Engine(packet_rows=packet, consumption=f"at-most-{packet}", **VARIANTS[variant])


def unlimited(topology: str, packet: int, seconds: float) -> float:
    """Rows a second of the pool if there is always input."""
    source = from_batches(lambda: itertools.repeat(_lines(topology)))
    with engine_for(POOL, packet) as engine:
        run = engine.add(_query(topology, source))
        time.sleep(seconds)
        demand_running([run])
    return rows_per_second(engine.statistics().queries[0])


def measure(topology: str, packet: int, variant: str, share: float, most: float, seconds: float, rep: int) -> list[Row]:
    """A row of the run as a whole, and one for each operator."""
    source = Paced(_lines(topology), Batched(share * most))
    with engine_for(variant, packet) as engine:
        run = engine.add(_query(topology, source))
        time.sleep(seconds / 3)
        begin_measuring([run])
        began = time.perf_counter()
        time.sleep(seconds * 2 / 3)
        taken = time.perf_counter() - began
        demand_running([run])
    statistics = engine.statistics()
    query = statistics.queries[0]
    point = {
        "topology": topology,
        "packet": packet,
        "variant": variant,
        "share": share,
        "rate": share * most,
        "rep": rep,
    }
    # Nothing came out in the whole time: it would have been at least so old.
    mean = query.latency.mean if query.latency.count else seconds
    whole = {
        "point": f"{topology}, packets of {packet}, {share:.0%}",
        "mean latency": mean * 1e3,
        "max latency": (query.latency.max if query.latency.count else seconds) * 1e3,
        "throughput": rows_per_second(query),
        "variation": query.utilisation_variation,
        "cores": query.processor / taken,
        "scheduling": statistics.scheduling_share,
    }
    return [point | whole, *(point | each for each in _by_operator(query))]


def _by_operator(query: QueryStatistics) -> list[Row]:
    return [
        {
            "operator": each.name,
            "in queue": each.in_queue * 1e3,
            "for a turn": each.for_a_turn * 1e3,
            "computing": each.computing * each.rows_in / max(each.packets, 1) * 1e3,
            "utilisation": each.utilisation,
            "processor": each.processor,
        }
        for each in query.operators
        if each.kind != "source"
    ]


# --- all runs ---------------------------------------------------------------------------------------------------


def run(context: Context) -> Results:
    seconds, shares = (0.3, (0.3,)) if context.smoke else (SECONDS, SHARES)
    rows: list[Row] = []
    for topology, packet in itertools.product(TOPOLOGIES, PACKETS[:1] if context.smoke else PACKETS):
        unlimited(topology, packet, 0.1 if context.smoke else 0.6)  # warms up
        most = unlimited(topology, packet, 0.2 if context.smoke else 1.2)
        for rep in range(context.reps):
            rows += _sweep(context, {"topology": topology, "packet": packet, "most": most}, shares, seconds, rep)
    if context.smoke:
        return Results(rows, [])
    wholes = _wholes(rows)
    claims = [_gain(wholes, topology, packet) for packet in PACKETS for topology in TOPOLOGIES]
    chosen = [row for row in rows if row["packet"] == PACKETS[0]]
    claims += [_evenness(_wholes(chosen), topology) for topology in TOPOLOGIES]
    claims += [claim for topology in TOPOLOGIES for claim in _breakdown(chosen, topology)]
    return Results(rows, claims)


def _sweep(context: Context, what: Row, shares: Sequence[float], seconds: float, rep: int) -> list[Row]:
    """Rising rates, contenders in turn, each until it has collapsed."""
    rows: list[Row] = []
    alive = [variant for variant in VARIANTS if variant != SWITCHING or not rep]
    for share in shares:
        arguments = [{**what, "variant": variant, "share": share, "seconds": seconds, "rep": rep} for variant in alive]
        found = context.points(measure, arguments, timed=True)
        alive = [row["variant"] for row in _wholes(found) if row["mean latency"] <= COLLAPSED]
        rows += found
    return rows


def _wholes(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if "operator" not in row]


# --- claims -----------------------------------------------------------------------------------------------------


def carried(rows: Sequence[Row], topology: str, variant: str) -> float:
    """Rows a second: the median over repetitions."""
    reps = {row["rep"] for row in rows if row["variant"] == variant}
    return median(carried_rate([row for row in rows if row["rep"] == rep], topology, variant, LIMIT) for rep in reps)


def _gain(rows: Sequence[Row], topology: str, packet: int) -> Claim:
    rows = [row for row in rows if row["packet"] == packet]
    found = {variant: carried(rows, topology, variant) for variant in VARIANTS}
    better = max((THREADS, SWITCHING), key=found.__getitem__)
    gain = found[POOL] / found[better] if found[better] else float("inf")
    endless = {variant: not _crosses(rows, topology, variant) for variant in found}
    listed = ", ".join(f"{v} {'at least ' * endless[v]}{rate:,.0f}" for v, rate in found.items())
    return Claim(
        claim=f"{topology.upper()}, packets of {packet}: the pool carries at least {GAIN} times what threads carry",
        paper=TOPOLOGIES[topology],
        measured=f"{gain:.2f} times (rows/s at {LIMIT:.0f} ms: {listed})",
        # If threads carry even the highest rate, nobody knows what they carry.
        holds=None if endless[better] else gain >= GAIN,
    )


def _crosses(rows: Sequence[Row], topology: str, variant: str) -> bool:
    """Whether latency went beyond the limit in every repetition, so that what is carried is known."""
    mine = [row for row in rows if row["topology"] == topology and row["variant"] == variant]
    return {row["rep"] for row in mine} == {row["rep"] for row in mine if row["mean latency"] > LIMIT}


def _evenness(rows: Sequence[Row], topology: str) -> Claim:
    """Up to the rate that the pool carries: beyond it all queues are full, whoever decides."""
    highest = carried(rows, topology, POOL)
    slopes, ends = {}, {}
    for variant in (POOL, THREADS):
        mine = [r for r in rows if r["topology"] == topology and r["variant"] == variant and r["rate"] <= highest]
        shares = [row["share"] for row in mine]
        slopes[variant] = linear_regression(shares, [row["variation"] for row in mine]).slope
        ends[variant] = [_median_of(mine, share, "variation") for share in (min(shares), max(shares))]
    listed = (f"{v} {low:.2f} to {high:.2f} (slope {slopes[v]:+.2f})" for v, (low, high) in ends.items())
    return Claim(
        claim=f"{topology.upper()}: as load grows, utilisation gets more even with the pool, less with threads",
        paper="the utilisation CV increases in Storm; in EdgeWise it decreases for larger input rates",
        measured="coefficient of variation from the lowest to the highest rate: " + ", ".join(listed),
        holds=slopes[POOL] < 0 < slopes[THREADS],
    )


def _median_of(rows: Sequence[Row], share: float, column: str) -> float:
    return float(median(row[column] for row in rows if row["share"] == share))


def loads(rows: Sequence[Row], topology: str) -> tuple[float, float]:
    """Low and high load: the lowest share, and the highest at which threads still are within the limit."""
    wholes = [row for row in _wholes(rows) if row["topology"] == topology and row["variant"] == THREADS]
    shares = sorted({row["share"] for row in wholes})
    good = [share for share in shares if _median_of(wholes, share, "mean latency") <= LIMIT]
    return shares[0], max(good, default=shares[0])


def parts(rows: Sequence[Row], topology: str, variant: str, share: float) -> dict[str, dict[str, float]]:
    """{operator: {part of its latency: ms}}, medians over repetitions."""
    point = (topology, variant, share)
    mine = [r for r in rows if "operator" in r and (r["topology"], r["variant"], r["share"]) == point]
    return {
        name: {part: float(median(r[column] for r in mine if r["operator"] == name)) for part, column in PARTS.items()}
        for name in dict.fromkeys(row["operator"] for row in mine)
    }


def _breakdown(rows: Sequence[Row], topology: str) -> list[Claim]:
    low, high = loads(rows, topology)
    waits: dict[str, list[str]] = {}
    greatest: dict[str, float] = {}
    for variant in (POOL, THREADS):
        for share in (low, high):
            found = parts(rows, topology, variant, share)
            worst = max(found, key=lambda name: found[name]["T_Q"] + found[name]["T_S"])
            greatest[variant] = found[worst]["T_Q"] + found[worst]["T_S"]
            waits.setdefault(variant, []).append(f"{greatest[variant]:.1f} ms ({worst})")
    pool = parts(rows, topology, POOL, high).values()
    turn, total = sum(each["T_S"] for each in pool), sum(sum(each.values()) for each in pool)
    levels = f"at {low:.0%} and {high:.0%} of what the pool does without a limit"
    return [
        Claim(
            claim=f"{topology.upper()}: at high load the longest wait at an operator is shorter with the pool",
            paper="the heaviest operation's queue time under High is 15 ms, much smaller than the 25 ms of Storm",
            measured=f"longest wait {levels}: " + "; ".join(f"{v} {', '.join(found)}" for v, found in waits.items()),
            holds=greatest[POOL] < greatest[THREADS],
        ),
        Claim(
            claim=f"{topology.upper()}: with the pool, T_S is at most a tenth of the time that rows spend at operators",
            paper="across all throughput rates and operations, T_S remains very small",
            measured=f"{turn / total:.1%} at high load ({turn:.1f} of {total:.1f} ms over all operators)",
            holds=turn <= 0.1 * total,
        ),
    ]


# --- figure -----------------------------------------------------------------------------------------------------


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    """A line of panels for each topology: latency and evenness over the rate, and where the time goes."""
    figure.set_size_inches(17.0, 7.4)
    for topology, line in zip(TOPOLOGIES, figure.subplots(2, 4, width_ratios=(1, 1, 1, 1.6)), strict=True):
        mine = [row for row in rows if row["topology"] == topology]
        chosen = [row for row in mine if row["packet"] == PACKETS[0]]
        for axes, packet in zip(line, dict.fromkeys(row["packet"] for row in mine), strict=False):
            draw_lines(axes, _of_packet(mine, packet), x="rate", y="mean latency", label="variant")
            axes.axhline(LIMIT, color="black", linewidth=0.8, linestyle=":")
            axes.set_yscale("log")
            axes.set_ylabel("mean latency (ms)")
            axes.set_title(f"{topology.upper()}, packets of {packet}", fontsize="medium")
        draw_lines(line[2], _wholes(chosen), x="rate", y="variation", label="variant")
        line[2].set_ylabel("variation of utilisation")
        line[2].set_title(f"{topology.upper()}, packets of {PACKETS[0]}", fontsize="medium")
        line[2].legend().remove()
        for axes in line[:3]:
            axes.set_xlabel("input rate (rows/s)")
        _draw_parts(line[3], chosen, topology)


def _of_packet(rows: Sequence[Row], packet: int) -> list[Row]:
    return [row for row in _wholes(rows) if row["packet"] == packet]


def _draw_parts(axes: Axes, rows: Sequence[Row], topology: str) -> None:
    low, high = loads(rows, topology)
    bars: list[tuple[str, float]] = list(dict.fromkeys(itertools.product((POOL, THREADS), (low, high))))
    width = 0.8 / len(bars)
    colours = dict(zip(PARTS, ("#0072B2", "#D55E00", "#009E73"), strict=True))
    for place, (variant, share) in enumerate(bars):
        found = parts(rows, topology, variant, share)
        at = [number + (place - (len(bars) - 1) / 2) * width for number in range(len(found))]
        bottom = [0.0] * len(found)
        for part, colour in colours.items():
            heights = [each[part] for each in found.values()]
            hatch = "//" if variant == THREADS else None
            label = part if not place else None
            axes.bar(at, heights, width * 0.9, bottom=bottom, color=colour, hatch=hatch, label=label)
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
        axes.set_xticks(range(len(found)), list(found), rotation=30, ha="right")
    axes.set_ylabel("ms at the operator")
    axes.set_title(f"at {low:.0%} and {high:.0%} load; threads hatched", fontsize="medium")
    axes.legend()


BENCHMARK = Benchmark(
    name="stream_edgewise",
    figure="EdgeWise fig. 7-10 on the engine",
    claim="A pool of two workers that runs the longest queue carries 1.5 times what threads carry, on STATS and ETL.",
    takes="5 min",
    run=run,
    draw=draw,
    pivot=Pivot("point", "variant", "mean latency"),
    reps=2,
)
