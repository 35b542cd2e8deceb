"""The process that answers a what-if: a question on standard input, its answer on standard output, both JSON."""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Literal

from headgate.apart import request_apart, trace_from_request
from headgate.core import CostModel, DeclarationError, HeadgateError, Policy, placement_from, policy_from
from headgate.core.autopilot import refuse_replay
from headgate.monitor.histories import TableHistory
from headgate.monitor.record import Json, weighted_staleness
from headgate.monitor.what_if import Question
from headgate.places.place import AnyPath
from headgate.sim import replay_of
from headgate.sim.tables.replay import ReplayChange
from headgate.sim.tables.simulation import TableResult
from headgate.sim.trace_replay import TraceReplay
from headgate.warehouse.run.control_commands import finite
from headgate.warehouse.run.trace import read_trace

#: how many points a curve has
POINTS = 200


@dataclass(slots=True)
class Stairs:
    """Up to which event time each table was complete, from which moments on; in seconds since the beginning."""

    steps: dict[str, tuple[list[float], list[float]]] = field(default_factory=dict)

    def add(self, name: str, now: float, fresh: float) -> None:
        moments, reached = self.steps.setdefault(name, ([], []))
        moments.append(now)
        reached.append(fresh)

    def staleness(self, name: str, moment: float) -> float | None:
        moments, reached = self.steps.get(name, ([], []))
        place = bisect_right(moments, moment) - 1
        return None if place < 0 else max(0.0, moment - reached[place])


def answer(trace: AnyPath, question: Question) -> Json:
    """The run as it was measured, as the simulator makes it under its own settings, and under other ones.

    A setting that is not asked for changes when it did in the run.

    The last two are compared: what the simulator leaves out is left out of both. All curves are of the same tables and
    weighted by the same priorities, those asked for. While the data of a table was of the past in the run, it is in
    none of them: its staleness is the age of the data, beside which all others vanish.
    """
    replay = replay_of(read_trace(trace), 0.0, CostModel)
    other = replay.changed(question.priorities, question.without)
    instead = ReplayChange(
        0.0,
        policy=None if question.policy is None else _asked_policy(question.policy),
        placement=None if question.placement is None else _placement(question.placement),
        tracks=question.tracks,
    )
    pairs = zip(other.scenario.tables, other.recorded, strict=True)
    weights = {table.name: table.priority for table, recorded in pairs if recorded.counts}
    histories = {table.name: TableHistory.of(replay.trace, table) for table in replay.trace.tables}
    before, first = _run(replay, ReplayChange(0.0), ())
    after, second = _run(other, instead, question.priorities)
    measured = {table.name: table.mean_staleness for table in replay.measured().tables}
    old = {table.name: table for table in before.tables}
    new = {table.name: table for table in after.tables}
    return {
        "began": replay.begin,
        "seconds": replay.scenario.horizon,
        "before_settings": _settings(replay, ReplayChange(0.0)),
        "after_settings": _settings(replay, instead),
        "measured": _curve(_measured(replay, histories), weights, histories, replay),
        "before": _curve(first, weights, histories, replay),
        "after": _curve(second, weights, histories, replay),
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


# The policy of the run is named by a file, and that of a question by anybody: neither imports code.
_policy = partial(policy_from, imports=False)
_placement = partial(placement_from, imports=False)


def _asked_policy(text: str) -> Policy:
    policy = _policy(text)
    refuse_replay(policy)
    return policy


def _settings(replay: TraceReplay, instead: ReplayChange) -> Json:
    """The settings that were in force, one after the other if they were changed."""

    def told(setting: Literal["policy", "placement", "tracks"]) -> str:
        new = getattr(instead, setting)
        values = [value for _, value in replay.over_time(setting)] if new is None else [str(new)]
        return ", then ".join(value for value, _ in groupby(values))

    return {"policy": told("policy"), "placement": told("placement"), "tracks": told("tracks")}


def _run(replay: TraceReplay, instead: ReplayChange, stated: Collection[str]) -> tuple[TableResult, Stairs]:
    stairs = Stairs()
    for table, recorded in zip(replay.scenario.tables, replay.recorded, strict=True):
        if not recorded.empty:
            stairs.add(table.name, 0.0, recorded.fresh)
    return replay.run_as_it_was(_policy, _placement, instead, stated, on_update=stairs.add), stairs


def _measured(replay: TraceReplay, histories: Mapping[str, TableHistory]) -> Stairs:
    stairs = Stairs()
    for name, history in histories.items():
        for moment, reached in zip(history.freshness.moments, history.freshness.reached, strict=True):
            stairs.add(name, moment - replay.begin, reached - replay.begin)
    return stairs


def _curve(
    stairs: Stairs, weights: Mapping[str, float], histories: Mapping[str, TableHistory], replay: TraceReplay
) -> list[tuple[float, float | None]]:
    step = replay.scenario.horizon / POINTS
    found: list[tuple[float, float | None]] = []
    for moment in (step * number for number in range(POINTS + 1)):
        at = replay.begin + moment
        tables = (
            (weight, stairs.staleness(name, moment), name in histories and histories[name].is_past(at))
            for name, weight in weights.items()
        )
        found.append((at, weighted_staleness(tables)))
    return found


def main() -> None:
    request = request_apart()
    told = request["question"]
    question = Question(**{**told, "without": tuple(told["without"])})
    try:
        content: Json = {"answer": finite(answer(trace_from_request(request), question))}
    except HeadgateError as error:
        content = {"error": str(error), "asked_wrongly": isinstance(error, DeclarationError)}
    json.dump(content, sys.stdout)


if __name__ == "__main__":
    main()
