"""Runs peers: makes the environment, starts the process, reads its times and compares its rows with what is right."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness import Row
from benchmarks.peers.environment import NotInstalledError, add_parquet_to_flink, python_with
from benchmarks.peers.inputs import Inputs, read_result
from benchmarks.peers.protocol import CLICKS, Q1, WORKERS, read_answer

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / "benchmarks" / "results" / "environments"
#: seconds after which a peer is given up
PATIENCE = 240
FLINK = "2.3.0"


@dataclass(frozen=True)
class Peer:
    """A module of this package. `rows` is the beginning of each stream that it gets, so that it ends in reasonable
    time; None for all. Without `requirements` it runs in the environment of this process."""

    module: str
    requirements: tuple[str, ...] = ()
    rows: Mapping[str, int | None] = field(default_factory=lambda: {CLICKS: None, Q1: None})
    finish: Callable[[Path], None] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    def python(self) -> Path:
        if not self.requirements:
            return Path(sys.executable)
        return python_with(ENVIRONMENTS / self.module, self.requirements, self.finish)


PEERS: Mapping[str, Peer] = {
    "Bytewax": Peer("bytewax", ("bytewax==0.21.1", "pyarrow==26.0.1"), {CLICKS: 200_000, Q1: 30_000}),
    "Pathway": Peer(
        "pathway", ("pathway==0.33.0",), {CLICKS: None, Q1: 200_000}, variables={"PATHWAY_THREADS": str(WORKERS)}
    ),
    "Flink SQL": Peer("flink", (f"apache-flink=={FLINK}",), finish=partial(add_parquet_to_flink, version=FLINK)),
    "Spark": Peer("spark"),
}


def run_peer(name: str, inputs: Inputs, reps: int, out: Path) -> list[Row]:
    """A row for each timed run; one that says why if there is none."""
    about: Row = {"chain": inputs.chain, "contender": name, "rows": inputs.rows}
    try:
        _start(PEERS[name], inputs, reps, out)
        answer = read_answer(out)
    except (NotInstalledError, _NotRunError) as error:
        return [{**about, "note": str(error)}]
    right = bool(np.array_equal(read_result(out / "rows"), inputs.right))
    return [
        {
            **about,
            "repetition": repetition,
            "seconds": seconds,
            "rows per second": inputs.rows / seconds,
            "read": answer.read,
            "right": right,
            "note": answer.timed,
        }
        for repetition, seconds in enumerate(answer.seconds)
    ]


class _NotRunError(Exception):
    """Says why a peer did not do its work."""


def _start(peer: Peer, inputs: Inputs, reps: int, out: Path) -> None:
    out.mkdir(parents=True)
    python = peer.python()
    module = f"benchmarks.peers.{peer.module}"
    command = [str(python), "-m", module, inputs.chain, str(inputs.folder), str(out), str(reps)]
    log = out / "log.txt"
    with log.open("w", encoding="utf-8") as file:
        try:
            ended = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, **peer.variables},
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=PATIENCE,
            )
        except subprocess.TimeoutExpired as error:
            raise _NotRunError(f"did not end within {PATIENCE} s") from error
    if ended.returncode != 0:
        said = log.read_text(encoding="utf-8", errors="replace").strip()
        print(said[-3000:], file=sys.stderr)
        raise _NotRunError(
            f"ended with code {ended.returncode}: {said.splitlines()[-1] if said else 'it said nothing'}"
        )
