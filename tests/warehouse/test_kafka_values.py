"""Values of Kafka records without a broker: Avro and its schema registry; and how a source is declared."""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from confluent_kafka import Message

import headgate as hg
from headgate.core import DeclarationError
from headgate.warehouse.sources import SourceError
from headgate.warehouse.sources.errors import ServerUnreachable
from headgate.warehouse.sources.kafka.avro import AvroValues, SchemaRegistry
from headgate.warehouse.sources.kafka.columns import PROBLEM, VALUE
from headgate.warehouse.sources.kafka.formats import JsonValues
from headgate.warehouse.sources.kafka.options import KafkaClients
from headgate.warehouse.sources.kafka.records import times_of
from tests.services.schema_registry import READING, SchemaRegistryServer, encoded, reading


def decoded(address: str, *values: bytes | None) -> list[tuple[Any, str | None]]:
    """Each value as what its JSON says, or its text, and what is wrong with it."""
    avro = AvroValues(SchemaRegistry(address), JsonValues(()))
    table = avro.decoded(pa.record_batch([pa.array(values, pa.binary())], [VALUE])).to_pydict()
    return [
        (text if problem or text is None else json.loads(text), problem)
        for text, problem in zip(table[VALUE], table[PROBLEM], strict=True)
    ]


def test_avro_is_decoded_with_schemas_that_the_registry_is_asked_for_once() -> None:
    with SchemaRegistryServer() as registry:
        registry.by_number = {7: {"schema": json.dumps(READING)}}
        address = f"http://me:secret%21@{registry.address}"
        found = decoded(address, encoded(7, READING, reading(1)), None, encoded(7, READING, reading(None, math.inf)))
        first = {"ts": "2026-01-01T12:00:00+00:00", "n": 1, "price": "12.34", "tags": {"a": "b"}, "ratio": 0.5}
        assert found == [(first, None), (None, None), ({**first, "n": None, "ratio": math.inf}, None)]
        assert registry.asked == [("/schemas/ids/7", f"Basic {base64.b64encode(b'me:secret!').decode()}")]
        assert "secret" not in repr(SchemaRegistry(address)) + SchemaRegistry(address).address


def test_a_schema_may_refer_to_others_in_the_registry() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "long"}]}
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": "Inner"}]}
    both = {"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": inner}]}
    with SchemaRegistryServer() as registry:
        references = [{"name": "Inner", "subject": "inner-value", "version": 3}]
        registry.by_number = {1: {"schema": json.dumps(outer), "references": references}}
        registry.by_subject = {"/subjects/inner-value/versions/3": {"schema": json.dumps(inner)}}
        value = encoded(1, both, {"inner": {"x": 5}})
        assert decoded(f"http://{registry.address}", value) == [({"inner": {"x": 5}}, None)]


def test_a_value_that_is_no_avro_has_a_reason_and_its_bytes() -> None:
    with SchemaRegistryServer() as registry:
        registry.by_number = {7: {"schema": json.dumps(READING)}, 9: {"schema": "x", "schemaType": "PROTOBUF"}}
        whole = encoded(7, READING, reading(1))
        bad = [b"", b"{}", whole[:-4], whole + b"x", b"\0\0\0\0\x08x", b"\0\0\0\0\x09x", b"\0\0\0\0\x08y"]
        found = decoded(f"http://{registry.address}", *bad)
        assert [base64.b64decode(text) for text, _ in found] == bad
        reasons = [problem or "" for _, problem in found]
        assert reasons[:2] == 2 * ["not Avro with the number of a schema before it"]
        assert reasons[2].startswith("not a record of its Avro schema")
        assert reasons[3] == "not a record of its Avro schema (1 bytes are left over)"
        assert reasons[4:6] == ["the schema registry has no schema 8", "its schema 9 is of the kind PROTOBUF, not Avro"]
        assert [path for path, _ in registry.asked] == [f"/schemas/ids/{number}" for number in (7, 8, 9)]


