"""Compare thousands of random tables with their queries, and make what is found as small as possible.

    python -m scripts.judge_queries FIRST_SEED SEEDS [TABLES_OF_EACH]

It prints a line for each seed. A table that differs is played again with only what it reads, with fewer steps, files
and rows, as long as it still differs.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.warehouse.session import open_session
from tests.warehouse.random_queries import Query, random_queries
from tests.warehouse.random_steps import Step, random_steps
from tests.warehouse.random_trial import Trial, interpreted, with_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES, STEPS = 40, 5
#: a difference is tried to be made smaller for so long, in seconds
PATIENCE = 240.0


def played(seed: int, queries: list[Query], steps: list[Step], spark: SparkSession) -> Trial:
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(seed, queries, steps, Path(folder), interpreted(spark))
        trial.play()
    return trial


def smaller(steps: list[Step]) -> Iterator[list[Step]]:
    """The steps with something left out: a step, what happens in it, a file, half of a file's rows, a row."""
    for i in reversed(range(1, len(steps))):
        yield [*steps[:i], *steps[i + 1 :]]
    for i, step in enumerate(steps):
        quiet = Step(step.number, step.what, (*step.files, *step.later))
        if quiet != step:
            yield [*steps[:i], quiet, *steps[i + 1 :]]
        for j, file in enumerate(step.files):
            others = step.files[:j], step.files[j + 1 :]
            yield [*steps[:i], replace(step, files=(*others[0], *others[1])), *steps[i + 1 :]]
            cuts = [file.rows[: len(file.rows) // 2], file.rows[len(file.rows) // 2 :]]
            cuts += [(*file.rows[:k], *file.rows[k + 1 :]) for k in range(len(file.rows))]
            for rows in cuts:
                if 0 < len(rows) < len(file.rows):
                    files = (*others[0], replace(file, rows=rows), *others[1])
                    yield [*steps[:i], replace(step, files=files), *steps[i + 1 :]]


def shrunk(trial: Trial, name: str, spark: SparkSession) -> Trial:
    """The smallest trial that was found in which the table differs."""
    best = played(trial.seed, with_sources(trial.queries, [name]), trial.steps, spark)
    end = time.monotonic() + PATIENCE
    found = name in best.wrong
    while found and time.monotonic() < end:
        found = False
        for steps in smaller(best.steps):
            if time.monotonic() > end:
                break
            tried = played(best.seed, best.queries, steps, spark)
            if name in tried.wrong:
                best, found = tried, True
                break
    return best if name in best.wrong else trial


def main(first: int, count: int, tables: int = TABLES) -> None:
    spark = open_session("judge", master="local[2]")
    pairs = compared = wrong = 0
    for seed in range(first, first + count):
        started = time.monotonic()
        trial = played(seed, random_queries(seed, tables), random_steps(seed, STEPS), spark)
        pairs, compared, wrong = pairs + tables, compared + trial.compared, wrong + len(trial.wrong)
        took = time.monotonic() - started
        print(f"seed {seed}: {took:.0f} s; in all {pairs} tables, {compared} comparisons, {wrong} wrong", flush=True)
        if not trial.wrong:
            continue
        print(trial.report(), flush=True)
        small = shrunk(trial, next(iter(trial.wrong)), spark)
        print(f"--- made smaller ---\n{small.report()}", flush=True)
        for step in small.steps:
            for file in (*step.files, *step.later):
                print(f"step {step.number}, {file.folder}/{file.name}:", *file.rows, sep="\n    ", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
