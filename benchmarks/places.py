"""A warehouse in an object store or in HDFS against a folder: commits per second, updates, and races of two drivers.

The store is versitygw on loopback, with its objects on the same disk: what is measured is what a store costs besides
its network. It decides between two writers by the condition of a write (If-None-Match), which is compared with a write
without one. HDFS is a name node and a data node on loopback; it is left out where it is not installed.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from benchmarks.harness import Benchmark, Claim, Context, Results, Row
from benchmarks.stream.bars import draw_bars
from benchmarks.stream.ordered_queries import median
from benchmarks.stream_spark.process import measured
from headgate.places.place import AnyPath, path_from
from headgate.warehouse.storage.errors import AlreadyCommittedError, ForeignCommitError
from headgate.warehouse.storage.store import TableStore
from tests.services import hdfs
from tests.services.object_store import ObjectStoreServer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TARGET = "a target of this project"
FOLDER, UNSYNCED, STORE, HDFS = "folder", "folder, not synced", "object store", "HDFS"
PLAIN, CONDITIONAL = "without a condition", "if there is none"
MOST_COMMIT, MOST_UPDATE, MOST_CONDITION = 3.0, 1.5, 1.2
RACES = 500
_ENTRY = b"x" * 2_000


def rows_of(writer: int, number: int, count: int = 100) -> pa.Table:
    at = pa.array([1_700_000_000_000_000 + number] * count).view(pa.timestamp("us", "UTC"))
    return pa.table({"ts": at, "writer": [writer] * count, "number": [number] * count})


def commit_rows(store: TableStore, update: int, rows: pa.Table) -> None:
    store.commit(update, store.write_arrow(update, rows, 86_400.0), state={"update": update}, schema=rows.schema)


# --- commits --------------------------------------------------------------------------------------------------------


def commits(commits: int, requests: int, hadoop: bool) -> list[Row]:
    """One writer: files of a hundred rows, each with a commit; and single requests, with and without a condition."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bucket = stack.enter_context(ObjectStoreServer(folder / "store")).bucket()
        places: dict[str, TableStore] = {
            FOLDER: TableStore(folder / "synced", "ts"),
            UNSYNCED: TableStore(folder / "unsynced", "ts", syncs=False),
            STORE: TableStore(bucket / "table", "ts"),
        }
        if hadoop:
            places[HDFS] = TableStore(stack.enter_context(hdfs.HdfsServer(folder / "hdfs")).place() / "table", "ts")
        rows: list[Row] = []
        for place, table in places.items():
            commit_rows(table, 1, rows_of(0, 1))
            began = time.perf_counter()
            for update in range(2, commits + 2):
                commit_rows(table, update, rows_of(0, update))
            seconds = (time.perf_counter() - began) / commits
            rows.append({"measured": "commit", "place": place, "per_second": 1 / seconds, "seconds": seconds})
        took = dict.fromkeys((PLAIN, CONDITIONAL), 0.0)
        for number in range(requests):  # in turn, so that what else the machine does meets both
            for kind in took:
                there = bucket / f"{kind}/{number}"
                began = time.perf_counter()
                there.write_bytes(_ENTRY) if kind == PLAIN else there.create(_ENTRY)
                took[kind] += time.perf_counter() - began
        rows += [
            {"measured": "request", "place": STORE, "kind": kind, "per_second": requests / t, "seconds": t / requests}
            for kind, t in took.items()
        ]
    return rows


# --- updates --------------------------------------------------------------------------------------------------------


def updates(in_store: bool, rounds: int, warm_up: int, seed: int) -> list[Row]:
    size = {"rows": 1_000, "rounds": rounds, "warm_up": warm_up, "seed": seed}
    found: list[Row] = measured("on_places", in_store=in_store, **size)
    return found


# --- races ----------------------------------------------------------------------------------------------------------


def races(where: str, races: int) -> Row:
    """Two processes begin every commit together; who was told that it has committed is compared with the table."""
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place: AnyPath = folder
        options: dict[str, str] = {}
        if where == STORE:
            place = stack.enter_context(ObjectStoreServer(folder / "store")).bucket()
            options = dict(place.bucket.options)
        elif where == HDFS:
            place = stack.enter_context(hdfs.HdfsServer(folder / "hdfs")).place()
        commit_rows(TableStore(place / "table", "ts"), 1, rows_of(0, 0, 1))
        together, told = context.Barrier(2), context.SimpleQueue()
        began = time.perf_counter()
        writers = [
            context.Process(target=_race, args=(writer, f"{place}/table", options, races, together, told))
            for writer in (1, 2)
        ]
        for writer in writers:
            writer.start()
        answers = [told.get() for _ in writers]
        for writer in writers:
            writer.join()
        seconds = time.perf_counter() - began
        found = TableStore(place / "table", "ts").arrow().select(["writer", "number"]).to_pylist()
    won = [pair for wins, _ in answers for pair in wins]
    there = sorted((row["writer"], row["number"]) for row in found if row["writer"])
    return {
        "measured": "race",
        "place": where,
        "races": races,
        "close": sum(close for _, close in answers),
        "with_winner": len({number for _, number in won}),
        "lost": len(set(won) - set(there)),
        "doubled": len(there) - len(set(there)) + len(won) - len({number for _, number in won}),
        "unknown": len(set(there) - set(won)),
        "per_second": races / seconds,
        "seconds": seconds / races,
    }


