"""An executor with a disk of its own: it is named before anything is written, and no commit names what is not there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.drivers import told_by
from tests.services.cluster import SparkCluster, can_hide, why_not

pytestmark = [
    pytest.mark.services,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(not can_hide(), reason="a process may not have mounts of its own here"),
    pytest.mark.skipif(bool(why_not()), reason=f"no Spark cluster can be started: {why_not()}"),
]

SCRIPT = """
import pathlib
import headgate as hg
from headgate.errors import LostRowsError, NotSharedError
from headgate.warehouse.pipelines.computed import Computed
from headgate.warehouse.run.executors import check_executors, wait_for_executors
from headgate.warehouse.session import open_session
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.spark_files import write_with_spark

hidden, shared = pathlib.Path(GIVEN["hidden"]), pathlib.Path(GIVEN["shared"])
for folder in (hidden, shared):
    (folder / "landing").mkdir(parents=True)
    (folder / "landing" / "1.json").write_text('{"ts": "2026-11-16 12:00:00", "n": 1}')
spark = open_session("blind", GIVEN["master"], CONF)
wait_for_executors(spark.sparkContext, 1000.0)


def refusal(path, landing, kind="files"):
    wh = hg.Warehouse("shop", path, shared=True)
    if kind == "computed":
        wh.dimension("orders", Computed(lambda spark: spark.read.json(str(landing)), (f"{landing}/*.json",)))
    else:
        of_delta = kind == "delta"
        schema = "ts timestamp, n long"
        source = hg.Delta(landing, schema=schema) if of_delta else hg.Files(landing, schema=schema, settle=0)
        wh.stream("orders", source, time="ts")
    try:
        check_executors(spark.sparkContext, wh.spec(), print)
        return ""
    except NotSharedError as error:
        return str(error)


def written(folder, frame, time=None, partition=None):
    store = TableStore(folder / "table", time)
    try:
        files = write_with_spark(frame, store, 1, time, partition)
    except LostRowsError as error:
        return ["lost", error.written, error.found]
    return ["found", files.rows, sum(new.file.rows for new in files.files)]


rows = spark.range(0, 10_000, 1, 4).selectExpr("id", "timestamp_seconds(id * 60) as ts")
print(json.dumps({
    "refusals": {
        "warehouse": refusal(hidden / "warehouse", shared / "landing"),
        "source": refusal(shared / "warehouse", hidden / "landing"),
        "Delta table": refusal(shared / "warehouse", hidden / "landing", "delta"),
        "computed source": refusal(shared / "warehouse", hidden / "landing", "computed"),
        "neither": refusal(shared / "warehouse", shared / "landing"),
    },
    "left": [str(path) for folder in (hidden, shared) for path in (folder / "warehouse").iterdir()],
    "writes": {
        "hidden": written(hidden / "1", rows),
        "hidden, with partitions": written(hidden / "2", rows, "ts", 86400.0),
        "shared": written(shared / "1", rows),
        "shared, with partitions": written(shared / "2", rows, "ts", 86400.0),
        "no rows": written(shared / "3", rows.where("id < 0")),
        "no rows at all": written(shared / "4", spark.createDataFrame([], "id long")),
    },
}))
spark.stop()
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a driver finds whose only executor does not see the folder ``hidden`` that the driver sees."""
    folder = tmp_path_factory.mktemp("blind")
    hidden = folder / "hidden"
    hidden.mkdir()
    with SparkCluster(folder / "cluster") as cluster:
        cluster.add_worker(hides=[hidden])
        return told_by(SCRIPT, folder, master=cluster.master, hidden=str(hidden), shared=str(folder / "shared"))


def test_an_executor_that_does_not_see_a_folder_is_named_before_anything_is_written(told: dict[str, Any]) -> None:
    refusals = told["refusals"]
    assert "the executor on" in refusals["warehouse"]
    assert "does not share the path of the warehouse" in refusals["warehouse"]
    for source in ("source", "Delta table", "computed source"):
        assert "does not see" in refusals[source] and "hidden/landing" in refusals[source]
    assert refusals["neither"] == ""
    assert told["left"] == [], "probes are removed"


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("hidden", ["lost", 10_000, 0]),
        ("hidden, with partitions", ["lost", 10_000, 0]),
        ("shared", ["found", 10_000, 10_000]),
        ("shared, with partitions", ["found", 10_000, 10_000]),
        ("no rows", ["found", 0, 0]),
        ("no rows at all", ["found", 0, 0]),
    ],
)
def test_rows_on_the_disk_of_an_executor_are_missed_before_a_commit(
    told: dict[str, Any], where: str, found: list[object]
) -> None:
    assert told["writes"][where] == found


def test_an_executor_that_is_missing_rows_is_tried_again(told: dict[str, Any]) -> None:
    from headgate.warehouse.storage.errors import LostRowsError
    from headgate.warehouse.transient import is_transient

    _, written, found = told["writes"]["hidden"]
    assert is_transient(LostRowsError("orders", written, found))
