"""Operators in virtual time: queries as graphs of operators with queues, on a few workers, under any loop.

Write down an ``OperatorScenario`` and run it with ``simulate_operators``.
"""

from headgate.sim.operators.arrivals import Batches, Bursty, Constant, Poisson, Replay
from headgate.sim.operators.engine import simulate_operators
from headgate.sim.operators.loops import DispatchLoop, RoundsLoop, ThreadsLoop
from headgate.sim.operators.results import OperatorResult
from headgate.sim.operators.spec import (
    AddQuery,
    Operator,
    OperatorScenario,
    Query,
    RemoveQuery,
    ReplacePlacement,
    ReplacePolicy,
    chain,
)

__all__ = [
    "AddQuery",
    "Batches",
    "Bursty",
    "Constant",
    "DispatchLoop",
    "Operator",
    "OperatorResult",
    "OperatorScenario",
    "Poisson",
    "Query",
    "RemoveQuery",
    "ReplacePlacement",
    "ReplacePolicy",
    "Replay",
    "RoundsLoop",
    "ThreadsLoop",
    "chain",
    "simulate_operators",
]