def _race(
    writer: int, table: str, options: dict[str, str], races: int, together: Barrier, told: SimpleQueue[object]
) -> None:
    store = TableStore(path_from(table, options), "ts")
    won: list[tuple[int, int]] = []
    #: how often the other one had not committed yet when this one looked: then the store, or the disk, decides
    close = 0
    try:
        for number in range(1, races + 1):
            rows = rows_of(writer, number, 1)
            files = store.write_arrow(number + 1, rows, 86_400.0)
            together.wait()
            try:
                store.commit(number + 1, files, state={"update": number + 1}, schema=rows.schema)
                won.append((writer, number))
            except ForeignCommitError:
                close += 1
            except AlreadyCommittedError:
                pass
    except BaseException:
        together.abort()
        raise
    finally:
        told.put((won, close))


# --- the benchmark --------------------------------------------------------------------------------------------------


def run(context: Context) -> Results:
    if why := ObjectStoreServer.missing():
        return Results([{"measured": "nothing", "place": STORE, "why": why}], [Claim("all", TARGET, why, None)])
    smoke, wanted = context.smoke, context.part
    hadoop = not (smoke or hdfs.why_not())
    rows: list[Row] = []
    if wanted in (None, "commits"):
        size = {"commits": 5, "requests": 20} if smoke else {"commits": 200, "requests": 1_000}
        rows += context.points(commits, [{**size, "hadoop": hadoop}] * context.reps, timed=True)
    if wanted in (None, "races"):
        count = 10 if smoke else context.times or RACES
        raced = (FOLDER, STORE, HDFS) if hadoop else (FOLDER, STORE)
        rows += context.points(races, [{"where": where, "races": count} for where in raced], timed=True)
    if wanted in (None, "updates"):
        length = {"rounds": 1, "warm_up": 0} if smoke else {"rounds": 20, "warm_up": 10}
        places = (True,) if smoke else (False, True)
        arguments = [{"in_store": place, "seed": seed, **length} for seed in context.seeds for place in places]
        rows += context.points(updates, arguments, timed=True)
    return Results(rows, claims(rows, smoke))


def claims(rows: Sequence[Row], smoke: bool) -> list[Claim]:
    kinds = {row["measured"] for row in rows}
    made = []
    if "commit" in kinds:
        here, there = (1000 * median(rows, "seconds", measured="commit", place=place) for place in (FOLDER, STORE))
        plain, conditional = (
            1000 * median(rows, "seconds", measured="request", kind=kind) for kind in (PLAIN, CONDITIONAL)
        )
        made += [
            _ratio(f"a commit takes at most {MOST_COMMIT:g} times as long as in a folder", there, here, MOST_COMMIT),
            _ratio(
                f"a write with a condition takes at most {MOST_CONDITION:g} times as long as one without",
                *(conditional, plain, MOST_CONDITION),
            ),
        ]
    if "race" in kinds:
        raced = [row for row in rows if row["measured"] == "race"]
        bad = sum(row["lost"] + row["doubled"] + row["unknown"] for row in raced)
        number = "; ".join(
            f"{row['place']}: {row['with_winner']} of {row['races']} races have a winner, {row['close']} were close"
            for row in raced
        )
        fair = all(row["with_winner"] == row["races"] for row in raced)
        made.append(
            Claim(
                "no commit is lost or doubled when two drivers commit at once",
                TARGET,
                f"{bad} lost or doubled; {number}",
                fair and not bad,
            )
        )
    if "update" in kinds and not smoke:
        for table in ("landed", "sums"):
            here, there = (
                1000 * median(rows, "seconds", measured="update", place=place, table=table) for place in (FOLDER, STORE)
            )
            what = f"an update of {table} takes at most {MOST_UPDATE:g} times as long as in a folder"
            made.append(_ratio(what, there, here, MOST_UPDATE))
    return [Claim(each.claim, each.paper, each.measured, None) for each in made] if smoke else made


def _ratio(claim: str, there: float, here: float, most: float) -> Claim:
    return Claim(claim, TARGET, f"{there:.1f} ms against {here:.1f}, {there / here:.2f} times", there <= most * here)


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.add_subplot(1, 1, 1)
    shown = [
        {**row, "what": row.get("table", row["measured"])} for row in rows if "seconds" in row and "kind" not in row
    ]
    draw_bars(axes, shown, x="what", y="seconds", label="place", scale=0.001)
    axes.set_ylabel("ms")


BENCHMARK = Benchmark(
    name="places",
    figure="a warehouse in an object store",
    claim="Commits and updates in an object store take little longer than on disk, and of two drivers one commits.",
    takes="6 min",
    run=run,
    draw=draw,
    reps=1,
    parts=("commits", "races", "updates"),
)
