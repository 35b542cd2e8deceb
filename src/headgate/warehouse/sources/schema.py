"""Column lists as Spark writes them, read just far enough to find mistakes before Spark is started.

It knows names, types and nested brackets. What passes is parsed again by Spark.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from headgate.core import DeclarationError
from headgate.warehouse.storage import PARTITION_COLUMN

#: names that every stream's table or a source's rows already use
RESERVED = frozenset({PARTITION_COLUMN, "_file", "_raw", "_error"})
#: prefix of the columns that Headgate adds while it reads
PRIVATE_PREFIX = "_headgate_"

_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
_PLAIN = {
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal"),
    *("string", "binary", "date", "timestamp", "timestamp_ntz", "variant"),
}
_NESTED = {"array": 1, "map": 2, "struct": None}
_EXAMPLE = "write it as in 'ts timestamp, sensor string, temp double'"

_COLUMN = re.compile(
    r"(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<bare>\w+))\s*(?::\s*|\s+)(?P<type>.+?)(?:\s+comment\s+(?P<comment>'.*'|\".*\"))?",
    re.IGNORECASE | re.DOTALL,
)
_TYPE = re.compile(r"(?P<head>\w+)\s*(?:\((?P<numbers>[\d\s,-]*)\)|<(?P<inner>.*)>)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, and its type as it was written."""

    name: str
    type: str

    @property
    def kind(self) -> str:
        """The type's first word in its usual spelling: ``decimal`` for ``NUMERIC(10, 2)``."""
        head = re.split(r"[^\w]", self.type.lower(), maxsplit=1)[0]
        return _ALIASES.get(head, head)

    @property
    def quoted(self) -> str:
        """The name as written in SQL."""
        return "`{}`".format(self.name.replace("`", "``"))


def parse_schema(text: str, where: str) -> tuple[Column, ...]:
    """The columns of ``text``; a DeclarationError that begins with ``where`` says what is wrong with it."""
    if not isinstance(text, str) or not text.strip():
        raise DeclarationError(f"{where} needs a schema: {_EXAMPLE}; got {text!r}")
    columns = tuple(_column(part, where) for part in _parts(text, where))
    seen: set[str] = set()
    for column in columns:
        folded = column.name.lower()
        if folded in seen:
            raise DeclarationError(f"{where}: the schema has two columns called {column.name!r} (case does not count)")
        if folded in RESERVED or folded.startswith(PRIVATE_PREFIX):
            raise DeclarationError(
                f"{where}: the schema has a column called {column.name!r}, a name that Headgate uses itself; rename it"
            )
        seen.add(folded)
    return columns


def _parts(text: str, where: str) -> Iterator[str]:
    """``text`` cut at the commas that are not inside brackets or quotes."""
    depth, quote, begin = 0, "", 0
    for position, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "`'\"":
            quote = char
        elif char in "<(":
            depth += 1
        elif char in ">)":
            depth -= 1
            if depth < 0:
                break
        elif char == "," and depth == 0:
            yield text[begin:position]
            begin = position + 1
    if depth or quote:
        problem = f"a {quote} is not closed" if quote else "its brackets do not match"
        raise DeclarationError(f"{where}: {problem} in the schema {text!r}")
    yield text[begin:]


def _column(part: str, where: str) -> Column:
    match = _COLUMN.fullmatch(part.strip())
    if match is None:
        raise DeclarationError(f"{where}: {part.strip()!r} is not a column of a schema; {_EXAMPLE}")
    written = match["type"].strip()
    if re.search(r"\snot\s+null$", written, re.IGNORECASE):
        raise DeclarationError(
            f"{where}: the column {part.strip()!r} says NOT NULL, which a source cannot promise; leave it out"
        )
    name = match["bare"] or match["quoted"].replace("``", "`")
    _check_type(written, f"{where}: the column {name!r}")
    return Column(name, written)


def _check_type(written: str, where: str) -> None:
    match = _TYPE.fullmatch(written.strip())
    if match is None:
        raise DeclarationError(f"{where} has the type {written!r}, which is not written as Spark writes types")
    head = _ALIASES.get(match["head"].lower(), match["head"].lower())
    if head not in _PLAIN and head not in _NESTED:
        known = sorted(_PLAIN | _NESTED.keys() | _ALIASES.keys())
        close = difflib.get_close_matches(head, known, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        raise DeclarationError(f"{where} has the unknown type {written!r}; {meant}Known: {', '.join(known)}")
    if (head in _NESTED) != (match["inner"] is not None) or (match["numbers"] is not None and head != "decimal"):
        raise DeclarationError(f"{where} has the type {written!r}; {_shape(head)}")
    if match["inner"] is not None:
        _check_inner(head, match["inner"], written, where)


def _check_inner(head: str, inner: str, written: str, where: str) -> None:
    parts = list(_parts(inner, where))
    if head == "struct":
        for part in parts:
            _column(part, where)
        return
    if len(parts) != _NESTED[head]:
        raise DeclarationError(f"{where} has the type {written!r}; {_shape(head)}")
    for part in parts:
        _check_type(part, where)


def _shape(head: str) -> str:
    shapes = {
        "array": "write array<string>",
        "map": "write map<string, double>",
        "struct": "write struct<name: string, size: int>",
        "decimal": "write decimal or decimal(10, 2)",
    }
    return shapes.get(head, f"write just {head}")
