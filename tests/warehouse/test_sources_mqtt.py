"""MQTT messages as a source: one that was acknowledged is loaded, whoever was killed in between."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headgate as hg
from headgate.core import DeclarationError
from headgate.warehouse.sources import Limit, Offset, Range, SourceError
from headgate.warehouse.sources.mqtt_spool import Spool, SpooledMessage
from tests.services.mosquitto import MqttBroker, why_not

# --- the spool --------------------------------------------------------------------------------------------------


def message(number: int) -> SpooledMessage:
    return SpooledMessage(
        f"t/ü{number}", bytes([number]) * number, 1_000_000 * number, number % 2 == 0, number % 3 == 0
    )


def test_messages_are_read_as_they_were_written_from_any_number_on(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 0, segment_bytes=40)
    for number in range(12):
        spool.append([message(number)])
    assert len(list(tmp_path.glob("*.spool"))) > 2
    for reopened in (False, True):
        if reopened:
            spool.close()
            spool = Spool(tmp_path, 0, segment_bytes=40)
        assert (spool.first, spool.next) == (0, 12)
        for first in range(12):
            assert spool.read(first, 12) == [message(number) for number in range(first, 12)]
            blocks = list(spool.blocks(first, 5))
            assert [number for block in blocks for number in range(block.first, block.end)] == list(range(first, 12))
    spool.close()


def test_whatever_was_being_written_is_cut_off_and_numbers_go_on(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "whole", 0)
    spool.append([message(0), message(1), message(2)])
    spool.close()
    (written,) = (tmp_path / "whole").glob("*.spool")
    data = written.read_bytes()
    for cut in range(len(data) + 1):
        folder = tmp_path / str(cut)
        folder.mkdir()
        torn = data[:cut] + bytes(7 if cut % 2 else 0)
        (folder / written.name).write_bytes(torn)
        again = Spool(folder, 0)
        count = again.next
        assert again.read(0, count) == [message(number) for number in range(count)]
        again.append([message(9)])
        again.close()
        opened = Spool(folder, 0)
        assert opened.read(count, count + 1) == [message(9)]
        opened.close()
    assert count == 3


def test_a_segment_is_removed_when_all_of_it_is_loaded_and_numbers_are_not_used_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 0, segment_bytes=1)
    for number in range(4):
        spool.append([message(number)])
    spool.forget(2)
    assert spool.first == 2
    spool.forget(4)
    assert len(list(tmp_path.glob("*.spool"))) == 1
    spool.close()
    for path in tmp_path.glob("*.spool"):
        path.unlink()
    again = Spool(tmp_path, 4)
    again.append([message(4)])
    assert again.read(4, 5) == [message(4)]
    again.close()


def test_a_damaged_segment_is_named(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 0, segment_bytes=1)
    spool.append([message(0), message(5)])
    spool.append([message(2)])
    spool.close()
    first = min(tmp_path.glob("*.spool"))
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    with pytest.raises(SourceError, match=f"{first.name} is damaged: it should have 2 messages, of which 1"):
        Spool(tmp_path, 0)


# --- with a broker ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqttBroker]:
    if reason := why_not():
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with MqttBroker(tmp_path_factory.mktemp("mosquitto")) as running:
        yield running


class MessageStream:
    """A stream reduced to what it has loaded."""

    def __init__(self, broker: MqttBroker, folder: Path, **options: Any) -> None:
        self.broker, self.folder = broker, folder
        self.topic = f"t{uuid.uuid4().hex[:8]}"
        self.options: dict[str, Any] = {"client_id": self.topic, "format": "raw", **options}
        self.offset: Offset | None = None
        self.rows: list[dict[str, Any]] = []
        self.restart()

    def restart(self) -> None:
        self.source = hg.MqttMessages(self.broker.uri, f"{self.topic}/#", spool=self.folder / "spool", **self.options)
        self.offset = self.offset or self.source.start()

    def publish(self, *payloads: str, **options: Any) -> None:
        self.broker.publish(*payloads, topic=f"{self.topic}/a", **options)

    def connect(self) -> None:
        """Wait until messages are received."""
        self.wait(lambda: self.pending().note == "")

    def pending(self) -> Any:
        assert self.offset is not None
        return self.source.latest(self.offset)

    def wait(self, condition: Any) -> None:
        receiver = self.source._receiver
        self.pending()
        with receiver.changed:
            assert receiver.changed.wait_for(condition, timeout=40)

    def load(self, count: int) -> list[str]:
        """Load until there are so many rows; their payloads."""
        assert self.offset is not None
        while len(self.rows) < count:
            self.wait(lambda: self.source.next_range(self.offset, Limit()) is not None)  # type: ignore[arg-type]
            found: Any = self.source.next_range(self.offset, Limit(chunks=2))
            again: Any = Range.from_json(found.to_json())
            self.rows += self.source.arrow(again).to_pylist()
            self.offset = Offset.from_json(self.source.advance(self.offset, again).to_json())
        return [row["_headgate_payload"].decode() for row in self.rows]


@pytest.fixture
def stream(broker: MqttBroker, tmp_path: Path) -> Iterator[MessageStream]:
    made = MessageStream(broker, tmp_path)
    made.connect()
    yield made
    made.source.stop()


@pytest.mark.services
def test_messages_are_loaded_once_each_also_those_that_came_while_nobody_received(stream: MessageStream) -> None:
    stream.publish("a", "b")
    assert stream.load(2) == ["a", "b"]
    stream.source.stop()
    stream.publish("c")
    stream.restart()
    stream.publish("d")
    assert stream.load(4) == ["a", "b", "c", "d"]
    assert [row["_headgate_number"] for row in stream.rows] == [0, 1, 2, 3]
    assert stream.rows[0]["_headgate_topic"] == f"{stream.topic}/a"


@pytest.mark.services
def test_a_retained_message_says_so(broker: MqttBroker, tmp_path: Path) -> None:
    late = MessageStream(broker, tmp_path)
    late.publish("kept", retain=True)
    assert late.load(1) == ["kept"]
    assert late.rows[0]["_headgate_retained"]
    late.source.stop()


@pytest.mark.services
def test_a_broker_that_goes_away_is_waited_for(tmp_path: Path, broker: MqttBroker) -> None:
    with MqttBroker(tmp_path / "other") as other:
        stream = MessageStream(other, tmp_path)
        stream.connect()
        stream.publish("a")
        stream.load(1)
        other.end()
        stream.wait(lambda: stream.pending().note != "")
        assert "127.0.0.1" in stream.pending().note
        other.start()
        stream.publish("b")
        assert stream.load(2) == ["a", "b"]
        stream.source.stop()


@pytest.mark.services
def test_a_broker_that_has_lost_the_session_is_named(tmp_path: Path, broker: MqttBroker) -> None:
    with MqttBroker(tmp_path / "other") as other:
        stream = MessageStream(other, tmp_path)
        stream.connect()
        other.end(at_once=True)
        stream.wait(lambda: stream.pending().note != "")
        other.start()
        notices: list[Any] = []
        stream.wait(lambda: notices.extend(stream.pending().notices) or notices)
        assert "did not keep the session" in notices[0].problem
        stream.source.stop()


@pytest.mark.services
def test_on_a_full_disk_nothing_is_acknowledged_and_nothing_is_lost(stream: MessageStream) -> None:
    segment = stream.folder / "spool" / f"{0:020}.spool"
    segment.symlink_to("/dev/full")
    stream.publish("a", "b")
    stream.wait(lambda: "No space left" in stream.pending().note)
    assert "not acknowledged" in stream.pending().note
    assert stream.pending().chunks == 0
    segment.unlink()
    assert sorted(stream.load(2)) == ["a", "b"]
    assert stream.pending().note == ""


RECEIVE = """
import sys, time
import headgate as hg
source = hg.MqttMessages(sys.argv[1], sys.argv[2] + "/#", client_id=sys.argv[2], format="raw", spool=sys.argv[3])
while True:
    pending = source.latest(source.start())
    if pending.chunks:
        print("received", flush=True)
    time.sleep(0.001)
