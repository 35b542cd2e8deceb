"""Files in HDFS, the file system of Hadoop, with the methods of `ObjectPath`.

HDFS has what an object store lacks and lacks what it has: folders are there, renaming is one step of the name node, and
no write has a condition. So a file is written under another name and renamed when it is complete, which makes it whole
or not there at all. `HdfsPath.create` renames on the condition that nothing has the name, which the name node checks
for all clients; the log entries of `deltalake` are written in the same way. There is no conditional overwriting: a
lease in HDFS has numbered versions, as in a folder that machines share (``lease_folder``).

Requests go through `hdfs-native`: the same client, in Rust, as in `deltalake`. So one set of options serves both.
"""

from __future__ import annotations

import errno
import math
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headgate.core import InvariantError
from headgate.places.object_path import Bucket, ObjectPath, ObjectStatus

if TYPE_CHECKING:
    from hdfs_native import Client, FileStatus
    from typing_extensions import Buffer

#: what Hadoop calls errors by which somebody may not do something
_FORBIDDEN = ("AccessControlException", "AuthorizationException", "SaslException")


@dataclass(frozen=True, slots=True)
class HdfsPath(ObjectPath):
    """The name of a file or folder in HDFS; ``bucket`` is the name node, or the name service."""

    @property
    def _name(self) -> str:
        return f"/{self.key}"

    # ---- reading -----------------------------------------------------------------------------------------------

    def stat(self) -> ObjectStatus:
        if self.listed is not None:
            return self.listed
        found = self._asked(lambda client: client.get_file_info(self._name))
        if found.isdir:
            raise FileNotFoundError(errno.ENOENT, "there is a folder, and no file", str(self))
        return _status(found)

    def is_dir(self) -> bool:
        try:
            return bool(self._asked(lambda client: client.get_file_info(self._name).isdir))
        except FileNotFoundError:
            return False

    def read_buffer(self) -> Buffer:
        content: bytes = self._asked(lambda client: client.read(self._name).read(-1))
        # The client leaves out a last block that data nodes have not reported yet, as they need not have where the name
        # node closes files before that (dfs.namenode.file.close.num-committed-allowed).
        size = self._asked(lambda client: client.get_file_info(self._name).length)
        if len(content) != size:
            text = f"Input/output error: {len(content)} bytes of {size} can be read so far"
            raise OSError(errno.EIO, text, str(self))
        return content

    def read_with_tag(self) -> tuple[bytes, str]:
        tag = self.stat().tag
        return bytes(self.read_buffer()), tag

    def read_range(self, begin: int, length: int) -> bytes:
        content: bytes = self._asked(lambda client: client.read(self._name).read_range(begin, length))
        return content

    # ---- writing -----------------------------------------------------------------------------------------------

    def write_bytes(self, content: Buffer) -> int:
        self._asked(lambda client: self._renamed(client, content, True))
        return memoryview(content).nbytes

    def create(self, content: bytes) -> str | None:
        try:
            self._asked(lambda client: self._renamed(client, content, False))
        except FileExistsError:
            return None
        return self.stat().tag

    def replace(self, content: bytes, tag: str) -> str | None:
        raise InvariantError("HDFS has no overwriting on a condition; use a LeaseFolder")

    def _renamed(self, client: Client, content: Buffer, overwrite: bool) -> None:
        patience = self.bucket.patience
        end = math.inf if patience is None else time.monotonic() + patience
        part = f"/{(self.parent / f'.{self.name}.{secrets.token_hex(8)}.part').key}"
        try:
            with client.create(part) as file:
                file.write(memoryview(content).cast("B"))
            if overwrite and time.monotonic() >= end:
                # Who asked has given up, and may have written something newer since.
                raise OSError(errno.ETIMEDOUT, "it was given up", str(self))
            client.rename(part, self._name, overwrite)
        except BaseException:
            with suppress(Exception):  # what is left of an update is deleted later
                client.delete(part)
            raise

    # ---- folders -----------------------------------------------------------------------------------------------

    def iterdir(self) -> Iterator[ObjectPath]:
        for found in self._listed(recursive=False):
            yield self._other(found.path.strip("/"), None if found.isdir else _status(found))

    def _below(self, most: int = 1000) -> Iterator[ObjectPath]:
        for found in self._listed(recursive=True):
            if not found.isdir:
                yield self._other(found.path.strip("/"), _status(found))

    def _listed(self, recursive: bool) -> list[FileStatus]:
        """What is below this folder; nothing if there is no such folder."""
        try:
            found = self._asked(lambda client: list(client.list_status(self._name, recursive)))
        except FileNotFoundError:
            return []
        return [status for status in found if status.path.strip("/") != self.key]

    def delete_below(self) -> None:
        self._removed(self._name, recursive=True)

    def delete_empty_folders(self) -> None:
        """Delete this folder and those below it, as far as there is nothing in them."""
        below = [status.path for status in self._listed(recursive=True) if status.isdir]
        for folder in (*sorted(below, key=len, reverse=True), self._name):
            with suppress(OSError):  # not empty
                self._removed(folder)

    def _delete(self, paths: Sequence[ObjectPath]) -> None:
        for path in paths:
            self._removed(f"/{path.key}")

    def _removed(self, name: str, recursive: bool = False) -> None:
        self._asked(lambda client: client.delete(name, recursive))

    # ---- requests ----------------------------------------------------------------------------------------------

    def _asked(self, request: Callable[[Client], Any]) -> Any:
        """What HDFS answers, within ``patience`` if there is one: the client itself waits for an answer forever."""
        with self._errors():
            client = _connected(self.bucket)
            if self.bucket.patience is None:
                return request(client)
            return _within(self.bucket.patience, lambda: request(client))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of the client as those of files. Its texts end with where in Java they come from, which is cut off."""
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", str(self)) from None
        except FileExistsError:
            raise FileExistsError(errno.EEXIST, "there is such a file", str(self)) from None
        except (OSError, RuntimeError, ValueError) as error:
            text = " ".join(str(error).replace("\\n", "\n").partition("\n\tat ")[0].partition("\n\\tat ")[0].split())
            if any(name in text for name in _FORBIDDEN):
                raise PermissionError(errno.EACCES, text, str(self)) from None
            # In words, too: Spark passes on the text of an error only, and this one may pass.
            raise OSError(errno.EIO, f"Input/output error: {text}", str(self)) from None


def _status(found: FileStatus) -> ObjectStatus:
    return ObjectStatus(found.length, found.modification_time / 1000, f"{found.modification_time}-{found.length}")


@lru_cache(maxsize=64)
def _connected(bucket: Bucket) -> Client:
    from hdfs_native import Client

    return Client(bucket.url, dict(bucket.options))


def _within(seconds: float, request: Callable[[], Any]) -> Any:
    """What ``request`` returns or raises; OSError if that takes longer. It may still be carried out then."""
    answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put((request(), None))
        except BaseException as error:
            answers.put((None, error))

    threading.Thread(target=ask, name="headgate-hdfs", daemon=True).start()
    try:
        answer, error = answers.get(timeout=seconds)
    except queue.Empty:
        raise OSError(f"no answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return answer
