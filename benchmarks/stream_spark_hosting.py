"""The engine inside Spark tasks against the same engine in plain processes, on packets of 16,384 rows.

Both read the same Parquet files, run the same operators serially in two processes that are started and warm, and end
when the last row has come out (`benchmarks.stream_spark.hosting` says how exactly). The third contender is Spark alone:
it moves the same rows to its Python workers, partitioned and sorted if the query has states, and nothing is done there.
What Spark takes for that nobody who computes in Python workers can do without; the engine comes on top.

How large the ratio is depends on how much the query computes for a row: the plain engine filters tens of millions of
rows a second, and Spark moves a few million. So there is a query without states, a running count, sessions, and Q1,
which computes most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Benchmark, Claim, Context, Results, Row
from benchmarks.stream.bars import draw_bars
from benchmarks.stream.ordered_queries import UNOFFICIAL, median, median_ratio
from benchmarks.stream_spark.process import measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS, SMOKE_ROWS = 2_000_000, 40_000
PACKET = 16_384
PLAIN, SPARK, ALONE = "plain processes", "Spark tasks", "Spark alone"
MOST = 1.5


def contest(rows: int, queries: Sequence[str], reps: int, warm_up: int, seed: int) -> list[Row]:
    options = {"rows": rows, "queries": queries, "reps": reps, "warm_up": warm_up, "seed": seed}
    found: list[Row] = measured("hosting", packet_rows=PACKET, **options)
    return found


def run(context: Context) -> Results:
    full: dict[str, Any] = {"rows": ROWS, "queries": [], "warm_up": 3}
    size = {"rows": SMOKE_ROWS, "queries": ["q1"], "warm_up": 0} if context.smoke else full
    rows = context.points(contest, [{**size, "reps": context.reps, "seed": context.seed}], timed=True)
    return Results(rows, [] if context.smoke else claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    queries = list(dict.fromkeys(row["query"] for row in rows))
    ratios = {q: median_ratio(rows, "seconds", _cell(q, SPARK), _cell(q, PLAIN)) for q in queries}
    beyond = {q: median_ratio(rows, "seconds", _cell(q, SPARK), _cell(q, ALONE)) for q in queries}
    seconds = {q: [median(rows, "seconds", **_cell(q, where)) for where in (SPARK, PLAIN, ALONE)] for q in queries}
    return [
        Claim(
            f"from file to result, the engine in Spark tasks takes at most {MOST} times as long as in plain processes",
            f"a target of this project ({UNOFFICIAL})",
            "; ".join(
                f"{q} {ratios[q]:.1f} times ({seconds[q][0]:.2f} s against {seconds[q][1]:.2f})" for q in queries
            ),
            all(ratio <= MOST for ratio in ratios.values()),
        ),
        Claim(
            "the same, compared with the plain engine plus Spark moving the rows to Python workers and nothing else",
            "beyond what was asked",
            "; ".join(
                f"{q} {seconds[q][0] / (seconds[q][1] + seconds[q][2]):.2f} times (Spark alone {seconds[q][2]:.2f} s, "
                f"{beyond[q]:.2f} times)"
                for q in queries
            ),
            all(own <= MOST * (plain + alone) for own, plain, alone in seconds.values()),
        ),
    ]


def _cell(query: str, where: str) -> dict[str, object]:
    return {"query": query, "where": where}


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    draw_bars(axes, rows, x="query", y="seconds", label="where")
    axes.set_ylabel("seconds")
    axes.set_title(f"packets of {PACKET:,} rows", fontsize="small")
    figure.suptitle(UNOFFICIAL, fontsize="small")


BENCHMARK = Benchmark(
    name="stream_spark_hosting",
    figure="Spark, queries inside tables",
    claim="Hosting the engine in Spark tasks costs at most 1.5 times a plain process, for packets of 16k rows.",
    takes="3 min",
    run=run,
    draw=draw,
    reps=5,
)
