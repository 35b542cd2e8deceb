"""Files in an object store (S3 and what speaks like it, Google's, Azure's), named and used like ``pathlib.Path``.

An object is written by one request: it is there, whole and durable, or it is not there at all. So nothing here can be
torn by a crash, and nothing needs an ``fsync``. Folders do not exist: a folder is what names have in common.

Two writes have a condition, which the store checks itself: `ObjectPath.create` writes only what is not there yet, and
`ObjectPath.replace` only over what was read. These decide between two processes on two machines.

Requests go through `obstore`: the same client, in Rust, as in `deltalake`. So one set of options serves both, and a
request that the store refuses for the moment is repeated in the same way. Arrow's own S3 client knows other options,
has no conditional writes, and does not reach Azure with the same settings.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from headgate.core import DeclarationError

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from typing_extensions import Buffer


class NoObjectStoreError(DeclarationError):
    """An object store cannot be used: its package is not installed, or its options are wrong."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """All objects of one store: its address, such as ``s3://bucket``, and the options to reach it, never printed.

    ``patience`` is how many seconds a request may take with all its repetitions; None for the client's own limits,
    which are minutes.
    """

    url: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    patience: float | None = None

    @property
    def client(self) -> ObjectStore:
        return _client(self)


@dataclass(frozen=True, slots=True)
class ObjectStatus:
    """What a store says of an object, in the words of ``os.stat``; ``tag`` changes with its content."""

    st_size: int
    st_mtime: float
    tag: str


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """The name of an object, or of all objects below a folder: with the methods of ``pathlib.Path``, as far as used.

    Errors are those of files, too: ``FileNotFoundError``, ``PermissionError``, else ``OSError`` with the number EIO,
    which may pass.
    """

    bucket: Bucket
    key: str
    #: as it was listed, so that looking at the files of a folder takes one request
    listed: ObjectStatus | None = field(default=None, repr=False, compare=False)

    # ---- names -------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return f"{self.bucket.url}/{self.key}".rstrip("/")

    def __lt__(self, other: ObjectPath) -> bool:
        return self.key < other.key

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.bucket, "/".join(part for part in (self.key, str(name).strip("/")) if part))

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.key).suffix

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(self.bucket, self.key.rpartition("/")[0])

    @property
    def parents(self) -> Sequence[ObjectPath]:
        found = [self.parent]
        while found[-1].key:
            found.append(found[-1].parent)
        return found

    def with_patience(self, seconds: float) -> ObjectPath:
        """The same object; requests for it do not take longer than ``seconds``, or fail."""
        return ObjectPath(replace(self.bucket, patience=seconds), self.key)

    # ---- reading -----------------------------------------------------------------------------------------------

    def stat(self) -> ObjectStatus:
        if self.listed is not None:
            return self.listed
        import obstore

        with self._errors():
            return _status(obstore.head(self.bucket.client, self.key))

    def exists(self) -> bool:
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_file(self) -> bool:
        return self.exists()

    def is_dir(self) -> bool:
        return next(self._below(most=1), None) is not None

    def read_buffer(self) -> Buffer:
        """The content, without a copy."""
        import obstore

        with self._errors():
            return obstore.get(self.bucket.client, self.key).bytes()

    def read_bytes(self) -> bytes:
        return bytes(self.read_buffer())

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def read_with_tag(self) -> tuple[bytes, str]:
        """The content and its tag, for `replace`."""
        import obstore

        with self._errors():
            answer = obstore.get(self.bucket.client, self.key)
            return bytes(answer.bytes()), answer.meta["e_tag"] or ""

    def open_reader(self) -> Any:
        """A file object that reads parts of the content: for the few bytes at the end of a large file."""
        import obstore

        with self._errors():
            return obstore.open_reader(self.bucket.client, self.key)

    # ---- writing -----------------------------------------------------------------------------------------------

    def write_bytes(self, content: Buffer) -> int:
        """Write the object, over the one that may be there; returns its size."""
        import obstore

        with self._errors():
            obstore.put(self.bucket.client, self.key, content)
        return memoryview(content).nbytes

    def write_text(self, content: str, encoding: str = "utf-8") -> None:
        self.write_bytes(content.encode(encoding))

    def create(self, content: bytes) -> str | None:
        """Write the object if there is none; its tag, None if there is one.

        If the answer to the first request was lost, the client's second one finds the object that the first has made:
        who must know compares the content.
        """
        return self._put(content, "create")

    def replace(self, content: bytes, tag: str) -> str | None:
        """Write over the object if it still has this ``tag``; its new tag, None if it is gone or another one."""
        return self._put(content, {"e_tag": tag})

    def _put(self, content: bytes, mode: Any) -> str | None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._errors():
            try:
                answer = obstore.put(self.bucket.client, self.key, content, mode=mode)
            except (AlreadyExistsError, PreconditionError, FileNotFoundError):
                return None
        return answer["e_tag"] or ""

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing to do: there are no folders."""

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the object. Stores do not say whether there was one, so ``missing_ok`` is as good as true."""
        delete_objects([self])

    # ---- folders -----------------------------------------------------------------------------------------------

    def iterdir(self) -> Iterator[ObjectPath]:
        """The objects and folders right below this one."""
        import obstore

        with self._errors():
            found = obstore.list_with_delimiter(self.bucket.client, self.key or None)
        for folder in found["common_prefixes"]:
            yield ObjectPath(self.bucket, folder.rstrip("/"))
        for meta in found["objects"]:
            yield ObjectPath(self.bucket, meta["path"], _status(meta))

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """The objects right below this folder whose name fits ``pattern``."""
        return (path for path in self.iterdir() if path.listed is not None and fnmatchcase(path.name, pattern))

    def rglob(self, pattern: str) -> Iterator[ObjectPath]:
        """The objects anywhere below this folder whose name fits ``pattern``."""
        return (path for path in self._below() if fnmatchcase(path.name, pattern))

    def _below(self, most: int = 1000) -> Iterator[ObjectPath]:
        import obstore

        with self._errors():
            for chunk in obstore.list(self.bucket.client, self.key or None, chunk_size=most):
                yield from (ObjectPath(self.bucket, meta["path"], _status(meta)) for meta in chunk)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of the client as those of files. Its texts end with a page for its developers, which is cut off."""
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", str(self)) from None
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise PermissionError(errno.EACCES, _first_part(error), str(self)) from None
        except BaseError as error:
            # In words, too: Spark passes on the text of an error only, and this one may pass.
            raise OSError(errno.EIO, f"Input/output error: {_first_part(error)}", str(self)) from None


