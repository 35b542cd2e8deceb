"""The place of a warehouse, as a user writes it: a folder, or the URL of one in an object store or in HDFS.

The same place has other names elsewhere: `deltalake` takes a URL and options, Spark has its own names of file systems
(``s3a``) and its own settings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from headgate.core import DeclarationError
from headgate.places.hdfs_path import HdfsPath
from headgate.places.object_path import Bucket, ObjectPath, with_environment
from headgate.places.secret_text import refuse_secrets, shown_address

#: a folder or file, here or in an object store or HDFS; all have the same methods
AnyPath = Path | ObjectPath

#: {scheme of a URL: the scheme by which Spark knows the same store}
SPARK_SCHEMES = {"s3": "s3a", "s3a": "s3a", "gs": "gs", "abfss": "abfss", "abfs": "abfs", "hdfs": "hdfs"}
#: {scheme in Spark: the package that Spark needs for it}
SPARK_PACKAGES = {
    "s3a": "org.apache.hadoop:hadoop-aws, of the version of Hadoop that Spark has",
    "gs": "com.google.cloud.bigdataoss:gcs-connector",
    "abfss": "org.apache.hadoop:hadoop-azure, of the version of Hadoop that Spark has",
    "abfs": "org.apache.hadoop:hadoop-azure, of the version of Hadoop that Spark has",
    "hdfs": "org.apache.hadoop:hadoop-client-api, of the version of Hadoop that Spark has",
}
#: {option of a store: the setting of Spark's s3a that means the same}
_S3A_SETTINGS = {
    "aws_access_key_id": "fs.s3a.access.key",
    "aws_secret_access_key": "fs.s3a.secret.key",
    "aws_session_token": "fs.s3a.session.token",
    "aws_endpoint_url": "fs.s3a.endpoint",
    "aws_endpoint": "fs.s3a.endpoint",
    "aws_region": "fs.s3a.endpoint.region",
    "aws_default_region": "fs.s3a.endpoint.region",
}


class PlaceError(DeclarationError):
    """The path of a warehouse is no place where tables can be kept."""


def is_url(text: str) -> bool:
    return "://" in text


def path_from(text: str | os.PathLike[str] | ObjectPath, storage: Mapping[str, str] | None = None) -> AnyPath:
    """What ``text`` names: a folder, also as ``file://``, or a place in an object store with the options ``storage``.

    >>> path_from("/data/city"), str(path_from("s3a://bucket/city/"))
    (PosixPath('/data/city'), 's3://bucket/city')
    """
    if isinstance(text, ObjectPath):
        return text
    written = os.fspath(text)
    if not is_url(written):
        return Path(written)
    parts, shown = urlsplit(written), shown_address(written)
    if parts.scheme == "file" and not parts.netloc:
        return Path(unquote(parts.path))
    if parts.scheme not in SPARK_SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in ("file", *SPARK_SCHEMES))
        raise PlaceError(f"tables are kept in a folder, in an object store or in HDFS ({known}); got {shown!r}")
    if parts.scheme == "hdfs":
        return _in_hdfs(written, parts, storage or {})
    if not parts.netloc or parts.query or parts.fragment:
        raise PlaceError(f"the URL of an object store names a bucket and a folder, as s3://bucket/city; got {shown!r}")
    try:
        refuse_secrets(written, "the place", "give it as storage=, or in the environment")
    except DeclarationError as error:
        raise PlaceError(str(error)) from None
    if find_spec("obstore") is None:
        raise PlaceError(f"{written} is in an object store, which takes a package: pip install 'headgate[objects]'")
    scheme = "s3" if parts.scheme == "s3a" else parts.scheme
    return ObjectPath(*_named(f"{scheme}://{parts.netloc}", parts.path, storage or {}))


def _named(store: str, path: str, storage: Mapping[str, str]) -> tuple[Bucket, str]:
    options = tuple(sorted((str(key), str(value)) for key, value in storage.items()))
    return Bucket(store, options), "/".join(filter(None, path.split("/")))


def _in_hdfs(written: str, parts: SplitResult, storage: Mapping[str, str]) -> HdfsPath:
    if not parts.netloc or "@" in parts.netloc or parts.query or parts.fragment:
        raise PlaceError(
            "a place in HDFS names the name node or the name service, and a folder, as hdfs://namenode:8020/city; the "
            f"user is HADOOP_USER_NAME or who has logged in; got {shown_address(written)!r}"
        )
    if find_spec("hdfs_native") is None:
        raise PlaceError(f"{written} is in HDFS, which takes a package: pip install 'headgate[hdfs]'")
    return HdfsPath(*_named(f"hdfs://{parts.netloc}", parts.path, storage))


def for_workers(path: AnyPath) -> AnyPath:
    """The same place for a process on another machine: this one may reach it by what is in its environment alone."""
    return replace(path, bucket=with_environment(path.bucket)) if isinstance(path, ObjectPath) else path


def delta_table(path: AnyPath) -> tuple[Path | str, dict[str, Any]]:
    """How `deltalake` names a table: its place, and the keyword arguments that come with it."""
    if isinstance(path, Path):
        return path, {}
    return str(path), {"storage_options": dict(path.bucket.options)}


def relative(path: AnyPath, root: AnyPath) -> str:
    """``path`` as seen from ``root``, which it lies below, with slashes."""
    if isinstance(path, Path):
        assert isinstance(root, Path)
        return path.relative_to(root).as_posix()
    assert isinstance(root, ObjectPath) and path.key.startswith(f"{root.key}/" if root.key else "")
    return path.key[len(root.key) :].lstrip("/")


def spark_scheme(path: ObjectPath) -> str:
    """By what Spark knows the store of an object."""
    return SPARK_SCHEMES[path.bucket.url.partition("://")[0]]


def spark_name(path: AnyPath) -> str:
    """How Spark names a file or folder, if it has the file system for it.

    A folder of this machine says so, because a cluster may take bare paths for those of HDFS.
    """
    if isinstance(path, Path):
        return f"file://{path}"
    return f"{spark_scheme(path)}://{str(path).partition('://')[2]}"


def hadoop_settings(path: AnyPath) -> dict[str, str]:
    """The settings of Hadoop by which Spark reaches the store of ``path`` as this process does: from its options, and
    from the environment what Spark does not look for there itself. They hold secrets: see ``session.open_session``."""
    if isinstance(path, HdfsPath):
        return dict(path.bucket.options)  # which are Hadoop's own
    if isinstance(path, Path) or spark_scheme(path) != "s3a":
        return {}
    environment = {key: value for key in ("AWS_ENDPOINT_URL", "AWS_REGION") if (value := os.environ.get(key))}
    options = {key.lower(): value for key, value in {**environment, **dict(path.bucket.options)}.items()}
    settings = {setting: options[key] for key, setting in _S3A_SETTINGS.items() if key in options}
    if "fs.s3a.endpoint" in settings:
        is_virtual = options.get("aws_virtual_hosted_style_request", "false").lower() == "true"
        settings["fs.s3a.path.style.access"] = "false" if is_virtual else "true"
        settings["fs.s3a.connection.ssl.enabled"] = str(settings["fs.s3a.endpoint"].startswith("https")).lower()
    return settings
