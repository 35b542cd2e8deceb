"""An S3 server of its own for the tests: versitygw, over a folder, on loopback. ``scripts/ensure_object_store.sh``
builds it."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

from headgate.places.object_path import ObjectPath
from headgate.places.place import path_from

CACHE = Path(os.environ.get("HEADGATE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "headgate"))
PROGRAM = CACHE.expanduser() / "versitygw-v1.8.0" / "versitygw"
_KEY, _SECRET = "testing", "testing-secret"
_PATIENCE = 30.0


class ObjectStoreServer:
    """The server while it runs, as a context; its buckets are folders of ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @staticmethod
    def missing() -> str:
        """Why it cannot be started here; empty if it can."""
        return "" if os.access(PROGRAM, os.X_OK) else "no S3 server: scripts/ensure_object_store.sh builds one"

    def __enter__(self) -> ObjectStoreServer:
        root, side = self._folder / "buckets", self._folder / "attributes"
        root.mkdir(parents=True)
        side.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [PROGRAM, "--port", f"127.0.0.1:{self.port}", "posix", "--sidecar", side, root]
        secrets_of_root = {"ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET}
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command, env={**os.environ, **secrets_of_root}, stdout=log, stderr=subprocess.STDOUT
            )
        end = time.monotonic() + _PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.__exit__(None, None, None)
                raise RuntimeError(f"the S3 server does not answer: {(self._folder / 'log').read_text()}")
            time.sleep(0.02)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def options(self, port: int | None = None) -> dict[str, str]:
        """What ``storage`` of a warehouse takes; ``port`` is that of a proxy before the server."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def bucket(self, port: int | None = None) -> ObjectPath:
        """A new bucket."""
        name = f"hg-{secrets.token_hex(6)}"
        (self._folder / "buckets" / name).mkdir()
        found = path_from(f"s3://{name}", self.options(port))
        assert isinstance(found, ObjectPath)
        return found

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1.0).close()
        except OSError:
            return False
        return True
