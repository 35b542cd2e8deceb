"""How to reach a Kafka cluster: the settings of its clients, and texts in which no secret of them is shown."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from headgate.core import DeclarationError
from headgate.places.secret_text import HIDDEN, without
from headgate.warehouse.sources.errors import PackageMissing, SourceError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

Isolation = Literal["read_committed", "read_uncommitted"]

#: settings on which it depends that every record is loaded once, and what to use in their place
_OURS = {
    "bootstrap.servers": "give them as servers",
    "isolation.level": "give it as isolation",
    "auto.offset.reset": "offsets are kept in the table; give start for where to begin",
    "enable.auto.commit": "offsets are kept in the table",
    "enable.auto.offset.store": "offsets are kept in the table",
    "enable.partition.eof": "the source needs it",
    "group.protocol": "partitions are assigned by the source",
    "logger": "add a handler to the logger 'headgate.kafka'",
    "error_cb": "add a handler to the logger 'headgate.kafka'",
}
#: settings whose values may be shown; all others may be secrets
_HARMLESS = frozenset({"security.protocol", "sasl.mechanism", "sasl.mechanisms", "client.id", "group.id"})

log = logging.getLogger("headgate.kafka")
log.addHandler(logging.NullHandler())


def shown_servers(servers: object) -> str:
    """The servers as they were given, without what stands before an @, which is a mistake."""
    if isinstance(servers, str) and "@" in servers:
        return repr(f"{HIDDEN}@{servers.rpartition('@')[2]}")
    return repr(servers)


@dataclass(frozen=True)
class KafkaClients:
    """Makes clients of one cluster. ``options`` are settings of librdkafka, such as those of TLS and SASL."""

    servers: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    isolation: Isolation = "read_committed"

    def check(self, where: str) -> None:
        """Raise a DeclarationError if a setting has no place here."""
        if not isinstance(self.servers, str) or not self.servers.strip():
            raise DeclarationError(f"{where} needs the servers of the cluster, as in 'kafka-1:9092,kafka-2:9092'")
        if "@" in self.servers:
            raise DeclarationError(
                f"{where}: servers takes hosts and ports only, as in 'kafka-1:9092,kafka-2:9092'; got one with a user "
                "or a password (@). Give them as options={'sasl.username': ..., 'sasl.password': ...}"
            )
        if self.isolation not in ("read_committed", "read_uncommitted"):
            raise DeclarationError(
                f"{where}: isolation takes 'read_committed' or 'read_uncommitted'; got {self.isolation!r}"
            )
        if not isinstance(self.options, Mapping) or not all(isinstance(key, str) for key in self.options):
            raise DeclarationError(f"{where}: options takes settings by name, as in {{'security.protocol': 'SSL'}}")
        for key, instead in _OURS.items():
            if key in self.options:
                raise DeclarationError(f"{where}: options must not have {key!r}: {instead}")

    @property
    def key(self) -> tuple[object, ...]:
        """The same for clients that may be shared."""
        return (self.servers, self.isolation, *sorted((key, repr(value)) for key, value in self.options.items()))

    def admin(self, on_error: Callable[[Any], None]) -> AdminClient:
        """A client that asks about topics."""
        client = library("confluent_kafka.admin").AdminClient
        made: AdminClient = self._made(client, {**_QUIET, **self.options, "error_cb": on_error})
        return made

    def consumer(self, group: str) -> Consumer:
        """A client that reads records."""
        client = library("confluent_kafka").Consumer
        settings = {
            **_QUIET,
            "group.id": group,
            # What is there is sent at once: a range ends at records that exist already.
            "fetch.wait.max.ms": 10,
            # How far librdkafka reads ahead: it is thrown away at the end of a range.
            "queued.max.messages.kbytes": 32 << 10,
            "fetch.message.max.bytes": 4 << 20,
            # Otherwise it stops for a second whenever it is 100,000 records ahead.
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 5,
            **self.options,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": self.isolation,
        }
        made: Consumer = self._made(client, settings)
        return made

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        """A client that writes records, with ``settings`` that options do not change."""
        # Keys lie where Java's clients put them.
        ours = {**_QUIET, "linger.ms": 5, "partitioner": "murmur2_random", **self.options, **settings}
        made: Producer = self._made(library("confluent_kafka").Producer, ours)
        return made

    def _made(self, client: Any, settings: dict[str, Any]) -> Any:
        try:
            return client({**settings, "bootstrap.servers": self.servers}, logger=log)
        except Exception as error:
            # Raised outside of the original error, whose text and traceback may have a secret in them.
            text = self.hidden(str(error))
        raise SourceError(f"a client of Kafka at {self.servers} cannot be made: {text}. Correct the options")

    def hidden(self, text: str) -> str:
        """``text`` without the values of options that may be secrets."""
        return without(text, (str(value) for key, value in self.options.items() if key not in _HARMLESS))


#: librdkafka is not to write to standard error; a broker that is down is tried again every few seconds
_QUIET: Mapping[str, Any] = {"log.connection.close": False, "reconnect.backoff.max.ms": 5_000}


def library(module: str) -> Any:
    """A module of the packages that Kafka needs; raises a PackageMissing that says how to get it."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise PackageMissing(
            f"Kafka needs packages that cannot be imported here ({error}): pip install 'headgate[kafka]'"
        ) from None
