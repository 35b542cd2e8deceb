"""Azure's object store for the tests: the emulator Azurite, on loopback. ``scripts/ensure_other_stores.sh`` installs
it.

It speaks the protocol of blobs, as the client does. Of Azure's second one, for folders (dfs), it knows nothing. Nor
can it list objects from a name on, which newer clients ask for; told that it is the emulator, they do without. Then
they look for its address in the environment.
"""

from __future__ import annotations

import base64
import hmac
import os
import secrets
import shutil
from collections.abc import Sequence
from email.utils import formatdate
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.request import Request, urlopen

from headgate.places.object_path import ObjectPath
from headgate.places.place import path_from
from tests.services.server_process import CACHE, ServerProcess

PROGRAM = CACHE.expanduser() / "azurite-3.35.0" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
#: the account that the emulator has, and its key, which are the same everywhere
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-08-06"
#: where clients look for the address of the emulator
_ADDRESS = "AZURITE_BLOB_STORAGE_URL"


class AzureStoreServer(ServerProcess):
    """The emulator; everything that it has is gone when it ends."""

    @staticmethod
    def missing() -> str:
        """Why it cannot be started here; empty if it can."""
        if shutil.which("node") is None:
            return "no emulator of Azure's object store: it needs Node.js"
        installs = "scripts/ensure_other_stores.sh installs it"
        return "" if PROGRAM.exists() else f"no emulator of Azure's object store: {installs}"

    def command(self) -> Sequence[str | Path]:
        place = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--location", self._folder / "blobs"]
        # The client is newer than what the emulator knows, but asks for nothing that it does not have.
        quiet = ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        return ["node", PROGRAM, *place, *quiet]

    def __enter__(self) -> Self:
        started = super().__enter__()
        os.environ[_ADDRESS] = f"http://127.0.0.1:{self.port}"
        return started

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.environ.pop(_ADDRESS, None)
        super().__exit__(kind, error, trace)

    def bucket(self) -> ObjectPath:
        """A new container."""
        name = f"hg-{secrets.token_hex(6)}"
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
        signed = "".join(f"{key}:{value}\n" for key, value in headers.items())
        text = f"PUT{12 * chr(10)}{signed}/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
        signature = base64.b64encode(hmac.digest(base64.b64decode(_KEY), text.encode(), "sha256")).decode()
        address = f"http://127.0.0.1:{self.port}/{_ACCOUNT}/{name}?restype=container"
        headers["Authorization"] = f"SharedKey {_ACCOUNT}:{signature}"
        urlopen(Request(address, method="PUT", headers=headers)).close()
        found = path_from(f"abfss://{name}@{_ACCOUNT}.dfs.core.windows.net", {"AZURE_STORAGE_USE_EMULATOR": "true"})
        assert isinstance(found, ObjectPath)
        return found
