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

#: seconds to wait for the broker to answer, or to end
PATIENCE = 30.0


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

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])

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

    def publish(self, *payloads: str | bytes, topic: str = "t", retain: bool = False) -> None:
        """Publish messages, and wait until the broker has them."""
        from paho.mqtt import client as paho

        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        client.max_inflight_messages_set(1000)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        sent = [client.publish(topic, payload, qos=1, retain=retain) for payload in payloads]
        for each in sent:
            each.wait_for_publish(PATIENCE)
        client.disconnect()
        client.loop_stop()
