"""Sessions of users inside a table, against Structured Streaming's two ways to keep a state per key in Python.

The first two operators of Q2 (derived from TPCx-BB, unofficial, not comparable): clicks without user or item are
dropped, and each user's clicks are cut into sessions at pauses of more than an hour; a session goes out with its
items when it is closed. The peers are `transformWithStateInPandas` and `applyInPandasWithState`.

All run in one JVM on `local[2]`, in turn, over the same Parquet files, with as many shuffle partitions as Headgate has
buckets, and all must find the same sessions. Headgate is timed from the landed files to the commit of the table, its
stream's own table included; the peers from the beginning of the first micro-batch to the end of the last, with
checkpoints, into Parquet files. `transformWithStateInPandas` has RocksDB with changelog checkpoints, which it needs;
`applyInPandasWithState` the store in memory. Both get up to 100,000 rows in a message, and what is done with a user's
clicks is NumPy's (see `benchmarks.stream_spark.sessions_peers`).

What costs the peers is the call for each key and micro-batch. So there are two populations: 100,000 users as in Q2, who
come with a few clicks each, and 1,000, who bring hundreds; and files come one for each update and all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Benchmark, Claim, Context, Results, Row
from benchmarks.peers.environment import NotInstalledError
from benchmarks.stream.bars import draw_bars
from benchmarks.stream.ordered_queries import UNOFFICIAL, median, median_ratio
from benchmarks.stream_spark.process import measured
from benchmarks.stream_spark.protobuf import protobuf_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADGATE = "headgate"
TRANSFORM, APPLY = "transformWithStateInPandas", "applyInPandasWithState"
USERS = (100_000, 1_000)
FULL: dict[str, Any] = {"rows": 400_000, "files": 2, "ways": [False, True], "warm_up": 20_000}
SMOKE: dict[str, Any] = {"rows": 2_000, "files": 1, "ways": [False], "warm_up": 0}
BUCKETS, SMOKE_BUCKETS = 4, 1
LEAST = 5.0


def contest(users: int, smoke: bool, reps: int, seed: int) -> list[Row]:
    packages, peers = [], [APPLY]
    try:
        packages.append(protobuf_folder())
        # A cold start of each peer takes seconds: a smoke run has the one that needs more.
        peers = [TRANSFORM] if smoke else [TRANSFORM, APPLY]
    except NotInstalledError as error:
        print(f"{TRANSFORM} is left out, because it needs protobuf: {error}")
    size = {**SMOKE, "buckets": SMOKE_BUCKETS} if smoke else {**FULL, "buckets": BUCKETS}
    options = {**size, "users": users, "reps": reps, "seed": seed, "peers": peers}
    rows: list[Row] = measured("sessions", *packages, **options)
    return rows


def run(context: Context) -> Results:
    users = USERS[-1:] if context.smoke else USERS
    shared = {"smoke": context.smoke, "reps": context.reps, "seed": context.seed}
    arguments = [{"users": each, **shared} for each in users]
    rows = context.points(contest, arguments, timed=True)
    return Results(rows, [] if context.smoke else claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    cells = sorted({(row["users"], row["updates"]) for row in rows}, reverse=True)
    return [_claim(rows, peer, cells) for peer in (TRANSFORM, APPLY)]


def _claim(rows: Sequence[Row], peer: str, cells: Sequence[tuple[int, int]]) -> Claim:
    claim = f"sessions inside a table: at least {LEAST:g} times the rows per second of {peer}"
    if all(row["contender"] != peer for row in rows):
        return Claim(claim, "a target of this project", "the peer could not be installed", None)
    ratios, texts = [], []
    for users, updates in cells:
        cell = {"users": users, "updates": updates}
        ratios.append(
            median_ratio(rows, "rows per second", {"contender": HEADGATE, **cell}, {"contender": peer, **cell})
        )
        own, other = (median(rows, "rows per second", contender=name, **cell) / 1e3 for name in (HEADGATE, peer))
        texts.append(
            f"{users:,} users, {updates} updates: {ratios[-1]:.1f} times ({own:.0f} against {other:.0f} k rows/s)"
        )
    return Claim(claim, f"a target of this project ({UNOFFICIAL})", "; ".join(texts), min(ratios) >= LEAST)


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    shown = [row | {"case": f"{row['users']:,} users\n{row['updates']} updates"} for row in rows]
    draw_bars(axes, shown, x="case", y="rows per second", label="contender", scale=1e3)
    axes.set_yscale("log")
    axes.set_ylabel("thousand rows per second")
    figure.suptitle(UNOFFICIAL, fontsize="small")


BENCHMARK = Benchmark(
    name="stream_spark_sessions",
    figure="Spark, queries inside tables",
    claim="Sessions inside a table: at least 5 times the rows per second of Structured Streaming's states in Python.",
    takes="5 min",
    run=run,
    draw=draw,
    reps=3,
)
