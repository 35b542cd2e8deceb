"""Every mistake in a declaration is found, named with its place, and told together with all the others."""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.errors import DeclarationError
from headgate.warehouse.declare.checks import DeclarationErrors, Mistake, find_mistakes
from headgate.warehouse.declare.spec import Place
from headgate.warehouse.declare.sql_text import read_query
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.sources import Files

SOURCE: Any = object()
READINGS = Files("landing", schema="ts timestamp, day date, k string")
LINES = Files("landing", format="text")

#: a share of the examples of the profile, for properties that take long to check once
few_examples = settings(max_examples=max(1, settings().max_examples // 5))


def mistakes_of(warehouse: Warehouse) -> list[Mistake]:
    with pytest.raises(DeclarationErrors) as refusal:
        warehouse.spec()
    return list(refusal.value.mistakes)


def city() -> Warehouse:
    """A warehouse without mistakes: to begin from."""
    warehouse = Warehouse("city")
    warehouse.stream("readings", SOURCE, time="ts")
    warehouse.stream("trips", SOURCE, time="ts")
    warehouse.dimension("zones", SOURCE)
    return warehouse


def no_parameters() -> None: ...
def star_args(*readings: Any) -> None: ...
def star_kwargs(readings: Any, **options: Any) -> None: ...
def with_default(readings: Any, limit: int = 40) -> None: ...
def keyword_only(readings: Any, *, trips: Any) -> None: ...
def positional_only(readings: Any, /) -> None: ...


def stream(**options: Any) -> Callable[[Warehouse], object]:
    return lambda wh: wh.stream(**{"name": "x", "source": SOURCE, "time": "ts"} | options)


def dimension(**options: Any) -> Callable[[Warehouse], object]:
    return lambda wh: wh.dimension(**{"name": "x", "source": SOURCE} | options)


def sql(query: Any = "select * from readings", **options: Any) -> Callable[[Warehouse], object]:
    return lambda wh: wh.sql(**{"name": "x", "query": query, "time": "ts"} | options)


def table(function: Any = lambda readings: None, **options: Any) -> Callable[[Warehouse], object]:
    return lambda wh: wh.table(**{"name": "x", "time": "ts"} | options)(function)


MISTAKES: dict[str, tuple[Callable[[Warehouse], object], tuple[str, ...]]] = {
    # names
    "a name with a space": (stream(name="two words"), ("stream 'two words'", "letters, digits")),
    "a name that begins with a digit": (sql(name="2fast"), ("table '2fast'", "no digit first")),
    "a name beyond ASCII": (dimension(name="café"), ("dimension 'café'", "letters, digits")),
    "a word of Python": (stream(name="class"), ("stream 'class'", "word of Python")),
    "no name": (stream(name=""), ("stream ''", "letters, digits")),
    "a name that is no text": (stream(name=["x"]), ("stream ['x']", "letters, digits")),
    "a lambda without a name": (table(name=None), ("'<lambda>'", "name=")),
    "a name that begins with _": (stream(name="_x"), ("stream '_x'", "begin with '_'")),
    "a name for rejected rows": (stream(name="readings__rejected"), ("'readings__rejected'", "rejected rows")),
    "a name that is taken": (dimension(name="trips"), ("dimension 'trips'", "taken by the stream 'trips' at")),
    "a name that differs by capitals": (sql(name="Trips"), ("table 'Trips'", "stream 'trips' at", "capitals")),
    # options
    "no source": (stream(source=None), ("source takes a source", "None")),
    "a path for a source": (dimension(source="landing/zones"), ("source takes", "headgate.Files", "'landing/zones'")),
    "no time": (stream(time=""), ("time takes the name of the column", "got none")),
    "no time on a function": (table(time=""), ("time takes the name of the column", "got none")),
    "no time on a stream": (stream(time=None), ("time takes the name of the column", "None")),
    "blocks of time without time": (sql(time=None, key=["k"], mode="blocks"), ("mode 'blocks' need an event time",)),
    "a key that is no name": (sql(key=[7]), ("key takes names of columns", "(7,)")),
    "a blank time": (sql(time="  "), ("time takes the name of the column", "'  '")),
    "a partition nobody can read": (stream(partition="10 parsecs"), ("partition takes", "'10 parsecs'")),
    "a partition of None": (table(partition=None), ("partition takes", "None")),
    "a partition of 0": (stream(partition="0 hours"), ("partition takes", "whole seconds", "0.0 seconds")),
    "a partition below a second": (sql(partition="500 ms"), ("partition takes", "whole seconds", "0.5 seconds")),
    "a partition of 1.5 seconds": (table(partition=1.5), ("partition takes", "whole seconds", "1.5 seconds")),
    "a period of 0": (stream(period=0), ("period takes", "longer than 0", "0.0 seconds")),
    "a period nobody can read": (stream(period="often"), ("period takes", "'often'")),
    "a negative lookback": (table(lookback=-1), ("lookback takes", "-1")),
    "a negative lookback in words": (sql(lookback="-5 min"), ("lookback takes", "'-5 min'")),
    "a target lag of 0": (sql(target_lag=0), ("target_lag takes", "longer than 0")),
    "a negative target lag": (stream(target_lag=-3), ("target_lag takes", "-3")),
    "a patience of 0": (table(patience="0 s"), ("patience takes", "longer than 0")),
    "an endless patience": (table(patience=float("inf")), ("patience takes", "inf")),
    "an immense target lag": (
        sql(target_lag=2e15),
        ("target_lag takes", "at most 1e+09 seconds", "2000000000000000.0 s"),
    ),
    "a target lag of ages": (stream(target_lag="2000 weeks"), ("target_lag takes", "at most 1e+09", "1209600000.0 s")),
    "an immense period": (stream(period=1e300), ("period takes", "at most 1e+09 seconds")),
    "an immense patience": (table(patience=1e10), ("patience takes", "at most 1e+09 seconds")),
    "an immense class": (
        table(importance_class=2**64),
        ("importance_class takes a whole number from -9007199254740992",),
    ),
    "a negative priority": (stream(priority=-1), ("priority takes", "from 0 to 1e+12", "-1")),
    "an immense priority": (stream(priority=1e300), ("priority takes", "1e+300")),
    "a priority that is no number": (table(priority=float("nan")), ("priority takes", "nan")),
    "a priority in words": (dimension(priority="high"), ("priority takes a number", "'high'")),
    "a priority of true": (sql(priority=True), ("priority takes a number", "True")),
    "an endless priority": (sql(priority=float("inf")), ("priority takes a number", "inf")),
    "half a class": (stream(importance_class=0.5), ("importance_class takes a whole number", "0.5")),
    "an unknown mode": (sql(mode="fast"), ("mode takes 'auto' or 'append' or 'merge' or 'blocks'", "'fast'")),
    "an unknown way to catch up": (table(catch_up="all"), ("catch_up takes 'oldest' or 'newest'", "'all'")),
    "a group without a name": (sql(group=""), ("group takes the name of a group", "''")),
    "a comment that is no text": (stream(comment=7), ("comment takes a text", "7")),
    "a time that the source has not": (stream(source=READINGS, time="tz"), ("no column 'tz'", "it has: ts, day, k")),
    "a time that is a text": (
        stream(source=READINGS, time="k"),
        ("'k' takes a timestamp; the source has string there",),
    ),
    "a time that is a day": (
        stream(source=READINGS, time="day"),
        ("'day' takes a timestamp; the source has date there",),
    ),
    "a time in lines of text": (stream(source=LINES), ("no column 'ts'", "it has: value")),
    # functions
    "a function without parameters": (table(no_parameters), ("no parameters",)),
    "a function of *args": (table(star_args), ("'*readings' names no table",)),
    "a function of **kwargs": (table(star_kwargs), ("'**options' names no table",)),
    "a parameter with a default": (table(with_default), ("'limit=40' names no table",)),
    "a keyword-only parameter": (table(keyword_only), ("'trips' names no table", "without default, '*'")),
    "a positional-only parameter": (table(positional_only), ("'readings' names no table", "'/'")),
    "no function at all": (table(5), ("a table is a function of its sources", "5")),
    # sources
    "an unknown source": (sql("select * from trip"), ("'trip' is declared nowhere", "did you mean 'trips'?")),
    "an unknown parameter": (table(lambda readngs: 0), ("'readngs'", "did you mean 'readings'?")),
    "a source like no other": (sql("select * from qqq"), ("'qqq'", "declared are: readings, trips, zones")),
    "a source in a database": (sql("select * from db.trips"), ("'db.trips'", "did you mean 'trips'?")),
    "dimensions only": (sql("select * from zones"), ("no event time", "(zones)", "add a stream")),
    "a table of itself": (sql("select * from x"), ("computed from itself: x -> x",)),
    # queries
    "an empty query": (sql(" -- nothing\n"), ("the query is empty",)),
    "a query that is no text": (sql(5), ("the query takes a text", "5")),
    "neither query nor function": (sql(None), ("a function of its sources or a query", "None")),
    "not a SELECT": (sql("delete from readings"), ("takes a SELECT", "'delete'")),
    "two statements": (sql("select * from readings; select 1"), ("one statement",)),
    "an open parenthesis": (sql("select (\n1 from readings"), ("'(' on line 1", "never closed")),
    "a stray parenthesis": (sql("select *\nfrom readings)"), ("')' on line 2", "closes nothing")),
    "an open string": (sql("select *\nfrom readings\nwhere a = 'b"), ("quote ' on line 3", "never closed")),
    "an open name": (sql("select * from `readings"), ("quote ` on line 1", "never closed")),
    "an open comment": (sql("select * /* all /* of */ it from readings"), ("comment on line 1", "never closed")),
    "a query of nothing": (sql("select 1 as ts"), ("reads no table",)),
}


@pytest.mark.parametrize(("declare", "fragments"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_found_once_and_named(declare: Callable[[Warehouse], object], fragments: tuple[str, ...]) -> None:
    warehouse = city()
    declare(warehouse)
    (mistake,) = mistakes_of(warehouse)
    assert [fragment for fragment in fragments if fragment not in mistake.text] == []
    assert mistake.place.file == __file__


def test_a_warehouse_without_mistakes_has_none() -> None:
    assert find_mistakes(city().spec()) == []


@pytest.mark.parametrize("name", ["", "a/b", "..", "two words", None])
def test_the_name_of_a_warehouse_must_do_for_a_folder(name: Any) -> None:
    (mistake,) = mistakes_of(Warehouse(name))
    assert "name of a warehouse" in mistake.text
    assert repr(name) in mistake.text


@pytest.mark.parametrize("path", ["", 5, b"city", "ci\0ty"])
def test_the_path_of_a_warehouse_must_be_a_folder(path: Any) -> None:
    (mistake,) = mistakes_of(Warehouse("city", path))
    assert "path of a warehouse takes a folder" in mistake.text
    assert repr(path) in mistake.text


# --- mistakes of several declarations -----------------------------------------------------------------------


def lines_of(text: str, file: str = "/jobs/city.py") -> list[str]:
    """What the error says about a pipeline of this text, line by line."""
    names: dict[str, Any] = {"Warehouse": Warehouse, "source": SOURCE, "__name__": "pipeline"}
    exec(compile(text, file, "exec"), names)
    with pytest.raises(DeclarationErrors) as refusal:
        names["wh"].spec()
    return str(refusal.value).splitlines()


def test_both_places_of_a_name_that_is_declared_twice_are_told() -> None:
    (line,) = lines_of(
        "wh = Warehouse('city')\nwh.stream('a', source, time='ts')\nwh.sql('a', 'select * from b', time='ts')\n"
        "wh.stream('b', source, time='ts')"
    )
    assert line.startswith("/jobs/city.py:3: table 'a'")
    assert "stream 'a' at /jobs/city.py:2" in line


def test_a_table_that_fails_for_two_reasons_is_told_both() -> None:
    lines = lines_of("wh = Warehouse('city')\nwh.sql('a', 'select * from nowhere', time='', priority=-1)")
    assert lines[0] == "3 mistakes:"
    assert all(line.startswith("/jobs/city.py:2: table 'a': ") for line in lines[1:])


MANY = """\
wh = Warehouse('city')
wh.stream('readings', source, time='ts', partition='10 parsecs')
wh.dimension('zones', source, priority=-1)
wh.sql('alerts', 'select * from reedings', time='ts')
wh.stream('readings', source, time='ts')
wh.table(time='ts', name='a')(lambda b: None)
wh.table(time='ts', name='b')(lambda a: None)
wh.sql('open', 'select (1 from readings', time='', mode='often')
"""


def test_many_mistakes_are_told_together_in_the_order_of_the_file() -> None:
    heading, *lines = lines_of(MANY)
    assert heading == "8 mistakes:"
    expected = [
        (2, "partition"),
        (3, "priority"),
        (4, "did you mean 'readings'?"),
        (5, "taken"),
        (6, "a -> b -> a"),
        (8, "time takes"),
        (8, "mode takes"),
        (8, "never closed"),
    ]
    assert len(lines) == len(expected)
    for line, (number, fragment) in zip(lines, expected, strict=True):
        assert line.startswith(f"/jobs/city.py:{number}: ")
        assert fragment in line


def test_places_are_told_from_the_current_folder_if_below_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = lines_of("\nwh = Warehouse('')", str(tmp_path / "jobs" / "city.py"))
    assert line.startswith(str(Path("jobs", "city.py:2: ")))


def test_a_mistake_is_one_line_even_if_a_value_has_several() -> None:
    class Tall:
        def __repr__(self) -> str:
            return "up\ndown"

    warehouse = Warehouse("city")
    warehouse.stream("readings", SOURCE, time=Tall())  # type: ignore[arg-type]
    (mistake,) = mistakes_of(warehouse)
    assert str(mistake).endswith("got up down")


def test_errors_of_declaring_are_declaration_errors_and_survive_pickling() -> None:
    error = DeclarationErrors([Mistake(Place("b.py", 1), "later"), Mistake(Place("a.py", 2), "sooner")])
    assert isinstance(error, DeclarationError)
    copy = pickle.loads(pickle.dumps(error))
    assert copy.mistakes == error.mistakes
    assert [mistake.text for mistake in copy.mistakes] == ["sooner", "later"]
    assert str(copy) == str(error)


# --- cycles -------------------------------------------------------------------------------------------------


def tables_of(sources: dict[str, tuple[str, ...]]) -> Warehouse:
    warehouse = Warehouse("circles")
    warehouse.stream("start", SOURCE, time="ts")
    for name, reads in sources.items():
        warehouse.sql(name, f"select * from {', '.join(('start', *reads))}", time="ts")
    return warehouse


@pytest.mark.parametrize(
    ("sources", "circles"),
    [
        pytest.param({"a": ("b",), "b": ("a",)}, ["a -> b -> a"], id="two tables"),
        pytest.param({"a": ("c",), "b": ("a",), "c": ("b",), "d": ("c",)}, ["a -> b -> c -> a"], id="with a way out"),
        pytest.param({"a": ("a",), "b": ("c",), "c": ("b",)}, ["a -> a", "b -> c -> b"], id="two circles apart"),
    ],
)
def test_a_cycle_is_told_from_its_first_table_on_in_the_direction_of_the_data(
    sources: dict[str, tuple[str, ...]], circles: list[str]
) -> None:
    found = [re.search(r"from itself: ([\w >-]+);", mistake.text) for mistake in mistakes_of(tables_of(sources))]
    assert [match and match[1] for match in found] == circles


@few_examples
@given(st.data())
def test_a_cycle_that_is_told_is_really_there_and_none_goes_untold(data: st.DataObject) -> None:
    names = [f"t{i}" for i in range(data.draw(st.integers(1, 7)))]
    sources = {name: tuple(data.draw(st.lists(st.sampled_from(names), max_size=2, unique=True))) for name in names}
    try:
        tables_of(sources).spec()
        told = False
    except DeclarationErrors as error:
        told = True
        for mistake in error.mistakes:
            circle = mistake.text.partition("itself: ")[2].partition(";")[0].split(" -> ")
            assert circle[0] == circle[-1]
            assert all(feeding in sources[fed] for feeding, fed in pairwise(circle))
    reached = {name: set(reads) for name, reads in sources.items()}
    for _ in names:
        reached = {name: seen | {s for n in seen for s in reached[n]} for name, seen in reached.items()}
    assert told == any(name in seen for name, seen in reached.items())


# --- groups -------------------------------------------------------------------------------------------------


def test_a_group_over_the_same_sources_in_any_order_is_none() -> None:
    warehouse = city()
    warehouse.sql("a", "select * from readings, trips", time="ts", group="g")
    warehouse.sql("b", "select * from trips, readings", time="ts", group="g")
    warehouse.sql("c", "select * from trips", time="ts", group="other")
    assert len(warehouse.spec().tables) == 3


def test_a_group_over_different_sources_is_told_with_both_tables() -> None:
    (line,) = lines_of(
        "wh = Warehouse('city')\n"
        "wh.stream('a', source, time='ts')\n"
        "wh.stream('b', source, time='ts')\n"
        "wh.sql('of_a', 'select * from a', time='ts', group='g')\n"
        "wh.sql('of_b', 'select * from b', time='ts', group='g')"
    )
    assert line.startswith("/jobs/city.py:5: table 'of_b'")
    assert "reads b, but 'of_a' at /jobs/city.py:4 reads a" in line


def test_a_query_that_cannot_be_read_is_not_also_blamed_for_its_group() -> None:
    warehouse = city()
    warehouse.sql("a", "select * from readings", time="ts", group="g")
    warehouse.sql("b", "select * from (trips", time="ts", group="g")
    (mistake,) = mistakes_of(warehouse)
    assert "never closed" in mistake.text


# --- what a query reads -------------------------------------------------------------------------------------

QUERIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "one table": ("select * from a", ("a",)),
    "capitals and lines": ("SELECT *\nFROM\n  a\nWHERE x", ("a",)),
    "an alias": ("select t.x from a as t where t.x > 1", ("a",)),
    "an alias with columns": ("select x from a as t(x, y), b", ("a", "b")),
    "joins": ("select * from a left join b on a.x = b.x cross join c", ("a", "b", "c")),
    "the same table twice": ("select * from a x join A y using (k, l)", ("a",)),
    "a list": ("select a.x, b.y from a, b where a.x = b.x", ("a", "b")),
    "a list after a condition": ("select 1 from a join b on f(a.x, 1) = b.x, c", ("a", "b", "c")),
    "a subquery": ("select * from (select x, y from a) s, b", ("a", "b")),
    "a join in parentheses": ("select * from (a join b using (x)) join c", ("a", "b", "c")),
    "a subquery in a condition": ("select * from a where x in (select x from b) and exists (select 1 from c)", "abc"),
    "a subquery as a column": ("select (select max(x) from b) m from a", ("b", "a")),
    "a union": ("select x from a union all select x from b order by x, y", ("a", "b")),
    "a union in parentheses": ("(select x from a) union (select x from b)", ("a", "b")),
    "a semicolon at the end": ("select * from a;\n", ("a",)),
    "WITH": ("with t as (select * from a) select * from t join b", ("a", "b")),
    "WITH of several": ("with t as (select * from a), u (x, y) as (select * from t, b) select * from u", ("a", "b")),
    "WITH that hides a table": ("with a as (select * from a where x) select * from a", ("a",)),
    "WITH that hides only inside": ("select * from (with b as (select * from a) select * from b) s, b", ("a", "b")),
    "WITH RECURSIVE": ("with recursive t as (select 1 from a union all select 1 from t) select * from t", ("a",)),
    "capitals of WITH": ("with T as (select * from a) select * from t", ("a",)),
    "a string": ("select ' from b' s from a where t = ' join c'", ("a",)),
    "a string with quotes": (r"""select 'it''s \' from b', "a "" from c" from a""", ("a",)),
    "a raw string": (r"select r'\' from a where x = ' from b'", ("a",)),
    "a line comment": ("select * -- from b\nfrom a -- join c", ("a",)),
    "a comment": ("select /* from b /* nested */ from c */ * from a", ("a",)),
    "backquotes": ("select `from b` from `a` join `two``ticks`", ("a", "two`ticks")),
    "a name in parts": ("select * from db.a join `x`.`y` . z", ("db.a", "x.y.z")),
    "extract": ("select extract(day from ts) from a", ("a",)),
    "trim": ("select trim(both 'x' from y), trim(from z) from a", ("a",)),
    "is distinct from": ("select * from a where x is not distinct from y", ("a",)),
    "distinct": ("select distinct x from a", ("a",)),
    "a column called join": ("select t.join x, t.from y from a t", ("a",)),
    "a table function": ("select * from range(10), a, lateral explode(a.xs)", ("a",)),
    "a lateral subquery": ("select * from a join lateral (select * from b where b.x = a.x)", ("a", "b")),
    "a lateral view": ("select k, v from a lateral view explode(m) t as k, v where k > 1", ("a",)),
    "values": ("select * from values (1, 2), (3, 4) as t(x, y) join a", ("a",)),
    "window and pivot": (
        "select sum(x) over w from a pivot (sum(x) for y in ('p', 'q')) window w as (order by z)",
        "a",
    ),
    "FROM first in a subquery": ("select * from (from a select x)", ("a",)),
    "TABLE in a subquery": ("select * from (table a)", ("a",)),
}


@pytest.mark.parametrize(("query", "sources"), QUERIES.values(), ids=QUERIES)
def test_the_tables_that_a_query_reads_are_found(query: str, sources: tuple[str, ...]) -> None:
    assert read_query(query).problems == ()
    assert read_query(query).sources == tuple(sources)


@st.composite
def queries(draw: st.DrawFn, depth: int = 2, hidden: frozenset[str] = frozenset()) -> tuple[str, frozenset[str]]:
    """An SQL text full of traps, and the tables it reads."""
    reads: set[str] = set()

    def inner() -> str:
        text, more = draw(queries(depth - 1, hidden))
        reads.update(more)
        return f"({text})"

    def relation() -> str:
        if depth and draw(st.booleans()):
            return f"{inner()} as s"
        name = draw(st.sampled_from("abcd"))
        if name not in hidden:
            reads.add(name)
        return draw(st.sampled_from([name, f"`{name}`", name.upper(), f"{name} as t(x, y)"]))

    head = ""
    if depth and draw(st.booleans()):
        name = draw(st.sampled_from("abcd"))
        head = f"with {name} (x) as {inner()} "
        hidden |= {name}
    column = draw(st.sampled_from(["*", "'from a, b'", "extract(day from c)", "x /* from d */", "f(x, y), d"]))
    joint = st.sampled_from([", ", " join ", " left outer join ", "\ncross join -- from a, b\n"])
    parts = [relation()]
    for _ in range(draw(st.integers(0, 2))):
        parts += [draw(joint), relation()]
    condition = st.sampled_from(["", " where x is distinct from a", " where x > 1 group by a, b", " order by c, d"])
    tail = f" where x in {inner()}" if depth and draw(st.booleans()) else draw(condition)
    return f"{head}select {column} from {''.join(parts)}{tail}", frozenset(reads)


@few_examples
@given(queries())
def test_the_tables_of_any_query_are_found_among_subqueries_strings_and_comments(
    written: tuple[str, frozenset[str]],
) -> None:
    query, reads = written
    found = read_query(query)
    assert {name.lower() for name in found.sources} == reads
    assert found.problems == (() if reads else ("the query reads no table",))


SCRAPS = ["select", "from", "join", "with", "recursive", "as", "lateral", "table", "a"]
MARKS = [",", ".", "(", ")", "'", "`", ";", "/*", "*/", "--"]


@few_examples
@given(st.lists(st.sampled_from(SCRAPS + MARKS)))
def test_no_text_is_too_strange_to_be_read(scraps: list[str]) -> None:
    found = read_query(" ".join(scraps))
    assert bool(found.problems) != bool(found.sources)


def test_a_query_of_thousands_of_parentheses_is_refused_and_crashes_nothing() -> None:
    depth = sys.getrecursionlimit() * 2
    (problem,) = read_query(f"select {'(' * depth}1{')' * depth} from a").problems
    assert "more than 200 parentheses" in problem
