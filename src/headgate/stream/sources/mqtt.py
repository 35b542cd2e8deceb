"""Messages of an MQTT topic, each of them a row."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.sources.block import Block
from headgate.stream.sources.fit import Misfit, Row, as_text, sift_rows
from headgate.stream.sources.inbox import Inbox
from headgate.stream.sources.line_formats import line_format, parsed
from headgate.stream.sources.mqtt_client import Broker, Session, check_qos
from headgate.stream.sources.received import BUFFER_BYTES, BUFFER_ROWS, Received, clock_from
from headgate.stream.sources.source import Wake

#: a topic and a payload
Message = tuple[str, bytes]


class Mqtt:
    """A source of MQTT messages; needs the extra ``mqtt``.

    - ``topic``: what to subscribe to, also with the wildcards ``+`` and ``#``.
    - ``schema``: the columns. A payload is a row as JSON, or with ``format="csv"`` as CSV in the order of the schema.
    - ``parse``: instead of a format, a function of topic and payload that makes a row. A message for which it raises is
      rejected, as is one that does not fit the schema.
    - ``qos``: 0, at most once, or 1, at least once: then a message may come twice after a connection broke.
    - ``ends_with``: end after so many messages, or at a message with this payload, which is no row.

    After ``open``, every message that is published comes. If the engine does not keep up, the client stops receiving
    when it has ``buffer_rows`` messages. The publishers do not feel it: the broker keeps what it has room for by
    its own settings (``max_queued_messages`` of mosquitto) and drops the rest.
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
        self._schema = schema
        self._broker = Broker(host, port, username, password, timeout)
        self._qos = qos
        self._ends_with = ends_with.encode() if isinstance(ends_with, str) else ends_with
        self._buffer_rows = buffer_rows
        self._block = _by_format(format, schema) if parse is None else _by_function(parse, schema)

    def __repr__(self) -> str:
        return f"Mqtt({self._topic!r}, host={self._broker.host!r}, port={self._broker.port})"

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def open(self, wake: Wake, now: float) -> Received[Message]:
        inbox = Inbox[Message](wake, self._buffer_rows, BUFFER_BYTES)
        receive = _Receiving(inbox, clock_from(now), self._ends_with)
        session = Session(self._broker, topic=self._topic, qos=self._qos, on_message=receive)
        return Received(inbox, self._block, session.close)


class _Receiving:
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
    lines_as = line_format(name, schema)

    def block(messages: list[Message]) -> Block:
        # Between the values of a JSON object a newline is white space, and within a value there can be none.
        lines: list[bytes | Misfit] = [payload.replace(b"\n", b" ") for _, payload in messages]
        return lines_as.block(lines, lambda index: _place(messages[index]))

    return block


def _by_function(parse: Callable[[str, bytes], Row], schema: pa.Schema) -> Callable[[list[Message]], Block]:
    def block(messages: list[Message]) -> Block:
        rows = [parsed(parse, topic, payload) for topic, payload in messages]
        return sift_rows(rows, schema, lambda index: _place(messages[index]), lambda index: as_text(messages[index][1]))

    return block


def _place(message: Message) -> str:
    return f"message on {message[0]}: "


def _size(message: Message) -> int:
    return len(message[1])
