"""Rows published to an MQTT topic, a message each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import DeclarationError, user_error
from headgate.stream.errors import OutputError
from headgate.stream.sinks.files import json_rows
from headgate.stream.sources.mqtt import Broker, Session, check_qos

if TYPE_CHECKING:
    from paho.mqtt.client import MQTTMessageInfo

#: messages on their way at most; then ``write`` waits
MOST_UNDERWAY = 1_000

Payload = str | bytes
PayloadOf = str | Callable[[dict[str, Any]], Payload] | None


class ToMqtt:
    """A sink that publishes every row to a topic; needs the extra ``mqtt``.

    - ``payload``: the column whose value is the payload, or a function that makes it from the row as a dict. Without
      it, the payload is the row as a JSON object.
    - ``qos``: 0, at most once, or 1, at least once: then the end of the run waits until the broker has everything.
    - ``timeout``: how many seconds the broker may take to answer.
    """

    #: a broker may be slow: publishing has a thread of its own
    blocking = True

    def __init__(
        self,
        topic: str,
        payload: PayloadOf = None,
        *,
        host: str = "localhost",
        port: int = 1883,
        qos: int = 0,
        username: str | None = None,
        password: str | None = None,
        timeout: float = 5.0,
    ) -> None:
        check_qos(qos, "to_mqtt")
        if "+" in topic or "#" in topic:
            raise DeclarationError(f"to_mqtt: a topic to publish to has no wildcards; got {topic!r}")
        self._topic = topic
        self._payload = payload
        self._broker = Broker(host, port, username, password, timeout)
        self._qos = qos

    def __repr__(self) -> str:
        return f"to_mqtt({self._topic!r}, host={self._broker.host!r}, port={self._broker.port})"

    def open(self) -> MqttWriter:
        return MqttWriter(Session(self._broker), self._broker, self._topic, self._payload, self._qos)


class MqttWriter:
    """One run."""

    def __init__(self, session: Session, broker: Broker, topic: str, payload: PayloadOf, qos: int) -> None:
        self._session = session
        self._broker = broker
        self._topic = topic
        self._payload = payload
        self._qos = qos
        self._underway: deque[MQTTMessageInfo] = deque()
        self._closed = False

    def write(self, batch: pa.RecordBatch) -> None:
        for payload in self._payloads(batch):
            self._underway.append(self._session.publish(self._topic, payload, self._qos))
            while len(self._underway) > MOST_UNDERWAY:
                self._await_oldest()

    def close(self) -> None:
        """Wait until every message has gone out."""
        if self._closed:
            return
        self._closed = True
        try:
            while self._underway:
                self._await_oldest()
        finally:
            self._session.close()

    def _payloads(self, batch: pa.RecordBatch) -> list[bytes]:
        if self._payload is None:
            return [text.encode() for text in json_rows(batch)]
        if isinstance(self._payload, str):
            return [_bytes(value) for value in self._values(batch, self._payload)]
        try:
            return [_bytes(self._payload(row)) for row in batch.to_pylist()]
        except Exception as error:
            raise user_error(f"the payload function of to_mqtt({self._topic!r}) failed", error) from error

    def _values(self, batch: pa.RecordBatch, column: str) -> list[Any]:
        if column not in batch.schema.names:
            raise DeclarationError(
                f"to_mqtt({self._topic!r}): there is no column {column!r} to publish. Got: "
                f"{', '.join(batch.schema.names)}. Name one of them, or a function of the row."
            )
        values: list[Any] = batch.column(column).to_pylist()
        return values

    def _await_oldest(self) -> None:
        oldest = self._underway.popleft()
        try:
            oldest.wait_for_publish(self._broker.timeout)
            sent = oldest.is_published()
        except (RuntimeError, ValueError) as error:
            raise self._lost(str(error)) from error
        if not sent:
            raise self._lost(f"no answer for {self._broker.timeout:g} s")

    def _lost(self, reason: str) -> OutputError:
        return OutputError(
            f"{self._broker} did not take a message for the topic {self._topic!r}: {reason}. Check that the broker "
            f"runs; messages of this run up to there may have come through."
        )


def _bytes(value: Any) -> bytes:
    """A payload: text as UTF-8, nothing for null."""
    if value is None:
        return b""
    return value if isinstance(value, bytes) else str(value).encode()


#: the name under which users know this sink
to_mqtt = ToMqtt
