"""MQTT messages as a source: one that was acknowledged is loaded, whoever was killed in between."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from paho.mqtt import client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

import headgate as hg
from headgate.core import DeclarationError
from headgate.warehouse.run.run import WarehouseRun
from headgate.warehouse.sources import Limit, Offset, Range, SourceError
from headgate.warehouse.sources.mqtt.receiver import UNASKED, MqttAddress, MqttReceiver
from headgate.warehouse.sources.mqtt.spool import Spool, SpooledMessage, spool_name
from tests.services import certificates
from tests.services.mosquitto import MqttBroker, why_not

#: how long a test waits for something that should happen at once on an idle machine
PATIENCE = 300.0
#: the same for less than ``UNASKED``
SHORT_PATIENCE = 120.0
RECEIVER = "headgate.warehouse.sources.mqtt.receiver"


@pytest.fixture(autouse=True)
def asked_often_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow a test is, receiving does not end because nobody has asked for a while."""
    monkeypatch.setattr(f"{RECEIVER}.UNASKED", 2 * PATIENCE)


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
        self.notices: list[Any] = []
        self.patience = PATIENCE
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
        found = self.source.latest(self.offset)
        self.notices += found.notices
        return found

    def wait(self, condition: Any) -> None:
        receiver = self.source._receiver
        self.pending()
        with receiver.changed:
            assert receiver.changed.wait_for(condition, timeout=self.patience), receiver._broker_problem

    def fill_disk(self) -> Path:
        """Let no message be written until the file that is returned is removed."""
        full = self.folder / "spool" / f"{0:020}.spool"
        full.symlink_to("/dev/full")
        return full

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
def test_retained_messages_come_once_however_often_the_connection_breaks(broker: MqttBroker, tmp_path: Path) -> None:
    stream = MessageStream(broker, tmp_path)
    stream.publish("kept", retain=True)
    assert stream.load(1) == ["kept"]
    for turn in range(3):
        stream.source.stop()
        stream.restart()
        stream.publish(str(turn))
        stream.load(2 + turn)
    assert stream.load(4) == ["kept", "0", "1", "2"]
    stream.source.stop()


@pytest.mark.services
def test_a_warehouse_that_comes_back_to_a_machine_loads_what_is_in_its_spool(
    broker: MqttBroker, tmp_path: Path
) -> None:
    stream = MessageStream(broker, tmp_path)
    stream.connect()
    stream.publish("on the first machine, loaded")
    stream.load(1)
    stream.publish("on the first machine, not loaded")
    stream.wait(lambda: stream.pending().chunks == 1)
    stream.source.stop()
    (tmp_path / "spool").rename(tmp_path / "first machine")
    stream.restart()
    stream.publish("on the second machine", "on the second machine, too")
    stream.load(3)
    stream.source.stop()
    (tmp_path / "spool").rename(tmp_path / "second machine")
    (tmp_path / "first machine").rename(tmp_path / "spool")
    stream.restart()
    assert stream.load(4)[3] == "on the first machine, not loaded"
    stream.source.stop()


@pytest.mark.services
def test_messages_in_hand_are_kept_if_the_broker_loses_the_session(tmp_path: Path, broker: MqttBroker) -> None:
    with MqttBroker(tmp_path / "other") as other:
        stream = MessageStream(other, tmp_path)
        stream.connect()
        segment = stream.fill_disk()
        stream.publish("a")
        stream.wait(lambda: "No space left" in stream.pending().note)
        other.end(at_once=True)
        # That it was lost is soon replaced by why it cannot be reached.
        stream.wait(lambda: stream.source._receiver._broker_problem != "")
        other.start()
        stream.wait(lambda: stream.pending() and stream.notices)
        segment.unlink()
        assert stream.load(1) == ["a"]
        stream.source.stop()