def test_a_schema_that_comes_to_the_registry_later_is_found_then() -> None:
    with SchemaRegistryServer() as registry:
        avro = AvroValues(SchemaRegistry(f"http://{registry.address}"), JsonValues(()))
        packet = pa.record_batch([pa.array([encoded(7, READING, reading(1))], pa.binary())], [VALUE])
        assert avro.decoded(packet)[PROBLEM].to_pylist() == ["the schema registry has no schema 7"]
        registry.by_number = {7: {"schema": "{"}}
        assert "its schema 7 cannot be used (JSONDecodeError" in avro.decoded(packet)[PROBLEM].to_pylist()[0]
        registry.by_number = {7: {"schema": '"string"'}}
        assert avro.decoded(packet)[PROBLEM].to_pylist() == ["its schema 7 is 'string', not a record"]
        registry.by_number = {7: {"schema": json.dumps(READING)}}
        assert avro.decoded(packet)[PROBLEM].to_pylist() == [None]


def test_a_registry_that_does_not_answer_is_asked_again_and_rejects_nothing() -> None:
    with SchemaRegistryServer() as registry:
        address = f"http://me:secret@{registry.address}"
    with pytest.raises(ServerUnreachable, match="does not give the schema /schemas/ids/7") as raised:
        decoded(address, encoded(7, READING, reading(1)))
    assert "secret" not in str(raised.value)


# --- declaring ----------------------------------------------------------------------------------------------------


def test_options_are_never_printed() -> None:
    source = hg.Kafka("kafka:9092", "t", schema="n long", options={"sasl.password": "hunter2", "client.id": "me"})
    assert "hunter2" not in repr(source)
    assert "hunter2" not in repr(source._clients)
    assert source._clients.hidden("a bad hunter2 of me") == "a bad *** of me"
    broken = KafkaClients("kafka:9092", {"no.such.setting": "hunter2"})
    with pytest.raises(SourceError, match=r"no\.such\.setting") as raised:
        broken.consumer("g")
    assert "hunter2" not in str(raised.value)


def test_a_topic_is_no_dimension(tmp_path: Path) -> None:
    wh = hg.Warehouse("shop", tmp_path)
    wh.dimension("customers", hg.Kafka("kafka:9092", "customers", schema="n long"))
    with pytest.raises(DeclarationError, match="can be a stream, not a dimension"):
        wh.spec()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"schema": ""}, "needs a schema"),
        ({"format": "xml"}, "format takes one of json, avro, raw"),
        ({"format": "raw", "schema": "n long"}, "one column, a string or a binary"),
        ({"format": "avro"}, "needs the address of a schema registry"),
        ({"missing": "ignore"}, "missing takes 'stop' or 'skip'"),
        ({"start": "yesterday"}, "start takes 'earliest', 'latest', or a moment"),
        ({"record": {"k": "kye"}}, "did you mean 'key'"),
        ({"record": {"n": "key"}}, "two columns called 'n'"),
        ({"options": {"auto.offset.reset": "latest"}}, "must not have 'auto.offset.reset'"),
        ({"isolation": "none"}, "isolation takes 'read_committed'"),
        ({"records_per_chunk": 0}, "records_per_chunk is a whole number above 0"),
    ],
)
def test_a_wrong_declaration_says_what_is_expected(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        hg.Kafka("kafka:9092", "t", **{"schema": "n long", **wrong})


def test_sources_are_equal_if_they_are_declared_alike() -> None:
    assert hg.Kafka("a:1", "t", schema="n long") == hg.Kafka("a:1", "t", schema="n long")
    assert hg.Kafka("a:1", "t", schema="n long") != hg.Kafka("a:1", "t", schema="n long", missing="skip")


def test_asking_for_what_is_new_never_waits_for_a_broker() -> None:
    source = hg.Kafka("127.0.0.1:1", "topic", schema="n long")
    said = source.latest(source.start())
    assert (said.chunks, said.missing) == (0, False)
    assert "waiting for the first answer of Kafka at 127.0.0.1:1" in said.note


@pytest.mark.parametrize(
    ("stamp", "microseconds"),
    [
        ((1, 1_750_000_000_000), 1_750_000_000_000_000),
        ((2, 5), 5_000),
        ((0, -1), None),
        ((1, 9_223_372_036_854_775), 9_223_372_036_854_775_000),
        ((1, 9_223_372_036_854_776), None),
        ((1, 2**63 - 1), None),
        ((1, -(2**63)), None),
    ],
    ids=["created", "appended", "none", "the last one", "too far", "the largest", "the smallest"],
)
def test_a_timestamp_that_spark_does_not_have_is_null(stamp: tuple[int, int], microseconds: int | None) -> None:
    times = times_of([Message(topic="clicks", value=b"{}", timestamp=stamp)])
    assert times.cast(pa.int64()).to_pylist() == [microseconds]
