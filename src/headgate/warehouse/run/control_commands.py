"""The commands that a running warehouse takes from other processes, each a line of JSON and a line of JSON back.

A request is ``{"command": "pause", "arguments": {"name": "air"}}``; its answer is ``{"answer": null}`` or
``{"error": {"kind": "UnknownNameError", "message": "...", "asked_wrongly": true}}``. The commands are the methods of
``Controlled``. They carry no code: policies and placements are sent as the text that a user writes, explanations as the
text that a user reads. ``control`` and ``control_client`` send the lines.
"""

from __future__ import annotations

import json
import math
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headgate.core import (
    MOST_PRIORITY,
    MOST_SECONDS,
    MOST_TRACKS,
    DeclarationError,
    HeadgateError,
    UnknownNameError,
    placement_from,
    policy_from,
)

if TYPE_CHECKING:
    from headgate.core import Explanation, Placement, Policy
    from headgate.core.trace import RunNotice, TraceTable
    from headgate.warehouse.schedule.glance import Glance
    from headgate.warehouse.schedule.ledger import NodeStatistics

#: the longest request that is read
MOST_BYTES = 64 * 1024

#: the shortest budget or chunk that may be asked for, in seconds
LEAST_SECONDS = 1e-3

_MOST_MICROS = 2**63


class RequestError(DeclarationError):
    """A request that is not one of this protocol."""


class Controlled(Protocol):
    """The methods of a running warehouse that other processes may call. It refuses by raising a HeadgateError."""

    def statistics(self) -> tuple[NodeStatistics, ...]:
        """The statistics of every table now."""

    def notices(self) -> tuple[RunNotice, ...]:
        """The latest that users should know."""

    def glance(self) -> Glance:
        """How everything stands now."""

    def declared(self) -> tuple[TraceTable, ...]:
        """The tables as they are declared now."""

    def explain(self, name: str) -> Explanation:
        """Why a table is or is not being updated now."""

    def check_settings(
        self,
        policy: Policy | None = None,
        placement: Placement | None = None,
        tracks: int | None = None,
        names: Iterable[str] = (),
    ) -> None:
        """Refuse what would be refused if it were asked for; ``names`` are of tables. Nothing changes."""

    def replace_policy(self, policy: Policy) -> None: ...

    def replace_placement(self, placement: Placement) -> None: ...

    def set_inheritance(self, inheritance: str) -> None:
        """Let sources inherit priorities in another way, such as ``sum``; ``default`` leaves it to the pipeline, and
        then to the policy."""

    def set_together(self, together: str) -> None:
        """Let tables share jobs in another way, such as ``auto``; ``default`` leaves it to the pipeline."""

    def set_tracks(self, count: int) -> None: ...

    def set_budget(self, budget: float | None) -> None:
        """Change how long one update should take at most, in seconds; None for no limit."""

    def set_priority(self, name: str, priority: float) -> None: ...

    def pause(self, name: str) -> None: ...

    def resume(self, name: str) -> None: ...

    def refresh(self, name: str) -> None:
        """Update a table, and the tables it is built on, before all others."""

    def backfill(self, name: str, first: int, last: int, chunk: float | None = None) -> None:
        """Recompute a range of event time, in microseconds, behind live updates; ``chunk`` seconds per update."""

    def stop_soon(self) -> None:
        """Stop the run; returns at once."""


@dataclass(frozen=True, slots=True)
class _ArgumentKind:
    """A kind of argument: its name in messages, the values that it accepts, and the same as a JSON Schema."""

    described: str
    accepts: Callable[[Any], bool]
    schema: dict[str, Any]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_whole(value: object) -> bool:
    """Whether a value of JSON is a whole number: there, 3 and 3.0 are the same."""
    return type(value) is int or (isinstance(value, float) and value.is_integer())