def delete_objects(paths: Sequence[ObjectPath]) -> None:
    """Delete objects of one bucket, in as few requests as the store allows; those that are not there do not matter."""
    if not paths:
        return
    import obstore

    with paths[0]._errors():
        try:
            obstore.delete(paths[0].bucket.client, [path.key for path in paths])
        except FileNotFoundError:
            if len(paths) > 1:
                for path in paths:
                    delete_objects([path])


def _status(meta: Mapping[str, Any]) -> ObjectStatus:
    return ObjectStatus(meta["size"], meta["last_modified"].timestamp(), meta["e_tag"] or "")


def _first_part(error: Exception) -> str:
    return " ".join(str(error).partition("\n\nDebug source")[0].split())


@lru_cache(maxsize=64)
def _client(bucket: Bucket) -> ObjectStore:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError:
        raise NoObjectStoreError(
            f"{bucket.url} is in an object store, which takes a package that is not installed: "
            "pip install 'headgate[objects]'"
        ) from None
    config: dict[str, Any] = {key.lower(): value for key, value in bucket.options}
    limits: dict[str, Any] = {}
    if bucket.patience is not None:
        from datetime import timedelta

        patience = timedelta(seconds=bucket.patience)
        limits["retry_config"] = {"max_retries": 10, "retry_timeout": patience}
        limits["client_options"] = {"timeout": patience, "connect_timeout": patience}
    try:
        client: ObjectStore = from_url(bucket.url, config=config, **limits)  # type: ignore[call-overload] # as given
        return client
    except (BaseError, ValueError) as error:
        raise NoObjectStoreError(
            f"the object store {bucket.url} cannot be used: {_first_part(error)}. Its options are those of deltalake, "
            "such as AWS_ENDPOINT_URL, in storage={...} or in the environment"
        ) from None
