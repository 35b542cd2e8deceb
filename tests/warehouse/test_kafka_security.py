"""Kafka over TLS with a password: who may come in is loaded from and published to, and no secret is ever shown."""

from __future__ import annotations

import base64
import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

import headgate as hg
from headgate.warehouse import NotFreshError, SparkOptions, WarehouseRun
from headgate.warehouse.publish.node import PublishNode
from headgate.warehouse.sources import ServerUnreachable
from headgate.warehouse.sources.kafka import on_executors
from headgate.warehouse.sources.kafka import source as kafka_source
from headgate.warehouse.sources.kafka.offsets import KafkaRange, Run
from headgate.warehouse.sources.kafka.topics import KafkaCluster
from tests.services import certificates
from tests.services.kafka import PASSWORD, KafkaBroker
from tests.services.schema_registry import READING, SchemaRegistryServer, encoded, reading
from tests.warehouse.written import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.services,
    pytest.mark.slow,
    pytest.mark.skipif(bool(certificates.why_not()), reason=certificates.why_not() or "never"),
]

WRONG = "wrong-secret-35"


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority that has signed nothing of the broker's."""
    return certificates.make_certificates(tmp_path_factory.mktemp("strangers")).authority


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    name = kafka.topic(partitions=2)
    values = [json.dumps({"ts": f"2026-01-01T00:00:{n % 60:02d}Z", "n": n}).encode() for n in range(300)]
    kafka.send(name, [{"value": value} for value in values])
    return name


def source_of(kafka: KafkaBroker, topic: str, options: dict[str, str]) -> hg.Kafka:
    source = hg.Kafka(kafka.servers_with_tls, topic, schema="ts timestamp, n long", options=options)
    source.refresh()
    return source


def refusals(kafka: KafkaBroker, strangers: Path) -> dict[str, tuple[dict[str, str], str]]:
    """{what is wrong: (options, what a user is told)}."""
    return {
        "password": (kafka.tls_options(password=WRONG), "[Aa]uthentication"),
        "authority": (kafka.tls_options(password=WRONG, authority=strangers), "certificate"),
    }


@pytest.mark.spark
def test_a_topic_is_read_over_tls_by_the_driver_and_by_executors(
    kafka: KafkaBroker, spark: SparkSession, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_source, "MOST_OFFSETS", 100)
    monkeypatch.setattr(on_executors, "LEAST_CORES", 2)
    source = source_of(kafka, topic, kafka.tls_options())
    wanted = _all_of(source)
    in_driver = sorted(row.n for row in source.read(spark, wanted).collect())
    assert in_driver == list(range(300))
    source._executors.find_out(spark)
    assert source.is_spread(wanted)
    assert sorted(row.n for row in source.read(spark, wanted).collect()) == in_driver


def _all_of(source: hg.Kafka) -> KafkaRange:
    look = source._topic.look_now()
    runs = tuple(Run(partition, 0, end) for partition, end in look.ends.items())
    return KafkaRange(look.id, runs, record_bytes=100, oldest=0.0, newest=0.0)


@pytest.mark.parametrize("wrong", ["password", "authority"])
def test_who_is_refused_waits_with_the_reason(kafka: KafkaBroker, topic: str, strangers: Path, wrong: str) -> None:
    options, reason = refusals(kafka, strangers)[wrong]
    source = source_of(kafka, topic, options)
    said = source.latest(source.start())
    assert said.missing and not said.chunks
    assert kafka.servers_with_tls in said.note
    assert re.search(reason, said.note), said.note
    assert WRONG not in repr(said) + repr(source)


def test_that_all_brokers_are_down_does_not_hide_why() -> None:
    """Which of the two the client says last depends on how fast the machine is."""
    source = hg.Kafka("127.0.0.1:1", "clicks", schema="n long")
    cluster = KafkaCluster(source._clients)
    cluster._note_error(KafkaError(KafkaError._SSL, "certificate verify failed"))
    cluster._note_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert "certificate verify failed" in cluster._problem(KafkaException(KafkaError(KafkaError._TIMED_OUT)))