def test_an_offset_from_before_spools_had_names_goes_on_with_the_spool_that_has_none(tmp_path: Path) -> None:
    stored: Any = Offset.from_json({"kind": "mqtt", "next": 7})
    assert stored.next == {"": 7}
    assert spool_name(tmp_path / "new") == spool_name(tmp_path / "new") != ""
    (tmp_path / f"{3:020}.spool").touch()
    assert spool_name(tmp_path) == ""


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
        stream.wait(lambda: stream.pending() and stream.notices)
        assert "did not keep the session" in stream.notices[0].problem
        stream.source.stop()


def test_the_reason_of_a_refusal_stays_when_the_broker_hangs_up(tmp_path: Path) -> None:
    receiver = MqttReceiver(MqttAddress("127.0.0.1", 1883, "t", "me"), tmp_path)
    refused = ReasonCode(PacketTypes.CONNACK, "Not authorized")
    lost = ReasonCode(PacketTypes.DISCONNECT, "Unspecified error")
    client, flags = paho.Client(paho.CallbackAPIVersion.VERSION2), paho.ConnectFlags(session_present=False)
    for reason, said in ((refused, "Not authorized"), (ReasonCode(PacketTypes.CONNACK, "Success"), "was lost")):
        receiver._on_connect(client, None, flags, reason, None)
        receiver._on_disconnect(client, None, None, lost, None)
        assert said in receiver._broker_problem


@pytest.mark.slow
@pytest.mark.skipif(bool(certificates.why_not()), reason=certificates.why_not() or "never")
def test_certificates_that_cannot_be_read_are_named_and_read_when_they_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(f"{RECEIVER}.SET_UP_AGAIN", 0.01)
    authority = tmp_path / "trusted.pem"
    source = hg.MqttMessages(
        "mqtts://127.0.0.1:1", "t", client_id="c", format="raw", spool=tmp_path / "spool", authority=authority
    )
    receiver = source._receiver
    source.latest(source.start())
    writer = receiver._writer

    def wait_for(said: str, but_not: str = "never") -> None:
        def is_said(problem: str) -> bool:
            return said in problem and but_not not in problem

        with receiver.changed:
            assert receiver.changed.wait_for(lambda: is_said(receiver._broker_problem), timeout=SHORT_PATIENCE)
        assert is_said(source.latest(source.start()).note)

    named, missing = f"the file {authority} with the certificates to trust cannot be read", "No such file or directory"
    wait_for(f"{named}: {missing}")
    authority.write_text("no certificate")
    wait_for(named, but_not=missing)
    authority.write_bytes(certificates.make_certificates(tmp_path / "made").authority.read_bytes())
    wait_for("cannot be reached")
    assert receiver._writer is writer
    assert not caplog.records
    source.stop()


@pytest.mark.services
def test_the_end_of_a_run_ends_receiving(broker: MqttBroker, tmp_path: Path) -> None:
    stream = MessageStream(broker, tmp_path, message={"at": "received"})
    wh = hg.Warehouse("home", tmp_path / "warehouse")
    wh.stream("messages", stream.source, time="at")
    run = WarehouseRun(wh.spec())
    stream.connect()
    source = run.spec.streams[0].source
    source.latest(source.start())
    run.stop()
    assert stream.source._receiver._writer is None


