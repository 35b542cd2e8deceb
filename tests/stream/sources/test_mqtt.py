"""MQTT in both directions, against a real broker."""

from __future__ import annotations

import socket
import sys
import threading
import uuid
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headgate.core.errors import DeclarationError, UserCodeError
from headgate.stream import BrokerError, Mqtt, to_mqtt
from tests.stream.sources.conftest import RunningBroker
from tests.stream.sources.reading import PATIENCE, Everything, drain, nobody

SCHEMA = pa.schema([("n", pa.int64()), ("name", pa.string())])


@pytest.fixture
def at(broker: RunningBroker) -> dict[str, Any]:
    return {"host": broker.host, "port": broker.port, "timeout": PATIENCE}


@pytest.fixture
def topic() -> str:
    """One for each test, so that none hears the others."""
    return f"tests/{uuid.uuid4().hex}"


def published(source: Mqtt, messages: list[bytes], topic: str, at: dict[str, Any], most: int = 1000) -> Everything:
    """What a source reads of messages that are published after it was opened."""
    came = threading.Event()
    with closing(source.open(came.set, 0.0)) as reader:
        publish(messages, topic, at)
        return drain(reader, came, most)


def publish(messages: list[bytes], topic: str, at: dict[str, Any]) -> None:
    writer = to_mqtt(topic, "payload", qos=1, **at).open()
    writer.write(pa.RecordBatch.from_pydict({"payload": pa.array(messages, pa.binary())}))
    writer.close()


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("most", [1, 7, 1000])
def test_what_one_query_publishes_another_reads_in_the_same_order(
    topic: str, at: dict[str, Any], qos: int, most: int
) -> None:
    batch = pa.RecordBatch.from_pylist([{"n": n, "name": f"ü {n}"} for n in range(100)], schema=SCHEMA)
    came = threading.Event()
    with closing(Mqtt(topic, SCHEMA, qos=qos, ends_with=100, **at).open(came.set, 0.0)) as reader:
        writer = to_mqtt(topic, qos=qos, **at).open()
        writer.write(batch.slice(0, 30))
        writer.write(batch.slice(30))
        writer.close()
        writer.close()
        everything = drain(reader, came, most)
    assert everything.rows == batch.to_pylist()
    assert all(chunk.batch.num_rows <= most for chunk in everything.chunks)


def test_a_payload_may_mark_the_end(topic: str, at: dict[str, Any]) -> None:
    source = Mqtt(topic, SCHEMA, ends_with="over", **at)
    everything = published(source, [b'{"n": 1}', b"over", b'{"n": 2}'], topic, at)
    assert [row["n"] for row in everything.rows] == [1]


def test_malformed_messages_are_rejected_with_their_topic(topic: str, at: dict[str, Any]) -> None:
    messages = [b'{"n": 1}', b"?", b'{\n"n": 2\n}', b"", b'{"n": 3}\n{"n": 4}']
    everything = published(Mqtt(topic, SCHEMA, qos=1, ends_with=5, **at), messages, topic, at)
    assert [row["n"] for row in everything.rows] == [1, 2]
    assert [position for position, _, _ in everything.rejected] == [1, 2, 2]
    assert everything.reasons[0] == f"message on {topic}: expected a JSON object, {{...}}, on one line"
    assert everything.reasons[2] == f"message on {topic}: expected one row, got 2"


def test_a_function_may_make_the_row_from_topic_and_payload(topic: str, at: dict[str, Any]) -> None:
    source = Mqtt(
        f"{topic}/+", SCHEMA, parse=lambda place, payload: (int(payload), place[-1]), qos=1, ends_with=2, **at
    )
    everything = published(source, [b"5", b"five"], f"{topic}/x", at)
    assert everything.rows == [{"n": 5, "name": "x"}]
    [(position, why, raw)] = everything.rejected
    assert (position, raw) == (1, "five")
    assert "the parse function raised ValueError" in why


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        pytest.param(None, b'{"n":1,"at":"2026-03-01T06:00:00+00:00","x":null}', id="the whole row"),
        pytest.param("n", b"1", id="a column"),
        pytest.param(lambda row: f"{row['at']:%H:%M}", b"06:00", id="a function"),
    ],
)
def test_the_payload_is_the_row_a_column_or_what_a_function_makes(
    topic: str, at: dict[str, Any], payload: Any, expected: bytes
) -> None:
    raw = Mqtt(topic, pa.schema([("raw", pa.binary())]), parse=lambda _, got: (got,), qos=1, ends_with=1, **at)
    came = threading.Event()
    with closing(raw.open(came.set, 0.0)) as reader:
        writer = to_mqtt(topic, payload, qos=1, **at).open()
        moment = pa.array([datetime(2026, 3, 1, 6, tzinfo=UTC)], pa.timestamp("us", "UTC"))
        writer.write(pa.RecordBatch.from_pydict({"n": [1], "at": moment, "x": [float("nan")]}))
        writer.close()
        assert drain(reader, came).rows == [{"raw": expected}]


