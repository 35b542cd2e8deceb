"""A large file of somebody's Delta table in an object store is read by the executors of a cluster, with the options of
the source: Spark has others for other buckets."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import write_deltalake

from tests.cluster.drivers import told_by
from tests.services import s3a
from tests.services.cluster import SparkCluster
from tests.services.object_store import ObjectStoreServer

pytestmark = [
    pytest.mark.services,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(bool(s3a.why_not()), reason=s3a.why_not()),
]

SCRIPT = """
import time
import headgate as hg
from headgate.warehouse.session import open_session
from headgate.warehouse.sources import Limit
from headgate.warehouse.sources.delta import source

source.MOST_BYTES = 1
spark = open_session("delta", GIVEN["master"], {**CONF, "spark.cores.max": "1", "spark.jars": GIVEN["jars"]})
delta = hg.Delta(GIVEN["address"], schema="id bigint, text string, city string", storage_options=GIVEN["options"])
end = time.monotonic() + 600
while (wanted := delta.next_range(delta.start(), Limit())) is None:
    assert time.monotonic() < end, delta.latest(delta.start())
    time.sleep(0.05)
frame = delta.read(spark, wanted)
print(json.dumps({"files": frame.inputFiles(), "rows": sorted(map(list, frame.collect()))}))
spark.stop()
"""


def test_executors_read_a_large_file_where_it_is(
    cluster: SparkCluster, object_store: ObjectStoreServer, tmp_path: Path
) -> None:
    place = object_store.bucket()
    rows = pa.table({"id": [1, 2, 3], "text": ["a", "b", None], "city": ["bern"] * 3})
    write_deltalake(f"{place}/orders", rows, partition_by=["city"], storage_options=dict(place.bucket.options))
    told = told_by(
        SCRIPT,
        tmp_path,
        master=cluster.master,
        jars=",".join(s3a.jars()),
        address=f"{place}/orders",
        options=dict(place.bucket.options),
    )
    (file,) = told["files"]
    assert file.startswith(f"s3a://{place.bucket.url.partition('://')[2]}/orders/city=bern/")
    assert [row[:3] for row in told["rows"]] == [[1, "a", "bern"], [2, "b", "bern"], [3, None, "bern"]]
    assert {(row[3].partition("/")[0], row[5]) for row in told["rows"]} == {("city=bern", None)}
