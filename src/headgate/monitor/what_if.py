"""What would have happened under other settings: a recorded run replayed in the simulator.

It is computed by a process of its own, so that the scheduler of a run that goes on is not slowed down; one question at
a time, and none for longer than some seconds.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headgate.apart import PATIENCE, ApartError, asked_apart, trace_to_request
from headgate.core import MOST_PRIORITY, MOST_TRACKS, HeadgateError, ParameterError
from headgate.monitor.record import Json
from headgate.places.place import AnyPath
from headgate.warehouse.run.control_commands import is_whole

SCHEMA: Json = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "policy": {"type": "string"},
        "placement": {"type": "string"},
        "tracks": {"type": "integer", "minimum": 1, "maximum": MOST_TRACKS},
        "priorities": {
            "type": "object",
            "additionalProperties": {"type": "number", "minimum": 0, "maximum": MOST_PRIORITY},
        },
        "without": {"type": "array", "items": {"type": "string"}},
    },
}


class BusyError(HeadgateError):
    """Another question is being answered."""


class ReplayError(HeadgateError):
    """A run cannot be replayed, or not in the time there is."""


@dataclass(frozen=True, slots=True)
class Question:
    """Other settings; None for those of the run. ``without`` are tables that are left out."""

    policy: str | None = None
    placement: str | None = None
    tracks: int | None = None
    priorities: Mapping[str, float] = field(default_factory=dict)
    without: tuple[str, ...] = ()


def what_if_from(told: Mapping[str, Any]) -> Question:
    """The question in an object that somebody has sent."""
    known = SCHEMA["properties"]
    if unknown := sorted(set(told) - set(known)):
        raise ParameterError(f"a what-if takes {', '.join(known)}; got {unknown[0]!r}")
    priorities, without = told.get("priorities", {}), told.get("without", [])
    for key in ("policy", "placement"):
        if key in told and not isinstance(told[key], str):
            raise ParameterError(f"{key!r} takes a text, as after --{key}; got {json.dumps(told[key])[:100]}")
    tracks: Any = told.get("tracks")
    if "tracks" in told and not (is_whole(tracks) and 1 <= tracks <= MOST_TRACKS):
        raise ParameterError(f"'tracks' takes a whole number from 1 to {MOST_TRACKS}; got {json.dumps(tracks)[:100]}")
    if not isinstance(priorities, dict) or not all(map(_is_priority, priorities.values())):
        raise ParameterError(f"'priorities' takes an object of tables and numbers from 0 to {MOST_PRIORITY:g}")
    if not isinstance(without, list) or not all(isinstance(name, str) for name in without):
        raise ParameterError("'without' takes a list of tables")
    return Question(
        told.get("policy"),
        told.get("placement"),
        None if tracks is None else int(tracks),
        dict(priorities),
        tuple(without),
    )


def _is_priority(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_PRIORITY


class WhatIf:
    """Answers questions, one at a time."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._busy = threading.Lock()

    def ask(self, trace: AnyPath, question: Question) -> Json:
        """Both curves and the differences; see ``replaying.answer``."""
        if not self._busy.acquire(blocking=False):
            raise BusyError("another what-if is being computed; ask again when it is done")
        try:
            return self._asked(trace, question)
        finally:
            self._busy.release()

    def _asked(self, trace: AnyPath, question: Question) -> Json:
        request = {**trace_to_request(trace), "question": asdict(question)}
        try:
            told = json.loads(asked_apart("headgate.monitor.replaying", request, self._patience))
        except ApartError as error:
            without = f"; replay the trace without that limit: headgate simulate {trace}" if error.too_long else ""
            raise ReplayError(f"the replay has failed: {error}{without}") from None
        if "error" in told:
            raise (ParameterError if told["asked_wrongly"] else ReplayError)(told["error"])
        return dict(told["answer"])
