"""Incremental models of dbt: their query for the whole table, and whether compiled code is that query.

``is_incremental()`` is false when dbt builds a table from the beginning. Headgate finds out itself what is new, so that
query is the one to take over: with the ``else`` branches, and without what is for increments only. Code that dbt has
compiled has either, depending on whether the table was there, and does not say which.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_TAG = re.compile(r"(\{%-?.*?-?%\})", re.DOTALL)
_INSIDE = re.compile(r"\{%-?\s*(.*?)\s*-?%\}", re.DOTALL)
_VALUE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_WORD = "is_incremental"
_DBTS_OWN = "macro.dbt.is_incremental"


@dataclass(slots=True)
class _Choice:
    """An ``if`` of Jinja: conditions and what is written if they hold; the condition of ``else`` is empty."""

    branches: list[tuple[str, list[str | _Choice]]] = field(default_factory=list)


_Part = str | _Choice


def for_whole(code: str) -> str:
    """The Jinja of a model when the table is built from the beginning; conditions of other kinds are left in it."""
    return "".join(_written(_parsed(code)))


def is_for_whole(code: str, compiled: str, macros: Iterable[str], known: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether ``compiled`` is certainly the query for the whole table. ``macros`` are those that ``code`` calls.

    It is if it lacks some text of each branch that is for increments only.
    """
    called = set(macros)
    if _any_asks([*called - {_DBTS_OWN}], known) or (_DBTS_OWN in called and _WORD not in code):
        return False
    squeezed = _squeezed(compiled)
    return all(
        texts is not None and any(text not in squeezed for text in texts) for texts in _incremental_texts(_parsed(code))
    )


def _any_asks(macros: list[str], known: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a macro, or one that it calls, asks for ``is_incremental``."""
    seen = set(macros)
    while macros:
        macro = known.get(macros.pop(), {})
        if f"{_WORD}(" in str(macro.get("macro_sql") or ""):
            return True
        more = set((macro.get("depends_on") or {}).get("macros", [])) - seen
        seen |= more
        macros += more
    return False


def _parsed(code: str) -> list[_Part]:
    top: list[_Part] = []
    inner: list[tuple[_Choice, list[_Part]]] = []
    for piece in _TAG.split(code):
        parts = inner[-1][1] if inner else top
        match = _INSIDE.fullmatch(piece)
        word, _, rest = (match[1] if match else "").partition(" ")
        if word == "if":
            choice = _Choice([(rest.strip(), [])])
            parts.append(choice)
            inner.append((choice, choice.branches[0][1]))
        elif word in ("elif", "else") and inner:
            choice = inner[-1][0]
            choice.branches.append((rest.strip() if word == "elif" else "", []))
            inner[-1] = (choice, choice.branches[-1][1])
        elif word == "endif" and inner:
            inner.pop()
        elif piece:
            parts.append(piece)
    return top


def _meaning(condition: str) -> bool | None:
    """What a condition is for the whole table; None if that is not certain."""
    text = " ".join(condition.split())
    if re.fullmatch(r"not is_incremental\( ?\)", text):
        return True
    is_false = re.fullmatch(r"is_incremental\( ?\)( and .*)?", text) and not re.search(r"\bor\b|\bif\b", text)
    return False if is_false else None


def _written(parts: list[_Part]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
            continue
        left = list(part.branches)
        while left and _meaning(left[0][0]) is False:
            left.pop(0)
        if left and (left[0][0] == "" or _meaning(left[0][0])):
            yield from _written(left[0][1])
        elif left:
            for number, (condition, inside) in enumerate(left):
                yield "{% " + ("else" if not condition else f"{'elif' if number else 'if'} {condition}") + " %}"
                yield from _written(inside)
            yield "{% endif %}"


def _incremental_texts(parts: list[_Part]) -> Iterator[list[str] | None]:
    """For each branch that is for increments only, texts that it writes for certain; None if that is not known."""
    for part in parts:
        if isinstance(part, str):
            if _WORD in part:
                yield None
            continue
        for number, (condition, inside) in enumerate(part.branches):
            meaning = _meaning(condition)
            if meaning is False:
                yield _texts(inside)
                continue
            yield from _incremental_texts(inside)
            if meaning:  # the others are for increments, or nothing is
                others = part.branches[number + 1 :]
                yield from [_texts(each) for _, each in others] if others else [None]
                break
            if _WORD in condition:
                yield None


def _texts(parts: list[_Part]) -> list[str] | None:
    if any(isinstance(part, str) and part.startswith("{%") for part in parts):
        return None
    texts = [_squeezed(text) for part in parts if isinstance(part, str) for text in _VALUE.split(part)]
    return [text for text in texts if text]


def _squeezed(text: str) -> str:
    return "".join(text.split())
