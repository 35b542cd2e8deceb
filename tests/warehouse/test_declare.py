"""Declaring: what is written arrives in the spec, with its line, and nothing is run."""

from __future__ import annotations

import sys
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.warehouse.declare.checks import DeclarationErrors
from headgate.warehouse.declare.spec import DimensionSpec, Place, StreamSpec, TableSpec
from headgate.warehouse.declare.warehouse import Handle, Warehouse, base_folder

#: Declaring never looks into a source.
SOURCE: Any = object()


def line_here() -> int:
    return sys._getframe(1).f_lineno


@pytest.fixture
def city() -> Warehouse:
    return Warehouse("city")


# --- what arrives -------------------------------------------------------------------------------------------


def test_a_stream_arrives_with_every_option(city: Warehouse) -> None:
    city.stream(
        "readings",
        SOURCE,
        time="ts",
        period="10 seconds",
        partition="10 minutes",
        priority=3,
        target_lag="1 min",
        importance_class=2,
        patience=90,
        comment="what sensors say",
    )
    (stream,) = city.spec().streams
    expected = {"period": 10, "partition": 600, "target_lag": 60, "patience": 90, "priority": 3, "importance_class": 2}
    assert {option: getattr(stream, option) for option in expected} == expected
    assert (stream.name, stream.time, stream.comment) == ("readings", "ts", "what sensors say")
    assert stream.source is SOURCE


def test_a_stream_without_options_has_partitions_of_an_hour_and_learns_its_period(city: Warehouse) -> None:
    city.stream("readings", SOURCE, time="ts")
    (stream,) = city.spec().streams
    assert stream == StreamSpec("readings", SOURCE, "ts", 3600.0, stream.place)
    assert stream.period is None


def test_a_dimension_arrives_with_every_option(city: Warehouse) -> None:
    city.dimension("zones", SOURCE, priority=0.5, comment="parts of the city")
    (dimension,) = city.spec().dimensions
    assert dimension == DimensionSpec("zones", SOURCE, dimension.place, 0.5, "parts of the city")


OPTIONS: dict[str, Any] = {
    "time": "minute",
    "partition": "2 h",
    "priority": 10,
    "target_lag": "15 s",
    "importance_class": -1,
    "patience": "1 hour",
    "lookback": "5 min",
    "mode": "recompute",
    "catch_up": "newest",
    "group": "temps",
}
IN_THE_SPEC = OPTIONS | {"partition": 7200.0, "target_lag": 15.0, "patience": 3600.0, "lookback": 300.0}


def test_a_function_arrives_with_every_option_and_its_parameters_as_sources(city: Warehouse) -> None:
    city.stream("readings", SOURCE, time="ts")
    city.dimension("zones", SOURCE)

    @city.table(**OPTIONS)
    def minute_temps(readings: Any, zones: Any) -> None:
        """Mean temperature.

        By the minute.
        """

    (table,) = city.spec().tables
    assert {option: getattr(table, option) for option in OPTIONS} == IN_THE_SPEC
    assert (table.name, table.sources) == ("minute_temps", ("readings", "zones"))
    assert table.comment == "Mean temperature.\n\nBy the minute."
    assert (table.function, table.query) == (minute_temps, None)


def test_a_query_arrives_with_every_option_and_its_tables_as_sources(city: Warehouse) -> None:
    city.stream("readings", SOURCE, time="ts")
    city.dimension("zones", SOURCE)
    query = "select * from readings join zones using (zone)"
    city.sql("zoned", query, comment="where it was", **OPTIONS)
    (table,) = city.spec().tables
    assert {option: getattr(table, option) for option in OPTIONS} == IN_THE_SPEC
    assert (table.name, table.sources, table.comment) == ("zoned", ("readings", "zones"), "where it was")
    assert (table.function, table.query) == (None, query)


def test_name_and_comment_of_a_function_can_be_stated(city: Warehouse) -> None:
    city.stream("readings", SOURCE, time="ts")

    @city.table(time="ts", name="hot", comment="stated")
    def _f(readings: Any) -> None:
        """Not this."""

    (table,) = city.spec().tables
    assert (table.name, table.comment) == ("hot", "stated")


def test_the_decorator_returns_the_function_itself_and_does_not_call_it(city: Warehouse) -> None:
    def hot(readings: Any) -> None:
        raise AssertionError("called while declaring")

    assert city.table(time="ts")(hot) is hot


def test_the_sources_of_a_query_are_spelt_as_declared_whatever_its_capitals(city: Warehouse) -> None:
    city.sql("hot", "SELECT * FROM READINGS", time="ts")
    city.stream("Readings", SOURCE, time="ts")
    (table,) = city.spec().tables
    assert table.sources == ("Readings",)


def test_a_handle_is_frozen_and_stands_for_its_name_in_a_text(city: Warehouse) -> None:
    readings = city.stream("readings", SOURCE, time="ts")
    zones = city.dimension("zones", SOURCE)
    hot = city.sql("hot", f"select * from {readings} join {zones}", time="ts")
    assert hot == Handle("hot")
    assert city.spec().tables[0].sources == ("readings", "zones")
    with pytest.raises(FrozenInstanceError):
        hot.name = "cold"  # type: ignore[misc]


def test_a_table_can_be_declared_before_its_sources(city: Warehouse) -> None:
    city.sql("hot", "select * from readings", time="ts")
    with pytest.raises(DeclarationErrors, match="'readings' is declared nowhere"):
        city.spec()
    city.stream("readings", SOURCE, time="ts")
    assert city.spec().names() == ("readings", "hot")


