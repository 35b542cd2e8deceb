"""Making a schedule that fails as small as possible: fewer events, fewer lines, fewer tables."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.world.events import Land
from tests.world.schedule import Schedule
from tests.world.tables import Declaration, with_sources
from tests.world.world import Outcome, play

#: worlds are played on a disk in memory, if there is one
MEMORY = Path("/dev/shm")
#: so many smaller schedules are tried at most
MOST_TRIES = 400


def played(schedule: Schedule, real_log: bool = False) -> Outcome:
    """Play a schedule in a folder that is deleted afterwards."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        return play(schedule, Path(folder), real_log)


def shrunk(schedule: Schedule, outcome: Outcome, real_log: bool = False) -> tuple[Schedule, Outcome]:
    """The smallest schedule found that fails in the same way."""
    wanted, tries = _kind(outcome), 0
    found = True
    while found:
        found = False
        for smaller in _smaller(schedule):
            tries += 1
            if tries > MOST_TRIES:
                return schedule, outcome
            tried = played(smaller, real_log)
            if tried.problems and _kind(tried) == wanted:
                schedule, outcome, found = smaller, tried, True
                break
    return schedule, outcome


def _kind(outcome: Outcome) -> str:
    """The first problem without its numbers and names of files."""
    return re.sub(r"[\d/][^ ]*|\[.*", "", outcome.problems[0])[:60]


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    """The schedule with something left out: half of its events, an event, a table, lines."""
    events = schedule.events
    size = len(events) // 2
    while size >= 1:
        for first in range(0, len(events), size):
            yield replace(schedule, events=(*events[:first], *events[first + size :]))
        size //= 2
    tables = schedule.declared.tables
    for table in tables:
        others = with_sources(name for name in tables if name != table)
        if others and others != tables:
            yield replace(schedule, declared=Declaration(others, schedule.declared.least))
    for place, event in enumerate(events):
        if isinstance(event, Land) and len(event.lines) > 1:
            for line in event.lines:
                fewer = replace(event, lines=tuple(each for each in event.lines if each is not line))
                yield replace(schedule, events=(*events[:place], fewer, *events[place + 1 :]))
