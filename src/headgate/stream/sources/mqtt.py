"""MQTT: the source of a topic's messages, each of them a row, and the connection that source and sink share.

The client is paho-mqtt, which is imported when it is needed.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import DeclarationError
from headgate.stream.errors import BrokerError
from headgate.stream.sources.blocks import Block
from headgate.stream.sources.fit import Misfit, Row, as_text, sift_rows
from headgate.stream.sources.lines import line_format, parse_row
from headgate.stream.sources.receiving import BUFFER_BYTES, BUFFER_ROWS, Inbox, InboxReader, clock_from
from headgate.stream.sources.source import Wake

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage, MQTTMessageInfo

#: a topic and a payload
Message = tuple[str, bytes]
#: seconds without a message after which broker and client may take the other for dead
_KEEPALIVE = 60


class Mqtt:
    """A source of MQTT messages; needs the extra ``mqtt``.

    - ``topic``: what to subscribe to, also with the wildcards ``+`` and ``#``.
    - ``schema``: the columns. A payload is a row as JSON, or with ``format="csv"`` as CSV in the order of the schema.
    - ``parse``: instead of a format, a function of topic and payload that makes a row. A message for which it raises is
      rejected, as is one that does not fit the schema.
    - ``qos``: 0, at most once, or 1, at least once: then a message may come twice after a connection broke.
    - ``ends_with``: end after so many messages, or at a message with this payload, which is no row.

    Messages that are published after ``open`` are received. If the engine does not keep up, the client stops receiving
    when it holds ``buffer_rows`` messages. The publishers are not slowed: the broker keeps as many messages as its own
    settings say (``max_queued_messages`` of mosquitto) and drops the rest.
    """

    def __init__(
        self,
        topic: str,
        schema: pa.Schema,
        *,
        parse: Callable[[str, bytes], Row] | None = None,
        format: str = "json",
        host: str = "localhost",
        port: int = 1883,
        qos: int = 0,
        username: str | None = None,
        password: str | None = None,
        ends_with: int | str | bytes | None = None,
        buffer_rows: int = BUFFER_ROWS,
        timeout: float = 5.0,
    ) -> None:
        check_qos(qos, "Mqtt")
        self._topic = topic
        self.schema = schema
        self._broker = Broker(host, port, username, password, timeout)
        self._qos = qos
        self._ends_with = ends_with.encode() if isinstance(ends_with, str) else ends_with
        self._buffer_rows = buffer_rows
        self._block = _by_format(format, schema) if parse is None else _by_function(parse, schema)

    def __repr__(self) -> str:
        return f"Mqtt({self._topic!r}, host={self._broker.host!r}, port={self._broker.port})"

    def open(self, wake: Wake, now: float) -> InboxReader[Message]:
        inbox = Inbox[Message](wake, self._buffer_rows, BUFFER_BYTES)
        receive = _MessageReceiver(inbox, clock_from(now), self._ends_with)
        session = Session(self._broker, topic=self._topic, qos=self._qos, on_message=receive)
        return InboxReader(inbox, self._block, session.close)


class _MessageReceiver:
    """Puts messages into the inbox until the last one."""

    def __init__(self, inbox: Inbox[Message], clock: Callable[[], float], ends_with: int | bytes | None) -> None:
        self._inbox = inbox
        self._clock = clock
        self._marker = ends_with if isinstance(ends_with, bytes) else None
        self._left = ends_with if isinstance(ends_with, int) else None
        self._over = False

    def __call__(self, topic: str, payload: bytes) -> None:
        if self._over:
            return
        if self._marker is not None and payload == self._marker:
            self._end()
            return
        self._inbox.put([(topic, payload)], _size, self._clock())
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self._end()

    def _end(self) -> None:
        self._over = True
        self._inbox.finish()


def _by_format(name: str, schema: pa.Schema) -> Callable[[list[Message]], Block]:
    lines_format = line_format(name, schema)

    def block(messages: list[Message]) -> Block:
        # Between the values of a JSON object a newline is white space, and within a value there can be none.
        lines: list[bytes | Misfit] = [payload.replace(b"\n", b" ") for _, payload in messages]
        return lines_format.block(lines, lambda index: _place(messages[index]))

    return block


def _by_function(parse: Callable[[str, bytes], Row], schema: pa.Schema) -> Callable[[list[Message]], Block]:
    def block(messages: list[Message]) -> Block:
        rows = [parse_row(parse, topic, payload) for topic, payload in messages]
        return sift_rows(rows, schema, lambda index: _place(messages[index]), lambda index: as_text(messages[index][1]))

    return block


def _place(message: Message) -> str:
    return f"message on {message[0]}: "


def _size(message: Message) -> int:
    return len(message[1])


# --- the connection ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Broker:
    """The address of a broker, and who logs in."""

    host: str
    port: int
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    #: seconds to wait for an answer
    timeout: float = 5.0

    def __str__(self) -> str:
        return f"the MQTT broker at {self.host}:{self.port}"


class Session:
    """A connection that is up when the constructor returns, and is made again when it breaks.

    ``on_message(topic, payload)`` is called from the client's own thread, for the messages of ``topic``.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        topic: str | None = None,
        qos: int = 0,
        on_message: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._qos = qos
        self._on_message = on_message
        self._answered = threading.Event()
        self._refusal = ""
        self._client = self._new_client()
        self._connect()

    def publish(self, topic: str, payload: bytes, qos: int) -> MQTTMessageInfo:
        return self._client.publish(topic, payload, qos)

    def close(self) -> None:
        """Disconnect and end the client's thread. May be called more than once."""
        self._client.disconnect()
        self._client.loop_stop()

    def _new_client(self) -> Client:
        paho = _paho()
        name = f"headgate-{uuid.uuid4().hex[:12]}"
        client: Client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=name, clean_session=True)
        if self._broker.username is not None:
            client.username_pw_set(self._broker.username, self._broker.password)
        client.connect_timeout = self._broker.timeout
        client.reconnect_delay_set(1, 10)
        client.on_connect = self._connected
        client.on_subscribe = self._subscribed
        client.on_message = self._received
        return client

    def _connect(self) -> None:
        try:
            self._client.connect(self._broker.host, self._broker.port, _KEEPALIVE)
        except OSError as error:
            raise BrokerError(
                f"{self._broker} cannot be reached: {error}. Start the broker before the query, or correct host "
                f"and port."
            ) from error
        self._client.loop_start()
        if not self._answered.wait(self._broker.timeout):
            self._refusal = f"does not answer; waited for {self._broker.timeout:g} s"
        if self._refusal:
            self.close()
            raise BrokerError(f"{self._broker} {self._refusal}. Check its log, the user name and the password.")

    def _connected(self, client: Client, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._refusal = f"refuses the connection: {reason}"
            self._answered.set()
        elif self._topic is None:
            self._answered.set()
        else:
            client.subscribe(self._topic, self._qos)

    def _subscribed(self, client: Client, data: Any, mid: int, reasons: list[Any], properties: Any) -> None:
        if reasons[0].is_failure:
            self._refusal = f"refuses the topic {self._topic!r}: {reasons[0]}"
        self._answered.set()

    def _received(self, client: Client, data: Any, message: MQTTMessage) -> None:
        if self._on_message is not None:
            self._on_message(message.topic, bytes(message.payload))


def check_qos(qos: int, who: str) -> None:
    if qos not in (0, 1):
        raise DeclarationError(f"{who}: qos is 0 (at most once) or 1 (at least once); got {qos!r}")


def _paho() -> Any:
    try:
        from paho.mqtt import client
    except ImportError as error:
        raise DeclarationError(
            "MQTT needs the package paho-mqtt, which is not installed. Install it with: pip install 'headgate[mqtt]'"
        ) from error
    return client
