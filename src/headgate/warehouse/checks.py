"""Finding every mistake in what was declared, so that all of them are told at once.

``find_mistakes`` reads a WarehouseSpec and nothing else: it runs no function of the user's, opens no file and knows no
Spark. What only Spark can tell (columns, types, the finer points of a query) is checked when a warehouse is started.
A new check is one more entry of ``_CHECKS``.

``read_query`` tells which tables an SQL text reads. It is no parser: it knows strings, comments, parentheses, WITH and
the places where a table may stand, which is enough to draw the graph of tables.
"""

from __future__ import annotations

import difflib
import inspect
import keyword
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, get_args

from headgate.core.errors import DeclarationError
from headgate.warehouse.spec import (
    REJECTED_SUFFIX,
    CatchUp,
    DimensionSpec,
    Mode,
    Place,
    StreamSpec,
    TableSpec,
    WarehouseSpec,
)

NodeSpec = StreamSpec | DimensionSpec | TableSpec
_KINDS: Mapping[type[NodeSpec], str] = {StreamSpec: "stream", DimensionSpec: "dimension", TableSpec: "table"}


def nodes_of(spec: WarehouseSpec) -> tuple[NodeSpec, ...]:
    """All that becomes a Delta table, in the order of ``spec.names()``."""
    return (*spec.streams, *spec.dimensions, *spec.tables)


def kind_of(node: NodeSpec) -> str:
    """``"stream"``, ``"dimension"`` or ``"table"``."""
    return _KINDS[type(node)]


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing to correct, and where."""

    place: Place
    text: str

    def __str__(self) -> str:
        return f"{shown(self.place)}: {' '.join(self.text.splitlines())}"


class DeclarationErrors(DeclarationError):  # noqa: N818 (it is several)
    """Everything wrong with what was declared: ``mistakes``, sorted by place; its text has one line for each."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(sorted(mistakes, key=lambda mistake: (mistake.place.file, mistake.place.line)))
        super().__init__(self.mistakes)

    def __str__(self) -> str:
        lines = [str(mistake) for mistake in self.mistakes]
        return "\n".join(lines if len(lines) == 1 else [f"{len(lines)} mistakes:", *lines])


def shown(place: Place) -> str:
    """``place`` as short as it can be said from the current folder."""
    return f"{shown_file(place.file)}:{place.line}"


