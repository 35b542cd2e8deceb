"""Values that PostgreSQL has printed, as Arrow columns of the declared types."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headgate.warehouse.sources.arrow_rows import plain_arrow_type
from headgate.warehouse.sources.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

_BOOLEANS = {"t": True, "f": False, "true": True, "false": False}


def column_of(texts: Sequence[str | None], column: Column) -> tuple[pa.Array, dict[int, str]]:
    """The values of a column, null where a text does not fit its type, and {number of such a text: why}."""
    import pyarrow as pa

    convert = _converter(column.type)
    try:
        return convert(texts), {}
    except (pa.ArrowException, ValueError, KeyError):
        pass
    values, problems = [], {}
    for number, text in enumerate(texts):
        try:
            values.append(convert([text]))
        except (pa.ArrowException, ValueError, KeyError):
            values.append(convert([None]))
            problems[number] = f"column {column.name}: {_short(text)} is not a {column.type} of Spark"
    return pa.concat_arrays(values), problems


def _short(text: str | None) -> str:
    return repr(text if text is None or len(text) <= 60 else f"{text[:60]}…")


def _converter(type_: str) -> Callable[[Sequence[str | None]], pa.Array]:
    import pyarrow as pa

    kind = Column("", type_).kind
    if kind == "boolean":
        return lambda texts: pa.array([None if text is None else _BOOLEANS[text] for text in texts], pa.bool_())
    if kind == "binary":
        return lambda texts: pa.array([None if text is None else _bytes(text) for text in texts], pa.binary())
    if kind == "array":
        element = _converter(type_[type_.index("<") + 1 : type_.rindex(">")])
        return lambda texts: _arrays(texts, element)
    target = _arrow_type(kind, type_)
    return lambda texts: pa.array(texts, pa.string()).cast(target)


def _arrow_type(kind: str, type_: str) -> pa.DataType:
    import pyarrow as pa

    if kind == "decimal":
        precision, scale = (*map(int, re.findall(r"\d+", type_)), 10, 0)[:2] if re.search(r"\d", type_) else (10, 0)
        return pa.decimal128(precision, scale)
    return plain_arrow_type(kind)


def _bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError(text)
    return bytes.fromhex(text[2:])


def _arrays(texts: Sequence[str | None], element: Callable[[Sequence[str | None]], pa.Array]) -> pa.Array:
    import pyarrow as pa

    offsets: list[int | None] = []
    elements: list[str | None] = []
    for text in texts:
        offsets.append(None if text is None else len(elements))
        elements += [] if text is None else array_elements(text)
    return pa.ListArray.from_arrays(pa.array([*offsets, len(elements)], pa.int32()), element(elements))


_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)', re.DOTALL)


def array_elements(text: str) -> list[str | None]:
    """The elements of an array of one dimension, such as ``{1,NULL,"a b"}``."""
    inner: Any = text[1:-1]
    if not text.startswith("{") or not text.endswith("}"):
        raise ValueError(text)
    found: list[str | None] = []
    at = 0
    while at < len(inner):
        match = _ELEMENT.match(inner, at)
        if match is None:
            raise ValueError(text)
        quoted, bare = match.groups()
        if quoted is not None:
            found.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        else:
            found.append(None if bare == "NULL" else bare)
        at = match.end()
        if at < len(inner):
            if inner[at] != ",":
                raise ValueError(text)
            at += 1
    return found
