"""Files in an object store (S3 and what speaks like it, Google's, Azure's), named and used like ``pathlib.Path``.

An object is there, whole and durable, or it is not there at all. So nothing here can be torn by a crash, and nothing
needs an ``fsync``. What has a condition is written by one request, and so is what has up to 5 MB; the client sends more
in parts, which become an object with the last request. Parts of a process that died stay in the store, where nobody
sees them; a rule of the store removes them (see ``docs/places.md``). Folders do not exist: a folder is what names have
in common.

Two writes have a condition, which the store checks itself: `ObjectPath.create` writes only what is not there yet, and
`ObjectPath.replace` only over what was read. These decide between two processes on two machines.

Requests go through `obstore`: the same client, in Rust, as in `deltalake`. So one set of options serves both, and a
request that the store refuses for the moment is repeated in the same way. Arrow's own S3 client knows other options,
has no conditional writes, and does not reach Azure with the same settings.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from headgate.core import DeclarationError

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from typing_extensions import Buffer


class NoObjectStoreError(DeclarationError):
    """An object store cannot be used: its options are wrong, or Spark has no file system for it."""


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
        return self._other("/".join(part for part in (self.key, str(name).strip("/")) if part))

    def _other(self, key: str, listed: ObjectStatus | None = None) -> ObjectPath:
        """Another object of the same store."""
        return replace(self, key=key, listed=listed)

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.key).suffix

    @property
    def parent(self) -> ObjectPath:
        return self._other(self.key.rpartition("/")[0])

    @property
    def parents(self) -> Sequence[ObjectPath]:
        found = [self.parent]
        while found[-1].key:
            found.append(found[-1].parent)
        return found

    def with_patience(self, seconds: float) -> ObjectPath:
        """The same object; requests for it do not take longer than ``seconds``, or fail."""
        return replace(self, bucket=replace(self.bucket, patience=seconds), listed=None)

    # ---- reading -----------------------------------------------------------------------------------------------

    def stat(self) -> ObjectStatus:
        if self.listed is not None:
            return self.listed
        import obstore

        with self._errors():
            return self._status(obstore.head(self.bucket.client, self.key))

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
            return bytes(answer.bytes()), self._tag(answer.meta)

    def open_reader(self) -> ObjectReader:
        """A file object that reads parts of the content: for the few bytes at the end of a large file."""
        return ObjectReader(self)

    def read_range(self, begin: int, length: int) -> bytes:
        import obstore

        with self._errors():
            return bytes(obstore.get_range(self.bucket.client, self.key, start=begin, length=length))

    # ---- writing -----------------------------------------------------------------------------------------------

    def write_bytes(self, content: Buffer) -> int:
        """Write the object, over the one that may be there; returns its size."""
        import obstore

        with self._errors():
            obstore.put(self.bucket.client, self.key, obstore.Bytes(memoryview(content).cast("B")))
        return memoryview(content).nbytes

    def write_text(self, content: str, encoding: str = "utf-8") -> None:
        self.write_bytes(content.encode(encoding))

    def create(self, content: bytes) -> str | None:
        """Write the object if there is none; its tag, None if there is one.

        If the answer to the first request was lost, the client's second one finds the object that the first has made:
        who must know compares the content.
        """
        from obstore.exceptions import AlreadyExistsError

        with self._errors():
            try:
                return self._put(content, "create")
            except AlreadyExistsError:
                return None

    def replace(self, content: bytes, tag: str) -> str | None:
        """Write over the object if it still has this ``tag``; its new tag, None if it is gone or another one."""
        from obstore.exceptions import PreconditionError

        with self._errors():
            try:
                return self._put(content, {"version" if self._has_generations else "e_tag": tag})
            except (PreconditionError, FileNotFoundError):
                return None

    def _put(self, content: bytes, mode: Any) -> str:
        import obstore

        return self._tag(obstore.put(self.bucket.client, self.key, content, mode=mode))

    @property
    def foreign_tag(self) -> str:
        """A tag that no object has."""
        return "1" if self._has_generations else '"0123456789abcdef0123456789abcdef"'

    @property
    def _has_generations(self) -> bool:
        """Whether conditions name the generation of an object, as in Google's store, and not a tag of its content."""
        return self.bucket.url.startswith("gs://")

    def _tag(self, told: Mapping[str, Any]) -> str:
        return str((self._has_generations and told["version"]) or told["e_tag"] or "")

    def _status(self, meta: Mapping[str, Any]) -> ObjectStatus:
        return ObjectStatus(meta["size"], meta["last_modified"].timestamp(), self._tag(meta))

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
            yield self._other(folder.rstrip("/"))
        for meta in found["objects"]:
            yield self._other(meta["path"], self._status(meta))

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
                yield from (self._other(meta["path"], self._status(meta)) for meta in chunk)

    def delete_below(self) -> None:
        """Delete this folder with everything below it."""
        delete_objects(list(self.rglob("*")))

    def delete_empty_folders(self) -> None:
        """Nothing to do: there are no folders."""

    def _delete(self, paths: Sequence[ObjectPath]) -> None:
        """Delete objects of this store, in as few requests as it allows; those that are not there do not matter."""
        import obstore

        with self._errors():
            try:
                obstore.delete(self.bucket.client, [path.key for path in paths])
            except FileNotFoundError:
                if len(paths) > 1:
                    for path in paths:
                        self._delete([path])

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


