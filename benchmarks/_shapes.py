"""Ready-made queries: Haren's synthetic chains and the four RIoTBench topologies that EdgeWise runs.

Shapes, selectivities and parallelism are those of the papers and of the public benchmark projects. Costs are
**modelled, not measured**: what is known about them is relative, and the absolute level is a parameter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from headgate.core import ScenarioError
from headgate.sim import (
    ArrivalPattern,
    BatchArrivals,
    BurstyArrivals,
    ConstantArrivals,
    OperatorModel,
    QueryModel,
    chain,
)

# --- Haren, section 7 -------------------------------------------------------------------------------------------

#: Haren's importance classes (section 7.4), with the numbers that its code gives them
HIGH, LOW = 3, 1
#: Operators between ingress and egress in all of Haren's experiments
CHAIN_LENGTH = 12


def haren_chain(
    name: str,
    chance: Random,
    base_cost: float,
    arrivals: ArrivalPattern,
    *,
    length: int = CHAIN_LENGTH,
    importance_class: int = 0,
) -> QueryModel:
    """One synthetic query (section 7.1): ingress, ``length`` operators, egress.

    The query passes on a share s of its tuples, uniform in [0.01, 1], and each operator exp(log s / L) ± 10 %. It has a
    cost class z in 0..4, and each operator costs ``base_cost`` 2^z ± 10 %. Ingress and egress pass on everything and
    cost ``base_cost``; the paper does not say.
    """
    passed_on = math.exp(math.log(chance.uniform(0.01, 1.0)) / length)
    cost = base_cost * 2 ** chance.randint(0, 4)
    steps = [
        OperatorModel(f"op{number:02}", cost * chance.uniform(0.9, 1.1), passed_on * chance.uniform(0.9, 1.1))
        for number in range(1, length + 1)
    ]
    ends = OperatorModel("ingress", base_cost), OperatorModel("egress", base_cost)
    return chain(name, (ends[0], *steps, ends[1]), arrivals, importance_class=importance_class)


def haren_queries(
    count: int, base_cost: float, rate: float, seed: int = 0, *, length: int = CHAIN_LENGTH, batch: int = 1
) -> tuple[QueryModel, ...]:
    """``count`` synthetic queries of one class, each fed at a constant ``rate`` (section 7.3)."""
    return tuple(
        haren_chain(
            f"q{number:02}", Random(f"{seed} shape {number}"), base_cost, ConstantArrivals(rate, batch), length=length
        )
        for number in range(1, count + 1)
    )


def haren_multi_class(
    *, bursty: bool, seed: int = 0, workers: int = 4, utilisation: float = 0.6, batch: int = 1
) -> tuple[QueryModel, ...]:
    """The three HIGH and ten LOW queries of section 7.4.

    Steady (scenario 1): HIGH get 500 and LOW 1000 tuples a second each. Bursty (scenario 2): HIGH get 5000 a second
    for 5 seconds, then nothing for 15. The paper's base cost is in loops of its machine; here costs are such that the
    *steady* scenario keeps ``utilisation`` of the workers busy, and a tuple makes as much work in either class, which
    with three draws would be a matter of luck. The bursty scenario has the same operators; above 0.77 a burst of HIGH
    is more than all workers together can do.
    """
    high = [_classed(f"high{n}", HIGH, ConstantArrivals(500.0, batch), seed) for n in range(1, 4)]
    low = [_classed(f"low{n:02}", LOW, ConstantArrivals(1000.0, batch), seed) for n in range(1, 11)]
    per_tuple = workers * utilisation / (3 * 500 + 10 * 1000)
    scaled = (*scaled_to(high, per_tuple * 3 * 500), *scaled_to(low, per_tuple * 10 * 1000))
    burst = BurstyArrivals(5000.0, on=5.0, off=15.0, batch=batch)
    return tuple(fed_by(query, burst) if bursty and query.importance_class == HIGH else query for query in scaled)


def _classed(name: str, importance_class: int, arrivals: ArrivalPattern, seed: int) -> QueryModel:
    return haren_chain(name, Random(f"{seed} shape {name}"), 1e-6, arrivals, importance_class=importance_class)


# --- RIoTBench, as run by EdgeWise ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Task:
    """A task of a RIoTBench topology; ``weight`` is its part of the work that one event makes in all."""

    name: str
    weight: float
    inputs: tuple[str, ...] = ()
    selectivity: float = 1.0
    workers: int = 1


#: The weights of ETL and PRED are those EdgeWise tried for its static policy, which gives turns in proportion to load.
ETL: tuple[_Task, ...] = (
    _Task("parse", 31, selectivity=6),
    _Task("range-filter", 15, ("parse",)),
    _Task("bloom-filter", 15, ("range-filter",)),
    _Task("interpolation", 25, ("bloom-filter",)),
    _Task("join", 17, ("interpolation",), selectivity=1 / 6),
    _Task("annotate", 9, ("join",)),
    _Task("azure-insert", 8, ("annotate",)),
    _Task("csv-to-senml", 19, ("annotate",)),
    _Task("publish", 14, ("csv-to-senml",), workers=2),
)

#: The moving average emits one in five; the error estimate emits for each prediction and for no average.
PRED: tuple[_Task, ...] = (
    _Task("parse", 30, workers=2),
    _Task("decision-tree", 17, ("parse",)),
    _Task("linear-regression", 21, ("parse",)),
    _Task("average", 14, ("parse",), selectivity=1 / 5),
    _Task("error-estimate", 14, ("average", "linear-regression"), selectivity=1 / 1.2),
    _Task("publish", 37, ("error-estimate", "decision-tree"), workers=3),
)

#: No weights are known. Parse, filter and publish cost per tuple about what they cost in ETL; the rest is a guess that
#: leaves no single-worker task more than a fourth of the work, as EdgeWise's tuned topology must have it.
STATS: tuple[_Task, ...] = (
    _Task("parse", 31, selectivity=5),
    _Task("bloom-filter", 12, ("parse",)),
    _Task("kalman", 20, ("bloom-filter",)),
    _Task("sliding-regression", 90, ("kalman",), selectivity=4.8 / 5),
    _Task("second-moment", 30, ("bloom-filter",)),
    _Task("distinct-count", 40, ("bloom-filter",)),
    _Task("publish", 207, ("sliding-regression", "second-moment", "distinct-count"), workers=3),
)

#: No weights are known: in proportion to the workers that EdgeWise's tuned topology gives each task, publishing light.
TRAIN: tuple[_Task, ...] = (
    _Task("read", 30, workers=2),
    _Task("regression-train", 30, ("read",), workers=2),
    _Task("annotate-class", 12, ("read",)),
    _Task("tree-train", 35, ("annotate-class",), workers=2),
    _Task("publish", 5, ("regression-train", "tree-train")),
)

RIOT: Mapping[str, tuple[_Task, ...]] = {"etl": ETL, "pred": PRED, "stats": STATS, "train": TRAIN}

#: Events per second at which four workers are saturated, if every worker is always busy: about the highest rate that
#: EdgeWise tried on each topology.
SATURATION: Mapping[str, float] = {"etl": 1500.0, "pred": 2400.0, "stats": 500.0, "train": 140.0}


def riot(
    topology: str,
    rate: float,
    *,
    arrivals: ArrivalPattern | None = None,
    work_per_event: float | None = None,
    capacity: int = 10_000,
    name: str | None = None,
) -> QueryModel:
    """A RIoTBench topology fed with ``rate`` events a second, a tenth of them every 100 ms, as EdgeWise's spout does.

    ``work_per_event`` is the work that one event makes in all tasks together; left out, four workers are saturated at
    ``SATURATION``. It is shared out by the tasks' weights, so a task that sees six tuples per event costs a sixth of
    its share per tuple. Parallel instances of a task share one queue here; in Storm each has its own.
    """
    if topology not in RIOT:
        raise ScenarioError(f"there is no RIoTBench topology {topology!r}; known: {', '.join(RIOT)}")
    tasks = RIOT[topology]
    work = 4.0 / SATURATION[topology] if work_per_event is None else work_per_event
    per_weight = work / sum(task.weight for task in tasks)
    tuples = _tuples_per_event(tasks)
    feed = arrivals or BatchArrivals(rate)
    operators = (
        OperatorModel(
            task.name,
            cost=per_weight * task.weight / tuples[task.name],
            selectivity=task.selectivity,
            inputs=task.inputs,
            arrivals=None if task.inputs else feed,
            capacity=capacity,
            max_workers=task.workers,
        )
        for task in tasks
    )
    return QueryModel(name or topology, tuple(operators))


def _tuples_per_event(tasks: Iterable[_Task]) -> dict[str, float]:
    """How many tuples reach each task for one event; tasks come after those that feed them."""
    tuples: dict[str, float] = {}
    put_out: dict[str, float] = {}
    for task in tasks:
        tuples[task.name] = sum(put_out[source] for source in task.inputs) if task.inputs else 1.0
        put_out[task.name] = tuples[task.name] * task.selectivity
    return tuples


# --- changing shapes --------------------------------------------------------------------------------------------


def scaled_to(queries: Sequence[QueryModel], load: float) -> tuple[QueryModel, ...]:
    """The same queries with all costs multiplied so that together they keep ``load`` workers busy."""
    factor = load / sum(query.load() for query in queries)
    return tuple(
        replace(query, operators=tuple(replace(op, cost=op.cost * factor) for op in query.operators))
        for query in queries
    )


def fed_by(query: QueryModel, arrivals: ArrivalPattern) -> QueryModel:
    """The same query with other arrivals at its sources."""
    operators = (op if op.inputs else replace(op, arrivals=arrivals) for op in query.operators)
    return replace(query, operators=tuple(operators))
