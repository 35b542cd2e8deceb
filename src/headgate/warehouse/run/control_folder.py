"""The folder in which a running warehouse has its socket for commands.

It is a new folder that only the user may enter, which keeps other users out. It is not in the warehouse, because the
path of a socket must be short. A process that is killed leaves its folder behind, and the next run of any warehouse
removes it. Whether the process lives is told by a lock on the folder, which the operating system releases when the
process ends in any way.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = "headgate-control-"
_SOCKET_NAME = "control"
#: what every system takes as the path of a socket, in bytes
_LONGEST_PATH = 100
#: the letters that ``mkdtemp`` adds to a prefix, and a few more
_RANDOM_LETTERS = 12


class ControlFolder:
    """A new folder for a socket, from its making to ``remove``. Folders of dead processes are removed first."""

    def __init__(self) -> None:
        parent = _parent()
        _remove_abandoned(parent)
        self._path, self._lock = _new_locked_folder(parent)
        self.socket = self._path / _SOCKET_NAME

    def remove(self) -> None:
        self.socket.unlink(missing_ok=True)
        self._path.rmdir()
        os.close(self._lock)


def _parent() -> Path:
    usual = Path(tempfile.gettempdir())
    longest = len(os.fsencode(usual / _PREFIX / _SOCKET_NAME)) + _RANDOM_LETTERS
    return usual if longest <= _LONGEST_PATH else Path("/tmp")


def _new_locked_folder(parent: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))  # only this user may enter it
        # Until it is locked, another process may take it for abandoned and remove it. Then a new one is made.
        with suppress(FileNotFoundError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return path, lock
            os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is another user's, in use, or just being removed by another process
            _remove_if_abandoned(path)


def _remove_if_abandoned(path: Path) -> None:
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = os.fstat(lock).st_uid == os.getuid()
        if is_ours and set(os.listdir(lock)) <= {_SOCKET_NAME}:
            with suppress(FileNotFoundError):
                os.unlink(_SOCKET_NAME, dir_fd=lock)
            path.rmdir()
    finally:
        os.close(lock)
