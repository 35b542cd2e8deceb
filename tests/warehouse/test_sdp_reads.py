"""What a project reads is found, however its functions are written; a read that was not found is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.core import HeadgateError
from headgate.warehouse.declare.analysis import analyse
from headgate.warehouse.declare.pipeline_file import files_of
from headgate.warehouse.updates.open_warehouse import open_warehouse
from tests.warehouse.test_opened import rows_of
from tests.warehouse.test_sdp_project import PYTHON, spec_of, with_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HELPERS = """
from pyspark.sql import SparkSession

spark = SparkSession.active()
PLACE = "rates"

def lookup():
    return spark.read.csv("rates.csv", "who string, rate int", header=True)

def cleaned(name="orders"):
    return spark.table(name).where("n > 0")

def enriched(rows):
    return rows.join(spark.table("refunds"), "who")

class Tables:
    folder = "more"

    def __init__(self, session=None):
        self.session = session

    def all(self):
        return self.one("orders")

    def one(self, name):
        return spark.table(name)

    @classmethod
    def files(cls, form="csv"):
        return spark.read.format(form).options(**{"header": True}).load(f"{cls.folder}/files")

TABLES = Tables()
"""
ORDERS = """
import functools
import helpers
from helpers import TABLES, Tables, cleaned

COLUMNS = "ts timestamp, who string, n int"
name = "a global name that nothing reads"

@dp.table
def orders():
    return spark.readStream.schema(COLUMNS).json("in/orders")

@dp.table
def refunds():
    return spark.readStream.schema(COLUMNS).json("in/refunds")

"""

#: code of a table t, and what it reads
FOUND = {
    "a function of a module": ("return helpers.lookup().join(spark.table('orders'), 'who')", {"orders", "rates_files"}),
    "an argument of a helper": ("return cleaned('refunds')", {"refunds"}),
    "a named argument of a helper": ("return helpers.cleaned(name='refunds')", {"refunds"}),
    "a default of a helper": ("return cleaned()", {"orders"}),
    "both": ("return cleaned().union(cleaned('refunds'))", {"orders", "refunds"}),
    "a method of a new object": ("return Tables(spark).one('refunds')", {"refunds"}),
    "a method that calls another": ("return Tables().all()", {"orders"}),
    "an object of a module": ("return helpers.TABLES.one(name='refunds')", {"refunds"}),
    "an object in a variable": ("made = Tables()\n    return made.one('refunds')", {"refunds"}),
    "a method of a class": ("return Tables.files().join(spark.table('orders'), 'who')", {"orders", "files_files"}),
    "a function that is handed on": ("return spark.table('orders').transform(helpers.enriched)", {"orders", "refunds"}),
    "a partial function": ("return functools.partial(cleaned, 'refunds')()", {"refunds"}),
    "a lambda": ("pick = lambda: spark.table('refunds')\n    return pick()", {"refunds"}),
    "a variable that is set twice": (
        "name = 'orders'\n    one = spark.table(name)\n    name = 'refunds'\n    return one.union(spark.table(name))",
        {"orders", "refunds"},
    ),
    "a loop": (
        "all = []\n    for name in ('orders', 'refunds'):\n        all.append(spark.table(name))\n    return all[0]",
        {"orders", "refunds"},
    ),
    "a list in a list": ("return [spark.table(name) for name in ['orders', 'refunds']][0]", {"orders", "refunds"}),
    "a reader in steps": (
        "reader = spark.readStream\n    reader = reader.schema(COLUMNS)\n    return reader.json('in/more')",
        {"more_files"},
    ),
    "SQL": ("return spark.sql('select * from orders join shop.refunds using (who)')", {"orders", "refunds"}),
}


def with_helpers(folder: Path, code: str) -> Path:
    project = with_code(folder, "d.py", f"{PYTHON}{ORDERS}@dp.table\ndef t():\n    {code}\n")
    (project.parent / "helpers.py").write_text(HELPERS)
    (project.parent / "rates.csv").write_text("who,rate\nann,3\n")
    return project


@pytest.mark.parametrize("case", FOUND)
def test_what_a_function_reads_is_found_in_what_it_calls(tmp_path: Path, case: str) -> None:
    code, sources = FOUND[case]
    tables = {table.name: set(table.sources) for table in spec_of(with_helpers(tmp_path, code)).tables}
    assert tables["t"] == sources


#: code of a table t, and why it is refused
REFUSED = {
    "several paths": ("return spark.read.parquet('a', 'b')", "d.py:20: 't': several paths are read here at once"),
    "a list of paths": ("return spark.read.json(['a', 'b'])", "d.py:20: 't': several paths are read here at once"),
    "an unknown argument": (
        "import os\n    return cleaned(os.urandom(3).hex())",
        "helpers.py:11: 't': which table is read here is not known before it is called, because of 'name'",
    ),
    "an unknown path": (
        "import os\n    return spark.read.json(os.urandom(3).hex())",
        "d.py:21: 't': which files are read here is not known before it is called",
    ),
    "a file without Spark": (
        "import pandas as pd\n    return spark.createDataFrame(pd.read_csv('rates.csv'))",
        "d.py:21: 't': what is read here without Spark cannot be watched for changes",
    ),
    "an open file": (
        "with open('rates.csv') as file:\n        n = len(file.read())\n    return spark.range(n)",
        "d.py:20: 't': what is read here without Spark cannot be watched for changes",
    ),
    "changes of a table": ("return spark.readStream.changes('orders')", "d.py:20: 't': the changes of a table cannot"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_read_that_cannot_be_known_is_refused_with_its_line(tmp_path: Path, case: str) -> None:
    code, message = REFUSED[case]
    with pytest.raises(HeadgateError) as caught:
        spec_of(with_helpers(tmp_path, code))
    assert message in str(caught.value)


#: code of a table t whose reads cannot be found before it is called, and what is said when it is
HIDDEN = {
    "files": (
        "getattr(helpers, 'look' + 'up')()\n    return spark.table('orders')",
        "helpers.py:8: the files 'rates.csv' are read here, which was not found before",
    ),
    "a table": (
        "getattr(helpers, 'clea' + 'ned')('refunds')\n    return spark.table('orders')",
        "helpers.py:11: the table 'refunds' is read here, which was not found before",
    ),
    "a table of the same name elsewhere": (
        "getattr(spark, 'ta' + 'ble')('other.orders')\n    return spark.table('orders')",
        "d.py:20: the table 'other.orders' is read here, which was not found before",
    ),
    "a query": (
        "getattr(spark, 'sq' + 'l')('select * from refunds')\n    return spark.table('orders')",
        "d.py:20: the table 'refunds' is read here, which was not found before",
    ),
    "an option": (
        "rows = spark.read.schema('who string')\n    if len(str(spark)) > 1:\n        rows.option('header', True)\n"
        "    return spark.table('orders').join(rows.csv('rates.csv'), 'who')",
        "d.py:23: the files 'rates.csv' are read here with the option header = 'true', which was not found before",
    ),
    "a database": (
        "getattr(spark.read, 'jd' + 'bc')('u', 't')\n    return spark.table('orders')",
        "d.py:20: what is read here, of the format 'jdbc', cannot be watched for changes",
    ),
    "files without a frame": (
        "spark.sparkContext.textFile('rates.csv')\n    return spark.table('orders')",
        "d.py:20: textFile cannot be taken over: use spark.read",
    ),
}


@pytest.mark.spark
@pytest.mark.parametrize("case", HIDDEN)
def test_a_read_that_was_not_found_is_refused_when_it_happens(tmp_path: Path, case: str, spark: SparkSession) -> None:
    code, message = HIDDEN[case]
    with pytest.raises(HeadgateError) as caught:
        analyse(spec_of(with_helpers(tmp_path, code)), spark)
    assert message in str(caught.value)


LOOP = """
for place in ("north", "south"):
    @dp.table(name=place)
    def flow():
        rows = spark.readStream.schema("ts timestamp, n int").json(f"in/{place}")
        return rows.selectExpr("ts", "n", f"'{place}' as place", f"{later()} as one")