def test_a_full_buffer_holds_messages_back_and_nothing_is_lost(topic: str, at: dict[str, Any]) -> None:
    messages = [f'{{"n": {n}}}'.encode() for n in range(100)]
    everything = published(Mqtt(topic, SCHEMA, qos=1, ends_with=100, buffer_rows=3, **at), messages, topic, at)
    assert [row["n"] for row in everything.rows] == list(range(100))
    assert max(chunk.batch.num_rows for chunk in everything.chunks) <= 3


def test_close_ends_the_thread_also_when_it_has_no_room(topic: str, at: dict[str, Any]) -> None:
    before = threading.enumerate()
    came = threading.Event()
    reader = Mqtt(topic, SCHEMA, buffer_rows=1, **at).open(came.set, 0.0)
    publish([b"1"] * 10, topic, at)
    assert came.wait(PATIENCE)
    reader.close()
    reader.close()
    assert [each for each in threading.enumerate() if each not in before] == []
    assert reader.ended


def test_an_error_of_the_payload_function_is_the_users(topic: str, at: dict[str, Any]) -> None:
    with (
        closing(to_mqtt(topic, lambda row: row["m"], **at).open()) as writer,
        pytest.raises(UserCodeError, match=r"payload function of to_mqtt.*KeyError: 'm'"),
    ):
        writer.write(pa.RecordBatch.from_pydict({"n": [1]}))


def test_a_column_that_is_not_there_is_named_with_those_that_are(topic: str, at: dict[str, Any]) -> None:
    with (
        closing(to_mqtt(topic, "m", **at).open()) as writer,
        pytest.raises(DeclarationError, match=r"no column 'm' to publish\. Got: n"),
    ):
        writer.write(pa.RecordBatch.from_pydict({"n": [1]}))


@pytest.mark.parametrize(
    "opens", [lambda at: Mqtt("t", SCHEMA, **at).open(nobody, 0.0), lambda at: to_mqtt("t", **at).open()]
)
def test_a_broker_that_is_not_there_is_named_with_what_to_do(opens: Any) -> None:
    pytest.importorskip("paho.mqtt.client", reason="needs the extra mqtt")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # so that nobody else does; but it does not listen
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError, match=rf"broker at 127\.0\.0\.1:{port} cannot be reached: .*Start the broker"):
            opens({"host": "127.0.0.1", "port": port})


def test_a_server_that_is_no_broker_is_given_up() -> None:
    pytest.importorskip("paho.mqtt.client", reason="needs the extra mqtt")
    before = threading.enumerate()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(BrokerError, match=r"does not answer; waited for 0\.1 s"):
            Mqtt("t", SCHEMA, host="127.0.0.1", port=port, timeout=0.1).open(nobody, 0.0)
    assert [each for each in threading.enumerate() if each not in before] == []


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paho.mqtt", None)
    with pytest.raises(DeclarationError, match=r"pip install 'headgate\[mqtt\]'"):
        Mqtt("t", SCHEMA).open(nobody, 0.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: Mqtt("t", SCHEMA, qos=2), "qos is 0 .* or 1 .*; got 2", id="source: exactly once"),
        pytest.param(lambda: to_mqtt("t", qos=2), "qos is 0 .* or 1 .*; got 2", id="sink: exactly once"),
        pytest.param(lambda: to_mqtt("t/#"), "has no wildcards; got 't/#'", id="sink: wildcard"),
        pytest.param(lambda: Mqtt("t", SCHEMA, format="xml"), "no format for lines called 'xml'", id="unknown format"),
    ],
)
def test_what_cannot_be_done_is_said_at_once(make: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        make()
