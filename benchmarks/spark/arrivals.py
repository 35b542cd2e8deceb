"""Lands the files of the workload on time: `python -m benchmarks.spark.arrivals --folder F --speed S --seconds N`.

Each stream has a folder below F. A file tells of the time since the previous file of its stream, its last row of the
moment at which it is due; it is written under a name that Spark ignores and then renamed, so readers see whole files
only. At speed S files come S times as often and are S times smaller: the rows per second stay the same.

Names, numbers of rows and all columns but the time follow from the seed; the times follow from `--start`. What landed
when is appended to `F/manifest.jsonl`. The machine under test is the same, so this must cost next to nothing: the text
of rows is made before the start, and only times are filled in.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.spark.workload import ROWS_PER_SECOND, STREAMS, Stream

MANIFEST = "manifest.jsonl"
KEYS, DEVICES = 20, 200
#: Different rows of one stream; after so many the same come again, with other times.
POOL = 5_000


@dataclass(frozen=True)
class Arrival:
    """A file to come. `due` and `since` are seconds since the epoch: it tells of the time after `since` up to `due`."""

    stream: str
    number: int
    due: float
    since: float
    rows: int

    @property
    def name(self) -> str:
        return f"{self.stream}-{self.number:06d}.json"


@dataclass(frozen=True)
class Landing:
    """A line of the manifest: a file, when it could be read, and the event time of its last row, in epoch seconds."""

    stream: str
    name: str
    landed: float
    last: float
    rows: int


def schedule(stream: Stream, speed: float, start: float, rows_per_second: float) -> Iterator[Arrival]:
    """All files of a stream from `start` on, without end."""
    period = stream.period / speed
    rows = max(1, round(rows_per_second * period))
    number = 0
    while True:
        due = start + (number + stream.phase) * period
        yield Arrival(stream.name, number, due, due - period, rows)
        number += 1


def row_pool(stream: Stream, seed: int) -> list[str]:
    """The text of rows from the end of their time on. No two values are equal, so every maximum is one row's."""
    chance = np.random.default_rng([seed, *stream.name.encode()])
    keys, devices = chance.integers(KEYS, size=POOL), chance.integers(DEVICES, size=POOL)
    hundredths = np.round(chance.normal(50.0, 20.0, POOL), 2)
    values = hundredths + np.arange(POOL) * 1e-7
    status = chance.integers(10, size=POOL)
    return [
        f'Z","key":"k{key:02d}","value":{value:.7f},"device":"d{device:03d}","status":{state}}}\n'
        for key, value, device, state in zip(keys, values, devices, status, strict=True)
    ]


def file_text(arrival: Arrival, pool: Sequence[str]) -> str:
    """The JSON lines of one file; its times are evenly spread, the last is when the file is due."""
    last, since = round(arrival.due * 1e6), round(arrival.since * 1e6)
    micros = last - np.arange(arrival.rows)[::-1] * (last - since) // arrival.rows
    times = np.datetime_as_string(micros.astype("datetime64[us]"), unit="us").tolist()
    first = arrival.number * arrival.rows
    return "".join(f'{{"ts":"{moment}{pool[(first + i) % len(pool)]}' for i, moment in enumerate(times))


def land(folder: Path, arrival: Arrival, text: str) -> Landing:
    """Writes one file so that it appears complete or not at all."""
    hidden, path = folder / arrival.stream / f"_{arrival.name}", folder / arrival.stream / arrival.name
    hidden.write_text(text, encoding="ascii")
    hidden.rename(path)
    return Landing(arrival.stream, arrival.name, time.time(), round(arrival.due, 6), arrival.rows)


def run(folder: Path, arrivals: Iterable[Arrival], until: float, seed: int) -> int:
    """Lands `arrivals`, which are in order of time, up to the moment `until`; gives the number of files."""
    pools = {stream.name: row_pool(stream, seed) for stream in STREAMS}
    for stream in STREAMS:
        (folder / stream.name).mkdir(parents=True, exist_ok=True)
    count = 0
    with (folder / MANIFEST).open("a", encoding="utf-8") as manifest:
        for arrival in arrivals:
            if arrival.due > until:
                break
            # The text is ready before it is due: only the file itself is written at that moment.
            text = file_text(arrival, pools[arrival.stream])
            time.sleep(max(0.0, arrival.due - time.time()))
            manifest.write(json.dumps(asdict(land(folder, arrival, text))) + "\n")
            manifest.flush()
            count += 1
    return count


def read_manifest(folder: Path) -> list[Landing]:
    """What has landed below `folder`, in order of time."""
    lines = (folder / MANIFEST).read_text("utf-8").splitlines()
    return [Landing(**json.loads(line)) for line in lines]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Land the files of the workload on time.")
    parser.add_argument("--folder", type=Path, required=True, help="where; each stream gets a folder below")
    parser.add_argument("--speed", type=float, default=1.0, help="how many times as often files come (default: 1)")
    parser.add_argument("--seconds", type=float, required=True, help="for how long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=float, default=ROWS_PER_SECOND, help="rows per second and stream")
    parser.add_argument("--start", type=float, help="epoch seconds of the start (default: now)")
    options = parser.parse_args(arguments)
    start = time.time() if options.start is None else options.start
    plans = [schedule(stream, options.speed, start, options.rows) for stream in STREAMS]
    arrivals = heapq.merge(*plans, key=lambda arrival: arrival.due)
    count = run(options.folder, arrivals, start + options.seconds, options.seed)
    share = sum(os.times()[:2]) / max(time.time() - start, 1e-9)
    print(f"landed {count} files, used {100 * share:.1f} % of a core", flush=True)


if __name__ == "__main__":
    main()
