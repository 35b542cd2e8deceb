"""A backlog of a topic is read by the executors of a cluster; tasks and executors that fail lose and double nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.drivers import ended, started, wait_for
from tests.services.cluster import SparkCluster
from tests.services.kafka import KafkaBroker

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.long]

RECORDS = 10_000

#: Reads the topic three times, each into a warehouse of its own; ranges are large from a thousand records on. With
#: "fails" every task breaks off the first time, half-way; with "waits" the first tasks wait until the test has ended
#: the executor under one of them. Both are on one Spark; "lacks" is on another, whose executors have no client.
SCRIPT = """
import os
import headgate as hg
from headgate.warehouse.session import open_session
from headgate.warehouse.sources.kafka import on_executors, source
from headgate.warehouse.updates.open_warehouse import open_warehouse

source.MOST_OFFSETS, on_executors.PIECE_OFFSETS, on_executors.LEAST_CORES = 1_000, 2_000, 2
PieceReader = on_executors.PieceReader


def broken_off(batches, of, how):
    import os
    import time
    from pyspark import TaskContext
    first = TaskContext.get().attemptNumber() == 0
    for number, batch in enumerate(of(batches)):
        yield batch
        if first and how == "fails":
            raise OSError("this task breaks off")
        if first and how == "waits" and TaskContext.get().partitionId() < 2:
            open(os.path.join(GIVEN["place"], f"task-{TaskContext.get().partitionId()}"), "w").close()
            while not os.path.exists(os.path.join(GIVEN["place"], "struck")):
                time.sleep(0.05)


class Failing(PieceReader):
    def read(self, numbers):
        return broken_off(numbers, super().read, "fails")


class Waiting(PieceReader):
    def read(self, numbers):
        return broken_off(numbers, super().read, "waits")


def read(spark, how):
    source.PieceReader = {"fails": Failing, "waits": Waiting, "lacks": PieceReader}[how]
    topic = hg.Kafka(GIVEN["servers"], GIVEN["topic"], schema="ts timestamp, n long", records_per_chunk=100)
    topic.refresh()
    wh = hg.Warehouse("shop", f"{GIVEN['place']}/{how}", shared=True)
    wh.stream("rows", topic, time="ts", partition="1 hour", max_future=None)
    node = open_warehouse(wh.spec(), spark).nodes["rows"]
    sizes = []
    failures = 0
    notices = []
    while sum(sizes) < GIVEN["records"]:
        notices += [notice.problem for notice in topic.latest(node.offset).notices]
        try:
            update = node.update(spark)
        except Exception as error:
            failures += 1
            assert failures < 5, error
            continue
        if update is not None:
            sizes.append(update.rows + update.rejected)
    numbers = node.store.arrow()["n"].to_pylist()
    return {"sizes": sizes, "failures": failures, "notices": notices, "bad": node.rejected.arrow().num_rows,
            "numbers": [len(numbers), len(set(numbers)), sum(numbers)]}


told = {}
for hows, conf in ((["fails", "waits"], {}), (["lacks"], {"spark.executorEnv.PYTHONPATH": GIVEN["hidden"]})):
    spark = open_session("kafka", GIVEN["master"], {**CONF, **conf})
    try:
        told |= {how: read(spark, how) for how in hows}
    finally:
        spark.stop()
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def topic(kafka: KafkaBroker) -> str:
    name = kafka.topic(partitions=3)
    good = (b'{"ts": "2026-01-01T%02d:00:00Z", "n": %d}' % (n % 24, n) for n in range(RECORDS - 20))
    kafka.send(name, [*({"value": value} for value in good), *[{"value": b"{broken"}] * 20])
    return name


#: how many good rows there are, how many of them differ, and their sum
ALL_GOOD = [RECORDS - 20, RECORDS - 20, sum(range(RECORDS - 20))]


@pytest.fixture(scope="module")
def told(
    cluster: SparkCluster, kafka: KafkaBroker, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What a driver finds that reads the topic in all ways, one after the other."""
    folder = tmp_path_factory.mktemp("kafka-on-cluster")
    hidden = folder / "hidden"
    hidden.mkdir()
    (hidden / "confluent_kafka.py").write_text("raise ImportError('there is no confluent_kafka here')")
    where = {"master": cluster.master, "servers": kafka.servers, "topic": topic, "records": RECORDS}
    driver = started(SCRIPT, folder, {**where, "place": str(folder), "hidden": str(hidden)})
    wait_for(folder / "task-0", driver)
    cluster.workers.pop().kill()
    (folder / "struck").touch()
    cluster.add_worker()
    return ended(driver)


def test_tasks_that_break_off_and_are_run_again_leave_every_record_once(told: dict[str, Any]) -> None:
    found = told["fails"]
    assert (found["numbers"], found["bad"], found["failures"]) == (ALL_GOOD, 20, 0)
    assert max(found["sizes"]) > 1_000 and len(found["sizes"]) < 8


def test_an_executor_that_is_killed_while_it_reads_costs_no_record_and_doubles_none(told: dict[str, Any]) -> None:
    assert (told["waits"]["numbers"], told["waits"]["bad"]) == (ALL_GOOD, 20)


def test_executors_without_the_package_leave_the_backlog_to_the_driver_in_pieces(told: dict[str, Any]) -> None:
    found = told["lacks"]
    assert (found["numbers"], found["bad"], found["failures"]) == (ALL_GOOD, 20, 0)
    assert max(found["sizes"]) <= 1_000
    assert ["there is no confluent_kafka here" in notice for notice in found["notices"]] == [True]