class ObjectReader(io.RawIOBase):
    """An object as a file: every read is a request."""

    def __init__(self, path: ObjectPath) -> None:
        self._path = path
        self._size = path.stat().st_size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        length = left if size < 0 else min(size, left)
        content = self._path.read_range(self._at, length) if length else b""
        self._at += length
        return content


def delete_objects(paths: Sequence[ObjectPath]) -> None:
    """Delete objects of one store; those that are not there do not matter."""
    if paths:
        paths[0]._delete(paths)


def _first_part(error: Exception) -> str:
    return " ".join(str(error).partition("\n\nDebug source")[0].split())


#: options about connections, which the client takes apart from those about the store
_OF_CONNECTIONS = {
    *("allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "http2_only", "pool_idle_timeout"),
    *("pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes", "proxy_url", "timeout", "user_agent"),
}


def _sorted_out(options: tuple[tuple[str, str], ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options about the store, and those about connections; all as `deltalake` takes them."""
    of_store: dict[str, Any] = {}
    of_connections: dict[str, Any] = {}
    for written, value in options:
        key = written.lower()
        name = key.removeprefix("aws_").removeprefix("azure_").removeprefix("google_")
        if name not in _OF_CONNECTIONS:
            of_store[key] = value
        else:
            of_connections[name] = value.lower() == "true" if value.lower() in ("true", "false") else value
    return of_store, of_connections


#: {scheme of a store: how the variables of the environment begin that are about it}
_PREFIXES = {"s3": "AWS_", "gs": "GOOGLE_", "abfss": "AZURE_", "abfs": "AZURE_"}


def _of_environment(url: str) -> dict[str, Any]:
    """The options about connections in the environment: unlike those about the store, the client does not look there,
    but `deltalake` does."""
    prefix = _PREFIXES[url.partition("://")[0]]
    names = {name: f"{prefix}{name.upper()}" for name in _OF_CONNECTIONS}
    found = tuple((name, os.environ[variable]) for name, variable in names.items() if variable in os.environ)
    return _sorted_out(found)[1]


#: {beginning of variables: the rest of the names of those that the client takes from the environment and that mean the
#: same on every machine}. Files and roles are left out: those of another machine are others.
_PORTABLE = {
    "AWS_": {
        *("access_key_id", "secret_access_key", "session_token", "token", "region", "default_region", "endpoint"),
        *("endpoint_url", "virtual_hosted_style_request", "skip_signature", "unsigned_payload", "request_payer"),
        *("checksum_algorithm", "server_side_encryption", "sse_kms_key_id", "sse_bucket_key_enabled", "s3_express"),
    },
    "AZURE_": {
        *("storage_account_name", "storage_account_key", "storage_sas_key", "storage_sas_token", "storage_token"),
        *("storage_client_id", "storage_client_secret", "storage_tenant_id", "client_id", "client_secret", "tenant_id"),
        *("storage_use_emulator", "storage_endpoint", "endpoint", "use_fabric_endpoint"),
    },
    "GOOGLE_": {"service_account_key"},
}
#: names of the same option
_SAME = {"endpoint": "endpoint_url", "token": "session_token"}


def with_environment(bucket: Bucket) -> Bucket:
    """The same store for a process on another machine: with the options that this one takes from its environment.

    Stated options come first. They hold secrets, as stated ones may.
    """
    prefix = _PREFIXES.get(bucket.url.partition("://")[0])
    if prefix is None:
        return bucket

    def meaning(name: str) -> str:
        short = name.lower().removeprefix(prefix.lower())
        return _SAME.get(short, short)

    stated = {meaning(name) for name, _ in bucket.options}
    portable = _PORTABLE[prefix] | _OF_CONNECTIONS
    found = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(prefix) and name.lower().removeprefix(prefix.lower()) in portable
        if meaning(name) not in stated
    }
    return replace(bucket, options=tuple(sorted({**found, **dict(bucket.options)}.items())))


@lru_cache(maxsize=64)
def _client(bucket: Bucket) -> ObjectStore:
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    config, client_options = _sorted_out(bucket.options)
    client_options = {**_of_environment(bucket.url), **client_options}
    limits: dict[str, Any] = {}
    if bucket.patience is not None:
        patience = timedelta(seconds=bucket.patience)
        limits["retry_config"] = {"max_retries": 10, "retry_timeout": patience}
        client_options |= {"timeout": patience, "connect_timeout": patience}
    try:
        client: ObjectStore = from_url(  # type: ignore[call-overload] # as given
            bucket.url, config=config, client_options=client_options, **limits
        )
        return client
    except (BaseError, ValueError) as error:
        raise NoObjectStoreError(
            f"the object store {bucket.url} cannot be used: {_first_part(error)}. Its options are those of deltalake, "
            "such as AWS_ENDPOINT_URL, in storage={...} or in the environment"
        ) from None
