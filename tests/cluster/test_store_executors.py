"""Executors that read and write an object store or HDFS by themselves: all of them are asked whether they can before a
run begins, and what they write is what is committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.places.object_path import ObjectPath
from headgate.warehouse import reading
from tests.cluster.drivers import told_by
from tests.services import s3a
from tests.services.cluster import SparkCluster
from tests.services.hdfs import HdfsServer
from tests.services.object_store import ObjectStoreServer

pytestmark = [
    pytest.mark.services,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(bool(s3a.why_not()), reason=s3a.why_not()),
]

#: where a run is refused, one is enough; what the first run of a Java is told holds for the next unless that is told
ONE_EXECUTOR, TWO_EXECUTORS = {"spark.cores.max": "1"}, {"spark.cores.max": "2"}

BEGIN = """
import headgate as hg
from headgate.core import HeadgateError
from headgate.warehouse import RunOptions, SparkOptions, WarehouseRun
from headgate.warehouse.updates import derive, load

derive.LARGE_BYTES = load.LARGE_BYTES = 0  # so that Spark writes everything


def shop(path, storage):
    wh = hg.Warehouse("shop", path, storage=storage)
    wh.stream("orders", hg.Files(GIVEN["landing"], schema="ts timestamp, n long", settle=0), time="ts", partition="1 h")
    wh.sql("doubled", "select ts, n, 2 * n as twice from orders", time="ts", partition="1 h")
    return wh.spec()


def run(spec, conf):
    said = []
    options = SparkOptions(master=GIVEN["master"], conf={**CONF, **conf}, shared=True)
    try:
        with WarehouseRun(spec, RunOptions(tracks=1), options, on_message=said.append) as run:
            run.wait_until_fresh("30 min")
            looked = sorted(run._executors)
    except HeadgateError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": "", "looked": looked, "said": said}

"""

RUN = """
told = {}
for name, (path, storage, conf) in GIVEN["runs"].items():
    told[name] = run(shop(path, storage), conf)
print(json.dumps(told))
"""


def give_work(folder: Path) -> Path:
    (folder / "landing").mkdir()
    for number in range(3):
        rows = [{"ts": f"2026-11-1{number} 12:{row:02}:00", "n": 40 * number + row} for row in range(40)]
        (folder / "landing" / f"{number}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder / "landing"


def driver(folder: Path, master: str, **runs: tuple[ObjectPath, dict[str, str]]) -> dict[str, Any]:
    """What a driver tells that has run the warehouse in each of these places once, with these settings of Spark."""
    given = {name: (str(place), dict(place.bucket.options), conf) for name, (place, conf) in runs.items()}
    return told_by(f"{BEGIN}{RUN}", folder, master=master, runs=given, landing=str(give_work(folder)))


def check(place: ObjectPath, told: dict[str, Any], executors: int) -> None:
    """Every table is what the files give, Spark has written it, and the executors that were there first were asked."""
    assert told["error"] == ""
    assert min(1, executors) <= len(told["looked"]) <= executors  # a run begins when the first one is there
    found = reading.read(place, ["orders", "doubled"])
    assert sorted(found["orders"].column("n").to_pylist()) == list(range(120))
    assert sorted(found["doubled"].column("twice").to_pylist()) == [2 * n for n in range(120)]
    written = {path.name for path in place.rglob("*.parquet") if "/data/" in str(path)}
    assert written and all(name.startswith("part-") for name in written)
    assert probes(place) == []


def probes(place: ObjectPath) -> list[str]:
    return [path.name for path in place.iterdir() if "probe" in path.name]


def test_spark_on_this_machine_writes_an_object_store_itself_and_its_keys_must_be_right(
    object_store: ObjectStoreServer, tmp_path: Path
) -> None:
    right, wrong = object_store.bucket() / "shop", object_store.bucket() / "shop"
    jars = {"spark.jars": ",".join(s3a.jars())}
    bucket = wrong.bucket.url.partition("://")[2]
    other = {f"spark.hadoop.fs.s3a.bucket.{bucket}.secret.key": "not-the-secret"}
    told = driver(tmp_path, "local[2]", right=(right, jars), wrong=(wrong, {**jars, **other}))
    check(right, told["right"], executors=0)
    refusal = told["wrong"]["error"]
    assert f"Spark in this process cannot use {wrong} as the driver does" in refusal
    assert "testing-secret" not in refusal and "not-the-secret" not in refusal
    assert probes(wrong) == []


def test_executors_write_an_object_store_themselves_and_one_without_the_file_system_is_named_before(
    cluster: SparkCluster, object_store: ObjectStoreServer, tmp_path: Path
) -> None:
    refused, written = object_store.bucket() / "shop", object_store.bucket() / "shop"
    # Both runs are of one Java, which has the file system; executors have it where it is sent to them.
    here = {"spark.driver.extraClassPath": ":".join(s3a.jars()), **ONE_EXECUTOR}
    sent = {**here, "spark.jars": ",".join(s3a.jars()), **TWO_EXECUTORS}
    told = driver(tmp_path, cluster.master, lacking=(refused, here), there=(written, sent))
    refusal = told["lacking"]["error"]
    assert "NoObjectStoreError: the executor" in refusal
    assert f"on 127.0.0.1 cannot use {refused} as the driver does" in refusal
    assert "S3AFileSystem not found" in refusal
    assert "testing-secret" not in refusal
    assert not (refused / "tables").is_dir() and probes(refused) == []
    check(written, told["there"], executors=2)


def test_executors_write_hdfs_themselves_and_for_another_store_their_package_is_named(
    cluster: SparkCluster, hdfs: HdfsServer, object_store: ObjectStoreServer, tmp_path: Path
) -> None:
    place = hdfs.place() / "shop"
    elsewhere = object_store.bucket() / "shop"
    told = driver(tmp_path, cluster.master, lacking=(elsewhere, ONE_EXECUTOR), there=(place, TWO_EXECUTORS))
    refusal = told["lacking"]["error"]
    assert "it has no file system for s3a://. Add the package org.apache.hadoop:hadoop-aws" in refusal
    assert "(here 3." in refusal
    check(place, told["there"], executors=2)
