"""Dataclasses from TOML tables, with every mistake named.

The dataclass says what keys there are and of what type; this module refuses unknown keys, wrong types and missing
values, always with the path of the offending key. It knows nothing of what the data means: ranges are checked by the
dataclasses themselves.
"""

from __future__ import annotations

import difflib
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from headgate.core import ScenarioError

T = TypeVar("T")

#: how often one entry of a file may be there
MOST_COPIES = 100_000


def build(
    cls: type[T],
    data: Mapping[str, object],
    where: str,
    rename: Mapping[str, str] | None = None,
    ready: Mapping[str, object] | None = None,
    elsewhere: Sequence[str] = (),
) -> T:
    """An instance of the dataclass ``cls`` from ``data``.

    ``rename`` maps keys as written to field names. ``ready`` are values of fields that are no keys.
    ``elsewhere`` are keys that stand in the same place and were taken already, for the message about an unknown one.
    """
    names = dict(rename or {})
    values = dict(ready or {})
    accepted = {_key_of(field, names): field for field in fields(cls) if field.name not in values}  # type: ignore[arg-type]
    for key in data:
        if key not in accepted:
            raise ScenarioError(f"{where}: {unknown_key(key, (*elsewhere, *accepted))}")
    hints = get_type_hints(cls)
    for key, field in accepted.items():
        if key in data:
            values[field.name] = convert(data[key], hints[field.name], f"{where}.{key}", names)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ScenarioError(f"{where}: the key {key!r} is missing; it takes {describe(hints[field.name])}")
    try:
        return cls(**values)
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None


def counted(entry: object, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """An entry as often as its ``count`` says: the suffix of each copy's name, and the copy."""
    if not isinstance(entry, dict):
        raise ScenarioError(f"{where} takes a table of keys; got {entry!r}")
    values = dict(entry)
    count = values.pop("count", 1)
    if type(count) is not int or not 1 <= count <= MOST_COPIES:
        raise ScenarioError(f"{where}: count takes a whole number from 1 to {MOST_COPIES}; got {count!r}")
    if not isinstance(values.get("name"), str):
        raise ScenarioError(f"{where}: the key 'name' is missing; it takes a text")
    for copy in range(1, count + 1):
        suffix = f"-{copy}" if count > 1 else ""
        yield suffix, {**values, "name": f"{values['name']}{suffix}"}


def unknown_key(key: str, accepted: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, accepted, n=1)
    meant = f"did you mean {close[0]!r}? " if close else ""
    return f"there is no key {key!r} here; {meant}known keys: {', '.join(accepted)}"


def _key_of(field: Field[Any], rename: Mapping[str, str]) -> str:
    return next((key for key, name in rename.items() if name == field.name), field.name)


def convert(value: object, kind: Any, where: str, rename: Mapping[str, str] | None = None) -> object:
    """``value`` as ``kind``, or a ScenarioError that says what was expected at ``where``."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _first_that_fits(value, get_args(kind), where, rename)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(convert(item, get_args(kind)[0], f"{where}[{i}]", rename) for i, item in enumerate(value))
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, Mapping):
        return build(kind, value, where, rename)
    if kind is float and type(value) in (int, float):
        try:
            return float(value)  # type: ignore[arg-type]
        except OverflowError:
            most = sys.float_info.max
            raise ScenarioError(f"{where} takes a number, at most {most:.2g}, or inf; got a larger one") from None
    fits = type(value) is kind
    if origin is Literal:
        fits = value in get_args(kind)
    elif origin is list:
        fits = isinstance(value, list) and all(isinstance(item, dict) for item in value)
    if not fits:
        raise ScenarioError(f"{where} takes {describe(kind)}; got {value!r}")
    return value


def _first_that_fits(value: object, kinds: tuple[Any, ...], where: str, rename: Mapping[str, str] | None) -> object:
    real = [kind for kind in kinds if kind is not type(None)]
    if isinstance(value, Mapping):
        # A table of keys can only be meant for a dataclass: its own complaint says more than "none of these".
        real = [kind for kind in real if is_dataclass(kind)] or real
    if len(real) == 1:
        return convert(value, real[0], where, rename)
    for kind in real:
        try:
            return convert(value, kind, where, rename)
        except ScenarioError:
            continue
    raise ScenarioError(f"{where} takes {' or '.join(describe(kind) for kind in real)}; got {value!r}")


def describe(kind: Any) -> str:
    """A type in words."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(k) for k in get_args(kind) if k is not type(None))
    if origin is Literal:
        return "one of " + ", ".join(repr(choice) for choice in get_args(kind))
    if origin is tuple:
        return f"a list, each {describe(get_args(kind)[0])}"
    if origin is list:
        return "a list of tables of keys"
    if is_dataclass(kind):
        return "a table of keys"
    return {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}.get(kind, str(kind))