@pytest.mark.services
@pytest.mark.slow
@pytest.mark.skipif(bool(certificates.why_not()), reason=certificates.why_not() or "never")
# The client leaves the socket of a failed handshake to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_messages_come_over_tls_and_who_is_refused_waits_with_the_reason(tmp_path: Path, broker: MqttBroker) -> None:
    made = certificates.make_certificates(tmp_path / "certificates")
    strangers = certificates.make_certificates(tmp_path / "strangers").authority
    with MqttBroker(tmp_path / "other", made) as other:
        topic = f"t{uuid.uuid4().hex[:8]}"
        tries = (
            (other.tls_uri(), made.authority, ""),
            (other.tls_uri("wrong-secret-35"), made.authority, "Not authorized"),
            (other.tls_uri("wrong-secret-35"), strangers, "certificate verify failed"),
        )
        for number, (uri, authority, reason) in enumerate(tries):
            spool = tmp_path / f"spool-{number}"
            source = hg.MqttMessages(
                uri, topic, client_id=f"{topic}-{number}", format="raw", spool=spool, authority=authority
            )
            receiver = source._receiver
            source.latest(source.start())

            def is_told(reason: str = reason, receiver: MqttReceiver = receiver) -> bool:
                return reason in receiver._broker_problem and bool(receiver._broker_problem) == bool(reason)

            with receiver.changed:
                assert receiver.changed.wait_for(is_told, timeout=PATIENCE), receiver._broker_problem
            said = source.latest(source.start())
            assert reason in said.note and bool(said.note) == bool(reason)
            assert "wrong-secret-35" not in repr(said) + repr(source) + repr(source._address)
            if not reason:
                other.publish("a", topic=topic)
                with receiver.changed:
                    assert receiver.changed.wait_for(lambda: source.latest(source.start()).chunks, timeout=PATIENCE)  # noqa: B023
            source.stop()
    gc.collect()


@pytest.mark.services
def test_on_a_full_disk_nothing_is_acknowledged_and_nothing_is_lost(stream: MessageStream) -> None:
    segment = stream.fill_disk()
    stream.publish("a", "b")
    stream.wait(lambda: "No space left" in stream.pending().note)
    assert "not acknowledged" in stream.pending().note
    assert stream.pending().chunks == 0
    segment.unlink()
    assert sorted(stream.load(2)) == ["a", "b"]
    stream.wait(lambda: stream.pending().note == "")  # messages can be read a moment before that is noted


@pytest.mark.services
@pytest.mark.slow
def test_messages_of_both_qualities_of_service_come_once_and_the_connection_lasts(stream: MessageStream) -> None:
    stream.patience = SHORT_PATIENCE
    for number in range(10):
        stream.publish(str(number), qos=number % 2)
        # The next one comes after the broker was told, or not, that this one is safe.
        assert stream.load(number + 1) == [str(each) for each in range(number + 1)]
    stream.publish("a", "b", qos=0)
    stream.publish("c", "d")
    assert sorted(stream.load(14)[10:]) == ["a", "b", "c", "d"]
    assert stream.source._receiver._connection == 1


@pytest.mark.services
@pytest.mark.slow
def test_a_message_that_never_comes_again_is_kept_while_the_broker_is_away(tmp_path: Path, broker: MqttBroker) -> None:
    with MqttBroker(tmp_path / "other") as other:
        stream = MessageStream(other, tmp_path)
        stream.patience = SHORT_PATIENCE
        stream.connect()
        segment = stream.fill_disk()
        receiver = stream.source._receiver
        stream.publish("comes again")
        stream.publish("never comes again", qos=0)
        stream.wait(lambda: len(receiver._received) == 2)
        other.end()
        stream.wait(lambda: not receiver._accepted)
        other.start()
        stream.wait(lambda: receiver._connection == 2 and len(receiver._received) == 2)
        segment.unlink()
        assert sorted(stream.load(2)) == ["comes again", "never comes again"]
        assert not stream.notices, "the session was kept"
        stream.source.stop()


@pytest.mark.services
@pytest.mark.slow
def test_a_message_that_never_comes_again_is_kept_while_nobody_receives(stream: MessageStream) -> None:
    stream.patience = SHORT_PATIENCE
    segment = stream.fill_disk()
    receiver = stream.source._receiver
    stream.publish("a", qos=0)
    stream.wait(lambda: receiver._received)
    stream.source.stop()
    segment.unlink()
    assert stream.load(1) == ["a"]