@pytest.mark.spark
def test_executors_that_are_refused_say_so_without_the_password(
    kafka: KafkaBroker, spark: SparkSession, topic: str
) -> None:
    known = _all_of(source_of(kafka, topic, kafka.tls_options()))
    refused = source_of(kafka, topic, kafka.tls_options(password=WRONG))
    pieces = on_executors.pieces_of(known.runs, 100)
    reader = on_executors.PieceReader(
        refused._clients, topic, refused._columns, refused._format, refused._quick, pieces
    )
    with pytest.raises(ServerUnreachable, match="cannot be read") as raised:
        reader.frame(spark)
    told = raised.value
    texts = []
    while told is not None:
        texts.append(f"{told!r} {told}")
        told = told.__cause__ or told.__context__  # type: ignore[assignment]
    assert WRONG not in " ".join(texts)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_table_is_published_over_tls(kafka: KafkaBroker, tmp_path: Path, delivery: Any) -> None:
    name = kafka.topic()
    written = Written(tmp_path)
    written.becomes([(1, "bern", 1.0), (2, "lima", 2.0)])
    sink = hg.KafkaSink(kafka.servers_with_tls, name, key="id", delivery=delivery, options=kafka.tls_options())
    node = PublishNode(written, [sink])
    while node.plan() is not None:
        node.update(None)  # type: ignore[arg-type]
    kafka.wait_for_transactions(name)
    source = hg.Kafka(kafka.servers, name, schema="id long, city string, amount double")
    source.refresh()
    assert source.latest(source.start()).bytes > 0
    found = [json.loads(value) for packet in source._packets(_all_of(source)) for value in _values(packet)]
    assert sorted((row["id"], row["city"]) for row in found) == [(1, "bern"), (2, "lima")]


def _values(packet: Any) -> list[bytes]:
    found: list[bytes] = packet.column("_headgate_value").to_pylist()
    return found


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("wrong", ["password", "authority"])
def test_a_run_that_is_refused_waits_and_shows_its_secrets_nowhere(
    kafka: KafkaBroker,
    spark: SparkSession,
    topic: str,
    strangers: Path,
    tmp_path: Path,
    wrong: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("headgate.warehouse.publish.kafka.PATIENCE", 2.0)
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.INFO, "py4j")  # every call of Spark, tens of thousands of lines
    options, reason = refusals(kafka, strangers)[wrong]
    with SchemaRegistryServer(password=PASSWORD) as registry:
        registry.by_number = {7: {"schema": json.dumps(READING)}}
        avro = kafka.topic(partitions=1)
        kafka.send(avro, [{"value": encoded(7, READING, reading(n))} for n in range(3)])
        wh = hg.Warehouse("shop", tmp_path / "warehouse")
        clicks = hg.Kafka(kafka.servers_with_tls, topic, schema="ts timestamp, n long", options=options)
        wh.stream("clicks", clicks, time="ts")
        address = f"http://headgate:{WRONG}@{registry.address}"
        readings = hg.Kafka(kafka.servers, avro, format="avro", schema="ts timestamp, n long", registry=address)
        wh.stream("readings", readings, time="ts", max_future=None)
        made = hg.Generator("ts timestamp, n long", rows_per_chunk=5, every="1 day", start="2026-11-01T00:00:00Z")
        wh.stream("made", made, time="ts")
        wh.publish("made", to=hg.KafkaSink(kafka.servers_with_tls, "made", options=options))
        lines: list[str] = []
        with WarehouseRun(wh.spec(), spark=SparkOptions(session=spark), on_message=lines.append) as run:
            with pytest.raises(NotFreshError, match=reason) as raised:
                run.wait_until_fresh("10 min", ["clicks"])
            with pytest.raises(NotFreshError) as other:
                run.wait_until_fresh("10 min", ["readings"])
            run.wait_until_fresh("10 min", ["made"])
            shown = [repr(run.statistics()), run._repr_html_(), repr(run.report()), str(raised.value), str(other.value)]
            assert {each.name: each.state for each in run.statistics()}["clicks"] == "waiting"
            assert "401" in str(other.value) and registry.address in str(other.value)
        assert wh.read("made").num_rows > 0
    output = capfd.readouterr()
    written = [path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    everything = "\n".join([*shown, *lines, output.out, output.err, caplog.text, *written])
    assert "clicks" in everything
    for secret in (WRONG, PASSWORD, _basic(WRONG)):
        assert secret not in everything


def _basic(password: str) -> str:
    """As it is sent to the registry."""
    return base64.b64encode(f"headgate:{password}".encode()).decode()
