"""How far a recorded run was from the best possible: its weighted staleness beside the lower bound for it.

The bound is for the data that came, at the costs that are fitted to the updates, on as many tracks as there were at the
most. What the run did was possible, so it is never below its own bound, however its costs were fitted.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from headgate.core import HeadgateError, Update, is_past, policy_from
from headgate.core.trace import FreshnessHistory, RunBound, Trace, lag_of
from headgate.sim.tables.bound import RecordedWork, lower_bound
from headgate.sim.trace_replay import TraceReplay, without_time

#: a run has begun when tables with this share of the priorities have rows
SETTLED = 0.9

#: when something began and ended, in seconds from the beginning of the replay
Span = tuple[float, float]


def run_bound(replay: TraceReplay, portions: bool | None = None, everything: bool = False) -> RunBound:
    """The run as it was measured, beside its bound.

    ``portions`` is whether updates may take less than everything that waits; by default if those of the run might.
    Unless ``everything`` counts, tables with data of the past are left out, whose staleness is the age of the data,
    beside which all others vanish, and those that have no rows to begin with: little can be said of when they get them.
    Tables for which data may have waited that nobody has recorded are always left out.
    """
    measured = {table.name: table.mean_staleness for table in replay.measured().tables}
    spans = _spans(replay)
    work = [
        None if table.name in replay.unknown else _work(replay, number, measured, spans, everything)
        for number, table in enumerate(replay.scenario.tables)
    ]
    pairs = zip(replay.recorded, work, strict=True)
    recorded = [each if done is not None else replace(each, counts=False) for each, done in pairs]
    scenario = replace(replay.scenario, tracks=_tracks(replay, work))
    cut = _cuts(replay) if portions is None else portions
    bound = lower_bound(scenario, portions=cut, recorded=recorded, done=work)
    counted = [
        table.priority * done.staleness
        for table, done in zip(replay.scenario.tables, work, strict=True)
        if done is not None
    ]
    timed = len(replay.trace.tables) - len(without_time(replay.trace.tables))
    return RunBound(
        weighted_staleness=sum(counted),
        least=bound.weighted_staleness,
        price=bound.price,
        seconds=bound.seconds,
        tracks=bound.tracks,
        portions=bound.portions,
        tables=len(counted),
        left_out=max(0, timed - len(counted)),
    )


def settled(trace: Trace) -> float:
    """After how many seconds of a run most tables had rows, by their priorities; of those that ever got any.

    What comes before is a start rather than a run: staleness counts from the first rows on.
    """
    firsts = []
    for table in trace.header.tables:
        moments = () if table.kind == "dimension" else FreshnessHistory.of(trace, table).moments
        if moments:
            firsts.append((max(0.0, moments[0] - trace.header.started), trace.priority(table)))
    left, found = (1 - SETTLED) * sum(weight for _, weight in firsts), 0.0
    for found, weight in sorted(firsts, reverse=True):
        if weight > left:
            return found
        left -= weight
    return found


def _work(
    replay: TraceReplay,
    number: int,
    measured: Mapping[str, float | None],
    spans: Mapping[str, Sequence[Span]],
    everything: bool,
) -> RecordedWork | None:
    """What a table did, given the mean staleness of all, and when their updates were; None if it does not count."""
    if not replay.recorded[number].counts:
        return None
    name = replay.scenario.tables[number].name
    staleness = measured[name]
    if staleness is None:
        return None
    if not everything and (replay.recorded[number].empty or _is_past(replay, number, staleness)):
        return None
    own = sorted(spans.get(name, ()))
    return RecordedWork(staleness, tuple(began for began, _ in own), tuple(ended for _, ended in own))


def _is_past(replay: TraceReplay, number: int, staleness: float) -> bool:
    name = replay.scenario.tables[number].name
    lag = lag_of(replay.trace, next(table for table in replay.trace.header.tables if table.name == name))
    return lag is not None and is_past(staleness, lag.mean)


def _spans(replay: TraceReplay) -> dict[str, list[Span]]:
    """When each table was being updated. A track makes one update at a time: the next begins when one has ended.

    Two clocks tell when an update began and how long it took, so by them it may seem to overlap with the next.
    """
    tracks: dict[int, list[Update]] = {}
    for update in replay.trace.updates:
        if update.error is None and update.layer == "live" and update.ended > replay.begin:
            tracks.setdefault(update.track, []).append(update)
    found: dict[str, list[Span]] = {}
    for updates in tracks.values():
        updates.sort(key=lambda update: update.began)
        following = [*(update.began for update in updates[1:]), replay.begin + replay.scenario.horizon]
        for update, end in zip(updates, following, strict=True):
            began, ended = max(0.0, update.began - replay.begin), min(update.ended, end) - replay.begin
            if ended > began:
                found.setdefault(update.table, []).append((began, ended))
    return found


def _tracks(replay: TraceReplay, work: Iterable[RecordedWork | None]) -> int:
    """The most tracks that there were, and no fewer than updates at a time: those of a removed track end later."""
    spans = [span for done in work if done is not None for span in zip(done.began, done.ended, strict=True)]
    return max(_at_a_time(spans), *(int(count) for _, count in replay.over_time("tracks")))


def _at_a_time(spans: Iterable[Span]) -> int:
    """The most of them that there were at a time."""
    most, ends = 0, list[float]()
    for began, ended in sorted(spans):
        while ends and ends[0] <= began:
            heapq.heappop(ends)
        heapq.heappush(ends, ended)
        most = max(most, len(ends))
    return most


def _cuts(replay: TraceReplay) -> bool:
    """Whether an update of the run may have taken less than everything that waited; if it is not known, it may have."""
    if any(table.catch_up == "newest" for table in replay.trace.tables):
        return True  # such a table takes in some periods at once, also without a budget
    changed = [change.what for change in replay.trace.changes]
    if replay.scenario.cuts or any(what.get("budget") is not None for what in changed):
        return True
    policies = {replay.trace.header.policy, *(str(what["policy"]) for what in changed if "policy" in what)}
    try:
        return any(policy_from(policy, imports=False).cuts for policy in policies)
    except HeadgateError:
        return True
