"""Loading a pipeline file: its one warehouse is found, and whatever is wrong with the file is told in its own terms."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from headgate.cli.run import check
from headgate.core.errors import DeclarationError, UserCodeError
from headgate.warehouse.declare.checks import DeclarationErrors
from headgate.warehouse.declare.pipeline_file import load
from headgate.warehouse.declare.spec import Place
from headgate.warehouse.declare.warehouse import base_folder
from headgate.warehouse.sources import Files

CITY = """\
from headgate.warehouse.declare.warehouse import Warehouse

wh = Warehouse("city")
readings = wh.stream("readings", object(), time="ts")


@wh.table(time="minute")
def minute_temps(readings):
    return readings
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str | bytes, name: str = "city.py") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


# --- a file that is all right -------------------------------------------------------------------------------


def test_the_warehouse_of_a_file_is_found_with_all_it_declares(write: Write) -> None:
    spec = load(write(CITY)).spec()
    assert (spec.name, spec.names()) == ("city", ("readings", "minute_temps"))


def test_a_relative_path_is_found_from_the_current_folder(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(CITY)
    monkeypatch.chdir(tmp_path)
    assert load("city.py").name == "city"


def test_places_and_paths_are_absolute_and_count_from_the_file(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(CITY)
    monkeypatch.chdir(tmp_path)
    spec = load("city.py").spec()
    assert spec.place == Place(str(path), 3)
    assert spec.tables[0].place == Place(str(path), 7)
    assert spec.path == str(tmp_path / "city.warehouse")
    assert base_folder(spec.place) == tmp_path


def test_a_file_knows_its_own_path_and_is_not_the_main_program(write: Write) -> None:
    path = write(CITY + "assert __name__ != '__main__'\nassert __file__.endswith('city.py')")
    assert load(path).name == "city"


def test_a_file_may_import_what_lies_beside_it_while_it_is_loaded(write: Write) -> None:
    write("LIMIT = 40", "limits_beside_city.py")
    before = list(sys.path)
    warehouse = load(write(f"from limits_beside_city import LIMIT\n{CITY}"))
    del sys.modules["limits_beside_city"]
    assert warehouse.name == "city"
    assert sys.path == before


def test_a_warehouse_with_two_names_is_one(write: Write) -> None:
    assert load(write(CITY + "same = wh")).name == "city"


def test_the_functions_of_a_file_belong_to_no_module_that_workers_would_have_to_import(write: Write) -> None:
    (table,) = load(write(CITY)).spec().tables
    assert table.function is not None
    assert table.function.__module__ not in sys.modules


def test_a_file_is_compiled_by_its_own_rules_and_not_by_those_of_the_loader(write: Write) -> None:
    load(write(CITY + "def f(x: 1 + 1): ...\nassert f.__annotations__ == {'x': 2}"))


def test_the_same_file_can_be_loaded_again_after_a_change(write: Write) -> None:
    load(write(CITY))
    assert load(write(CITY.replace('"city"', '"town"'))).name == "town"


# --- a file that is not -------------------------------------------------------------------------------------

REFUSED = {
    "no Python at all": ("[[table]]\nname = 'readings'\n\n!", ("city.py:4: ", "not Python", "Warehouse('city')")),
    "a syntax error": (CITY + "def f(:", ("city.py:10: ", "not Python")),
    "not even text": (b"PAR1\x00\xff\xfe", ("city.py:1: ", "not Python")),
    "an empty file": ("", ("no warehouse", "city.py", "Warehouse('city')")),
    "a warehouse inside a function": ("def f():\n    wh = Warehouse('city')", ("no warehouse", "variables")),
    "two warehouses": (CITY + 'other = Warehouse("town")', ("city.py:10: ", "'town'", "'city' at", "city.py:3")),
}


@pytest.mark.parametrize(("text", "fragments"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_declares_no_one_warehouse_is_refused(
    write: Write, text: str | bytes, fragments: tuple[str, ...]
) -> None:
    with pytest.raises(DeclarationError) as refusal:
        load(write(text))
    assert [fragment for fragment in fragments if fragment not in str(refusal.value)] == []


def test_of_three_warehouses_each_but_the_first_is_told(write: Write) -> None:
    with pytest.raises(DeclarationErrors) as refusal:
        load(write(CITY + "a = Warehouse('a')\nb = Warehouse('b')"))
    assert [mistake.place.line for mistake in refusal.value.mistakes] == [10, 11]


def test_a_file_that_is_not_there_is_refused_with_the_nearest_name(write: Write, tmp_path: Path) -> None:
    write(CITY)
    with pytest.raises(DeclarationError, match=r"ctiy\.py: No such file or directory; did you mean city\.py\?"):
        load(tmp_path / "ctiy.py")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"cannot read the pipeline file .*: Is a directory"):
        load(tmp_path)


def test_a_file_that_fails_shows_the_traceback_of_the_user_and_nothing_of_ours(write: Write) -> None:
    path = write(CITY + "def limit():\n    return 40 / 0\n\nlimit()")
    with pytest.raises(UserCodeError) as failure:
        load(path)
    first, *lines = str(failure.value).splitlines()
    assert first.endswith("city.py failed:")
    assert [line.strip() for line in lines if line.startswith("  File")] == [
        f'File "{path}", line 13, in <module>',
        f'File "{path}", line 11, in limit',
    ]
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert isinstance(failure.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("early", ["F.col('temp') > 40", "F.date_trunc('hour', 'ts')", "F.udf(len, 'int')"])
def test_a_file_that_needs_spark_before_it_is_started_is_told_what_to_write_instead(
    write: Write, early: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)  # other tests may have started one
    with pytest.raises(UserCodeError, match=r"read before Spark is started: make columns .* F\.udf\(StringType\(\)\)"):
        load(write(f"from pyspark.sql import functions as F\n{CITY}early = {early}"))


def test_a_failed_assertion_of_the_user_is_not_taken_for_one_of_spark(write: Write) -> None:
    with pytest.raises(UserCodeError) as failure:
        load(write(CITY + "assert 1 > 2"))
    assert "Spark" not in str(failure.value)


def test_a_file_that_exits_failed(write: Write) -> None:
    with pytest.raises(UserCodeError, match="SystemExit: 3"):
        load(write("import sys\nsys.exit(3)"))


def test_a_failing_file_leaves_nothing_behind(write: Write) -> None:
    path, modules = list(sys.path), set(sys.modules)
    with pytest.raises(UserCodeError):
        load(write("1 / 0"))
    assert sys.path == path
    assert set(sys.modules) == modules


def test_an_error_of_ours_that_is_raised_at_once_gets_the_line_of_the_user(write: Write) -> None:
    text = "from headgate.warehouse.declare.durations import seconds\n\ndef f():\n    seconds('soon')\n\nf()"
    with pytest.raises(DeclarationErrors) as refusal:
        load(write(text))
    (mistake,) = refusal.value.mistakes
    assert mistake.place.line == 4
    assert "'soon'" in mistake.text


def test_a_file_that_takes_its_own_spec_tells_its_mistakes_as_they_are(write: Write) -> None:
    with pytest.raises(DeclarationErrors) as refusal:
        load(write(CITY + "wh.sql('hot', 'select * from nowhere', time='')\nwh.spec()"))
    assert [mistake.place.line for mistake in refusal.value.mistakes] == [10, 10]


SOURCES = """\
import headgate as hg

wh = hg.Warehouse("city")
wh.stream("air", hg.Files("landing", format="xml", schema="ts timestamp"), time="ts")
wh.stream("cars", hg.Generator("ts string"), time="ts")
wh.sql("hot", "select * from nowhere", time="ts")
wh.stream("wind", hg.Files("landing", schema="ts timestmp"), time="ts")
"""


def test_sources_that_cannot_be_made_are_told_with_all_other_mistakes(write: Write) -> None:
    with pytest.raises(DeclarationErrors) as refusal:
        load(write(SOURCES)).spec()
    air, cars, hot, wind = refusal.value.mistakes
    assert (air.place.line, cars.place.line, hot.place.line, wind.place.line) == (4, 5, 6, 7)
    assert "format takes one of" in air.text
    assert "needs a timestamp column" in cars.text
    assert "'nowhere' is declared nowhere" in hot.text
    assert "did you mean 'timestamp'?" in wind.text


def test_a_bad_source_is_told_also_if_the_file_ends_early_or_has_no_warehouse(write: Write) -> None:
    bad = "import headgate as hg\n\nhg.Files('landing', format='xml')\n"
    with pytest.raises(DeclarationErrors, match="format takes one of"):
        load(write(bad))
    with pytest.raises(DeclarationErrors) as refusal:
        load(write(bad + "from headgate.warehouse import seconds\nseconds('soon')\n"))
    assert [mistake.place.line for mistake in refusal.value.mistakes] == [3, 5]


def test_outside_of_a_pipeline_file_a_bad_source_is_refused_at_once() -> None:
    with pytest.raises(DeclarationError, match="format takes one of"):
        Files("landing", format="xml")


# --- headgate check -----------------------------------------------------------------------------------------


@pytest.fixture
def command() -> typer.Typer:
    app = typer.Typer()
    app.command()(check)
    return app


@pytest.mark.parametrize(
    ("more", "told"),
    [
        pytest.param("", "city: 1 stream, 1 table: no errors\n", id="one of each"),
        pytest.param(
            "wh.dimension('zones', object())\nwh.stream('trips', object(), time='ts')",
            "city: 2 streams, 1 dimension, 1 table: no errors\n",
            id="with a dimension",
        ),
    ],
)
def test_check_counts_what_a_good_file_declares(command: typer.Typer, write: Write, more: str, told: str) -> None:
    done = CliRunner().invoke(command, ["--no-spark", str(write(CITY + more))])
    assert (done.exit_code, done.stdout) == (0, told)


def test_check_refuses_a_file_with_mistakes_and_prints_nothing_to_standard_output(
    command: typer.Typer, write: Write
) -> None:
    done = CliRunner().invoke(command, [str(write(CITY + "wh.sql('a', 'select 1', time='')"))])
    assert isinstance(done.exception, DeclarationErrors)
    assert len(done.exception.mistakes) == 2
    assert done.stdout == ""


def test_check_names_the_directories_that_are_not_there(command: typer.Typer, write: Write, tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    files = "import headgate as hg\nwh = hg.Warehouse('shop')\n"
    files += "wh.stream('orders', hg.Files('ordres', schema='ts timestamp'), time='ts')\n"
    files += "wh.stream('clicks', hg.Files('orders', schema='ts timestamp'), time='ts')\n"
    done = CliRunner().invoke(command, [str(write(files))])
    counted, missing = done.stdout.splitlines()
    assert (done.exit_code, counted) == (0, "shop: 2 streams, 0 tables: no errors")
    assert "stream 'orders': waiting for the directory" in missing
    assert missing.endswith(f"did you mean {tmp_path / 'orders'}?")
