"""A real HDFS for tests: a name node and a data node, each a process on loopback, with their data in a folder."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from headgate.places.hdfs_path import HdfsPath
from headgate.places.place import path_from
from tests.services.ports import free_ports

VERSION = "3.5.0"
#: how long it may take to start, in seconds; far more than it takes
PATIENCE = 600.0
#: small and quick to start
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m")
_SERVER = "org.apache.hadoop.hdfs.server"
_NODES = 1
_PORTS = ("", "http.", "ipc.")


def why_not() -> str:
    """Why no HDFS can be started here; empty if one can."""
    try:
        import hdfs_native  # noqa: F401
    except ImportError:
        return "the package hdfs-native is not installed"
    if shutil.which("java") is None:
        return "java is not installed"
    return "" if _jars().is_dir() else "there is no HDFS; get it with scripts/ensure_hdfs.sh"


def _jars() -> Path:
    cache = os.environ.get("HEADGATE_CACHE") or Path.home() / ".cache" / "headgate"
    return Path(cache) / f"hdfs-{VERSION}" / "libs"


class HdfsServer:
    """HDFS while it runs, as a context; the name node can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data: list[subprocess.Popen[bytes]] = []
        self._name: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)

    @property
    def url(self) -> str:
        return f"hdfs://127.0.0.1:{self.port}"

    def place(self) -> HdfsPath:
        """A new folder, which nobody has made yet."""
        found = path_from(f"{self.url}/hg-{secrets.token_hex(6)}")
        assert isinstance(found, HdfsPath)
        return found

    def __enter__(self) -> Self:
        for number in range(_NODES):
            self._configure(f"node{number}")
        try:
            formatting = self._java("node0", "namenode.NameNode", "-format", "-nonInteractive")
            if formatting.wait(PATIENCE):
                raise RuntimeError(f"HDFS could not be formatted: {self._log('node0', 'namenode.NameNode')}")
            self.start()
            self._data = [self._java(f"node{number}", "datanode.DataNode") for number in range(_NODES)]
            self._wait(self._writes)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._data:
            process.kill()
            process.wait()
        self.resume()
        self.kill()

    def start(self) -> None:
        """Start the name node, and wait until it answers."""
        self._name = self._java("node0", "namenode.NameNode")
        self._wait(self._writes if self._data else self._place_of_probe().parent.is_dir)

    def kill(self) -> None:
        """End the name node at once."""
        if self._name is not None:
            self._name.kill()
            self._name.wait()

    def pause(self) -> None:
        """Let the name node hang: it takes requests and answers none."""
        assert self._name is not None
        self._name.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._name is not None:
            self._name.send_signal(signal.SIGCONT)

    def _place_of_probe(self) -> HdfsPath:
        found = path_from(f"{self.url}/probe")
        assert isinstance(found, HdfsPath)
        return found

    def _writes(self) -> bool:
        """Whether there are data nodes enough."""
        self._place_of_probe().write_bytes(b"there")
        return self._place_of_probe().read_bytes() == b"there"

    def _wait(self, is_ready: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                if is_ready():
                    return
            except OSError as error:
                if time.monotonic() > end or any(process.poll() is not None for process in self._processes()):
                    raise RuntimeError(f"HDFS does not answer ({error}): {self._logs()}") from None
            time.sleep(0.1)

    def _processes(self) -> list[subprocess.Popen[bytes]]:
        return [*self._data, *([] if self._name is None else [self._name])]

    def _configure(self, node: str) -> None:
        folder = self._folder / node
        (folder / "conf").mkdir(parents=True)
        _write(
            folder / "conf" / "core-site.xml",
            {"fs.defaultFS": self.url, "hadoop.tmp.dir": str(folder), "hadoop.security.authentication": "simple"},
        )
        anywhere = dict.fromkeys(
            [f"dfs.{name}" for name in ("namenode.http-address", *(f"datanode.{each}address" for each in _PORTS))],
            "127.0.0.1:0",
        )
        settings = {
            "dfs.replication": str(_NODES),
            "dfs.namenode.safemode.extension": "0",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.heartbeat.interval": "1",
        }
        _write(folder / "conf" / "hdfs-site.xml", {**anywhere, **settings})

    def _java(self, node: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        path = os.pathsep.join((str(self._folder / node / "conf"), f"{_jars()}/*"))
        with (self._folder / f"{node}-{program}.log").open("ab") as log:
            return subprocess.Popen(
                ["java", *_JVM, "-cp", path, f"{_SERVER}.{program}", *arguments],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _log(self, node: str, program: str) -> str:
        return (self._folder / f"{node}-{program}.log").read_text(errors="replace")[-3000:]

    def _logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(self._folder.glob("*.log")))


def _write(file: Path, settings: Mapping[str, str]) -> None:
    lines = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    file.write_text("<configuration>\n" + "\n".join(lines) + "\n</configuration>\n")
