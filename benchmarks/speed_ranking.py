"""How long one ranking of all nodes takes, for every policy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from headgate.core import FEATURES, POLICIES, FeatureMatrix, Graph, features_named, policy_from, rank

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = (100, 1_000, 10_000)
CHAIN = 12
LIMITS_MS = {1_000: 0.3, 10_000: 4.0}
LOOKAHEAD = "max-benefit-lookahead"
LOOKAHEAD_LIMIT_MS = 5.0


def busy_matrix(nodes: int, seed: int) -> FeatureMatrix:
    """Chains of twelve operators (and a shorter one for the rest), every feature set to something plausible."""
    rng = np.random.default_rng(seed)
    names = [f"n{i}" for i in range(nodes)]
    edges = [(names[i - 1], names[i]) for i in range(1, nodes) if i % CHAIN]
    matrix = FeatureMatrix(Graph(names, edges), features_named(FEATURES))
    for name in matrix.features:
        matrix.fill(name, rng.uniform(0.1, 2.0, nodes))
    matrix.fill("class", rng.integers(1, 4, nodes).astype(float))
    matrix.fill("ready", (rng.random(nodes) < 0.7).astype(float))
    matrix.fill("execution_time", rng.uniform(1.0, 3.0, nodes))
    return matrix


def point(policy: str, nodes: int, seed: int, repeats: int) -> Row:
    matrix = busy_matrix(nodes, seed)
    chosen = policy_from(policy)
    view = matrix.view(now=3.0, turn=7, seed=seed)
    rank(chosen, view)  # the graph works out its levels once
    times = []
    # Processor time and its median: neighbours on the machine must not decide.
    for _ in range(repeats):
        start = time.process_time()
        rank(chosen, view)
        times.append(time.process_time() - start)
    return {"policy": policy, "nodes": nodes, "milliseconds": 1e3 * float(np.median(times))}


def run(context: Context) -> Results:
    sizes = SIZES[:2] if context.smoke else SIZES
    repeats = 5 if context.smoke else 101
    arguments = [
        {"policy": policy, "nodes": nodes, "seed": context.seed, "repeats": repeats}
        for policy in POLICIES
        for nodes in sizes
    ]
    rows = context.points(point, arguments, timed=True)
    return Results(
        rows,
        [_claim(rows, nodes, limit, context.smoke) for nodes, limit in LIMITS_MS.items() if nodes in sizes]
        + [_lookahead(rows, context.smoke)],
    )


def _claim(rows: Sequence[Row], nodes: int, limit: float, smoke: bool) -> Claim:
    slowest = max(
        (r for r in rows if r["nodes"] == nodes and r["policy"] != LOOKAHEAD), key=lambda r: r["milliseconds"]
    )
    return Claim(
        claim=f"every policy but Lookahead ranks {nodes:,} nodes in at most {limit:g} ms",
        paper="a target of this project",
        measured=f"slowest: {slowest['policy']} {slowest['milliseconds']:.3f} ms",
        holds=None if smoke else slowest["milliseconds"] <= limit,
    )


def _lookahead(rows: Sequence[Row], smoke: bool) -> Claim:
    slowest = max(r["milliseconds"] for r in rows if r["policy"] == LOOKAHEAD)
    return Claim(
        claim=f"Lookahead is bounded: never more than {LOOKAHEAD_LIMIT_MS:g} ms",
        paper="a target of this project",
        measured=f"{slowest:.3f} ms at the largest size measured",
        holds=None if smoke else slowest <= LOOKAHEAD_LIMIT_MS,
    )


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    largest = max(row["nodes"] for row in rows)
    mine = sorted((r for r in rows if r["nodes"] == largest), key=lambda r: r["milliseconds"])
    axes.barh([r["policy"] for r in mine], [r["milliseconds"] for r in mine])
    axes.set_xlabel(f"milliseconds for one ranking of {largest:,} nodes")


BENCHMARK = Benchmark(
    name="speed_ranking",
    figure="speed",
    claim="One ranking takes at most 0.3 ms for 1,000 nodes and 4 ms for 10,000, for every policy.",
    takes="20 s",
    run=run,
    draw=draw,
    pivot=Pivot("policy", "nodes", "milliseconds"),
    reps=1,
)