def shown_file(file: str | Path) -> str:
    """``file`` from the current folder on, if it is below it."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def about(node: NodeSpec, text: str) -> Mistake:
    """A mistake in the declaration of ``node``."""
    return Mistake(node.place, f"{_subject(node)}: {text}")


def find_mistakes(spec: WarehouseSpec) -> list[Mistake]:
    """Everything wrong with ``spec``; an empty list if it can be started."""
    return [mistake for check in _CHECKS for mistake in check(spec)]


# --- names ---------------------------------------------------------------------------------------------------

_WAREHOUSE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def _warehouse_name(spec: WarehouseSpec) -> Iterator[Mistake]:
    if not isinstance(spec.name, str) or not _WAREHOUSE_NAME.fullmatch(spec.name):
        text = f"the name of a warehouse takes letters, digits, '_', '-' and '.', such as 'city'; got {spec.name!r}"
        yield Mistake(spec.place, text)


def _names(spec: WarehouseSpec) -> Iterator[Mistake]:
    for node in nodes_of(spec):
        if problem := _name_problem(node.name):
            yield about(node, problem)


def _name_problem(name: object) -> str | None:
    """Names are directories, SQL identifiers and parameters of functions, so they must be fit for all three."""
    if not isinstance(name, str) or not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
        return (
            f"the name takes letters, digits and '_', no digit first, and no word of Python's own; got {name!r}: "
            "choose another, or pass name= to name a table unlike its function"
        )
    if name.startswith("_"):
        return "names that begin with '_' are Headgate's own: choose another"
    if name.lower().endswith(REJECTED_SUFFIX):
        return f"names that end in {REJECTED_SUFFIX!r} are for the rejected rows of streams: choose another"
    return None


def _duplicates(spec: WarehouseSpec) -> Iterator[Mistake]:
    taken: dict[str, NodeSpec] = {}
    for node in sorted(_named(spec), key=lambda node: (node.place.file, node.place.line)):
        first = taken.setdefault(node.name.lower(), node)
        if first is not node:
            case = "" if first.name == node.name else ", and to Spark capitals make no difference"
            where = f"the {_subject(first)} at {shown(first.place)}"
            yield about(node, f"the name is taken by {where}{case}: rename one of the two")


# --- options -------------------------------------------------------------------------------------------------


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_positive(value: Any) -> bool:
    return value is None or (_is_number(value) and value > 0)


_LONGER_THAN_NOTHING = (_is_positive, "a length of time longer than 0")

#: {option: (whether a value will do, what to write instead)}; durations are in seconds by now
_OPTIONS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "source": (
        lambda value: value is not None and not isinstance(value, str | bytes | Path),
        "a source, such as headgate.Files(...)",
    ),
    "time": (
        lambda value: isinstance(value, str) and value.strip() != "",
        "the name of the column that holds the event time, such as time='ts'",
    ),
    # Labels of partitions are written to the second.
    "partition": (
        lambda value: _is_number(value) and value >= 1 and value == int(value),
        "a length of time of one or more whole seconds",
    ),
    "period": _LONGER_THAN_NOTHING,
    "target_lag": _LONGER_THAN_NOTHING,
    "patience": _LONGER_THAN_NOTHING,
    "lookback": (lambda value: _is_number(value) and value >= 0, "a length of time, or 0"),
    "priority": (lambda value: _is_number(value) and value >= 0, "a number, 0 or larger"),
    "importance_class": (
        lambda value: isinstance(value, int) and not isinstance(value, bool),
        "a whole number; larger is more important",
    ),
    "mode": (lambda value: value in get_args(Mode), " or ".join(map(repr, get_args(Mode)))),
    "catch_up": (lambda value: value in get_args(CatchUp), " or ".join(map(repr, get_args(CatchUp)))),
    "group": (lambda value: value is None or (isinstance(value, str) and value != ""), "the name of a group, or None"),
    "comment": (lambda value: isinstance(value, str), "a text"),
}
_DURATIONS = ("partition", "period", "target_lag", "patience", "lookback")


def _options(spec: WarehouseSpec) -> Iterator[Mistake]:
    for node in nodes_of(spec):
        for option, (will_do, expected) in _OPTIONS.items():
            if hasattr(node, option) and not will_do(value := getattr(node, option)):
                got = f"{value!r} seconds" if option in _DURATIONS else repr(value)
                yield about(node, f"{option} takes {expected}; got {got}")


# --- where tables come from ----------------------------------------------------------------------------------


def _definitions(spec: WarehouseSpec) -> Iterator[Mistake]:
    for table in spec.tables:
        if table.function is not None:
            problems = read_function(table.function).problems
        elif table.query is not None:
            problems = read_query(table.query).problems
        else:
            problems = ("a table takes a function of its sources or a query in SQL; got None",)
        yield from (about(table, problem) for problem in problems)


def _sources(spec: WarehouseSpec) -> Iterator[Mistake]:
    known = {node.name for node in _named(spec)}
    dimensions = {node.name for node in spec.dimensions}
    for table in spec.tables:
        for unknown in (source for source in table.sources if source not in known):
            yield about(table, f"the source {unknown!r} is declared nowhere; {_meant(unknown, known - {table.name})}")
        if table.sources and dimensions.issuperset(table.sources):
            text = f"there is no event time in any of its sources ({', '.join(table.sources)}), which are dimensions"
            yield about(table, f"{text}: add a stream or a table")


def _meant(unknown: str, known: Iterable[str]) -> str:
    by_lower = {name.lower(): name for name in sorted(known)}
    if close := difflib.get_close_matches(unknown.lower(), by_lower, n=3):
        return f"did you mean {' or '.join(repr(by_lower[name]) for name in close)}?"
    some, more = list(by_lower.values())[:8], len(by_lower) - 8
    return f"declared are: {', '.join(some)}{f' and {more} more' if more > 0 else ''}" if some else "nothing else is"


def _cycles(spec: WarehouseSpec) -> Iterator[Mistake]:
    """One mistake for each set of cycles that share a table: mending it may leave another to be found."""
    tables: dict[str, TableSpec] = {}
    for table in spec.tables:
        if isinstance(table.name, str):
            tables.setdefault(table.name, table)
    declared = {name: number for number, name in enumerate(tables)}
    feeding = {name: [s for s in table.sources if s in tables] for name, table in tables.items()}
    while cycle := _cycle(feeding):
        first = min(range(len(cycle)), key=lambda k: declared[cycle[k]])
        circle = " -> ".join([*cycle[first:], *cycle[:first], cycle[first]])
        text = f"it is computed from itself: {circle}; drop one of these sources"
        yield about(tables[cycle[first]], text)
        feeding = {
            name: [source for source in sources if source not in cycle]
            for name, sources in feeding.items()
            if name not in cycle
        }


def _cycle(feeding: Mapping[str, Iterable[str]]) -> list[str]:
    """Names each of which feeds the next, and the last the first; empty if there is no cycle."""
    try:
        TopologicalSorter(feeding).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found[1:]
    return []


def _groups(spec: WarehouseSpec) -> Iterator[Mistake]:
    first: dict[str, TableSpec] = {}
    for table in spec.tables:
        if not isinstance(table.group, str) or not table.sources:
            continue
        other = first.setdefault(table.group, table)
        if set(other.sources) != set(table.sources):
            here, there = ", ".join(table.sources), ", ".join(other.sources)
            text = f"the tables of group {table.group!r} must have the same sources; this one reads {here}, but"
            yield about(table, f"{text} {other.name!r} at {shown(other.place)} reads {there}: choose another group")


_CHECKS: tuple[Callable[[WarehouseSpec], Iterator[Mistake]], ...] = (
    _warehouse_name,
    _names,
    _duplicates,
    _options,
    _definitions,
    _sources,
    _cycles,
    _groups,
)


def _named(spec: WarehouseSpec) -> Iterator[NodeSpec]:
    return (node for node in nodes_of(spec) if isinstance(node.name, str))


def _subject(node: NodeSpec) -> str:
    return f"{kind_of(node)} {node.name!r}"


# --- reading functions and queries ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reads:
    """The names of the tables that a function or a query reads, in order, and what kept it from being understood."""

    sources: tuple[str, ...]
    problems: tuple[str, ...] = ()


def read_function(function: object) -> Reads:
    """A function's parameters are its sources."""
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return Reads((), (f"a table is a function of its sources; got {function!r}",))
    if not parameters:
        return Reads((), ("the function has no parameters; they name the tables that it is computed from",))
    odd = [p for p in parameters if p.kind is not p.POSITIONAL_OR_KEYWORD or p.default is not p.empty]
    problems = tuple(
        f"the parameter '{p.replace(annotation=p.empty)}' names no table; "
        "a function takes one plain parameter for each source, without default, '*' or '/'"
        for p in odd
    )
    return Reads(tuple(p.name for p in parameters if all(p is not other for other in odd)), problems)