# --- where --------------------------------------------------------------------------------------------------


def test_every_declaration_knows_its_file_and_line() -> None:
    # fmt: off
    city = Warehouse("city"); at = {"city": line_here()}  # noqa: E702
    city.stream("readings", SOURCE, time="ts"); at["readings"] = line_here()  # noqa: E702
    city.dimension("zones", SOURCE); at["zones"] = line_here()  # noqa: E702
    city.sql("hot", "select 1 from readings", time="ts"); at["hot"] = line_here()  # noqa: E702
    # fmt: on

    above = line_here()

    @city.table(
        time="ts",
        partition="1 hour",
    )
    def cold(readings: Any) -> None: ...

    at["cold"] = above + 2
    spec = city.spec()
    nodes = (spec, *spec.streams, *spec.dimensions, *spec.tables)
    assert {node.name: node.place for node in nodes} == {name: Place(__file__, line) for name, line in at.items()}


def test_a_place_is_in_the_code_of_the_user_and_not_in_this_package(city: Warehouse) -> None:
    names: dict[str, Any] = {"city": city, "source": SOURCE, "__name__": "pipeline"}
    exec(compile("\n\ncity.stream('readings', source, time='ts')", "/somewhere/pipeline.py", "exec"), names)
    assert city.spec().streams[0].place == Place("/somewhere/pipeline.py", 3)


# --- paths --------------------------------------------------------------------------------------------------


def declared_in(file: str, path: object) -> Warehouse:
    names: dict[str, Any] = {"Warehouse": Warehouse, "path": path, "__name__": "pipeline"}
    exec(compile("wh = Warehouse('city', path)", file, "exec"), names)
    warehouse = names["wh"]
    assert isinstance(warehouse, Warehouse)
    return warehouse


@pytest.mark.parametrize(
    ("path", "absolute"),
    [
        pytest.param(None, "/jobs/city.warehouse", id="unless stated, beside the file"),
        pytest.param("data/city", "/jobs/data/city", id="relative to the file"),
        pytest.param("../city", "/city", id="relative to the file, outwards"),
        pytest.param("/data/city", "/data/city", id="absolute"),
        pytest.param(Path("data"), "/jobs/data", id="a path object"),
    ],
)
def test_the_path_counts_from_the_folder_of_the_pipeline_file(path: object, absolute: str) -> None:
    assert declared_in("/jobs/city.py", path).spec().path == absolute


def test_sources_find_the_folder_that_relative_paths_count_from() -> None:
    assert base_folder(declared_in("/jobs/city.py", None).spec().place) == Path("/jobs")


def test_what_is_typed_in_counts_from_the_current_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    spec = declared_in("<stdin>", None).spec()
    assert spec.path == str(tmp_path / "city.warehouse")
    assert base_folder(spec.place) == tmp_path


# --- any valid declaration ----------------------------------------------------------------------------------

durations = st.sampled_from([("1 s", 1.0), ("90 min", 5400.0), ("2 days", 172800.0), (45, 45.0)])


@st.composite
def warehouses(draw: st.DrawFn) -> tuple[Warehouse, dict[str, tuple[str, ...]], dict[str, float]]:
    """A warehouse, and for each of its nodes the sources and the partition it was declared with."""
    names = [f"t{i}" for i in range(draw(st.integers(1, 9)))]
    sources: dict[str, tuple[str, ...]] = {}
    with_time: list[str] = []
    dimensions: list[str] = []
    for name in names:
        kind = draw(st.sampled_from(["stream", "dimension", "table"] if with_time else ["stream", "dimension"]))
        sources[name] = ()
        if kind == "table":
            needed = draw(st.sampled_from(with_time))
            others = draw(st.lists(st.sampled_from(with_time + dimensions), max_size=3))
            sources[name] = tuple(dict.fromkeys(draw(st.permutations([needed, *others]))))
        (dimensions if kind == "dimension" else with_time).append(name)
    warehouse = Warehouse("any")
    partitions: dict[str, float] = {}
    for name in draw(st.permutations(names)):
        written, length = draw(durations)
        if name in dimensions:
            warehouse.dimension(name, SOURCE)
            continue
        partitions[name] = length
        if not sources[name]:
            warehouse.stream(name, SOURCE, time="ts", partition=written)
        elif draw(st.booleans()):
            query = f"select * from {' cross join '.join(sources[name])}"
            warehouse.sql(name, query, time="ts", partition=written)
        else:
            function = eval(f"lambda {', '.join(sources[name])}: None")
            warehouse.table(time="ts", name=name, partition=written)(function)
    return warehouse, sources, partitions


@settings(max_examples=max(1, settings().max_examples // 3))
@given(warehouses())
def test_any_valid_declaration_gives_a_spec_whose_graph_is_what_was_declared(
    declared: tuple[Warehouse, dict[str, tuple[str, ...]], dict[str, float]],
) -> None:
    warehouse, sources, partitions = declared
    spec = warehouse.spec()
    graph = spec.graph()
    assert sorted(graph.names) == sorted(sources)
    upstream = {name: tuple(graph.names[i] for i in graph.upstream[graph.index[name]]) for name in graph.names}
    assert upstream == sources
    with_time: tuple[StreamSpec | TableSpec, ...] = (*spec.streams, *spec.tables)
    assert {node.name: node.partition for node in with_time} == partitions
    assert warehouse.spec() == spec
