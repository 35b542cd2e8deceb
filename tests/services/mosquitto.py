"""An MQTT broker for tests: mosquitto on a free port of this machine, which keeps its sessions in a folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from tests.services.certificates import Certificates
from tests.services.ports import free_ports

#: seconds to wait for the broker to answer, or to end; far more than it takes
PATIENCE = 300.0
#: who may come to a broker with certificates
USER, PASSWORD = "headgate", "sesame-1883"


def program() -> str | None:
    # Debian puts it where only root looks.
    return shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def why_not() -> str:
    """Why there can be no broker here; empty if there can."""
    if program() is None:
        return "the program mosquitto is not installed: scripts/ensure_mosquitto.sh"
    if find_spec("paho") is None:
        return "the package paho-mqtt is not installed: pip install 'headgate[mqtt]'"
    return ""


class MqttBroker:
    """A broker that runs inside a ``with`` block. It can be killed and started again in between."""

    def __init__(self, folder: Path, certificates: Certificates | None = None) -> None:
        self._folder = folder
        self._certificates = certificates
        self._process: subprocess.Popen[bytes] | None = None
        self.port, self.tls_port = free_ports(2)

    def tls_uri(self, password: str = "") -> str:
        """The same broker over TLS, for those who know the password; only if it was given certificates."""
        return f"mqtts://{USER}:{password or PASSWORD}@127.0.0.1:{self.tls_port}"

    @property
    def uri(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        lines = [
            f"listener {self.port} 127.0.0.1",
            "allow_anonymous true",
            "max_queued_messages 0",
            "persistence true",
            f"persistence_location {self._folder}/",
            "user root" if os.getuid() == 0 else "",
            f"log_dest file {self._folder}/broker.log",
        ]
        if self._certificates is not None:
            secrets = self._folder / "passwords"
            subprocess.run(["mosquitto_passwd", "-b", "-c", str(secrets), USER, PASSWORD], check=True)
            lines += [
                f"listener {self.tls_port} 127.0.0.1",
                f"certfile {self._certificates.certificate}",
                f"keyfile {self._certificates.key}",
                "allow_anonymous false",
                f"password_file {secrets}",
            ]
            lines.insert(0, "per_listener_settings true")
        (self._folder / "broker.conf").write_text("\n".join(lines))
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        """Start it and wait until it answers."""
        found = program()
        assert found is not None, why_not()
        self._process = subprocess.Popen([found, "-c", str(self._folder / "broker.conf")])
        until = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError((self._folder / "broker.log").read_text(errors="replace")[-2000:])
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def end(self, *, at_once: bool = False) -> None:
        """End it. It writes its sessions to the disk before, unless it ends at once."""
        process, self._process = self._process, None
        if process is None:
            return
        if at_once:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE)

    def publish(self, *payloads: str | bytes, topic: str = "t", retain: bool = False, qos: int = 1) -> None:
        """Publish messages, and wait until the broker has them; with ``qos=0`` only until they are sent."""
        from paho.mqtt import client as paho

        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        client.max_inflight_messages_set(1000)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        sent = [client.publish(topic, payload, qos=qos, retain=retain) for payload in payloads]
        for each in sent:
            each.wait_for_publish(PATIENCE)
            assert each.is_published(), "the broker did not answer"
        client.disconnect()
        client.loop_stop()
