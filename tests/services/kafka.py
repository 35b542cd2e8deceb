"""A real Kafka broker for tests: one process on loopback and a free port, with its data in a folder given to it."""

from __future__ import annotations

import base64
import logging
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.services import certificates
from tests.services.ports import free_ports

VERSION = "4.3.1"
#: how long a broker may take to start, or to answer, in seconds; far more than it takes
PATIENCE = 300.0

#: who may log in where a password is needed
USER, PASSWORD = "headgate", "sesame-712"

_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"

#: librdkafka writes to standard error otherwise
QUIET = logging.getLogger("kafka broker of the tests")


def why_not() -> str:
    """Why no broker can be started here; empty if one can."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        return "the package confluent-kafka is not installed"
    if shutil.which("java") is None:
        return "java is not installed"
    if not _jars().is_dir():
        return "there is no Kafka broker; get it with scripts/ensure_kafka.sh"
    return ""


def _jars() -> Path:
    cache = os.environ.get("HEADGATE_CACHE") or Path.home() / ".cache" / "headgate"
    return Path(cache) / f"kafka-{VERSION}" / "libs"


class KafkaBroker:
    """A broker that can be killed and started again with what it has on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, self._controller, self._sasl, self._tls = free_ports(4)
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: Any = None

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def servers_with_password(self) -> str:
        """The same broker for those who log in as ``USER`` with ``PASSWORD``."""
        return f"127.0.0.1:{self._sasl}"

    @property
    def servers_with_tls(self) -> str:
        """The same broker over TLS, for those who log in as ``USER`` with ``PASSWORD`` by SCRAM-SHA-512."""
        return f"127.0.0.1:{self._tls}"

    def tls_options(self, *, password: str = PASSWORD, authority: Path | None = None) -> dict[str, str]:
        """What a client needs there; another authority than the one that has signed the broker's certificate fails."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": password,
            "ssl.ca.location": str(authority or self._folder / "certificates" / "ca.crt"),
        }

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        ports = {"PLAINTEXT": self._port, "CONTROLLER": self._controller, "SASL_PLAINTEXT": self._sasl}
        tls: dict[str, object] = {}
        if not certificates.why_not():
            made = certificates.make_certificates(self._folder / "certificates")
            ports["SASL_SSL"] = self._tls
            tls = {
                "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
                "listener.name.sasl_ssl.ssl.keystore.type": "PEM",
                "listener.name.sasl_ssl.ssl.keystore.location": made.key_and_certificate,
            }
        at = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
        login = "org.apache.kafka.common.security.plain.PlainLoginModule"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller}",
            "listeners": at,
            "advertised.listeners": at,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(
                f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}" for name in ports
            ),
            **tls,
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{login} required user_{USER}="{PASSWORD}";',
            "log.dirs": self._folder / "data",
            # Records of tests have timestamps of long ago; the broker would remove them after some minutes.
            "log.retention.ms": -1,
            "auto.create.topics.enable": False,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "log.cleaner.backoff.ms": 100,
            "log.initial.task.delay.ms": 100,
        }
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self._folder / "server.properties").write_text(text)
        (self._folder / "log4j2.properties").write_text(_LOGGING)
        storage = ("kafka.tools.StorageTool", "format", "--standalone", "-t", _cluster_id(), "-c", "server.properties")
        self._java(*storage, "--add-scram", f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]").wait()
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start the broker, and wait until it answers."""
        self._process = self._java("kafka.Kafka", "server.properties")
        deadline = time.monotonic() + PATIENCE
        while True:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the broker did not start: {(self._folder / 'log').read_text()[-2000:]}")
            try:
                self.admin().list_topics(timeout=1)
                return
            except Exception:
                continue

    def kill(self) -> None:
        """End the broker at once, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _java(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [
            *("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{_jars()}/*"),
            *("-Dlog4j2.configurationFile=log4j2.properties", program, *arguments),
        ]
        with open(self._folder / "log", "ab") as log:
            return subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient(
                {"bootstrap.servers": self.servers, "reconnect.backoff.max.ms": 200}, logger=QUIET
            )
        return self._admin

    def topic(self, partitions: int = 2, *, name: str = "", **settings: str) -> str:
        """Create a topic, and wait until the broker tells everybody of it; its name is random unless given.

        Settings are written with underscores for dots.
        """
        from confluent_kafka.admin import NewTopic

        name = name or f"topic-{uuid.uuid4().hex[:8]}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        self.admin().create_topics([new])[name].result()
        self._wait_for_partitions(name, partitions)
        return name

    def add_partitions(self, topic: str, count: int) -> None:
        """Add partitions up to ``count``, and wait until the broker tells everybody of them."""
        from confluent_kafka.admin import NewPartitions

        self.admin().create_partitions([NewPartitions(topic, count)])[topic].result()
        self._wait_for_partitions(topic, count)

    def _wait_for_partitions(self, topic: str, count: int) -> None:
        """The controller answers when it has made them; the broker learns of them a little later."""
        until = time.monotonic() + PATIENCE
        while len(self.admin().list_topics(topic, timeout=PATIENCE).topics[topic].partitions) < count:
            assert time.monotonic() < until, f"{topic} has not got its {count} partitions"
            time.sleep(0.02)

    def wait_for_transactions(self, topic: str) -> None:
        """Wait until all transactions that were committed or aborted have ended in a topic.

        The broker says that one is committed when that is certain; who reads sees it a little later.
        """
        until = time.monotonic() + PATIENCE
        while self._ends(topic, committed=True) != self._ends(topic, committed=False):
            assert time.monotonic() < until, f"{topic} has a transaction that does not end"
            time.sleep(0.02)

    def _ends(self, topic: str, *, committed: bool) -> dict[int, int]:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        numbers = self.admin().list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        answers = self.admin().list_offsets(
            {TopicPartition(topic, number): OffsetSpec.latest() for number in numbers},
            isolation_level=IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
            request_timeout=PATIENCE,
        )
        return {asked.partition: answer.result().offset for asked, answer in answers.items()}

    def delete_topic(self, topic: str) -> None:
        self.admin().delete_topics([topic])[topic].result()

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Remove the first records of partitions, as retention does."""
        from confluent_kafka import TopicPartition

        asked = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        for answer in self.admin().delete_records(asked).values():
            answer.result()

    def send(self, topic: str, records: Iterable[Mapping[str, Any]], **settings: Any) -> list[tuple[int, int]]:
        """Produce records, each with the arguments of ``Producer.produce``; returns their (partition, offset)."""
        producer = self.producer(**settings)
        places: list[tuple[int, int]] = []
        for record in records:
            producer.produce(topic, on_delivery=_collector(places), **record)
        assert producer.flush(PATIENCE) == 0
        return places

    def producer(self, **settings: Any) -> Any:
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": self.servers, "linger.ms": 0, **settings}, logger=QUIET)


def _collector(places: list[tuple[int, int]]) -> Any:
    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        places.append((message.partition(), message.offset()))

    return delivered


def _cluster_id() -> str:
    # Of letters and digits only: one that begins with a dash would be taken for an option.
    return base64.urlsafe_b64encode(uuid.uuid4().hex[:16].encode()).rstrip(b"=").decode()


_LOGGING = """rootLogger.level=warn
rootLogger.appenderRef.c.ref=C
appender.c.type=Console
appender.c.name=C
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%d %p %m (%c)%n
"""
