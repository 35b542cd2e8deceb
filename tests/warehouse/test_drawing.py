"""The graph of tables, drawn: everything declared is in the picture, every edge once, and no box lies on another."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from headgate.cli.run import GraphFormat, graph
from headgate.core.errors import DeclarationError
from headgate.warehouse.declare.spec import WarehouseSpec
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.report.drawing import FORMATS, mermaid, svg, text

SOURCE: Any = object()


def city() -> WarehouseSpec:
    warehouse = Warehouse("city")
    warehouse.stream("readings", SOURCE, time="ts", period="10 s", comment="degrees < 40 °C")
    warehouse.dimension("zones", SOURCE, priority=0.5)
    warehouse.sql("hot", "select * from readings", time="ts", priority=100, target_lag="15 s", importance_class=2)
    warehouse.sql("zoned", "select * from hot join zones", time="ts", group="g")
    warehouse.sql("end", "select * from zoned join readings", time="ts")
    return warehouse.spec()


# --- text ---------------------------------------------------------------------------------------------------

TEXT = """\
city: 1 stream, 1 dimension, 3 tables

level 0
  readings  stream     priority 1                        every 10 s
  zones     dimension  priority 0.5

level 1
  hot       table      priority 100  <- readings         target lag 15 s, class 2

level 2
  zoned     table      priority 1    <- hot, zones       group g

level 3
  end       table      priority 1    <- zoned, readings
"""


def test_the_text_has_a_line_for_each_node_below_its_level() -> None:
    assert text(city()) == TEXT


# --- Mermaid ------------------------------------------------------------------------------------------------

MERMAID = """\
flowchart LR
    t_readings[("<b>readings</b><br/>stream, priority 1<br/>every 10 s")]:::stream
    t_zones[/"<b>zones</b><br/>dimension, priority 0.5"/]:::dimension
    t_hot["<b>hot</b><br/>priority 100<br/>target lag 15 s, class 2"]:::table
    t_zoned["<b>zoned</b><br/>priority 1<br/>group g"]:::table
    t_end["<b>end</b><br/>priority 1"]:::table
    t_readings --> t_hot
    t_hot --> t_zoned
    t_zones --> t_zoned
    t_zoned --> t_end
    t_readings --> t_end
    classDef stream """


def test_the_flow_chart_has_every_node_and_every_edge_and_no_word_of_mermaid_for_a_name() -> None:
    assert mermaid(city()).startswith(MERMAID)


# --- SVG ----------------------------------------------------------------------------------------------------


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float


class Picture(NamedTuple):
    width: float
    height: float
    boxes: dict[str, Box]
    edges: list[list[tuple[float, float]]]


NAMESPACE = {"svg": "http://www.w3.org/2000/svg"}


def parsed(picture: str) -> Picture:
    root = ET.fromstring(picture)
    (area,) = root.findall("svg:g", NAMESPACE)
    boxes = {}
    for group in area.findall("svg:g", NAMESPACE):
        x, y = map(float, re.findall(r"[\d.]+", group.attrib["transform"]))
        rect, name = group.find("svg:rect", NAMESPACE), group.find("svg:text[@class='name']", NAMESPACE)
        assert rect is not None
        assert name is not None
        assert name.text is not None
        boxes[name.text] = Box(x, y, x + float(rect.attrib["width"]), y + float(rect.attrib["height"]))
    edges = [points(path.attrib["d"]) for path in area.findall("svg:path", NAMESPACE)]
    return Picture(float(root.attrib["width"]), float(root.attrib["height"]), boxes, edges)


def points(path: str) -> list[tuple[float, float]]:
    """Where the commands of a path lead; of curves, the ends."""
    found: list[tuple[float, float]] = []
    for command, numbers in re.findall(r"([MHC])([-\d. ]+)", path):
        values = [float(number) for number in numbers.split()]
        found.append((values[0], found[-1][1]) if command == "H" else (values[-2], values[-1]))
    return found


def overlap(a: Box, b: Box) -> bool:
    return a.left < b.right and b.left < a.right and a.top < b.bottom and b.top < a.bottom


@st.composite
def warehouses(draw: st.DrawFn) -> WarehouseSpec:
    warehouse = Warehouse("any")
    names: list[str] = []
    for i in range(draw(st.integers(0, 12))):
        name = f"{'n' * draw(st.integers(1, 20))}{i}"
        if names and draw(st.integers(0, 3)):
            sources = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
            warehouse.sql(name, f"select * from {', '.join(sources)}", time="ts", group=draw(st.none() | st.just(name)))
        else:
            warehouse.stream(name, SOURCE, time="ts")
        names.append(name)
    return warehouse.spec()


@settings(max_examples=max(1, settings().max_examples // 5))
@given(warehouses())
def test_boxes_do_not_overlap_and_every_edge_leads_from_its_source_to_its_table_through_none(
    spec: WarehouseSpec,
) -> None:
    picture = parsed(svg(spec))
    assert list(picture.boxes) == list(spec.names())
    assert not any(overlap(a, b) for a, b in combinations(picture.boxes.values(), 2))
    assert all(box.right < picture.width and box.bottom < picture.height for box in picture.boxes.values())
    for (source, table), edge in zip(spec.graph().edges, picture.edges, strict=True):
        start, end = picture.boxes[source], picture.boxes[table]
        assert start.right < end.left
        assert edge[0] == pytest.approx((start.right, (start.top + start.bottom) / 2), abs=0.2)
        assert edge[-1] == pytest.approx((end.left, (end.top + end.bottom) / 2), abs=0.2)
        for (x, y), (to_x, to_y) in pairwise(edge):
            assert y != to_y or not any(overlap(Box(x, y, to_x, y), inner(box)) for box in picture.boxes.values())


def inner(box: Box) -> Box:
    """Without the frame, which edges do touch; numbers in a picture are rounded."""
    return Box(box.left + 0.2, box.top + 0.2, box.right - 0.2, box.bottom - 0.2)


def test_a_graph_that_can_be_drawn_without_crossings_is() -> None:
    warehouse = Warehouse("ladder")
    for name in "abcd":
        warehouse.stream(name, SOURCE, time="ts")
    for name, source in zip("stuv", "dbca", strict=True):
        warehouse.sql(name, f"select * from {source}", time="ts")
    boxes = parsed(svg(warehouse.spec())).boxes
    assert all(boxes[table].top == boxes[source].top for table, source in zip("stuv", "dbca", strict=True))


def test_a_source_stands_right_before_the_first_table_that_reads_it() -> None:
    boxes = parsed(svg(city())).boxes
    assert boxes["readings"].left < boxes["hot"].left
    assert boxes["zones"].left < boxes["zoned"].left
    assert boxes["zones"].left > boxes["readings"].right


def test_comments_are_shown_as_tooltips_and_do_not_break_the_picture() -> None:
    picture = svg(city())
    assert picture.isascii()
    titles = [title.text for title in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0] == "degrees < 40 °C"


def test_a_picture_is_the_same_every_time() -> None:
    for draw in FORMATS.values():
        assert draw(city()) == draw(city())


@pytest.mark.parametrize("draw", FORMATS.values(), ids=FORMATS)
def test_a_warehouse_without_anything_can_be_drawn(draw: Any) -> None:
    assert draw(Warehouse("empty").spec())


# --- headgate graph -----------------------------------------------------------------------------------------

PIPELINE = """\
from headgate.warehouse.declare.warehouse import Warehouse
wh = Warehouse("city")
wh.stream("readings", object(), time="ts")
wh.sql("hot", "select * from readings", time="ts")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "city.py"
    path.write_text(PIPELINE)
    return path


