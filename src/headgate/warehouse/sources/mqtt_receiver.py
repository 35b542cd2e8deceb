"""Receives MQTT messages in the background, and acknowledges them when they are in the spool.

The session is persistent: the broker keeps messages for it while it is away, and sends again what was not acknowledged.
Two threads work for it: that of the client puts messages into a list, and a writer takes all that are there, writes
them, waits for the disk, and acknowledges them. If they cannot be written, they are not acknowledged, and that is tried
again. Both end when nobody has asked for a while; the broker keeps what comes then.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.core import first_line
from headgate.warehouse.sources.errors import SourceError
from headgate.warehouse.sources.mqtt_spool import Spool, SpooledMessage

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

#: seconds after which receiving ends that nobody asks for any more
UNASKED = 10.0
#: seconds between two attempts to write to a disk that is full
AGAIN = 1.0
#: so many messages are taken at once
MOST_AT_ONCE = 10_000
_KEEPALIVE = 30

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MqttAddress:
    """A broker, what to subscribe to, and who asks."""

    host: str
    port: int
    topic: str
    client_id: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False

    def __str__(self) -> str:
        return f"the MQTT broker at {self.host}:{self.port}"


class MqttReceiver:
    """The receiver of one source. ``changed`` guards the fields below it, and is notified when one has changed."""

    def __init__(self, address: MqttAddress, folder: Path) -> None:
        self._address, self._folder = address, folder
        self.changed = threading.Condition()
        self._received: list[tuple[int, SpooledMessage]] = []
        #: counts connections: what came in an earlier one is not acknowledged any more, it comes again
        self._connection = 0
        self._spool: Spool | None = None
        self._writer: threading.Thread | None = None
        self._asked_at = 0.0
        #: what is wrong with the broker, and with the disk
        self._broker_problem = f"waiting for {address}"
        self._disk_problem = ""
        self._lost_session = ""

    def ask(self, loaded: int) -> tuple[Spool | None, str]:
        """The spool, and what is wrong; receiving begins, or goes on. Messages below ``loaded`` are in the table."""
        with self.changed:
            self._asked_at = time.monotonic()
            if self._writer is None:
                try:
                    self._spool = Spool(self._folder, loaded)
                except (OSError, SourceError) as error:
                    return None, f"the spool {self._folder} cannot be used: {first_line(error)}"
                self._writer = threading.Thread(target=self._run, name="headgate-mqtt", daemon=True)
                self._writer.start()
            spool, problem = self._spool, self._disk_problem or self._broker_problem
        if spool is not None:
            spool.forget(loaded)
        return spool, problem

    def take_notice(self) -> str:
        """What was lost, once; empty if nothing was."""
        with self.changed:
            notice, self._lost_session = self._lost_session, ""
            return notice

    def stop(self) -> None:
        """End receiving, and wait for that."""
        with self.changed:
            self._asked_at = -UNASKED
            writer = self._writer
            self.changed.notify_all()
        if writer is not None:
            writer.join()

    # --- the writer -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        client: Client | None = None
        try:
            client = self._connected()
            while self._write(client):
                pass
        except Exception as error:
            _log.exception("receiving from %s has ended", self._address)
            with self.changed:
                self._broker_problem = f"receiving from {self._address} has ended: {first_line(error)}"
        finally:
            if client is not None:
                client.disconnect()
                client.loop_stop()
            with self.changed:
                # Not acknowledged: the broker sends them again.
                self._received.clear()
                if self._spool is not None:
                    self._spool.close()
                self._spool, self._writer = None, None
                self.changed.notify_all()

    def _write(self, client: Client) -> bool:
        """Write what has come; False if nobody wants it any more."""
        with self.changed:
            self.changed.wait_for(lambda: self._received or self._is_unasked(), timeout=1.0)
            if self._is_unasked():
                return False
            taken, spool, connection = self._received[:MOST_AT_ONCE], self._spool, self._connection
        if not taken:
            return True
        assert spool is not None
        try:
            spool.append([message for _, message in taken])
        except OSError as error:
            problem = (
                f"messages cannot be written to the spool {self._folder} ({error.strerror}), so they are not "
                "acknowledged: the broker keeps them. Make room there"
            )
            with self.changed:
                self._disk_problem = problem
                self.changed.notify_all()
                self.changed.wait_for(self._is_unasked, timeout=AGAIN)
            return True
        with self.changed:
            if connection == self._connection:
                del self._received[: len(taken)]
                for number, _ in taken:
                    client.ack(number, 1)
            self._disk_problem = ""
            self.changed.notify_all()
        return True

    def _is_unasked(self) -> bool:
        return time.monotonic() - self._asked_at > UNASKED

    # --- the client -------------------------------------------------------------------------------------------

    def _connected(self) -> Client:
        paho, address = _paho(), self._address
        client: Client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id=address.client_id, clean_session=False, manual_ack=True
        )
        if address.username is not None:
            client.username_pw_set(address.username, address.password)
        if address.tls:
            client.tls_set()
        client.reconnect_delay_set(1, 15)
        client.on_connect = self._on_connect
        client.on_connect_fail = self._on_connect_fail
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        client.connect_async(address.host, address.port, _KEEPALIVE)
        client.loop_start()
        return client

    def _says(self, problem: str) -> None:
        with self.changed:
            self._broker_problem = problem
            self.changed.notify_all()

    def _on_connect(self, client: Client, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._says(f"{self._address} refuses the connection: {reason}. Check the user name and the password")
            return
        with self.changed:
            self._received.clear()
            self._connection += 1
        if (self._folder / "subscribed").exists() and not flags.session_present:
            with self.changed:
                self._lost_session = "did not keep the session: what was published while it was not connected is lost"
        client.subscribe(self._address.topic, 1)

    def _on_connect_fail(self, client: Client, data: Any) -> None:
        self._says(f"{self._address} cannot be reached")

    def _on_disconnect(self, client: Client, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._says(f"the connection to {self._address} was lost: {reason}")

    def _on_subscribe(self, client: Client, data: Any, mid: int, reasons: list[Any], properties: Any) -> None:
        if reasons[0].is_failure:
            self._says(f"{self._address} refuses the topic {self._address.topic!r}: {reasons[0]}")
            return
        try:
            (self._folder / "subscribed").touch()
        except OSError:
            _log.debug("%s cannot be written to", self._folder)
        self._says("")

    def _on_message(self, client: Client, data: Any, message: MQTTMessage) -> None:
        received = time.time_ns() // 1000
        taken = SpooledMessage(message.topic, bytes(message.payload), received, bool(message.retain), bool(message.dup))
        with self.changed:
            self._received.append((message.mid, taken))
            self.changed.notify_all()


def _paho() -> Any:
    try:
        from paho.mqtt import client
    except ImportError:
        raise SourceError(
            "MQTT needs the package paho-mqtt, which is not installed. Install it with: pip install 'headgate[mqtt]'"
        ) from None
    return client
