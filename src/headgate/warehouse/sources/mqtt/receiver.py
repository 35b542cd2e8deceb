"""Receives MQTT messages in the background, and acknowledges them when they are in the spool.

The session is persistent: the broker keeps messages for it while it is away, and sends again what was not acknowledged.
Two threads work for it: that of the client puts messages into a list, and a writer takes all that are there, writes
them, waits for the disk, and acknowledges them. If they cannot be written, they are not acknowledged, and that is tried
again. Both end when nobody has asked for some minutes; the broker keeps what comes then.

A message with quality of service 0 has no number, is not acknowledged and never comes again. The broker sends such
messages however many are waiting here, so their number is limited.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.core import first_line
from headgate.warehouse.sources.errors import SourceError, SourceUnreadable
from headgate.warehouse.sources.mqtt.offsets import MqttOffset
from headgate.warehouse.sources.mqtt.spool import Spool, SpooledMessage, is_wanted, spool_name, want

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

#: seconds after which receiving ends that nobody asks for any more; longer than updates and waits after failures take
UNASKED = 300.0
#: the same while another receiver waits for the spool
UNASKED_WHILE_WANTED = 10.0
#: seconds between two attempts to set up a client, as with a file that cannot be read
SET_UP_AGAIN = 15.0
#: seconds that the end of receiving is waited for
STOP_SECONDS = 30.0
#: seconds between two attempts to write to a disk that is full
AGAIN = 1.0
#: so many messages are taken at once
MOST_AT_ONCE = 10_000
#: while so many messages that never come again wait for the disk, further ones with quality of service 0 are dropped
MOST_UNREPEATED = MOST_AT_ONCE
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
    #: a file with the certificates to trust; those of the system if there is none
    authority: str = ""

    def __str__(self) -> str:
        return f"the MQTT broker at {self.host}:{self.port}"


class OpenSpool(NamedTuple):
    """A spool with its name, and the number of its first message that is not in the table."""

    name: str
    spool: Spool
    loaded: int


class MqttReceiver:
    """The receiver of one source. ``changed`` guards the fields below it, and is notified when one has changed."""

    def __init__(self, address: MqttAddress, folder: Path) -> None:
        self._address, self._folder = address, folder
        self.changed = threading.Condition()
        #: messages that are not written yet, each with the number to acknowledge it by; None if it never comes again:
        #: it has quality of service 0, or the broker has lost it
        self._received: list[tuple[int | None, SpooledMessage]] = []
        #: how many of them never come again
        self._unrepeated = 0
        #: how many were dropped since messages began to wait
        self._dropped = 0
        #: counts connections: what came in an earlier one is not acknowledged any more, it comes again
        self._connection = 0
        #: whether the broker has accepted the connection that there is
        self._accepted = False
        self._spool: Spool | None = None
        #: the name of the spool, once it was opened
        self._name = ""
        self._writer: threading.Thread | None = None
        self._asked_at = 0.0
        #: what is wrong with the broker, and with the disk
        self._broker_problem = f"waiting for {address}"
        self._disk_problem = ""
        #: notices that nobody has taken yet
        self._lost_session = ""
        self._dropping = ""

    def ask(self, offset: MqttOffset) -> tuple[OpenSpool | None, str]:
        """The spool, and what is wrong; receiving begins, or goes on."""
        with self.changed:
            self._asked_at = time.monotonic()
            if self._writer is None:
                try:
                    self._name = spool_name(self._folder)
                    is_new = self._name not in offset.next and not any(self._folder.glob("*.spool"))
                    self._spool = Spool(self._folder, offset.unused if is_new else offset.next.get(self._name, 0))
                except (OSError, SourceError) as error:
                    if isinstance(error, SourceUnreadable):
                        want(self._folder)
                    return None, f"the spool {self._folder} cannot be used: {first_line(error)}"
                self._writer = threading.Thread(target=self._run, name="headgate-mqtt", daemon=True)
                self._writer.start()
            spool, name, problem = self._spool, self._name, self._disk_problem or self._broker_problem
            if self._dropped:
                dropped = f"messages with quality of service 0 that were dropped, as too many wait: {self._dropped}"
                problem = f"{problem}. {dropped}" if problem else dropped
        if spool is None:
            return None, problem
        loaded = offset.next.get(name, 0)
        spool.forget(loaded)
        return OpenSpool(name, spool, loaded), problem

    def take_notice(self) -> str:
        """What was lost, once; empty if nothing was."""
        with self.changed:
            notices = [each for each in (self._lost_session, self._dropping) if each]
            self._lost_session = self._dropping = ""
            return "; ".join(notices)

    def stop(self) -> None:
        """End receiving, and wait for that; for a disk that hangs only so long."""
        with self.changed:
            self._asked_at = -UNASKED
            writer = self._writer
            self.changed.notify_all()
        if writer is not None:
            writer.join(STOP_SECONDS)

    # --- the writer -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        client: Client | None = None
        try:
            client = self._set_up()
            while client is not None and self._write(client):
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
                # What has a number is sent again. The rest is only here; what cannot be written stays in memory.
                self._hold([each for each in self._received if each[0] is None])
                if self._spool is not None:
                    if self._received:
                        with suppress(OSError):
                            self._spool.append([message for _, message in self._received])
                            self._hold([])
                    self._spool.close()
                self._spool, self._writer = None, None
                self.changed.notify_all()

    def _set_up(self) -> Client | None:
        """The client, as soon as there can be one; None if nobody wants it any more."""
        said = ""
        while True:
            try:
                client = self._connected()
            except Exception as error:
                # Whoever has declared it can mend a SourceError; any other is logged, once.
                problem = first_line(error)
                if not isinstance(error, SourceError):
                    problem = f"receiving from {self._address} cannot begin: {problem}"
                    if problem != said:
                        _log.exception("receiving from %s cannot begin", self._address)
                with self.changed:
                    self._broker_problem = said = problem
                    self.changed.notify_all()
                    if self.changed.wait_for(self._is_unasked, timeout=SET_UP_AGAIN):
                        return None
            else:
                return client

    def _hold(self, received: list[tuple[int | None, SpooledMessage]]) -> None:
        """These messages are not written yet, and no others."""
        self._received = received
        self._unrepeated = sum(number is None for number, _ in received)

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
            written = {id(message) for _, message in taken}
            self._hold([each for each in self._received if id(each[1]) not in written])
            if connection == self._connection:
                for number, _ in taken:
                    if number is not None:
                        client.ack(number, 1)
            self._disk_problem = ""
            if self._dropped and not self._received:
                _log.warning("messages of quality of service 0 from %s were dropped: %d", self._address, self._dropped)
                self._dropped = 0
            self.changed.notify_all()
        return True

    def _is_unasked(self) -> bool:
        unasked = time.monotonic() - self._asked_at
        return unasked > UNASKED or (unasked > UNASKED_WHILE_WANTED and is_wanted(self._folder))

    # --- the client -------------------------------------------------------------------------------------------

    def _connected(self) -> Client:
        paho, address = _paho(), self._address
        client: Client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id=address.client_id, clean_session=False, manual_ack=True
        )
        if address.username is not None:
            client.username_pw_set(address.username, address.password)
        if address.tls:
            try:
                client.tls_set(ca_certs=address.authority or None)
            except OSError as error:
                if not address.authority:
                    raise
                raise SourceError(
                    f"the file {address.authority} with the certificates to trust cannot be read: "
                    f"{error.strerror or first_line(error)}"
                ) from None
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
            self._connection += 1
            self._accepted = True
            if flags.session_present:
                # What has a number was not acknowledged, so it comes again.
                self._hold([each for each in self._received if each[0] is None])
            else:
                self._hold([(None, message) for _, message in self._received])
        subscribed = self._subscribed()
        if subscribed is not None and not flags.session_present:
            with self.changed:
                self._lost_session = "did not keep the session: what was published while it was not connected is lost"
        if flags.session_present and subscribed == self._subscription:
            # To subscribe again would make the broker send all retained messages once more.
            self._says("")
            return
        if flags.session_present and subscribed and subscribed[0] == self._subscription[0]:
            client.unsubscribe(subscribed[1])
        client.subscribe(self._address.topic, 1)

    @property
    def _subscription(self) -> list[str]:
        """The broker, and what is subscribed to there, as it is noted in the folder of the spool."""
        return [f"{self._address.host}:{self._address.port}", self._address.topic]

    def _subscribed(self) -> list[str] | None:
        """What was subscribed to last; None if nothing was, empty if nobody noted what."""
        try:
            found = (self._folder / "subscribed").read_text().split("\n", 1)
        except OSError:
            return None
        return found if len(found) == 2 else []

    def _on_connect_fail(self, client: Client, data: Any) -> None:
        error = sys.exc_info()[1]  # called where the error is handled
        self._says(f"{self._address} cannot be reached{f': {first_line(error)}' if isinstance(error, OSError) else ''}")

    def _on_disconnect(self, client: Client, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        with self.changed:
            was_accepted, self._accepted = self._accepted, False
        # A broker that refuses somebody hangs up, too: the reason of the refusal stays.
        if reason.is_failure and was_accepted:
            self._says(f"the connection to {self._address} was lost: {reason}")

    def _on_subscribe(self, client: Client, data: Any, mid: int, reasons: list[Any], properties: Any) -> None:
        if reasons[0].is_failure:
            self._says(f"{self._address} refuses the topic {self._address.topic!r}: {reasons[0]}")
            return
        try:
            (self._folder / "subscribed").write_text("\n".join(self._subscription))
        except OSError:
            _log.debug("%s cannot be written to", self._folder)
        self._says("")

    def _on_message(self, client: Client, data: Any, message: MQTTMessage) -> None:
        received = time.time_ns() // 1000
        taken = SpooledMessage(message.topic, bytes(message.payload), received, bool(message.retain), bool(message.dup))
        with self.changed:
            if message.qos:
                self._received.append((message.mid, taken))
            elif self._unrepeated < MOST_UNREPEATED:
                self._received.append((None, taken))
                self._unrepeated += 1
            else:
                if not self._dropped:
                    self._dropping = (
                        "sends messages with quality of service 0 faster than they can be written to the spool "
                        f"{self._folder}: while {MOST_UNREPEATED} wait, new ones are lost"
                    )
                self._dropped += 1
            self.changed.notify_all()


def _paho() -> Any:
    try:
        from paho.mqtt import client
    except ImportError:
        raise SourceError(
            "MQTT needs the package paho-mqtt, which is not installed. Install it with: pip install 'headgate[mqtt]'"
        ) from None
    return client
