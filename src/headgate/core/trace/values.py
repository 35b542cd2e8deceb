"""Single values of a line of a trace: each has a type and a range, and what is outside is a ValueError that says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Item = TypeVar("_Item")
#: the object in a line
Entry = dict[str, Any]

MOST_LETTERS = 1_000  # of a name
#: in seconds since the epoch: about the years 1 to 9900
FIRST_MOMENT, LAST_MOMENT = -6.2e10, 2.5e11
#: no run began before clocks count from; one without the right time begins there
FIRST_START = 1.0
#: in a run, a clock may be set back by so many seconds
MOST_SET_BACK = 86_400.0
MOST = 1e15
_MOST_WHOLE = 2**63


def text(entry: Entry, key: str, most: int = MOST_LETTERS) -> str:
    value = entry[key]
    if not isinstance(value, str) or len(value) > most:
        raise ValueError(f"the key {key!r} takes a text of at most {most:,} letters; got {shown(value)}")
    return value


def number(entry: Entry, key: str, least: float = -MOST, most: float = MOST) -> float:
    value = entry[key]
    if type(value) not in (int, float) or not least <= value <= most:
        raise ValueError(f"the key {key!r} takes a number from {least:g} to {most:g}; got {shown(value)}")
    return float(value)


def above_zero(entry: Entry, key: str) -> float:
    value = entry[key]
    if type(value) not in (int, float) or not 0 < value <= MOST:
        raise ValueError(f"the key {key!r} takes a number above 0, and at most {MOST:g}; got {shown(value)}")
    return float(value)


def moment(entry: Entry, key: str) -> float:
    return number(entry, key, FIRST_MOMENT, LAST_MOMENT)


def moment_of_run(entry: Entry, key: str, started: float) -> float:
    value = moment(entry, key)
    if value < started - MOST_SET_BACK:
        raise ValueError(
            f"the key {key!r} takes a moment from the start of the run on, which is {started:.3f}; got {value:.3f}"
        )
    return value


def whole(entry: Entry, key: str, least: int = -_MOST_WHOLE, most: int = _MOST_WHOLE) -> int:
    value = entry[key]
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"the key {key!r} takes a whole number from {least} to {most}; got {shown(value)}")
    return value


def items(entry: Entry, key: str, kind: type[_Item]) -> list[_Item]:
    value = entry[key]
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        what = "objects" if kind is dict else "texts"
        raise ValueError(f"the key {key!r} takes a list of {what}; got {shown(value)}")
    return value


def one_of(entry: Entry, key: str, choices: tuple[str, ...]) -> Any:
    if entry[key] not in choices:
        raise ValueError(f"the key {key!r} takes one of {', '.join(choices)}; got {shown(entry[key])}")
    return entry[key]


def or_none(read: Callable[[Entry, str], _Item], entry: Entry, key: str) -> _Item | None:
    return None if entry[key] is None else read(entry, key)


def shown(value: object, most: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."


def complaint(error: Exception) -> str:
    return f"the key {error} is missing" if isinstance(error, KeyError) else str(error)