@pytest.fixture
def command() -> typer.Typer:
    app = typer.Typer()
    app.command()(graph)
    return app


BEGINNINGS = {"text": "city: 1 stream, 1 table\n", "mermaid": "flowchart LR\n", "svg": "<svg "}


def test_the_formats_of_the_command_are_those_that_can_be_drawn() -> None:
    assert [*GraphFormat] == [*FORMATS] == [*BEGINNINGS]


@pytest.mark.parametrize(("name", "beginning"), BEGINNINGS.items(), ids=BEGINNINGS)
def test_graph_prints_every_format(command: typer.Typer, file: Path, name: str, beginning: str) -> None:
    done = CliRunner().invoke(command, [str(file), "--format", name])
    assert done.exit_code == 0
    assert done.stdout.startswith(beginning)


@pytest.mark.parametrize(
    ("output", "options", "beginning"),
    [
        pytest.param("city.svg", (), "<svg ", id="SVG by its ending"),
        pytest.param("city.mmd", (), "flowchart", id="Mermaid by its ending"),
        pytest.param("city", (), "city: ", id="text without an ending"),
        pytest.param("city.svg", ("--format", "text"), "city: ", id="as stated, whatever the ending"),
    ],
)
def test_graph_writes_to_a_file_and_prints_nothing(
    command: typer.Typer, file: Path, output: str, options: tuple[str, ...], beginning: str
) -> None:
    target = file.parent / output
    done = CliRunner().invoke(command, [str(file), "--output", str(target), *options])
    assert (done.exit_code, done.stdout) == (0, "")
    assert target.read_text("utf-8").startswith(beginning)


def test_graph_says_where_it_cannot_write(command: typer.Typer, file: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [str(file), "--output", str(tmp_path / "nowhere" / "city.svg")])
    assert isinstance(done.exception, DeclarationError)
    assert "nowhere" in str(done.exception)
