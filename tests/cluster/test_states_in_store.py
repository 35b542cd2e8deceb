"""Stream queries on a cluster keep their states in an object store: the Python of executors reaches it as the driver
does, also by what only the driver has in its environment. One that cannot is named before a run begins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.warehouse import reading
from tests.cluster.drivers import told_by
from tests.services import s3a
from tests.services.cluster import SparkCluster
from tests.services.object_store import SECRET, ObjectStoreServer

pytestmark = [
    pytest.mark.services,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(bool(s3a.why_not()), reason=s3a.why_not()),
]

#: The options of the store are in the environment of the driver, and nowhere else.
SCRIPT = """
import os

import headgate as hg
from headgate.core import HeadgateError
from headgate.stream import on_spark
from headgate.warehouse import RunOptions, SparkOptions, WarehouseRun

os.environ.update(GIVEN["environment"])


def running_sums(rows):
    return rows.key_by("key").running(ts=("max", "ts"), total=("sum", "n"))


def run(path, conf):
    wh = hg.Warehouse("shop", path)
    source = hg.Files(GIVEN["landing"], schema="ts timestamp, key string, n long", settle=0)
    wh.stream("orders", source, time="ts", partition="1 day")
    wh.table(name="running", time="ts", mode="append", partition="1 day")(
        lambda orders: on_spark(orders, running_sums, keys=["key"], time="ts")
    )
    options = SparkOptions(GIVEN["master"], {**CONF, "spark.jars": GIVEN["jars"], **conf}, shared=True)
    failed = []
    note = lambda update: failed.append(update.error) if not update.committed else None
    try:
        with WarehouseRun(wh.spec(), RunOptions(tracks=1), options, note) as run:
            run.wait_until_fresh("10 min")
    except HeadgateError as error:
        return {"error": f"{type(error).__name__}: {error}", "failed": failed}
    return {"error": "", "failed": failed}


lacking = {"spark.cores.max": "1", "spark.executorEnv.PYTHONPATH": GIVEN["hidden"]}
# In this order: what the first run of a Java is told holds for the next unless that is told otherwise.
print(json.dumps({"kept": run(GIVEN["kept"], {"spark.cores.max": "2"}), "refused": run(GIVEN["refused"], lacking)}))
"""


@pytest.fixture(scope="module")
def orders() -> list[dict[str, Any]]:
    return [{"ts": f"2026-11-16 12:{n:02}:00", "key": f"k{n % 3}", "n": n} for n in range(30)]


def test_states_are_kept_by_what_the_environment_of_the_driver_says_and_a_missing_package_is_named(
    cluster: SparkCluster, object_store: ObjectStoreServer, tmp_path: Path, orders: list[dict[str, Any]]
) -> None:
    kept, refused = object_store.bucket() / "shop", object_store.bucket() / "shop"
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "1.json").write_text("".join(f"{json.dumps(order)}\n" for order in orders))
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text("import sys\nsys.modules['obstore'] = None\n")
    told = told_by(
        SCRIPT,
        tmp_path,
        master=cluster.master,
        environment=object_store.options(),
        jars=",".join(s3a.jars()),
        landing=str(tmp_path / "landing"),
        hidden=str(tmp_path / "hidden"),
        kept=str(kept),
        refused=str(refused),
    )
    refusal = told["refused"]["error"]
    assert "NoObjectStoreError: the Python of the executor on" in refusal
    assert "cannot keep the states of stream queries" in refusal and "headgate[objects]" in refusal
    assert SECRET not in refusal
    assert told["kept"] == {"error": "", "failed": []}
    sums: dict[str, int] = {}
    expected = []
    for order in orders:
        sums[order["key"]] = sums.get(order["key"], 0) + order["n"]
        expected.append((order["key"], sums[order["key"]]))
    found = reading.read(kept, ["running"])["running"].to_pylist()
    assert sorted((row["key"], row["total"]) for row in found) == sorted(expected)
    assert [path.name for path in kept.iterdir() if "probe" in path.name] == []