def later():
    return 1
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_function_has_the_variables_of_the_moment_when_it_was_defined(tmp_path: Path, spark: SparkSession) -> None:
    project = with_code(tmp_path, "d.py", PYTHON + LOOP)
    (project.parent / "headgate.yml").write_text("sources:\n  in/north: {settle: 0}\n  in/south: {settle: 0}\n")
    moment = datetime(2026, 11, 15, 10, tzinfo=UTC).isoformat()
    for number, place in enumerate(("north", "south")):
        (project.parent / "in" / place).mkdir(parents=True)
        (project.parent / "in" / place / "1.json").write_text(json.dumps({"ts": moment, "n": number}) + "\n")
    warehouse = open_warehouse(spec_of(project), spark)
    warehouse.bring_up_to_date(spark)
    for number, place in enumerate(("north", "south")):
        assert [row[1:] for row in rows_of(warehouse.nodes[place].store)] == [(number, place, 1)]


def test_a_module_of_the_project_is_watched_and_read_anew(tmp_path: Path) -> None:
    project = with_helpers(tmp_path, "return helpers.cleaned()")
    assert [set(table.sources) for table in spec_of(project).tables if table.name == "t"] == [{"orders"}]
    assert [file.name for file in files_of(project)] == ["spark-pipeline.yml", "headgate.yml", "d.py", "helpers.py"]
    helpers = project.parent / "helpers.py"
    helpers.write_text(HELPERS.replace('name="orders"', 'name="refunds"'))
    assert [set(table.sources) for table in spec_of(project).tables if table.name == "t"] == [{"refunds"}]
