"""What watching a run costs: 500 tables, 20 updates a second, two viewers; and 5,000 tables.

The scheduler, the monitor and its server are the real ones; updates only wait, so that there is nothing else to
measure. `live` runs the same with and without the monitor, in turn, each in a process of its own, and compares. `hour`
drives the monitor's own classes through a simulated hour, some ten times faster than time, and looks at memory. `many`
asks for 5,000 tables. `browser` opens the page in Chromium, if there is one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import Benchmark, Claim, Context, Results, Row
from benchmarks.watched import browser
from benchmarks.watched.viewer import Viewer, asked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TARGET = "a target of this project"
TABLES, MANY, PER_SECOND, VIEWERS = 500, 5_000, 20, 2
#: seconds to an event, share of a core, times the decisions without the monitor, seconds to the first paint
MOST_DELAY, MOST_PROCESSOR, MOST_DECISION, MOST_PAINT = 1.0, 0.05, 1.05, 1.5
#: from the second quarter of the hour to the last
MOST_GROWTH = 1.05
#: milliseconds of a frame that nobody sees as a jerk: two of a screen that shows 60 in a second
SMOOTH = 34.0
WARM_UP = 3.0
PARTS = ("live", "hour", "many", "browser")


def percentile(values: Sequence[float], share: float) -> float:
    return float(np.percentile(values, 100 * share)) if values else float("nan")


# --- with and without the monitor -----------------------------------------------------------------------------------


@contextmanager
def serving(tables: int, seconds: float, monitor: bool) -> Iterator[IO[str]]:
    """A process with an idle run; gives what it prints."""
    command = [sys.executable, "-m", "benchmarks.watched.serve", "--tables", str(tables)]
    command += ["--updates", str(PER_SECOND), "--seconds", str(seconds), "--warm-up", str(WARM_UP)]
    process = subprocess.Popen([*command, *(["--monitor"] if monitor else [])], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def live(tables: int, seconds: float, pair: int) -> list[Row]:
    """One run without the monitor, and one with it and two viewers."""
    rows: list[Row] = []
    for monitor in (False, True):
        with serving(tables, seconds, monitor) as said:
            viewers = []
            if monitor:
                address = said.readline().strip()
                viewers = [Viewer(address, WARM_UP).start() for _ in range(VIEWERS)]
            found: dict[str, Any] = json.loads(said.readline())
            for viewer in viewers:
                viewer.stop()
        delays = [delay for viewer in viewers for delay in viewer.delays]
        rows.append(
            {
                "measured": "live",
                "monitor": "with" if monitor else "without",
                "pair": pair,
                "tables": tables,
                "updates_per_second": found["updates"],
                "processor": found["processor"],
                "decision_ms": 1e3 * percentile(found["decisions"], 0.5),
                "decision_95_ms": 1e3 * percentile(found["decisions"], 0.95),
                "scheduler_ms": 1e3 * found["scheduler"] / max(found["updates"], 1e-9),
                "decision_mean_ms": 1e3 * float(np.mean(found["decisions"])),
                "delay_median": percentile(delays, 0.5) if monitor else None,
                "delay_99": percentile(delays, 0.99) if monitor else None,
                "events": len(delays),
                "missed": sum(viewer.missed for viewer in viewers),
            }
        )
    return rows


# --- an hour --------------------------------------------------------------------------------------------------------


def hour(tables: int, seconds: int) -> list[Row]:
    command = [sys.executable, "-m", "benchmarks.watched.long_run", "--tables", str(tables)]
    command += ["--updates", str(PER_SECOND), "--seconds", str(seconds)]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return [
        {"measured": "hour", "tables": tables, "at": at, "megabytes": megabytes, "took": found["took"]}
        for at, megabytes in found["levels"]
    ]


def growth(rows: Sequence[Row]) -> float:
    """The memory of the last quarter, compared with that of the second."""
    levels = [float(row["megabytes"]) for row in rows]
    quarter = max(1, len(levels) // 4)
    return float(np.mean(levels[-quarter:]) / np.mean(levels[quarter : 2 * quarter] or levels[:1]))


# --- many tables ----------------------------------------------------------------------------------------------------


def many(tables: int, times: int) -> Row:
    """The first snapshot, the metrics, and one event with everything in it."""
    with serving(tables, 3_600.0, monitor=True) as said:
        address = said.readline().strip()
        time.sleep(WARM_UP)
        took: dict[str, list[float]] = {"/api/overview": [], "/metrics": []}
        sizes: dict[str, int] = {}
        for path in [*took] * times:
            began = time.perf_counter()
            sizes[path] = len(asked(address, path))
            took[path].append(time.perf_counter() - began)
    return {
        "measured": "many",
        "tables": tables,
        "snapshot_seconds": percentile(took["/api/overview"], 0.5),
        "snapshot_megabytes": sizes["/api/overview"] / 1e6,
        "metrics_seconds": percentile(took["/metrics"], 0.5),
        "metrics_megabytes": sizes["/metrics"] / 1e6,
    }


# --- the browser ----------------------------------------------------------------------------------------------------


def painted(tables: int, seconds: float) -> Row:
    with serving(tables, 3_600.0, monitor=True) as said:
        address = said.readline().strip()
        time.sleep(WARM_UP)
        with browser.opened(address) as page:
            text, row = browser.paints(page)
            browser.delays(page)
            page.wait_for_timeout(1_000 * seconds)
            delays = browser.delays(page)
            scrolled = browser.scrolled(page, min(5.0, seconds))
    return {
        "measured": "browser",
        "tables": tables,
        "first_text": text,
        "first_row": row,
        "delay_99": percentile(delays, 0.99),
        "events": len(delays),
        "frame_ms_median": percentile(scrolled["frames"], 0.5),
        "frame_ms_95": percentile(scrolled["frames"], 0.95),
        "rows_in_page": scrolled["rows"],
        "pixels": scrolled["length"],
    }


# --- the benchmark --------------------------------------------------------------------------------------------------


def run(context: Context) -> Results:
    smoke, wanted = context.smoke, context.part
    tables, seconds = (20, 1.0) if smoke else (TABLES, context.seconds or 60.0)
    rows: list[Row] = []
    if wanted in (None, "live"):
        pairs = [{"tables": tables, "seconds": seconds, "pair": pair} for pair in range(context.reps)]
        rows += context.points(live, pairs, timed=True)
    if wanted in (None, "hour"):
        rows += context.points(hour, [{"tables": tables, "seconds": 240 if smoke else 3_600}], timed=True)
    if wanted in (None, "many"):
        rows += context.points(many, [{"tables": 50 if smoke else MANY, "times": 1 if smoke else 5}], timed=True)
    if wanted == "browser" or (wanted is None and not smoke):
        if why := browser.missing():
            rows.append({"measured": "browser", "why": why})
        else:
            sizes = [20] if smoke else [TABLES, MANY]
            points = [{"tables": size, "seconds": 1.0 if smoke else 10.0} for size in sizes]
            rows += context.points(painted, points, timed=True)
    return Results(rows, claims(rows, smoke))


def claims(rows: Sequence[Row], smoke: bool = False) -> list[Claim]:
    found: list[Claim] = []

    def claim(text: str, measured: str, holds: bool) -> None:
        found.append(Claim(text, TARGET, measured, None if smoke else holds))

    without, watched = (_live(rows, which) for which in ("without", "with"))
    if watched:
        delay = max(float(row["delay_99"]) for row in watched)
        events = sum(int(row["events"]) for row in watched)
        claim("an event is with the viewer within 1 s", f"99 % of {events} within {delay:.3f} s", delay <= MOST_DELAY)
        extra = _median(watched, "processor") - _median(without, "processor")
        claim("the monitor takes at most 5 % of a core", f"{extra:.1%}", extra <= MOST_PROCESSOR)
        # Processor time of all that the scheduler thread does: decisions and polls, and for the monitor the looks and
        # what it is told.
        busy = _times(without, watched, "scheduler_ms")
        said = f"{busy:.3f} times ({_median(without, 'scheduler_ms'):.2f} ms without)"
        claim("the scheduler takes at most 1.05 times the processor time per update", said, busy <= MOST_DECISION)
        ratio = _times(without, watched, "decision_ms")
        tail, mean = _times(without, watched, "decision_95_ms"), _times(without, watched, "decision_mean_ms")
        said = f"median {ratio:.3f} times ({_median(without, 'decision_ms'):.2f} ms without), 95 % {tail:.3f} times"
        claim(
            "a decision takes at most 1.05 times as long",
            f"{said} ({_median(without, 'decision_95_ms'):.2f} ms without), mean {mean:.3f} times",
            max(ratio, tail) <= MOST_DECISION,
        )
    levels = [row for row in rows if row["measured"] == "hour"]
    if levels:
        times, took = growth(levels), float(levels[0]["took"])
        claim(
            "memory is level over a simulated hour",
            f"{times:.3f} times, {levels[-1]['megabytes']:.0f} MB at the end; played in {took:.0f} s",
            times <= MOST_GROWTH,
        )
    for row in rows:
        if row["measured"] == "browser" and "why" not in row:
            claim(
                f"{row['tables']:,} tables: the first row is painted within 1.5 s",
                f"first text after {row['first_text']:.2f} s, first row after {row['first_row']:.2f} s",
                row["first_row"] <= MOST_PAINT,
            )
            claim(
                f"{row['tables']:,} tables: an event is on the screen within 1 s",
                f"99 % of {row['events']} within {row['delay_99']:.3f} s",
                row["delay_99"] <= MOST_DELAY,
            )
            claim(
                f"{row['tables']:,} tables: the overview scrolls smoothly",
                f"95 % of frames within {row['frame_ms_95']:.0f} ms, {row['rows_in_page']} rows in the page",
                row["frame_ms_95"] <= SMOOTH,
            )
    return found


def _live(rows: Sequence[Row], monitor: str) -> list[Row]:
    return [row for row in rows if row["measured"] == "live" and row["monitor"] == monitor]


def _median(rows: Sequence[Row], column: str) -> float:
    return float(np.median([float(row[column]) for row in rows]))


def _times(without: Sequence[Row], watched: Sequence[Row], column: str) -> float:
    return _median(watched, column) / _median(without, column)


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    levels = [row for row in rows if row["measured"] == "hour"]
    axes.plot([row["at"] / 60 for row in levels], [row["megabytes"] for row in levels])
    axes.set_xlabel("minutes of the run")
    axes.set_ylabel("MB")
    axes.set_ylim(bottom=0)


BENCHMARK = Benchmark(
    name="monitor",
    figure="watching",
    claim="Watching a run of 500 tables costs it next to nothing, and everything is on the screen within a second.",
    takes="15 min",
    run=run,
    draw=draw,
    reps=3,
    parts=PARTS,
)
