"""The process that answers a what-if: a question on standard input, its answer on standard output, both JSON."""

from __future__ import annotations

import json
import os
import sys
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from headgate.core import CostModel, DeclarationError, HeadgateError, Placement, Policy, placement_from, policy_from
from headgate.core.trace import FreshnessHistory
from headgate.monitor.record import Json
from headgate.monitor.what_if import Question
from headgate.sim import replay_of
from headgate.sim.tables.simulation import TableResult
from headgate.sim.trace_replay import TraceReplay
from headgate.warehouse.run.control_commands import finite
from headgate.warehouse.run.trace import read_trace

#: how many points a curve has
POINTS = 200
#: how much this process stands back behind others
NICENESS = 10


@dataclass(slots=True)
class Stairs:
    """Up to which event time each table was complete, from which moments on; in seconds since the beginning."""

    steps: dict[str, tuple[list[float], list[float]]] = field(default_factory=dict)

    def add(self, name: str, now: float, fresh: float) -> None:
        moments, reached = self.steps.setdefault(name, ([], []))
        moments.append(now)
        reached.append(fresh)

    def staleness(self, weights: Mapping[str, float], moment: float) -> float | None:
        """The mean at a moment, weighted, of the tables that had rows."""
        total = known = 0.0
        for name, weight in weights.items():
            moments, reached = self.steps.get(name, ([], []))
            place = bisect_right(moments, moment) - 1
            if place >= 0:
                total += weight * max(0.0, moment - reached[place])
                known += weight
        return total / known if known else None


def answer(trace: Path, question: Question) -> Json:
    """The run as it was measured, as the simulator makes it under its own settings, and under other ones.

    The last two are compared: what the simulator leaves out is left out of both. All curves are of the same tables and
    weighted by the same priorities, those asked for.
    """
    replay = replay_of(read_trace(trace), 0.0, CostModel)
    other = replay.changed(question.priorities, question.without)
    # The policy of the run is named by a file, and that of a question by anybody: neither imports code.
    policy = policy_from(replay.policies[0], imports=False)
    placement = placement_from(replay.placement, imports=False)
    chosen = policy if question.policy is None else policy_from(question.policy, imports=False)
    placed = placement if question.placement is None else placement_from(question.placement, imports=False)
    pairs = zip(other.scenario.tables, other.recorded, strict=True)
    weights = {table.name: table.priority for table, recorded in pairs if recorded.counts}
    before, first = _run(replay, policy, placement, None)
    after, second = _run(other, chosen, placed, question.tracks)
    measured = {table.name: table.mean_staleness for table in replay.measured().tables}
    old = {table.name: table for table in before.tables}
    new = {table.name: table for table in after.tables}
    return {
        "began": replay.begin,
        "seconds": replay.scenario.horizon,
        "before_settings": _settings(before),
        "after_settings": _settings(after),
        "measured": _curve(_measured(replay), weights, replay),
        "before": _curve(first, weights, replay),
        "after": _curve(second, weights, replay),
        "left_out": sorted(old.keys() - new.keys()),
        "tables": [
            {
                "name": name,
                "priority": new[name].priority,
                "measured": measured.get(name),
                "before": old[name].mean_staleness,
                "after": new[name].mean_staleness,
                "difference": new[name].mean_staleness - old[name].mean_staleness,
                "updates_before": old[name].updates,
                "updates_after": new[name].updates,
            }
            for name in new
            if name in old
        ],
    }


def _settings(result: TableResult) -> Json:
    return {"policy": result.policy, "placement": result.placement, "tracks": len(result.worker_utilisation)}


def _run(replay: TraceReplay, policy: Policy, placement: Placement, tracks: int | None) -> tuple[TableResult, Stairs]:
    stairs = Stairs()
    for table, recorded in zip(replay.scenario.tables, replay.recorded, strict=True):
        if not recorded.empty:
            stairs.add(table.name, 0.0, recorded.fresh)
    return replay.run(policy, placement, tracks, on_update=stairs.add), stairs


def _measured(replay: TraceReplay) -> Stairs:
    stairs = Stairs()
    for table in replay.trace.header.tables:
        history = FreshnessHistory.of(replay.trace, table)
        for moment, reached in zip(history.moments, history.reached, strict=True):
            stairs.add(table.name, moment - replay.begin, reached - replay.begin)
    return stairs


def _curve(stairs: Stairs, weights: Mapping[str, float], replay: TraceReplay) -> list[tuple[float, float | None]]:
    step = replay.scenario.horizon / POINTS
    moments = [step * number for number in range(POINTS + 1)]
    return [(replay.begin + moment, stairs.staleness(weights, moment)) for moment in moments]


def main() -> None:
    with suppress(OSError):
        os.nice(NICENESS)
    request = json.load(sys.stdin)
    told = request["question"]
    question = Question(**{**told, "without": tuple(told["without"])})
    try:
        content: Json = {"answer": finite(answer(Path(request["trace"]), question))}
    except HeadgateError as error:
        content = {"error": str(error), "asked_wrongly": isinstance(error, DeclarationError)}
    json.dump(content, sys.stdout)


if __name__ == "__main__":
    main()