_TEXT = _ArgumentKind("a text", lambda value: isinstance(value, str), {"type": "string"})
_PRIORITY = _ArgumentKind(
    f"a number from 0 to {MOST_PRIORITY:g}",
    lambda value: _is_number(value) and 0 <= value <= MOST_PRIORITY,
    {"type": "number", "minimum": 0, "maximum": MOST_PRIORITY},
)
_TRACKS = _ArgumentKind(
    f"a whole number from 1 to {MOST_TRACKS}",
    lambda value: is_whole(value) and 1 <= value <= MOST_TRACKS,
    {"type": "integer", "minimum": 1, "maximum": MOST_TRACKS},
)
_MICROS = _ArgumentKind(
    "a time in microseconds",
    lambda value: is_whole(value) and abs(value) < _MOST_MICROS,
    {"type": "integer", "minimum": 1 - _MOST_MICROS, "maximum": _MOST_MICROS - 1},
)
_LENGTH = _ArgumentKind(
    f"null or {LEAST_SECONDS:g} to {MOST_SECONDS:g} seconds",
    lambda value: value is None or (_is_number(value) and LEAST_SECONDS <= value <= MOST_SECONDS),
    {"anyOf": [{"type": "number", "minimum": LEAST_SECONDS, "maximum": MOST_SECONDS}, {"type": "null"}]},
)
_NAMES = _ArgumentKind(
    "a list of texts",
    lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
    {"type": "array", "items": {"type": "string"}},
)


def _or_null(kind: _ArgumentKind) -> _ArgumentKind:
    return _ArgumentKind(
        f"null or {kind.described}",
        lambda value: value is None or kind.accepts(value),
        {"anyOf": [kind.schema, {"type": "null"}]},
    )


@dataclass(frozen=True, slots=True)
class _Command:
    """What to call with the running warehouse, and the arguments it takes, all of which are required."""

    do: Callable[..., object]
    takes: Mapping[str, _ArgumentKind]


def _told(notice: RunNotice) -> dict[str, object]:
    return {"at": notice.at, "table": notice.table, "text": notice.text}


def _glance(run: Controlled) -> dict[str, object]:
    """How everything stands, without the operators inside tables, which are many and seldom looked at."""
    glance = run.glance()
    tables = [{**_fields(row), "operators": ()} for row in glance.tables]
    return {"glance": {**_fields(glance), "tables": tables}, "declared": [_fields(each) for each in run.declared()]}


def _fields(record: Any) -> dict[str, object]:
    """The fields of a record, and of those in it. As ``asdict``, which also copies every value."""
    return {name: _plain(getattr(record, name)) for name in record.__dataclass_fields__}


