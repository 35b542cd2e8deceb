"""What a user writes as the place of a warehouse, and how other libraries name it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headgate.places import object_path
from headgate.places.object_path import Bucket, NoObjectStoreError, ObjectPath
from headgate.places.place import (
    PlaceError,
    delta_table,
    for_workers,
    hadoop_settings,
    path_from,
    relative,
    spark_name,
)
from headgate.warehouse import Warehouse
from headgate.warehouse.declare.checks import DeclarationErrors

KEYS = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}


@pytest.mark.parametrize(
    ("written", "named", "on_spark"),
    [
        ("/data/city", "/data/city", "file:///data/city"),
        ("file:///data/a%20city", "/data/a city", "file:///data/a city"),
        ("s3://bucket/city/", "s3://bucket/city", "s3a://bucket/city"),
        ("s3a://bucket//a/b", "s3://bucket/a/b", "s3a://bucket/a/b"),
        ("s3://bucket", "s3://bucket", "s3a://bucket"),
        ("gs://bucket/city", "gs://bucket/city", "gs://bucket/city"),
        ("abfss://box@me.dfs.core.windows.net/city",) * 3,
        ("hdfs://node:8020//a/city/", "hdfs://node:8020/a/city", "hdfs://node:8020/a/city"),
    ],
)
def test_a_place_is_a_folder_or_a_url(written: str, named: str, on_spark: str) -> None:
    found = path_from(written)
    assert (str(found), spark_name(found)) == (named, on_spark)
    assert isinstance(found, ObjectPath) == ("://" in named)
    assert path_from(str(found)) == found


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("hdfs:///city", "names the name node"),
        ("hdfs://me@host/city", "HADOOP_USER_NAME"),
        ("http://host/city", "in a folder, in an object store or in HDFS"),
        ("s3:///city", "a bucket and a folder"),
        ("s3://bucket/city?versionId=1", "a bucket and a folder"),
    ],
)
def test_what_is_no_place_is_refused_with_the_reason(written: str, why: str) -> None:
    with pytest.raises(PlaceError, match=why):
        path_from(written)
    with pytest.raises(DeclarationErrors, match=why):
        Warehouse("city", written).spec()


def test_a_path_below_a_place_is_named_as_in_a_folder() -> None:
    for written in ("/data/city", "s3://bucket/city", "s3://bucket", "hdfs://node:8020/city"):
        root = path_from(written)
        below = root / "tables" / "a b/c.parquet"
        assert relative(below, root) == "tables/a b/c.parquet"
        assert (below.name, below.suffix, str(below.parent)) == ("c.parquet", ".parquet", f"{root}/tables/a b")
        assert root in below.parents and below not in root.parents


def test_options_reach_the_libraries_and_no_text() -> None:
    warehouse = Warehouse("city", "s3://bucket/city", storage=KEYS)
    spec = warehouse.spec()
    folder = spec.folder()
    assert delta_table(folder) == ("s3://bucket/city", {"storage_options": KEYS})
    settings = hadoop_settings(folder)
    assert settings["fs.s3a.secret.key"] == "hush"
    assert settings["fs.s3a.endpoint"] == "http://127.0.0.1:9"
    assert settings["fs.s3a.path.style.access"] == "true"
    assert settings["fs.s3a.connection.ssl.enabled"] == "false"
    assert "hush" not in f"{warehouse!r} {spec!r} {folder!r} {folder}"
    assert (delta_table(Path("/data")), hadoop_settings(Path("/data"))) == ((Path("/data"), {}), {})


def test_an_option_that_the_client_does_not_know_is_named() -> None:
    place = path_from("s3://bucket/city", {"AWS_REGIO": "here", "AWS_SECRET_ACCESS_KEY": "hush"})
    with pytest.raises(NoObjectStoreError, match="aws_regio") as caught:
        place.exists()
    assert "hush" not in str(caught.value)


# --- for a process on another machine ------------------------------------------------------------------------------


def options_of(path: object) -> dict[str, str]:
    assert isinstance(path, ObjectPath)
    return dict(path.bucket.options)


def test_another_machine_gets_what_this_one_takes_from_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    there = {
        **{"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_ENDPOINT": "http://env"},
        **{"AWS_ALLOW_HTTP": "true", "AWS_REGION": "env", "AWS_PROFILE": "mine", "AWS_ROLE_ARN": "arn", "HOME": "/x"},
    }
    for name, value in there.items():
        monkeypatch.setenv(name, value)
    stated = path_from("s3://bucket/city", {"AWS_REGION": "stated", "endpoint_url": "http://stated"})
    sent = for_workers(stated)
    assert options_of(sent) == {
        **{"AWS_REGION": "stated", "endpoint_url": "http://stated"},
        **{"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_ALLOW_HTTP": "true"},
    }
    assert str(sent) == "s3://bucket/city" and "hidden" not in repr(sent)
    assert options_of(stated) == {"AWS_REGION": "stated", "endpoint_url": "http://stated"}


@pytest.mark.parametrize(
    ("url", "prefix"),
    [
        ("s3://bucket/city", "AWS_"),
        ("gs://bucket/city", "GOOGLE_"),
        ("abfss://box@account.dfs.core.windows.net/city", "AZURE_"),
    ],
)
def test_the_client_knows_every_option_of_the_environment_that_is_sent(
    monkeypatch: pytest.MonkeyPatch, url: str, prefix: str
) -> None:
    """On another machine they are stated options, of which an unknown one would be refused."""
    known = {name for names in object_path._PORTABLE.values() for name in names}
    for name in known:
        monkeypatch.setenv(f"{prefix}{name.upper()}", "true")
    sent = for_workers(path_from(url))
    assert options_of(sent)
    for option in options_of(sent).items():
        try:
            assert ObjectPath(Bucket(url, (option,)), "").bucket.client
        except NoObjectStoreError as error:
            assert "is not valid for store" not in str(error)
