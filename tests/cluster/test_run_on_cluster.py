"""``headgate run`` on a cluster: executors are sent what they need, and folders that they do not share are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.warehouse.reading import read
from tests.cluster.drivers import headgate
from tests.services.cluster import SparkCluster

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.long]

PIPELINE = """
import headgate as hg
from headgate.stream import on_spark
from pyspark.sql import functions as F
from rules import running_sums, shape_of, whereabouts

wh = hg.Warehouse("shop")
schema = "ts timestamp, key string, n long"
wh.stream("orders", hg.Files("landing", schema=schema, settle=0), time="ts", partition="1 day")


@wh.table(time="ts", partition="1 day")
def labelled(orders):
    shape = F.udf(shape_of, "string")
    found = F.udf(whereabouts, "string")
    return orders.select("ts", "key", "n", shape("n").alias("shape"), found("n").alias("package"))


@wh.table(time="ts", mode="append", partition="1 day")
def running(orders):
    return on_spark(orders, running_sums, keys=["key"], time="ts")


wh.sql("totals", "select date_trunc('day', ts) as day, key, sum(n) as n from orders group by 1, 2", time="day")
"""

#: beside the pipeline file, and nowhere else
RULES = """
import words


def shape_of(n):
    from late import even_word
    return words.ODD if n % 2 else even_word()


def whereabouts(n):
    import headgate
    return headgate.__file__


def running_sums(orders):
    return orders.key_by("key").running(ts=("max", "ts"), total=("sum", "n"))
"""

WORDS = "ODD, EVEN = 'odd', 'even'\n"
LATE = "import words\n\n\ndef even_word():\n    return words.EVEN\n"


def lay_out(folder: Path, files: int = 3, rows: int = 40) -> list[dict[str, object]]:
    """A pipeline with its modules and its landing folder; returns the rows in it."""
    (folder / "landing").mkdir(parents=True)
    for name, text in {"shop.py": PIPELINE, "rules.py": RULES, "words.py": WORDS, "late.py": LATE}.items():
        (folder / name).write_text(text)
    orders: list[dict[str, object]] = []
    for number in range(files):
        landed = [
            {"ts": f"2026-11-{10 + number} 12:{row:02}:00", "key": f"k{row % 5}", "n": number * rows + row}
            for row in range(rows)
        ]
        (folder / "landing" / f"{number}.json").write_text("".join(f"{json.dumps(order)}\n" for order in landed))
        orders += landed
    return orders


def test_a_run_on_a_cluster_needs_nothing_on_its_machines_but_python(cluster: SparkCluster, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    orders = lay_out(folder)
    done = headgate("run", folder / "shop.py", "--once", "--shared", folder=tmp_path, master=cluster.master)
    assert done.returncode == 0, done.stdout + done.stderr
    warehouse = folder / "shop.warehouse"
    tables = {name: read(warehouse, [name])[name].to_pylist() for name in ("orders", "labelled", "running", "totals")}
    assert sorted(row["n"] for row in tables["orders"]) == [order["n"] for order in orders]
    assert {(row["n"], row["shape"]) for row in tables["labelled"]} == {
        (order["n"], "odd" if order["n"] % 2 else "even")  # type: ignore[operator]
        for order in orders
    }
    packages = {row["package"] for row in tables["labelled"]}
    assert all(".zip" in package for package in packages), packages
    sums: dict[object, int] = {}
    for order in orders:
        sums[order["key"]] = sums.get(order["key"], 0) + order["n"]  # type: ignore[operator]
    assert {key: max(row["total"] for row in tables["running"] if row["key"] == key) for key in sums} == sums
    totals: dict[object, int] = {}
    for row in tables["totals"]:
        totals[row["key"]] = totals.get(row["key"], 0) + row["n"]
    assert totals == sums


def test_a_folder_that_nobody_calls_shared_is_refused_before_spark_starts(tmp_path: Path) -> None:
    lay_out(tmp_path / "shop")
    done = headgate("run", "shop/shop.py", "--once", folder=tmp_path, master="spark://127.0.0.1:1")
    assert done.returncode == 2
    assert "a folder on this machine" in done.stderr
    assert "--shared" in done.stderr
