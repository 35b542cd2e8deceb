"""The command `python -m benchmarks`: options in, one run per named benchmark, a report and an exit code out.

Standard output carries the report or, with --json, one line per benchmark with one JSON object; all else goes
to standard error. Exit codes: 0 ran (a claim that does not hold is a result, not a crash), 1 a benchmark
crashed or, with --strict, a checked claim does not hold, 2 wrong usage.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from difflib import get_close_matches
from pathlib import Path

from benchmarks.harness import output, report
from benchmarks.harness.catalogue import Catalogue, discover
from benchmarks.harness.context import Context
from benchmarks.harness.kept import Kept
from benchmarks.harness.model import Benchmark, Claim, Results

RESULTS = Path(__file__).parents[1] / "results"
#: A smoke run shows that the path works; repetitions would only take time.
SMOKE_REPS = 1


def main(argv: Sequence[str] | None = None, catalogue: Catalogue | None = None) -> int:
    """Runs the command on `catalogue` (by default the scripts of this package) and returns its exit code."""
    catalogue = discover() if catalogue is None else catalogue
    parser = _parser()
    options = parser.parse_args(argv)
    if options.list:
        report.print_list([load() for load in catalogue.values()])
        return 0
    if options.name is None:
        parser.error("name a benchmark, or all; --list shows them")
    if options.name != "all" and options.name not in catalogue:
        close = " or ".join(get_close_matches(options.name, [*catalogue, "all"]))
        hint = f"did you mean {close}? " if close else ""
        parser.error(f"unknown benchmark {options.name!r}; {hint}--list shows them all")
    names = list(catalogue) if options.name == "all" else [options.name]
    if options.part is not None:
        parts = () if options.name == "all" else catalogue[options.name]().parts
        if options.part not in parts:
            known = f"it has {', '.join(parts)}" if parts else "it has none"
            parser.error(f"{options.name} has no part {options.part!r}; {known}")
    if options.together is not None:
        if not options.smoke:
            parser.error("--together is for smoke runs: benchmarks that run at once disturb each other's times")
        return 0 if _together(names, options) else 1
    # A list, not a generator: after a failure the other benchmarks still run.
    return 0 if all([_succeeds(name, catalogue, options) for name in names]) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks", description="Repeats the papers' experiments.")
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help="a benchmark, or all")
    add("part", nargs="?", metavar="PART", help="one of the parts of the benchmark, if it has any (default: all)")
    add("--list", action="store_true", help="show name, figure, claim and time of every benchmark")
    add("--smoke", action="store_true", help="the whole path at tiny size; claims may stay unchecked")
    add("--json", action="store_true", help="print one line per benchmark with one JSON object")
    add("--strict", action="store_true", help="exit with 1 if a checked claim does not hold")
    add("--seed", type=_at_least(0), default=1, metavar="N", help="default: %(default)s")
    add("--reps", type=_at_least(1), metavar="N", help="repetitions (default: 1 in smoke, else the script's)")
    add("--times", type=_at_least(1), metavar="N", help="how often, for benchmarks that say so: faults, places, priced")
    add("--seconds", type=_at_least(1), metavar="N", help="how long, for benchmarks that say so: overload, priced")
    add("--go-on", action="store_true", help="take over the points that an earlier run of this code left in DIR")
    add("--jobs", type=_at_least(1), metavar="N", help="processes (default: 1 in smoke, else one per core)")
    add("--together", type=_at_least(1), metavar="N", help="smoke runs only: so many at a time, each in a process")
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="default: benchmarks/results/NAME, of a smoke run results/smoke/NAME; all uses DIR/NAME",
    )
    return parser


def _at_least(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} up, got {text!r}")
        return int(text)

    return parse


def _together(names: Sequence[str], options: argparse.Namespace) -> bool:
    """Runs each benchmark in a process of its own, `--together` at a time; whether all succeeded."""
    flags = [f"--{name}" for name in ("smoke", "json", "strict") if getattr(options, name)]
    flags += ["--go-on"] if options.go_on else []
    values = {name: getattr(options, name) for name in ("seed", "reps", "times", "seconds", "jobs")}
    flags += [f"--{name}={value}" for name, value in values.items() if value is not None]

    part = [] if options.part is None else [options.part]

    def run(name: str) -> bool:
        out = [] if options.out is None else [f"--out={options.out / name}"]
        command = [sys.executable, "-m", "benchmarks", name, *part, *flags, *out]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        # In one piece, so that the reports do not mix.
        print(done.stderr, end="", file=sys.stderr, flush=True)
        print(done.stdout, end="", flush=True)
        return done.returncode == 0

    with ThreadPoolExecutor(options.together) as pool:
        return all(list(pool.map(run, names)))


def _succeeds(name: str, catalogue: Catalogue, options: argparse.Namespace) -> bool:
    """Runs one benchmark. False if it crashed or, with --strict, a checked claim does not hold."""
    out = options.out or (RESULTS / "smoke" if options.smoke else RESULTS)
    folder = out if options.out and options.name != "all" else out / name
    try:
        results = _run(catalogue[name](), folder, options)
    except Exception:
        traceback.print_exc()
        print(f"{name} crashed: see above", file=sys.stderr)
        return False
    return not (options.strict and any(claim.holds is False for claim in results.claims))


def _run(benchmark: Benchmark, folder: Path, options: argparse.Namespace) -> Results:
    context = Context(
        smoke=options.smoke,
        seed=options.seed,
        jobs=options.jobs or (1 if options.smoke else os.cpu_count() or 1),
        reps=options.reps or (SMOKE_REPS if options.smoke else benchmark.reps),
        part=options.part,
        times=options.times,
        seconds=options.seconds,
        kept=(kept := Kept(folder / "points.jsonl", options.go_on)),
    )
    if len(kept):
        print(f"{benchmark.name}: {len(kept)} points are there already", file=sys.stderr)
    print(f"{benchmark.name}: {context}", file=sys.stderr)
    started = time.monotonic()
    # A script that prints must not spoil the report.
    with redirect_stdout(sys.stderr):
        results = benchmark.run(context)
        if context.smoke and not results.claims:
            unchecked = Claim(benchmark.claim, benchmark.figure, "too small to tell: a smoke run", holds=None)
            results = Results(results.rows, [unchecked])
        whole = output.as_object(benchmark, context, results)
        output.write(benchmark, results, whole, folder)
    if options.json:
        print(json.dumps(whole, allow_nan=False), flush=True)
    else:
        report.print_report(benchmark, results)
    took = f"after {time.monotonic() - started:.0f} s"
    print(f"{benchmark.name}: rows.csv, result.json and figure.png are in {folder}, {took}", file=sys.stderr)
    return results
