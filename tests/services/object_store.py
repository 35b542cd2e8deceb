"""An S3 server of its own for the tests: versitygw, over a folder, on loopback. ``scripts/ensure_object_store.sh``
builds it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from headgate.places.object_path import ObjectPath
from headgate.places.place import path_from
from tests.services.server_process import CACHE, ServerProcess

PROGRAM = CACHE.expanduser() / "versitygw-v1.8.0" / "versitygw"
_KEY, SECRET = "testing", "testing-secret"


class ObjectStoreServer(ServerProcess):
    """The server; its buckets are folders of ``folder``."""

    @staticmethod
    def missing() -> str:
        """Why it cannot be started here; empty if it can."""
        return "" if os.access(PROGRAM, os.X_OK) else "no S3 server: scripts/ensure_object_store.sh builds one"

    def command(self) -> Sequence[str | Path]:
        root, side = self._folder / "buckets", self._folder / "attributes"
        root.mkdir(parents=True)
        side.mkdir()
        return [PROGRAM, "--port", f"127.0.0.1:{self.port}", "posix", "--sidecar", side, root]

    def environment(self) -> Mapping[str, str]:
        return {"ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": SECRET}

    def options(self, port: int | None = None) -> dict[str, str]:
        """What ``storage`` of a warehouse takes; ``port`` is that of a proxy before the server."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
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
