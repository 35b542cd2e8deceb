"""When a table is expected to be updated, and what would have to change for it to meet its target.

Both are estimates from what is recorded, and say so: the queue may change, and so may the cost of an update.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median

from headgate.core import Decision
from headgate.core.update import node_name
from headgate.monitor.record import Json, RunRecord
from headgate.warehouse.declare.durations import readable
from headgate.warehouse.schedule.glance import Glance

#: what an update is taken to last before anything is known of it, in seconds
UNKNOWN_SECONDS = 0.3
#: tracks count as busy from this share of the time on
BUSY = 0.85
#: so many of the latest updates of a table count
LATEST = 20
#: in these states a table is not updated, whatever comes
_HALTED = ("paused", "held", "stopped")


def seconds_until(
    name: str, queue: Sequence[str], running: Iterable[tuple[str, float, int]], tracks: int, lasts: Mapping[str, float]
) -> float | None:
    """In how many seconds an update begins that waits in the ``queue``, best first; None if it is not there.

    ``running`` are a name, for how long it has been running, and its track, which makes one update after the other.
    ``lasts`` is how long an update takes.
    """
    if name not in queue:
        return None
    busy: dict[int, float] = {}
    for each, took, track in running:
        busy[track] = busy.get(track, 0.0) + max(0.0, lasts.get(each, UNKNOWN_SECONDS) - took)
    free = sorted([*busy.values(), *([0.0] * (tracks - len(busy)))])[: max(1, tracks)]
    heapq.heapify(free)
    for each in queue:
        begins = heapq.heappop(free)
        if each == name:
            return begins
        heapq.heappush(free, begins + lasts.get(each, UNKNOWN_SECONDS))
    raise AssertionError("the name is in the queue")


def prospects(record: RunRecord, name: str, decisions: Sequence[Decision]) -> Json:
    """``begins`` in how many seconds, and ``needs``."""
    queue = [each["name"] for each in record.queue]
    # One that was handed to a track and has not begun yet has a beginning of 0.
    running = [
        (each["name"], max(0.0, record.at - each["began"]) if each["began"] else 0.0, each["track"])
        for each in record.running
    ]
    lasts = _lasts(record, {*queue, *(each for each, _, _ in running)})
    return {
        "begins": seconds_until(name, queue, running, int(record.settings["tracks"]), lasts),
        "needs": needs(record, name, decisions),
    }


def more_data(glance: Glance | None, name: str) -> float | None:
    """When more data of a table is expected; None if nobody knows, or if it would not be updated then."""
    rows = () if glance is None else glance.tables
    row = next((each for each in rows if each.name == name), None)
    return None if row is None or row.state in _HALTED else row.next_update


def needs(record: RunRecord, name: str, decisions: Sequence[Decision]) -> list[str]:
    """What would have to change for a table to meet its target, in words; the way there is that of its oldest data."""
    target = record.tables[name].declared.target_lag
    if target is None:
        return ["It has no target. State one with target_lag= in its declaration, and what it needs is said here."]
    path = _slowest_path(record, name)
    if path is None:
        return [f"Its target is {readable(target)}. Nothing is known yet of what its updates take."]
    reached = sum(waited + took for _, waited, took in path)
    took = sum(took for _, _, took in path)
    waited = reached - took
    parts = "; ".join(f"{each} waits {readable(w)} and takes {readable(t)}" for each, w, t in path)
    found = [f"Data is in it about {readable(reached)} after it has arrived (target {readable(target)}): {parts}."]
    if reached <= target:
        return [*found, "So it meets its target, unless something changes."]
    if took > target:
        least = f"The updates alone take {readable(took)}"
        return [*found, f"{least}: it needs cheaper queries, less data or a faster machine, or a longer target."]
    most = readable(target - took)
    found.append(f"It waits {readable(waited)} for a track in all, and may wait {most} at most.")
    busy = _busy(record)
    if busy > BUSY:
        found.append(
            f"The tracks are busy {busy:.0%} of the time: another track, if the machine has cores for it, or less work "
            "for other tables shortens the wait for all."
        )
    if lift := _lift(record, name, decisions):
        found.append(lift)
    return [*found, "What if shows what a change would have done to this run."]


def _lift(record: RunRecord, name: str, decisions: Sequence[Decision]) -> str:
    """How far it was from being first at the last decision that it lost."""
    for decision in decisions:
        own = next((each for each in decision.ranking if each.name == name), None)
        first = decision.ranking[0]
        if own is None or first.name == name:
            continue
        # Values are compared one by one: the first in which the two differ decides.
        above, below = next(((a, b) for a, b in zip(first.priority, own.priority, strict=False) if a != b), (0.0, 0.0))
        if below <= 0 or above <= below:
            continue
        factor = above / below
        priority = record.tables[name].now.get("priority") or 0.0
        return (
            f"At the last decision that it lost, {first.name} was ranked {factor:.3g} times as high. If the policy "
            f"counts by priority, a priority above {factor * priority:.3g} instead of {priority:g} would have put it "
            "first."
        )
    return ""


def _slowest_path(record: RunRecord, name: str) -> list[tuple[str, float, float]] | None:
    """(table, how long its updates wait, how long they take) from a stream to the table, by the slowest way."""
    known: dict[str, list[tuple[str, float, float]] | None] = {}
    todo = [name]
    while todo:
        each = todo[-1]
        sources = [source for source in record.tables[each].declared.sources if source in record.tables]
        if missing := [source for source in sources if source not in known]:
            todo += missing
            continue
        todo.pop()
        times = _times(record, each)
        paths = [path for source in sources if (path := known[source])]
        longest = max(paths, key=lambda path: sum(w + t for _, w, t in path), default=[])
        own = (each, _middle(times, 0, 0.0), _middle(times, 1, 0.0))
        known[each] = [*longest, own] if times or longest else None
    return known[name] if _times(record, name) else None


def _times(record: RunRecord, name: str) -> list[tuple[float, float]]:
    """(waited, took) of the latest live updates of a table."""
    updates = [each for each in record.tables[name].updates if each["layer"] == "live" and not each["error"]]
    return [
        (max(0.0, each["began"] - each["released"]) if each["released"] else 0.0, each["seconds"])
        for each in updates[-LATEST:]
    ]


def _lasts(record: RunRecord, nodes: Collection[str]) -> dict[str, float]:
    """How long an update of each node takes: of a table, or of its backfill or its maintenance."""
    found: dict[str, deque[float]] = {}
    for name, table in record.tables.items():
        for each in table.updates:
            if not each["error"] and (node := node_name(name, each["layer"])) in nodes:
                found.setdefault(node, deque(maxlen=LATEST)).append(each["seconds"])
    return {node: median(seconds) for node, seconds in found.items()}


def _middle(times: Sequence[tuple[float, float]], place: int, unknown: float) -> float:
    return median(each[place] for each in times) if times else unknown


def _busy(record: RunRecord) -> float:
    """The share of the tracks' time that the kept updates took."""
    if not record.updates:
        return 0.0
    begin = min(each["began"] for each in record.updates)
    length = max(1e-9, record.at - begin) * max(1, int(record.settings["tracks"]))
    return float(min(1.0, sum(each["seconds"] for each in record.updates) / length))
