"""A connection to an MQTT broker, for sources and sinks. The client is paho-mqtt, which is loaded when it is needed."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate.core.errors import DeclarationError, HeadgateError

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage, MQTTMessageInfo

#: seconds without a word after which broker and client may think that the other is gone
_KEEPALIVE = 60


class BrokerError(HeadgateError):
    """A broker cannot be reached, does not answer, or refuses."""


@dataclass(frozen=True)
class Broker:
    """Where a broker is, and who asks."""

    host: str
    port: int
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    #: seconds to wait for its answer
    timeout: float = 5.0

    def __str__(self) -> str:
        return f"the MQTT broker at {self.host}:{self.port}"


class Session:
    """A connection that is up when the constructor returns, and comes up again when it breaks.

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
        """Say goodbye and end the client's thread. May be called more than once."""
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