@pytest.mark.services
@pytest.mark.slow
def test_of_messages_that_never_come_again_only_so_many_wait_for_a_full_disk(
    stream: MessageStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{RECEIVER}.MOST_UNREPEATED", 3)
    stream.patience = SHORT_PATIENCE
    segment = stream.fill_disk()
    stream.publish(*"abcde", qos=0)
    stream.wait(lambda: "No space left" in stream.pending().note and "too many wait: 2" in stream.pending().note)
    stream.publish("f", qos=1)
    stream.publish("g", qos=0)
    stream.wait(lambda: "too many wait: 3" in stream.pending().note)
    (notice,) = stream.notices
    assert "while 3 wait, new ones are lost" in notice.problem
    segment.unlink()
    assert sorted(stream.load(4)) == ["a", "b", "c", "f"]
    stream.wait(lambda: stream.pending().note == "")
    stream.publish("h", qos=0)
    assert stream.load(5)[4] == "h"
    assert len(stream.notices) == 1


@pytest.mark.services
@pytest.mark.slow
def test_receiving_goes_on_while_an_update_of_minutes_does_not_ask(
    stream: MessageStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{RECEIVER}.UNASKED", UNASKED)
    stream.patience = SHORT_PATIENCE
    receiver = stream.source._receiver
    with receiver.changed:
        spool = receiver._spool
        assert spool is not None
        stream.publish("a")
        receiver._asked_at = time.monotonic() - 120.0
        receiver.changed.notify_all()
        assert receiver.changed.wait_for(lambda: receiver._writer is None or spool.next, timeout=SHORT_PATIENCE)
        assert receiver._writer is not None
    assert stream.load(1) == ["a"]


@pytest.mark.services
def test_a_spool_that_another_stream_waits_for_is_given_up_when_nobody_asks(stream: MessageStream) -> None:
    receiver = stream.source._receiver
    other = hg.MqttMessages(
        stream.broker.uri, "x", client_id=f"{stream.topic}-other", format="raw", spool=stream.folder / "spool"
    )
    assert "used by another process or stream" in other.latest(other.start()).note
    with receiver.changed:
        receiver._asked_at = time.monotonic() - 60.0
        receiver.changed.notify_all()
        assert receiver.changed.wait_for(lambda: receiver._writer is None, timeout=SHORT_PATIENCE)
    assert "used by another" not in other.latest(other.start()).note
    assert not (stream.folder / "spool" / "wanted").exists()
    other.stop()


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
    "address with a user": ({"broker": "user@localhost:1883"}, "needs the address of a broker"),
    "format": ({"format": "xml"}, "format takes 'json' or 'raw'"),
    "part": ({"message": ["sender"]}, "a message has the parts"),
    "raw columns": ({"schema": "a int, b int"}, "has one column"),
    "client": ({"client_id": ""}, "needs a client_id"),
}


@pytest.mark.parametrize("mark", ["#", "/", "?", "/#"])
def test_a_password_that_is_not_percent_encoded_is_refused_and_not_printed(mark: str) -> None:
    with pytest.raises(DeclarationError, match="percent-encoded") as refused:
        hg.MqttMessages(f"mqtt://sensor:4711{mark}geheim@broker:1883", "t", client_id="c", format="raw")
    assert not any(part in str(refused.value) for part in ("sensor", "4711", "geheim"))
    encoded = f"mqtt://sensor:4711{quote(mark, safe='')}geheim@broker/"
    source = hg.MqttMessages(encoded, "t", client_id="c", format="raw")
    assert (source._address.host, source._address.password) == ("broker", f"4711{mark}geheim")


@pytest.mark.parametrize(("options", "said"), BAD.values(), ids=BAD)
def test_a_wrong_declaration_is_explained(options: dict[str, Any], said: str) -> None:
    broker = options.pop("broker", "mqtt://user:secret@localhost")
    with pytest.raises(DeclarationError, match=said):
        hg.MqttMessages(broker, "t", **{"client_id": "c", "format": "raw", **options})


def test_a_password_is_not_printed() -> None:
    source = hg.MqttMessages("mqtt://user:secret@localhost", "t", client_id="c", format="raw")
    assert "secret" not in repr(source) + repr(source._address)
