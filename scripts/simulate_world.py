"""Play thousands of simulated worlds, and make what goes wrong as small as possible.

    python -m scripts.simulate_world FIRST_SEED SEEDS [--faults "crash, slow"] [--real-log] [--keep-going]

With every kind of fault, or with --faults those named. --real-log plays with the real Delta library, which takes three
times as long. It ends at the first world that fails, unless told to keep going, and prints its seed, what is wrong, and
the smallest schedule that fails so.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.world.schedule import FAULTS, random_schedule
from tests.world.shrink import played, shrunk
from tests.world.world import Outcome

#: worlds that one process plays before it says how they went
PORTION = 20


def outcomes(faults: tuple[str, ...], real_log: bool, seeds: range) -> list[tuple[int, Outcome]]:
    return [(seed, played(random_schedule(seed, faults), real_log)) for seed in seeds]


def report(seed: int, faults: tuple[str, ...], real_log: bool, outcome: Outcome) -> None:
    schedule = random_schedule(seed, faults)
    print(f"seed {seed} fails:", *outcome.problems[:5], schedule, sep="\n    ", flush=True)
    small, wrong = shrunk(schedule, outcome, real_log)
    print("--- made smaller ---", *wrong.problems[:5], small, sep="\n    ", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Play simulated worlds.")
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--faults", default="", help="kinds of faults, separated by commas")
    parser.add_argument("--real-log", action="store_true", help="with the real Delta library")
    parser.add_argument("--keep-going", action="store_true", help="after a world that fails")
    options = parser.parse_args()
    named = tuple(name.strip() for name in options.faults.split(",") if name.strip())
    if unknown := [name for name in named if name not in FAULTS]:
        parser.error(f"there is no fault {unknown[0]!r}; there are: {', '.join(FAULTS)}")
    faults = named or tuple(FAULTS)
    end = options.first + options.count
    portions = [range(first, min(first + PORTION, end)) for first in range(options.first, end, PORTION)]
    started, worlds, failed = time.monotonic(), 0, 0
    happened: Counter[str] = Counter()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for part in pool.map(partial(outcomes, faults, options.real_log), portions):
            for seed, outcome in part:
                worlds, failed = worlds + 1, failed + bool(outcome.problems)
                happened += outcome.happened
                happened["step"] += outcome.steps
                happened["update"] += outcome.updates
                if outcome.problems:
                    report(seed, faults, options.real_log, outcome)
            if failed and not options.keep_going:
                pool.shutdown(cancel_futures=True)
                break
    minutes = (time.monotonic() - started) / 60
    print(f"{worlds} worlds, {failed} of them wrong, in {minutes:.1f} min: {worlds / minutes:.0f} a minute")
    print("what happened:", ", ".join(f"{what} {count}" for what, count in happened.most_common()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
