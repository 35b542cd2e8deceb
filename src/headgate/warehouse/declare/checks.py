"""Find every mistake in what was declared, so that all of them are reported at once.

``find_mistakes`` only reads a WarehouseSpec: it runs no user function, opens no file and needs no Spark. What needs
Spark (columns, types, whether a query is valid) is checked when a warehouse is started. A new check is one more entry
of ``_CHECKS``.
"""

from __future__ import annotations

import difflib
import keyword
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from headgate.core import (
    MOST_CLASS,
    MOST_PRIORITY,
    MOST_SECONDS,
    DeclarationError,
    ParameterError,
    inheritance_from,
    together_from,
)
from headgate.places.place import is_url
from headgate.warehouse.declare.spec import (
    REJECTED_SUFFIX,
    CatchUp,
    DimensionSpec,
    Mode,
    NodeSpec,
    Place,
    StreamSpec,
    TableSpec,
    WarehouseSpec,
    base_folder,
)
from headgate.warehouse.declare.sql_text import read_function, read_query
from headgate.warehouse.publish.catalog import CATALOG_NAME
from headgate.warehouse.publish.protocol import Publisher

if TYPE_CHECKING:
    from headgate.warehouse.sources.schema import Column

_KINDS: Mapping[type[NodeSpec], str] = {StreamSpec: "stream", DimensionSpec: "dimension", TableSpec: "table"}


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
    """``place`` relative to the current folder, if it is below it."""
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


def _catalog(spec: WarehouseSpec) -> Iterator[Mistake]:
    if spec.catalog != "" and not (isinstance(spec.catalog, str) and CATALOG_NAME.fullmatch(spec.catalog)):
        text = "catalog= takes the name of a schema, such as 'city', or of a catalog and a schema, such as 'unity.city'"
        yield Mistake(spec.place, f"{text}; got {spec.catalog!r}")


def _lock(spec: WarehouseSpec) -> Iterator[Mistake]:
    from headgate.warehouse.run.lock_table import lock_address

    if not spec.lock:
        return
    try:
        lock_address(spec.lock)
    except DeclarationError as error:
        yield Mistake(spec.place, str(error))
    if not is_url(spec.path) or str(spec.path).startswith(("file:", "hdfs:")):
        text = "lock= is for a warehouse in an object store; folders and HDFS have a lock of their own: leave it out"
        yield Mistake(spec.place, text)


def _settings(spec: WarehouseSpec) -> Iterator[Mistake]:
    for read, stated in ((inheritance_from, spec.inheritance), (together_from, spec.together)):
        try:
            read(str(stated))
        except ParameterError as error:
            yield Mistake(spec.place, str(error))


def _names(spec: WarehouseSpec) -> Iterator[Mistake]:
    for node in spec.nodes():
        if problem := _name_problem(node.name):
            yield about(node, problem)


def _name_problem(name: object) -> str | None:
    """Names are directories, SQL identifiers and function parameters, so they must be valid as all three."""
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


def _is_length(value: Any) -> bool:
    return value is None or (_is_number(value) and 0 < value <= MOST_SECONDS)


# These are recorded, in a trace that can be read again.
_LENGTH = (_is_length, f"a length of time longer than 0, and of at most {MOST_SECONDS:g} seconds")

#: {option: (whether a value will do, what to write instead)}; durations are in seconds by now
_OPTIONS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "source": (
        lambda value: value is not None and not isinstance(value, str | bytes | Path),
        "a source, such as headgate.Files(...)",
    ),
    "time": (
        lambda value: isinstance(value, str) and value.strip() != "",
        "the name of the column that holds the event time, such as time='ts'; a table without one takes time=None",
    ),
    # Labels of partitions are written to the second.
    "partition": (
        lambda value: _is_number(value) and value >= 1 and value == int(value),
        "a length of time of one or more whole seconds",
    ),
    "period": _LENGTH,
    "target_lag": _LENGTH,
    "patience": _LENGTH,
    "max_future": (lambda value: value is None or (_is_number(value) and value >= 0), "a length of time, 0 or None"),
    "lookback": (lambda value: _is_number(value) and value >= 0, "a length of time, or 0"),
    "priority": (
        lambda value: _is_number(value) and 0 <= value <= MOST_PRIORITY,
        f"a number from 0 to {MOST_PRIORITY:g}",
    ),
    "importance_class": (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST_CLASS,
        f"a whole number from -{MOST_CLASS} to {MOST_CLASS}; larger is more important",
    ),
    "mode": (lambda value: value in get_args(Mode), " or ".join(map(repr, get_args(Mode)))),
    "key": (
        lambda value: all(isinstance(name, str) and name for name in value),
        "names of columns, such as key=['customer']",
    ),
    "catch_up": (lambda value: value in get_args(CatchUp), " or ".join(map(repr, get_args(CatchUp)))),
    "group": (lambda value: value is None or (isinstance(value, str) and value != ""), "the name of a group, or None"),
    "comment": (lambda value: isinstance(value, str), "a text"),
}
_DURATIONS = ("partition", "period", "target_lag", "patience", "max_future", "lookback")


def _options(spec: WarehouseSpec) -> Iterator[Mistake]:
    for node in spec.nodes():
        for option, (will_do, expected) in _OPTIONS.items():
            if option == "time" and isinstance(node, TableSpec) and node.time is None:
                continue  # a table may have none
            if hasattr(node, option) and not will_do(value := getattr(node, option)):
                got = f"{value!r} seconds" if option in _DURATIONS else repr(value)
                if option == "time" and value == "":
                    got = "none"  # nothing was stated
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