"""


@pytest.mark.services
def test_a_receiver_that_is_killed_has_acknowledged_only_what_is_in_the_spool(stream: MessageStream) -> None:
    stream.source.stop()
    command = [sys.executable, "-c", RECEIVE, stream.broker.uri, stream.topic, str(stream.folder / "spool")]
    for first in (0, 1000):
        stream.publish(*(str(number) for number in range(first, first + 1000)))
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.kill()
    stream.restart()
    stream.publish("last")
    count = 1
    while stream.load(count)[-1] != "last":
        count = len(stream.rows) + 1
    payloads = stream.load(count)
    assert {*payloads} == {*(str(number) for number in range(2000)), "last"}
    assert len(payloads) < 2000 + 1 + 2 * 100, "only what was not acknowledged comes again"


@pytest.mark.services
def test_a_spool_has_one_user(stream: MessageStream) -> None:
    source = hg.MqttMessages(stream.broker.uri, "x", client_id="another", format="raw", spool=stream.folder / "spool")
    said = source.latest(source.start())
    assert "used by another process or stream" in said.note
    assert said.missing


@pytest.mark.spark
@pytest.mark.services
def test_payloads_become_rows_and_bad_ones_say_what_is_wrong(spark: Any, broker: MqttBroker, tmp_path: Path) -> None:
    stream = MessageStream(
        broker,
        tmp_path,
        format="json",
        schema="id int, temp double",
        message={"at": "received", "where": "topic", "retained": "retained"},
    )
    stream.connect()
    stream.publish('{"id": 1, "temp": 2.5}', '{"id": "x"}', "{", "")
    stream.load(4)
    stream.offset = stream.source.start()
    found: Any = stream.source.next_range(stream.offset, Limit())
    rows = stream.source.read(spark, found).collect()
    assert [(row.id, row.temp, row._error) for row in rows] == [
        (1, 2.5, None),
        (None, None, "id: 'x' is not of the type int"),
        (None, None, "not one JSON object"),
        (None, None, "not one JSON object"),
    ]
    assert {row.where for row in rows} == {f"{stream.topic}/a"}
    assert rows[0]._file == f"{stream.topic}/a@0"
    stream.source.stop()


BAD = {
    "address": ({"broker": "localhost:1883"}, "needs the address of a broker"),
    "format": ({"format": "xml"}, "format takes 'json' or 'raw'"),
    "part": ({"message": ["sender"]}, "a message has the parts"),
    "raw columns": ({"schema": "a int, b int"}, "has one column"),
    "client": ({"client_id": ""}, "needs a client_id"),
}


@pytest.mark.parametrize(("options", "said"), BAD.values(), ids=BAD)
def test_a_wrong_declaration_is_explained(options: dict[str, Any], said: str) -> None:
    broker = options.pop("broker", "mqtt://user:secret@localhost")
    with pytest.raises(DeclarationError, match=said):
        hg.MqttMessages(broker, "t", **{"client_id": "c", "format": "raw", **options})


def test_a_password_is_not_printed() -> None:
    source = hg.MqttMessages("mqtt://user:secret@localhost", "t", client_id="c", format="raw")
    assert "secret" not in repr(source) + repr(source._address)
