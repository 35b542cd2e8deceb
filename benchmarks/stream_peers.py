"""The same two chains on Headgate's stream engine and on other stream processors, on two cores.

- *clicks*: 2 million clicks, those of known users and items, counted by item in tumbling windows of an hour.
- *q1*: 1 million lines of tickets, pairs of items that are bought together, the best 100 of each hour: derived from
  TPCx-BB Q1, unofficial, not comparable.

Everybody reads the same rows from files (Parquet, or text where a peer cannot read it), uses two workers, and must give
the rows that NumPy computes. Rows per second count from when processing starts to when the last result is out; the
start of a virtual machine and a first run are left out wherever there is one. `benchmarks/peers` says for each peer
how, with which settings, and where its chain differs from Headgate's. Slow peers get only the beginning of the stream.
A peer that cannot be installed or run is a row that says why.

The first run makes virtual environments for the peers, which takes minutes. Headgate runs between the peers, in this
process; "Headgate, text" reads text, and "Headgate, memory" finds its rows in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from benchmarks.harness.style import looks
from benchmarks.peers.contest import PEERS, run_peer
from benchmarks.peers.inputs import Inputs, write_inputs
from benchmarks.peers.own import run_once
from benchmarks.peers.protocol import CLICKS, Q1
from workloads.tpcxbb.dims import Dims

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TARGET = 10.0
ROWS = {CLICKS: 2_000_000, Q1: 1_000_000}
SMOKE_ROWS = 20_000
#: {contender: what it reads}
OWN = {"Headgate": "parquet", "Headgate, text": "csv", "Headgate, memory": "memory"}
SPEED = "rows per second"


def run(context: Context) -> Results:
    with TemporaryDirectory(prefix="stream_peers-") as folder:
        rows = [row for chain in ROWS for row in _chain(chain, context, Path(folder) / chain)]
    claims = [_all_right(rows)]
    if not context.smoke:
        claims = [*(_times_the_best(chain, rows) for chain in ROWS), *claims]
    return Results(rows, claims)


def _chain(chain: str, context: Context, folder: Path) -> Iterator[Row]:
    """Headgate before, between and after the peers."""
    rows = SMOKE_ROWS if context.smoke else ROWS[chain]
    whole = write_inputs(chain, rows, context.seed, folder / "whole")
    dims = Dims(context.seed)
    for read in OWN.values():
        run_once(whole, read, dims)
    yield from _own(whole, dims, context.reps, 0)
    if context.smoke:
        return
    for number, (name, peer) in enumerate(PEERS.items(), start=1):
        inputs = whole
        fewer = peer.rows[chain]
        if fewer is not None:
            inputs = write_inputs(chain, fewer, context.seed, folder / f"for-{peer.module}")
        yield from run_peer(name, inputs, context.reps, folder / f"of-{peer.module}")
        yield from _own(whole, dims, context.reps, number * context.reps)


def _own(inputs: Inputs, dims: Dims, reps: int, first: int) -> Iterator[Row]:
    for repetition in range(first, first + reps):
        for contender, read in OWN.items():
            seconds, result = run_once(inputs, read, dims)
            yield {
                "chain": inputs.chain,
                "contender": contender,
                "rows": inputs.rows,
                "repetition": repetition,
                "seconds": seconds,
                SPEED: inputs.rows / seconds,
                "read": read,
                "right": bool(np.array_equal(result, inputs.right)),
                "note": "from handing over the query to its end, after a first run",
            }


def _speeds(rows: Sequence[Row], chain: str) -> dict[str, float]:
    """The median of each contender that ran and was right."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["chain"] == chain and row.get("right"):
            found.setdefault(row["contender"], []).append(row[SPEED])
    return {contender: median(speeds) for contender, speeds in found.items()}


def _times_the_best(chain: str, rows: Sequence[Row]) -> Claim:
    speeds = _speeds(rows, chain)
    peers = {name: speed for name, speed in speeds.items() if name in PEERS}
    absent = [f"{row['contender']}: {row['note']}" for row in rows if row["chain"] == chain and SPEED not in row]
    listed = ", ".join(f"{name} {speed:,.0f}" for name, speed in speeds.items())
    missing = "".join(f"; not measured: {each}" for each in absent)
    own = speeds.get("Headgate")
    best = max(peers, key=peers.__getitem__, default=None)
    ratio = own / peers[best] if own is not None and best is not None else None
    compared = f"{ratio:.1f} times {best}" if ratio is not None else "nothing to compare with"
    return Claim(
        claim=f"{chain}: Headgate processes at least {TARGET:.0f} times as many rows per second as the best peer",
        paper=f"target: {TARGET:.0f} times",
        measured=f"{compared} (rows/s: {listed}){missing}",
        holds=None if ratio is None else ratio >= TARGET,
    )


def _all_right(rows: Sequence[Row]) -> Claim:
    ran = {(row["chain"], row["contender"]): True for row in rows if SPEED in row}
    for row in rows:
        if SPEED in row and not row["right"]:
            ran[row["chain"], row["contender"]] = False
    wrong = [f"{contender} on {chain}" for (chain, contender), right in ran.items() if not right]
    return Claim(
        claim="every contender that ran gives the same rows as NumPy",
        paper="target: all",
        measured=f"{len(ran) - len(wrong)} of {len(ran)}" + (f"; wrong: {', '.join(wrong)}" if wrong else ""),
        holds=not wrong,
    )


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    """A panel for each chain: rows per second of each contender, on a logarithmic scale."""
    figure.set_size_inches(9.6, 4.0)
    for axes, chain in zip(figure.subplots(1, len(ROWS), squeeze=False).flat, ROWS, strict=True):
        speeds = dict(sorted(_speeds(rows, chain).items(), key=lambda each: each[1]))
        colours = looks(speeds)
        axes.barh(list(speeds), list(speeds.values()), color=[colours[name].colour for name in speeds])
        axes.set_xscale("log")
        axes.set_xlabel("rows per second")
        axes.set_title(chain)


BENCHMARK = Benchmark(
    name="stream_peers",
    figure="speed",
    claim="Headgate's stream engine processes at least 10 times as many rows per second as other stream processors.",
    takes="6 min",
    run=run,
    draw=draw,
    pivot=Pivot("contender", "chain", SPEED),
    reps=2,
)