def _times(spec: WarehouseSpec) -> Iterator[Mistake]:
    for table in spec.tables:
        if table.time is None and (table.lookback or table.mode in ("blocks", "recompute")):
            yield about(table, "lookback and mode 'blocks' need an event time: state time, or leave them out")


def _stream_times(spec: WarehouseSpec) -> Iterator[Mistake]:
    """Every load of a stream would fail whose time is not a timestamp of its source."""
    base = base_folder(spec.place)
    for stream in spec.streams:
        columns = _columns_of(stream, base)
        if not columns or not isinstance(stream.time, str) or not stream.time.strip():
            continue  # another check reports that
        if stream.time not in columns:
            stated = f"no column {stream.time!r}, which was stated as its time"
            yield about(stream, f"its source has {stated}; it has: {', '.join(columns)}")
        elif columns[stream.time].kind != "timestamp":
            written = columns[stream.time].type
            yield about(stream, f"its time column {stream.time!r} takes a timestamp; the source has {written} there")


def _columns_of(stream: StreamSpec, base: Path) -> dict[str, Column]:
    """The columns of a stream's source, by name; none if the source itself is a mistake.

    Some sources have to be looked at for them; relative paths count from ``base``.
    """
    from headgate.warehouse.sources.schema import parse_schema

    try:
        source = stream.source.resolve(base) if hasattr(stream.source, "resolve") else stream.source
        return {column.name: column for column in parse_schema(getattr(source, "schema", ""), "")}
    except DeclarationError:
        return {}


def _dimensions(spec: WarehouseSpec) -> Iterator[Mistake]:
    """A dimension is all that its source has, which a topic with its retention does not keep."""
    from headgate.warehouse.sources.kafka.source import Kafka

    for dimension in spec.dimensions:
        if isinstance(dimension.source, Kafka):
            yield about(dimension, "a topic of Kafka can be a stream, not a dimension; build a table on the stream")


def _sources(spec: WarehouseSpec) -> Iterator[Mistake]:
    known = {node.name for node in _named(spec)}
    dimensions = {node.name for node in spec.dimensions}
    for table in spec.tables:
        for unknown in (source for source in table.sources if source not in known):
            yield about(table, f"the source {unknown!r} is declared nowhere; {_meant(unknown, known - {table.name})}")
        if table.sources and dimensions.issuperset(table.sources):
            text = f"there is no event time in any of its sources ({', '.join(table.sources)}), which are dimensions"
            yield about(table, f"{text}: add a stream or a table")


def _publications(spec: WarehouseSpec) -> Iterator[Mistake]:
    known = {node.name for node in _named(spec)}
    for publication in spec.publications:
        if publication.table not in known:
            text = f"the table {publication.table!r} is to be published and declared nowhere"
            yield Mistake(publication.place, f"{text}; {_meant(publication.table, known)}")
        to: object = publication.to
        if not isinstance(to, Publisher):
            text = f"{publication.table!r} is published to= a place such as headgate.PostgresSink(...)"
            yield Mistake(publication.place, f"{text}; got {to!r}")


def _alerts(spec: WarehouseSpec) -> Iterator[Mistake]:
    from headgate.warehouse.declare.alert import Alert

    nodes = {node.name: node for node in _named(spec)}
    declared: tuple[object, ...] = spec.alerts
    for alert in declared:
        if not isinstance(alert, Alert):
            text = "alerts= takes a list of headgate.Alert(...)"
            yield Mistake(spec.place, f"{text}; got {alert!r}")
            continue
        for name in alert.tables:
            node = nodes.get(name)
            if node is None:
                yield Mistake(alert.place, f"the alert is about {name!r}, declared nowhere; {_meant(name, nodes)}")
            elif alert.late is not None and getattr(node, "target_lag", None) is None:
                text = f"the alert is about {name!r} being late, which has no target_lag: state one"
                yield Mistake(alert.place, f"{text}, or leave out late=")
            elif alert.silent is not None and not isinstance(node, StreamSpec):
                text = f"the alert is about a silent source of {name!r}, which is no stream"
                yield Mistake(alert.place, f"{text}: name the streams that it is computed from")


def _meant(unknown: str, known: Iterable[str]) -> str:
    by_lower = {name.lower(): name for name in sorted(known)}
    if close := difflib.get_close_matches(unknown.lower(), by_lower, n=3):
        return f"did you mean {' or '.join(repr(by_lower[name]) for name in close)}?"
    some, more = list(by_lower.values())[:8], len(by_lower) - 8
    return f"declared are: {', '.join(some)}{f' and {more} more' if more > 0 else ''}" if some else "nothing else is"


def _cycles(spec: WarehouseSpec) -> Iterator[Mistake]:
    """One mistake for each set of cycles that share a table: after one is fixed, another may be reported."""
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
    """Names of which each feeds the next, and the last feeds the first; empty if there is no cycle."""
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
    _catalog,
    _lock,
    _settings,
    _names,
    _duplicates,
    _options,
    _definitions,
    _times,
    _stream_times,
    _sources,
    _publications,
    _alerts,
    _dimensions,
    _cycles,
    _groups,
)


def _named(spec: WarehouseSpec) -> Iterator[NodeSpec]:
    return (node for node in spec.nodes() if isinstance(node.name, str))


def _subject(node: NodeSpec) -> str:
    return f"{kind_of(node)} {node.name!r}"
