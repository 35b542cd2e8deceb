"""The directories that updates write their files into, before a commit names them.

Every directory is registered before it exists and until its update is committed, so that one which is neither
registered nor named by the log belongs to an update that failed, or to a process that died. Not thread-safe.
"""

from __future__ import annotations

import secrets
from pathlib import Path

DATA_DIRECTORY = "data"


class Staging:
    def __init__(self, table: Path) -> None:
        self._data = table / DATA_DIRECTORY
        #: directory name -> the update that writes there, None for maintenance
        self._staged: dict[str, int | None] = {}

    def __len__(self) -> int:
        return len(self._staged)

    def __contains__(self, directory: Path) -> bool:
        return directory.name in self._staged

    def stage(self, update: int | None) -> Path:
        """Register a new directory and say where it will be; whoever writes into it creates it."""
        name = f"{'m' if update is None else f'u{update}'}-{secrets.token_hex(6)}"
        self._staged[name] = update
        return self._data / name

    def release(self, directory: Path) -> None:
        del self._staged[directory.name]

    def release_updates(self, newest: int) -> None:
        """Forget the directories of all updates up to ``newest``: they are committed, or never will be."""
        self._staged = {name: update for name, update in self._staged.items() if update is None or update > newest}


def directory_of(path: str) -> str:
    """The name of the staged directory that the file ``path``, relative to its table, lies in; of others' files, ''."""
    top, _, rest = path.partition("/")
    return rest.split("/")[0] if top == DATA_DIRECTORY else ""