def _plain(value: object) -> object:
    kind = type(value)
    if kind is float:
        return value if math.isfinite(value) else None  # type: ignore[arg-type]
    if kind is str or kind is int or value is None:
        return value
    if hasattr(value, "__dataclass_fields__"):
        return _fields(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _check_settings(
    run: Controlled, policy: str | None, placement: str | None, tracks: float | None, names: list[str]
) -> None:
    run.check_settings(
        None if policy is None else policy_from(policy),
        None if placement is None else placement_from(placement),
        None if tracks is None else int(tracks),
        names,
    )


def _replace_policy(run: Controlled, policy: str) -> str:
    chosen = policy_from(policy)
    run.replace_policy(chosen)
    return str(chosen)


def _replace_placement(run: Controlled, placement: str) -> str:
    chosen = placement_from(placement)
    run.replace_placement(chosen)
    return str(chosen)


COMMANDS: Mapping[str, _Command] = {
    "statistics": _Command(lambda run: [asdict(row) for row in run.statistics()], {}),
    "notices": _Command(lambda run: [_told(notice) for notice in run.notices()], {}),
    "glance": _Command(_glance, {}),
    "explain": _Command(lambda run, name: str(run.explain(name)), {"name": _TEXT}),
    "check_settings": _Command(
        _check_settings,
        {"policy": _or_null(_TEXT), "placement": _or_null(_TEXT), "tracks": _or_null(_TRACKS), "names": _NAMES},
    ),
    "replace_policy": _Command(_replace_policy, {"policy": _TEXT}),
    "replace_placement": _Command(_replace_placement, {"placement": _TEXT}),
    "set_inheritance": _Command(lambda run, inheritance: run.set_inheritance(inheritance), {"inheritance": _TEXT}),
    "set_together": _Command(lambda run, together: run.set_together(together), {"together": _TEXT}),
    "set_tracks": _Command(lambda run, count: run.set_tracks(int(count)), {"count": _TRACKS}),
    "set_budget": _Command(lambda run, budget: run.set_budget(budget), {"budget": _LENGTH}),
    "set_priority": _Command(
        lambda run, name, priority: run.set_priority(name, float(priority)), {"name": _TEXT, "priority": _PRIORITY}
    ),
    "pause": _Command(lambda run, name: run.pause(name), {"name": _TEXT}),
    "resume": _Command(lambda run, name: run.resume(name), {"name": _TEXT}),
    "refresh": _Command(lambda run, name: run.refresh(name), {"name": _TEXT}),
    "backfill": _Command(
        lambda run, name, first, last, chunk: run.backfill(name, int(first), int(last), chunk),
        {"name": _TEXT, "first": _MICROS, "last": _MICROS, "chunk": _LENGTH},
    ),
    "stop_soon": _Command(lambda run: run.stop_soon(), {}),
}


def answered(run: Controlled, line: bytes) -> bytes:
    """The line that answers a request; an error is an answer too."""
    try:
        command, arguments = _read(line)
        return as_line({"answer": command.do(run, **arguments)})
    except HeadgateError as error:
        return as_line(error_answer(error, str(error)))
    except Exception as error:  # our bug: the client gets it and can report it, and the run continues
        trace = "".join(traceback.format_exception(error)).rstrip()
        return as_line(error_answer(error, f"the running process failed at it:\n{trace}"))


def _read(line: bytes) -> tuple[_Command, dict[str, object]]:
    if len(line) > MOST_BYTES:
        raise RequestError(f"a request takes at most {MOST_BYTES} bytes, and this one is longer")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"a request is one line of JSON; this one cannot be read: {error}") from None
    match request:
        case {"command": str(name), "arguments": dict(arguments)} if len(request) == 2:
            pass
        case {"command": str(name)} if len(request) == 1:
            arguments = {}
        case _:
            raise RequestError('a request is {"command": NAME, "arguments": {...}}; got ' + _shortened(request))
    if name not in COMMANDS:
        raise UnknownNameError("command", name, COMMANDS)
    _check(name, COMMANDS[name].takes, arguments)
    return COMMANDS[name], arguments


def _check(name: str, takes: Mapping[str, _ArgumentKind], arguments: Mapping[str, object]) -> None:
    listed = ", ".join(f"{key} ({kind.described})" for key, kind in takes.items()) or "no arguments"
    if unfit := sorted(takes.keys() ^ arguments.keys()):
        what = "needs" if unfit[0] in takes else "does not take"
        raise RequestError(f"the command {name!r} {what} the argument {_shortened(unfit[0])}; it takes {listed}")
    for key, kind in takes.items():
        if not kind.accepts(arguments[key]):
            got = _shortened(arguments[key])
            raise RequestError(f"the command {name!r} takes {kind.described} as {key!r}; got {got}")


def _shortened(value: object, most: int = 200) -> str:
    text = json.dumps(value)
    return text if len(text) <= most else text[:most] + "..."


def finite(value: object) -> object:
    """``value`` with null for the numbers that JSON does not have."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {key: finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [finite(inner) for inner in value]
    return value


def error_answer(error: Exception, message: str) -> dict[str, object]:
    wrongly = isinstance(error, DeclarationError)
    return {"error": {"kind": type(error).__name__, "message": message, "asked_wrongly": wrongly}}


def as_line(message: Mapping[str, object]) -> bytes:
    try:
        text = json.dumps(message, default=str, allow_nan=False)
    except ValueError:  # a number that is not finite, which is seldom: to look for them costs more than to write
        text = json.dumps(finite(message), default=str)
    return text.encode() + b"\n"
