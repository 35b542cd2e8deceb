"""Files in HDFS are files: errors are those of files, and a name node that hangs or dies is waited for no longer than
was said."""

from __future__ import annotations

import errno

import pytest

from headgate.core import DeclarationError
from headgate.places.hdfs_path import HdfsPath
from headgate.places.place import hadoop_settings, path_from
from headgate.warehouse.run.lease import WarehouseLease
from headgate.warehouse.storage.store import TableStore
from tests.services.hdfs import HdfsServer
from tests.warehouse.storage_helpers import clicks, load, values

pytestmark = [pytest.mark.services, pytest.mark.slow]


def of_somebody_else(path: HdfsPath, monkeypatch: pytest.MonkeyPatch) -> HdfsPath:
    """The same file, as another user sees it."""
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    other = path_from(str(path), {"dfs.client.of": "somebody"})  # other options are another client
    assert isinstance(other, HdfsPath)
    return other


def test_who_may_not_write_is_told_so_without_a_page_of_java(hdfs: HdfsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    place = hdfs.place()
    (place / "mine").write_text("mine")
    theirs = of_somebody_else(place, monkeypatch)
    assert (theirs / "mine").read_text() == "mine"
    with pytest.raises(PermissionError, match="Permission denied: user=somebody") as raised:
        (theirs / "yours").write_text("yours")
    assert "\tat" not in str(raised.value) and raised.value.filename == f"{place}/yours"
    with pytest.raises(DeclarationError, match=r"(?s)user=somebody.*this user may create files"):
        WarehouseLease(theirs).acquire()


def test_folders_that_are_left_empty_are_removed_and_no_others(hdfs: HdfsServer) -> None:
    place = hdfs.place()
    for name in ("data/1/a", "data/1/deep/b", "data/2/c"):
        (place / name).write_text(name)
    for name in ("data/1/a", "data/1/deep/b"):
        (place / name).unlink()
    (place / "data").delete_empty_folders()
    assert [path.name for path in (place / "data").iterdir()] == ["2"]
    (place / "data").delete_below()
    assert place.is_dir() and list(place.iterdir()) == []
    (place / "data").delete_below()


def test_a_folder_is_no_file(hdfs: HdfsServer) -> None:
    place = hdfs.place()
    (place / "a file").write_text("there")
    assert place.is_dir() and not place.is_file() and not (place / "a file").is_dir()
    with pytest.raises(FileNotFoundError):
        place.read_bytes()
    with pytest.raises(OSError, match="is not a directory"):
        (place / "a file" / "below").write_text("nowhere")
    assert list((place / "a file").iterdir()) == []


def test_options_of_hadoop_are_those_of_spark() -> None:
    options = {"dfs.replication": "2"}
    assert hadoop_settings(path_from("hdfs://node:8020/city", options)) == options


@pytest.mark.long
def test_a_name_node_that_hangs_or_dies_loses_nothing_and_is_found_again(hdfs: HdfsServer) -> None:
    place = hdfs.place()
    store = TableStore(place / "clicks", "ts")
    load(store, 1, clicks(1))
    hdfs.pause()
    impatient = place.with_patience(0.2)
    with pytest.raises(OSError, match=r"no answer within 0\.2 s") as raised:
        impatient.is_dir()
    assert raised.value.errno == errno.EIO and not isinstance(raised.value, FileNotFoundError)
    hdfs.resume()
    load(store, 2, clicks(2))
    hdfs.kill()
    with pytest.raises(OSError, match="no answer"):  # the client tries again and again
        impatient.is_dir()
    hdfs.start()
    load(store, 3, clicks(3))
    assert values(TableStore(store.directory, "ts").arrow()) == values(clicks(1, 2, 3))