def read_query(query: object) -> Reads:
    """The tables named after FROM and JOIN, without those that the query itself defines with WITH."""
    if not isinstance(query, str):
        return Reads((), (f"the query takes a text; got {query!r}",))
    try:
        tokens = list(_tokens(query))
    except _UnclosedError as error:
        return Reads((), (str(error),))
    if problems := tuple(_statement_problems(tokens)):
        return Reads((), problems)
    sources = _QueryReader(tokens).sources()
    return Reads(sources, () if sources else ("the query reads no table",))


class _UnclosedError(Exception):
    """Something in a query begins and never ends."""


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    line: int

    @property
    def word(self) -> str:
        """In capitals, if it may be a keyword; empty for names in backquotes, numbers and marks."""
        return self.text.upper() if self.text.isidentifier() else ""

    @property
    def name(self) -> str:
        """Without backquotes, if it may name a table; otherwise empty."""
        if self.text.startswith("`"):
            return self.text[1:-1].replace("``", "`")
        return self.text if self.text[:1].isalnum() or self.text[:1] == "_" else ""


_END = _Token("", 0)

_LEXEME = re.compile(
    r"""(?P<nothing> \s+ | --(?:\\\n|[^\n])* )
      | (?P<comment> /\* )
      | (?P<string> [rR](?:'[^']*'|"[^"]*") | '[^'\\]*(?:\\.[^'\\]*)*' | "[^"\\]*(?:\\.[^"\\]*)*" )
      | (?P<token> `(?:[^`]|``)*` | \w+ | [^'"`] )
      | (?P<unclosed> . )""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


def _tokens(query: str) -> Iterator[_Token]:
    """Words, names in backquotes and single marks; a string of any content is the token ``''``."""
    at = 0
    while match := _LEXEME.match(query, at):
        line = query.count("\n", 0, at) + 1
        at = match.end()
        if match.lastgroup == "token":
            yield _Token(match[0], line)
        elif match.lastgroup == "string":
            yield _Token("''", line)
        elif match.lastgroup == "comment":
            at = _end_of_comment(query, at, line)
        elif match.lastgroup == "unclosed":
            raise _UnclosedError(f"the quote {match[0]} on line {line} of the query is never closed")


def _end_of_comment(query: str, at: int, line: int) -> int:
    depth = 1  # comments nest
    for edge in _COMMENT_EDGE.finditer(query, at):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise _UnclosedError(f"the comment on line {line} of the query is never closed")


#: more than anybody writes, and less than the stack of an interpreter holds
_DEEPEST = 200


def _statement_problems(tokens: list[_Token]) -> Iterator[str]:
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    first = next((token for token in tokens if token.text != "("), None)
    if first is None:
        yield "the query is empty"
    elif first.word not in ("SELECT", "WITH"):
        yield f"the query takes a SELECT, or a WITH and a SELECT; it begins with {first.text!r}"
    if any(token.text == ";" for token in tokens):
        yield "the query takes one statement; it has a ';' with more behind it"
    open_on: list[int] = []
    for token in tokens:
        if token.text == "(":
            open_on.append(token.line)
            if len(open_on) > _DEEPEST:
                yield f"the query has more than {_DEEPEST} parentheses inside each other; split it into several tables"
                return
        elif token.text == ")" and not open_on:
            yield f"the query has a ')' on line {token.line} that closes nothing"
        elif token.text == ")":
            open_on.pop()
    if open_on:
        yield f"the query has a '(' on line {open_on[-1]} that is never closed"


#: the clauses that can follow FROM: from there on, a comma is not followed by a table
_AFTER_FROM = {
    *("WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "WINDOW"),
    *("UNION", "EXCEPT", "MINUS", "INTERSECT", "VALUES"),
}


class _QueryReader:
    """Walks the tokens of one query once, from left to right."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = [*tokens, _END]
        self._at = 0
        #: {lower case: as first written}, in order
        self._found: dict[str, str] = {}

    def sources(self) -> tuple[str, ...]:
        self._level(frozenset(), relation=False)
        return tuple(self._found.values())

    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next()
        self._at += token is not _END
        return token

    def _level(self, defined: frozenset[str], *, relation: bool) -> None:
        """Reads on to the ``)`` that ends this level, or the end. ``defined`` are the names made by WITH so far.

        ``relation`` says that the level stands where a table can. ``awaited`` that one can come next, ``listing``
        that one can come after a comma, ``query`` that FROM is a clause and not a word of ``extract(day from ts)``.
        """
        awaited = listing = query = relation
        if self._next().word == "WITH":
            defined = self._with(defined)
        before = ""
        while (token := self._take()) is not _END and token.text != ")":
            word = "" if before == "." else token.word
            if token.text == "(":
                self._level(defined, relation=awaited)
                awaited = False
            elif word == "SELECT":
                query, awaited, listing = True, False, False
            elif word == "FROM" and query and before != "DISTINCT":
                awaited = listing = True
            elif word in _AFTER_FROM or (word == "VIEW" and before == "LATERAL"):
                awaited = listing = False
            elif word == "JOIN":
                awaited = True
            elif token.text == ",":
                awaited = listing
            elif awaited and word not in ("LATERAL", "TABLE"):
                self._relation(token, defined)
                awaited = False
            before = token.text.upper()

    def _with(self, defined: frozenset[str]) -> frozenset[str]:
        """Reads ``with a as (...), b (x, y) as (...)`` and returns the names defined now.

        A name counts only behind its body: ``with a as (select * from a)`` reads the table a.
        """
        self._take()
        recursive = self._next().word == "RECURSIVE"
        if recursive:
            self._take()
        separator = ","
        while separator == "," and (name := self._take().name.lower()):
            if self._next().text == "(":
                self._take()
                self._level(defined, relation=False)
            while self._next().text not in ("(", _END.text):
                self._take()
            self._take()
            self._level(defined | {name} if recursive else defined, relation=True)
            defined |= {name}
            separator = self._next().text
            if separator == ",":
                self._take()
        return defined

    def _relation(self, token: _Token, defined: frozenset[str]) -> None:
        parts = [token.name]
        while self._next().text == "." and self._tokens[self._at + 1].name:
            self._take()
            parts.append(self._take().name)
        name = ".".join(parts)
        if parts[0] and self._next().text != "(" and name.lower() not in defined:
            self._found.setdefault(name.lower(), name)
