"""Queries that make more rows than the driver may have: Spark writes them, in every mode of a table, and loads, too."""

from __future__ import annotations

import hashlib
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

#: How many rows an order becomes: few, and more than the driver may have.
SMALL, LARGE = 3, 50_000
#: By update, {minute of an order: the rows that it becomes}. There may be several orders of a minute.
ORDERS = [{0: SMALL, 1: SMALL}, {1: LARGE}, {2: SMALL}]
#: By update, how many visitors come; the first ones come again.
VISITORS = [10, 60_000]

#: In a process of its own, because how much a driver may have is set when Spark starts.
SCRIPT = """
import gzip
import hashlib
import json
import pathlib
import sys

import headgate as hg
from headgate.warehouse.session import open_session
from headgate.warehouse.updates.open_warehouse import open_warehouse

orders, visitors = json.loads(sys.argv[1])
landing, visits = pathlib.Path("landing").absolute(), pathlib.Path("visits").absolute()
landing.mkdir()
visits.mkdir()
wh = hg.Warehouse("shop", pathlib.Path("shop.warehouse").absolute())
wh.stream("orders", hg.Files(landing, schema="ts timestamp, count long", settle=0), time="ts", partition="1 min")
wh.stream("visits", hg.Files(visits, schema="ts timestamp, name string", settle=0), time="ts", partition="1 min")
rows = "(select ts, explode(sequence(1, count)) as id from orders)"
query = f"select ts, id, md5(cast(id as string)) as text from {rows}"
wh.sql("appended", query, time="ts", mode="append", partition="1 min")
wh.sql("blocks", query, time="ts", mode="blocks", partition="1 min")
wh.sql("keyed", query, time=None, mode="keys", key=["ts"])
wh.sql("keyed_by_time", query, time="ts", mode="keys", key=["ts"], partition="1 min")
wh.sql("whole", query, time=None, mode="whole")
wh.sql("names", "select name, count(*) as n from visits group by name", time=None, mode="keys", key=["name"])
wh.sql(
    "merged",
    "select md5(cast(id as string)) as text, sum(id) as total, count(*) as n, max(id) as most, min(ts) as since, "
    "max_by(minute, ts) as newest, avg(minute) as mean, 2 * var_pop(minute) as spread "
    f"from (select *, minute(ts) as minute from {rows}) group by 1",
    time=None,
    mode="merge",
)
spark = open_session("large", "local[2]", {"spark.driver.maxResultSize": "1m"})
failed = {}
for number, landed in enumerate(orders):
    lines = [json.dumps({"ts": f"2026-11-16 12:{minute:0>2}:00", "count": count}) for minute, count in landed.items()]
    (landing / f"{number}.json").write_text("\\n".join(lines))
    if number < len(visitors):
        names = (hashlib.md5(str(each).encode()).hexdigest() for each in range(visitors[number]))
        lines = [json.dumps({"ts": f"2026-11-16 12:{number:02}:00", "name": name}) for name in names]
        (visits / f"{number}.json.gz").write_bytes(gzip.compress("\\n".join(lines).encode()))
    for name, node in open_warehouse(wh.spec(), spark).nodes.items():
        try:
            while node.update(spark) is not None:
                pass
        except Exception as error:
            failed[f"{name} {number}"] = str(error)[:400]
read = {name: [list(map(str, row.values())) for row in wh.read(name).to_pylist()] for name in wh.spec().names()}
pathlib.Path("told.json").write_text(json.dumps({"read": read, "failed": failed}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("large")
    command = [sys.executable, "-c", SCRIPT, json.dumps([ORDERS, VISITORS])]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads((folder / "told.json").read_text())
    return content


def text_of(number: int) -> str:
    return hashlib.md5(str(number).encode()).hexdigest()


def moment(minute: int) -> str:
    return f"2026-11-16 12:{minute:02}:00+00:00"


def ids() -> list[tuple[int, int]]:
    """(minute, number) of all rows that the orders become."""
    return [(minute, each) for landed in ORDERS for minute, count in landed.items() for each in range(1, count + 1)]


@pytest.mark.parametrize("table", ["appended", "blocks", "keyed", "keyed_by_time", "whole"])
def test_rows_that_are_too_many_for_the_driver_are_written_by_spark(told: dict[str, Any], table: str) -> None:
    assert not {name: why for name, why in told["failed"].items() if name.startswith(f"{table} ")}
    assert sorted(told["read"][table]) == sorted([moment(minute), str(n), text_of(n)] for minute, n in ids())


def test_a_file_with_more_rows_than_the_driver_may_have_is_loaded_by_spark(told: dict[str, Any]) -> None:
    assert not {name: why for name, why in told["failed"].items() if name.startswith("visits ")}
    expected = [[moment(update), text_of(n)] for update, count in enumerate(VISITORS) for n in range(count)]
    assert sorted(told["read"]["visits"]) == sorted(expected)


def test_more_changed_keys_than_the_driver_may_have(told: dict[str, Any]) -> None:
    assert not {name: why for name, why in told["failed"].items() if name.startswith("names ")}
    expected = [[text_of(n), str(sum(n < count for count in VISITORS))] for n in range(max(VISITORS))]
    assert sorted(told["read"]["names"]) == sorted(expected)


def test_more_groups_than_the_driver_may_have_are_merged_by_spark(told: dict[str, Any]) -> None:
    assert not {name: why for name, why in told["failed"].items() if name.startswith("merged ")}
    minutes: dict[int, list[int]] = defaultdict(list)
    for minute, number in ids():
        minutes[number].append(minute)
    exact = [
        [text_of(n), str(n * len(m)), str(len(m)), str(n), moment(min(m)), str(max(m))] for n, m in minutes.items()
    ]
    found = sorted(told["read"]["merged"])
    assert [row[:6] for row in found] == sorted(exact)
    averages = {text_of(n): (statistics.fmean(m), 2 * statistics.pvariance(m)) for n, m in minutes.items()}
    for row in found:
        assert (float(row[6]), float(row[7])) == pytest.approx(averages[row[0]]), row
