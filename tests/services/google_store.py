"""Google's object store for the tests: the emulator fake-gcs-server, on loopback, behind a translator.
``scripts/ensure_other_stores.sh`` builds the emulator.

Google's store has two protocols. The client writes by the one in XML, and the emulator takes writes by the one in JSON
only. So what writes is translated, with its conditions (``google_translator``); the emulator decides. Reading, listing
and deleting it answers itself.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.request import Request, urlopen

from headgate.places.object_path import ObjectPath
from headgate.places.place import path_from
from tests.services.server_process import CACHE, ServerProcess

PROGRAM = CACHE.expanduser() / "fake-gcs-server-v1.56.1" / "fake-gcs-server"


class Emulator(ServerProcess):
    """fake-gcs-server, with everything in memory."""

    def command(self) -> Sequence[str | Path]:
        address = f"127.0.0.1:{self.port}"
        shown = ["-public-host", address, "-external-url", f"http://{address}", "-log-level", "error"]
        return [PROGRAM, "-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port), "-backend", "memory", *shown]


class GoogleStoreServer(ServerProcess):
    """The translator, with the emulator behind it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._emulator = Emulator(folder / "emulator")

    @staticmethod
    def missing() -> str:
        """Why it cannot be started here; empty if it can."""
        builds = "scripts/ensure_other_stores.sh builds it"
        return "" if os.access(PROGRAM, os.X_OK) else f"no emulator of Google's object store: {builds}"

    def command(self) -> Sequence[str | Path]:
        return [
            sys.executable,
            Path(__file__).with_name("google_translator.py"),
            str(self.port),
            str(self._emulator.port),
        ]

    def __enter__(self) -> Self:
        self._emulator.__enter__()
        try:
            return super().__enter__()
        except BaseException:
            self._emulator.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._emulator.__exit__(kind, error, trace)

    def options(self) -> dict[str, str]:
        """The account is one that does not log in."""
        nobody = {"client_email": "", "private_key": "", "private_key_id": "", "disable_oauth": True}
        account = {**nobody, "gcs_base_url": f"http://127.0.0.1:{self.port}"}
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account), "GOOGLE_ALLOW_HTTP": "true"}

    def bucket(self) -> ObjectPath:
        """A new bucket."""
        name = f"hg-{secrets.token_hex(6)}"
        body, kind = json.dumps({"name": name}).encode(), {"Content-Type": "application/json"}
        urlopen(Request(f"http://127.0.0.1:{self._emulator.port}/storage/v1/b?project=test", body, kind)).close()
        found = path_from(f"gs://{name}", self.options())
        assert isinstance(found, ObjectPath)
        return found
