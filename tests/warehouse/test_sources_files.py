"""Which files of a directory are taken, when, and what is said about those that are not. Nothing is read here."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.core.errors import DeclarationError
from headgate.warehouse.sources import (
    Files,
    Limit,
    Notice,
    Pending,
    SourceChanged,
    SourceError,
    SourceUnreadable,
)
from headgate.warehouse.sources.errors import current_user
from headgate.warehouse.sources.files import directory
from headgate.warehouse.sources.files.directory import LIST_ANYWAY_SECONDS
from headgate.warehouse.sources.files.listing import CHECKED_PER_LOOK, SetAside, Stamp
from headgate.warehouse.sources.files.source import SEEN_MISSING, FileOffset, FileRange

SCHEMA = "ts timestamp, sensor string, temp double"


class Clock:
    """The system's clock as it was when the test began, moved by hand."""

    def __init__(self) -> None:
        self._began = time.time()
        self.ahead = 0.0

    def __call__(self) -> float:
        return self._began + self.ahead


def source(folder: Path, **changed: object) -> Files:
    steady = changed.get("clock", time.monotonic)
    return Files(folder, **({"schema": SCHEMA, "settle": 0, "steady": steady} | changed))  # type: ignore[arg-type]


def taken(files: Files, offset: FileOffset | None = None, limit: Limit | None = None) -> list[str]:
    """The names in the next range, in order."""
    found = files.next_range(offset or files.start(), limit or Limit())
    return list(found.files) if found else []


def after_loading_all(files: Files) -> FileOffset:
    found = files.next_range(files.start(), Limit())
    assert found is not None
    return files.advance(files.start(), found)


def write(folder: Path, *names: str, text: str = "{}\n") -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# --- which files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ignored", [".hidden.json", "_SUCCESS", "a.json.tmp", "a.json.part", "a.json.inprogress", "a.json.crdownload"]
)
def test_names_of_unfinished_and_hidden_files_are_ignored(tmp_path: Path, ignored: str) -> None:
    write(tmp_path, ignored, "a.json")
    assert taken(source(tmp_path)) == ["a.json"]
    assert source(tmp_path).latest(FileOffset()).note == ""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, ["a.json", "b.csv"], id="files of the directory"),
        pytest.param({"pattern": "*.json"}, ["a.json"], id="by pattern"),
        pytest.param({"pattern": "[!a]*"}, ["b.csv"], id="by pattern with letters"),
        pytest.param({"recursive": True}, ["a.json", "b.csv", "x/c.json", "x/y/d.json"], id="and those below"),
        pytest.param({"recursive": True, "pattern": "d.*"}, ["x/y/d.json"], id="a pattern is about the last name"),
    ],
)
def test_the_files_read_are(tmp_path: Path, options: dict[str, object], expected: list[str]) -> None:
    write(tmp_path, "a.json", "b.csv", "x/c.json", "x/y/d.json", "x/_temporary/e.json", ".git/f.json", "x/.h.json")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert taken(source(tmp_path, **options)) == expected


def test_a_link_inside_the_directory_is_a_file_and_one_to_nothing_is_none(tmp_path: Path) -> None:
    write(tmp_path, "below/a.json")
    (tmp_path / "good.json").symlink_to("below/a.json")
    (tmp_path / "broken.json").symlink_to("below/b.json")
    assert taken(source(tmp_path)) == ["good.json"]


OUTSIDE = "it is a link that leads out of the directory, and follow_links is not set"


@pytest.mark.parametrize("target", ["secret.json", "landing-of-others/a.json"])
def test_a_link_out_of_the_directory_is_left_out_with_a_notice(tmp_path: Path, target: str) -> None:
    write(tmp_path, target, "landing/a.json")
    (tmp_path / "landing/out.json").symlink_to(tmp_path / target)
    (tmp_path / "landing/chain.json").symlink_to("out.json")
    files = source(tmp_path / "landing")
    assert taken(files) == ["a.json"]
    told = {notice.chunk: notice.problem for notice in source(tmp_path / "landing").latest(files.start()).notices}
    assert told.keys() == {"out.json", "chain.json"} and all(problem.endswith(OUTSIDE) for problem in told.values())
    assert files.latest(files.start()).note == f"chain.json cannot be read (and 1 more): {OUTSIDE}"
    assert taken(source(tmp_path / "landing", follow_links=True)) == ["a.json", "chain.json", "out.json"]
    (tmp_path / "landing/out.json").unlink()
    write(tmp_path, "landing/out.json")
    assert taken(files) == ["a.json", "chain.json", "out.json"], "it is a file now, and the other leads to it"


def test_a_file_that_becomes_a_link_out_of_the_directory_after_it_was_found_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, "secret.json", "landing/a.json")
    files = source(tmp_path / "landing")
    found = files.next_range(files.start(), Limit())
    assert found is not None
    (tmp_path / "landing/a.json").unlink()
    (tmp_path / "landing/a.json").symlink_to(tmp_path / "secret.json")
    for act in (files.verify, lambda wanted: files.read(None, wanted)):  # type: ignore[arg-type]
        with pytest.raises(SourceUnreadable, match="leads out of the directory"):
            act(found)


def test_a_directory_that_is_a_link_itself_is_read(tmp_path: Path) -> None:
    write(tmp_path, "disk/a.json")
    (tmp_path / "disk/b.json").symlink_to("a.json")
    (tmp_path / "landing").symlink_to(tmp_path / "disk")
    assert taken(source(tmp_path / "landing")) == ["a.json", "b.json"]


@pytest.mark.parametrize(
    ("order", "first", "expected"),
    [
        ("name", "oldest", ["a", "b", "c"]),
        ("name", "newest", ["c", "b", "a"]),
        ("modified", "oldest", ["b", "c", "a"]),
        ("modified", "newest", ["a", "c", "b"]),
    ],
)
def test_files_are_taken_in_the_order_asked_for(tmp_path: Path, order: str, first: str, expected: list[str]) -> None:
    write(tmp_path, "a", "b", "c")
    for modified, name in enumerate(["b", "c", "a"]):
        os.utime(tmp_path / name, (modified, modified))
    files = source(tmp_path, order=order)
    assert taken(files, limit=Limit(first=first)) == expected  # type: ignore[arg-type]
    assert taken(files, limit=Limit(chunks=2, first=first)) == expected[:2]  # type: ignore[arg-type]


def test_a_file_that_comes_late_under_an_early_name_with_an_old_time_is_found(tmp_path: Path) -> None:
    files = source(tmp_path)
    write(tmp_path, "m.json")
    offset = after_loading_all(files)
    write(tmp_path, "a.json")
    os.utime(tmp_path / "a.json", (1, 1))
    assert files.latest(offset).chunks == 1
    assert taken(files, offset) == ["a.json"]


def test_what_lies_behind_is_counted_with_its_size_and_its_times_of_arrival(tmp_path: Path) -> None:
    before = time.time()
    write(tmp_path, "a.json", "b.json", text="12345")
    os.utime(tmp_path / "a.json", (1, 1))
    pending = source(tmp_path).latest(FileOffset())
    assert (pending.chunks, pending.bytes, pending.note, pending.notices) == (2, 10, "", ())
    assert pending.oldest is not None and pending.newest is not None
    # a copy that keeps the old modification time has arrived only now; file systems count in steps of some ms
    assert before - 0.1 <= pending.oldest <= pending.newest <= time.time() + 0.1


def test_empty_files_are_taken_like_any_other(tmp_path: Path) -> None:
    write(tmp_path, "empty.json", text="")
    assert source(tmp_path).latest(FileOffset()) != Pending()
    assert taken(source(tmp_path)) == ["empty.json"]


# --- whole files ----------------------------------------------------------------------------------------------


def test_a_file_is_left_alone_until_it_has_not_changed_for_the_time_to_settle(tmp_path: Path) -> None:
    clock = Clock()
    files = source(tmp_path, settle="1 hour", clock=clock)
    write(tmp_path, "a.json")
    assert taken(files) == []
    assert files.latest(files.start()) == Pending()
    clock.ahead = 3000.0
    assert taken(files) == []
    clock.ahead = 3600.1
    assert taken(files) == ["a.json"]


def test_a_file_settles_although_the_clock_was_set_back(tmp_path: Path) -> None:
    clock = Clock()
    clock.ahead = -3600.0
    files = source(tmp_path, settle="1 hour", clock=clock)
    write(tmp_path, "a.json")
    assert taken(files) == []
    clock.ahead += 3600.1
    assert taken(files) == ["a.json"]


def test_an_old_modification_time_does_not_make_a_young_file_whole(tmp_path: Path) -> None:
    files = source(tmp_path, settle="1 hour")
    write(tmp_path, "b.json", "a.json")
    os.utime(tmp_path / "a.json", (1, 1))
    assert files.latest(files.start()).chunks == 0


def test_a_file_that_grows_again_between_poll_and_range_has_to_settle_again(tmp_path: Path) -> None:
    clock = Clock()
    files = source(tmp_path, settle="1 hour", clock=clock)
    write(tmp_path, "a.json", "b.json")
    clock.ahead = 3601.0
    assert files.latest(files.start()).chunks == 2
    clock.ahead = 0.0
    write(tmp_path, "a.json", text="more than before")
    assert taken(files) == ["b.json"]


@pytest.mark.parametrize(
    ("settle", "usual"), [pytest.param(0.5, 5.0, id="short"), pytest.param("1 min", 180.0, id="long")]
)
def test_it_is_said_of_a_file_that_it_is_not_complete_if_that_takes_longer_than_usual(
    tmp_path: Path, settle: str | float, usual: float
) -> None:
    clock = Clock()
    files = source(tmp_path, settle=settle, clock=clock, format="parquet", schema=SCHEMA)
    write(tmp_path, "a", "b")
    assert files.latest(files.start()).note == ""
    clock.ahead = usual - 0.1
    assert files.latest(files.start()) == Pending()
    clock.ahead = usual + 0.1
    assert files.latest(files.start()).note == "2 files are not complete yet, among them a"
    (tmp_path / "a").write_bytes(PARQUET)
    (tmp_path / "b").unlink()
    clock.ahead = 2 * usual
    assert files.latest(files.start()).note == ""
    write(tmp_path, "b")
    assert files.latest(files.start()).note == "", "it is another file than the one that was removed"


def test_nothing_is_said_of_files_that_come_all_the_time_as_each_is_complete_soon(tmp_path: Path) -> None:
    clock = Clock()
    clock.ahead = -3600.0  # behind the clock of the disk: whether a file is complete goes by what was seen of it
    files, found = source(tmp_path, settle=0.5, clock=clock), []
    for number in range(30):
        write(tmp_path, f"{number:02}")
        pending = files.latest(files.start())
        found.append((pending.chunks, pending.note))
        clock.ahead += 0.4
    assert found == [(max(0, number - 1), "") for number in range(30)]


PARQUET = b"PAR1" + b"\0" * 20 + (20).to_bytes(4, "little") + b"PAR1"
ORC = b"ORC" + b"\0" * 20 + b"ORC" + b"\x17"


@pytest.mark.parametrize(
    ("format_", "content", "whole"),
    [
        pytest.param("parquet", PARQUET, True, id="parquet"),
        pytest.param("parquet", PARQUET[:-1], False, id="parquet, one byte short"),
        pytest.param("parquet", b"PAR1", False, id="parquet, just begun"),
        pytest.param("parquet", b"", False, id="parquet, nothing yet"),
        pytest.param("parquet", b"PAR1" + b"\xff" * 20 + b"PAR1", False, id="parquet, footer longer than the file"),
        pytest.param("parquet", b'{"a": 1}\n' * 10, False, id="parquet, something else"),
        pytest.param("orc", ORC, True, id="orc"),
        pytest.param("orc", ORC[:-1], False, id="orc, one byte short"),
        pytest.param("orc", b"ORC", False, id="orc, just begun"),
        pytest.param("orc", b"", False, id="orc, nothing yet"),
    ],
)
def test_a_file_that_ends_in_its_footer_is_whole_when_that_is_there(
    tmp_path: Path, format_: str, content: bytes, whole: bool
) -> None:
    (tmp_path / "a").write_bytes(content)
    clock = Clock()
    files = source(tmp_path, format=format_, clock=clock)
    assert taken(files) == (["a"] if whole else [])
    clock.ahead = 6.0
    assert files.latest(files.start()).note == ("" if whole else "1 file is not complete yet: a")
    (tmp_path / "a").write_bytes(PARQUET if format_ == "parquet" else ORC)
    assert taken(files) == ["a"]


# --- changes ----------------------------------------------------------------------------------------------------


def test_a_file_that_changes_after_it_was_loaded_is_reported_once_and_not_loaded_again(tmp_path: Path) -> None:
    files = source(tmp_path)
    write(tmp_path, "a.json", "b.json")
    offset = after_loading_all(files)
    assert files.latest(offset).notices == ()
    write(tmp_path, "a.json", text="longer than before")
    pending = files.latest(offset)
    assert pending.chunks == 0
    assert pending.notices == (
        Notice("a.json", "changed after it was loaded; it is not loaded again: write new rows to a new file"),
    )
    assert files.latest(offset).notices == ()
    assert taken(files, offset) == []


def test_changes_are_found_among_more_files_than_are_checked_at_once(tmp_path: Path) -> None:
    files = source(tmp_path)
    write(tmp_path, *(f"{number:04d}" for number in range(3 * CHECKED_PER_LOOK + 5)))
    offset = after_loading_all(files)
    write(tmp_path, "0000", "0250", "0304", text="longer than before")
    notices = [notice.chunk for _ in range(8) for notice in files.latest(offset).notices]
    assert sorted(notices) == ["0000", "0250", "0304"]


@pytest.mark.parametrize(
    ("meanwhile", "said"),
    [
        pytest.param(
            lambda path: path.unlink(), "a.json was removed before its rows were loaded. Put it", id="removed"
        ),
        pytest.param(
            lambda path: path.write_text("longer"), "a.json changed .*: it had 3 bytes, it has 6", id="other size"
        ),
        pytest.param(lambda path: os.utime(path, (1, 1)), "a.json changed .* 1970-01-01T00:00:01Z", id="other time"),
    ],
)
def test_a_file_that_changes_before_it_was_loaded_is_an_error_that_says_what_to_do(
    tmp_path: Path, meanwhile: object, said: str
) -> None:
    files = source(tmp_path)
    write(tmp_path, "a.json", "b.json")
    found = files.next_range(files.start(), Limit())
    assert found is not None
    files.verify(found)
    meanwhile(tmp_path / "a.json")  # type: ignore[operator]
    with pytest.raises(SourceChanged, match=said) as raised:
        files.verify(found)
    assert raised.value.chunk == str(tmp_path / "a.json")
    with pytest.raises(SourceChanged, match=said):
        files.read(None, found)  # type: ignore[arg-type]
    again = files.next_range(files.start(), Limit())
    assert again is not None
    files.verify(again)


def load(files: Files, offset: FileOffset) -> tuple[FileRange, FileOffset]:
    """The next range, and the offset after it, both as they come back from a commit."""
    found = files.next_range(offset, Limit())
    assert found is not None
    again = FileRange.from_json(json.loads(json.dumps(found.to_json())))
    assert again == found
    return again, FileOffset.from_json(json.loads(json.dumps(files.advance(offset, again).to_json())))


def test_loaded_files_that_were_removed_are_forgotten_after_a_while(tmp_path: Path) -> None:
    clock = Clock()
    files = source(tmp_path, remember="1 hour", clock=clock)
    write(tmp_path, "a.json", "b.json")
    offset = after_loading_all(files)
    (tmp_path / "a.json").unlink()
    assert files.next_range(offset, Limit()) is None
    write(tmp_path, "c.json")
    found, offset = load(files, offset)
    assert (list(found.missing), found.gone) == (["a.json"], ())
    assert sorted(offset.files) == ["a.json", "b.json", "c.json"]
    clock.ahead = 3601.0
    files = source(tmp_path, remember="1 hour", clock=clock)
    write(tmp_path, "d.json")
    found, offset = load(files, offset)
    assert found.gone == (), "a process that has just begun does not know how long it was missing"
    clock.ahead += SEEN_MISSING
    write(tmp_path, "e.json")
    found, offset = load(files, offset)
    assert (dict(found.missing), found.gone) == ({}, ("a.json",))
    assert (sorted(offset.files), dict(offset.missing)) == (["b.json", "c.json", "d.json", "e.json"], {})


def test_a_clock_that_is_set_forward_makes_no_file_forgotten(tmp_path: Path) -> None:
    clock = Clock()
    files = source(tmp_path, clock=clock, steady=time.monotonic)
    write(tmp_path, "a.json")
    offset = after_loading_all(files)
    (tmp_path / "a.json").rename(tmp_path / ".away")
    for number in range(3):
        write(tmp_path, f"{number}.json")
        found, offset = load(files, offset)
        assert found.gone == ()
        clock.ahead += 7 * 86400.0
    (tmp_path / ".away").rename(tmp_path / "a.json")
    assert taken(files, offset) == []


def test_a_share_that_is_empty_for_a_while_and_comes_back_is_not_loaded_again(tmp_path: Path) -> None:
    clock = Clock()
    files = source(tmp_path / "landing", clock=clock)
    write(tmp_path / "landing", "a.json", "b.json")
    offset = after_loading_all(files)
    for hour in (1.0, 30.0):
        clock.ahead = hour * 3600
        (tmp_path / "landing").rename(tmp_path / "share")
        write(tmp_path / "landing", f"local-{hour}.json")  # somebody writes to the place where it was mounted
        _, offset = load(files, offset)
        assert {*offset.missing} >= {"a.json", "b.json"}
        (tmp_path / f"landing/local-{hour}.json").unlink()
        (tmp_path / "landing").rmdir()
        (tmp_path / "share").rename(tmp_path / "landing")
        assert taken(files, offset) == []
        write(tmp_path / "landing", f"c-{hour}.json")
        found, offset = load(files, offset)
        assert list(found.files) == [f"c-{hour}.json"]
        assert {"a.json", "b.json"}.isdisjoint(offset.missing), "the time begins anew when they are missing again"


def test_an_offset_does_not_grow_with_files_that_are_removed_once_they_are_loaded(tmp_path: Path) -> None:
    clock = Clock()
    files = source(tmp_path, remember="1 hour", clock=clock)
    offset = files.start()
    sizes = []
    for number in range(50):
        clock.ahead = number * 600.0
        write(tmp_path, f"{number}.json")
        _, offset = load(files, offset)
        sizes.append(len(offset.files) + len(offset.missing))
        (tmp_path / f"{number}.json").unlink()
    assert max(sizes) < 20


def test_nothing_is_forgotten_while_the_directory_is_away(tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    files = source(landing)
    write(landing, "a.json")
    offset = after_loading_all(files)
    landing.rename(tmp_path / "unmounted")
    assert files.next_range(offset, Limit()) is None
    (tmp_path / "unmounted").rename(landing)
    assert taken(files, offset) == []


def test_advancing_twice_by_one_range_is_advancing_once(tmp_path: Path) -> None:
    files = source(tmp_path)
    write(tmp_path, "a.json")
    found = files.next_range(files.start(), Limit())
    assert found is not None
    once = files.advance(files.start(), found)
    assert files.advance(once, found) == once


# --- errors and notes ---------------------------------------------------------------------------------------------


def test_a_missing_directory_is_waited_for(tmp_path: Path) -> None:
    files = source(tmp_path / "later")
    note = f"waiting for the directory {tmp_path / 'later'}, which does not exist"
    assert files.latest(files.start()) == Pending(note=note, missing=True)
    assert files.next_range(files.start(), Limit()) is None
    write(tmp_path, "later/a.json")
    assert taken(files) == ["a.json"]


def test_a_file_in_place_of_the_directory_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "a.json")
    with pytest.raises(SourceError, match=r"a\.json is not a directory: .* Use pattern='a\.json'"):
        source(tmp_path / "a.json").latest(FileOffset())


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory that other users may enter, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@contextmanager
def an_ordinary_user() -> Iterator[None]:
    """Tests in containers often run as root, whom no permission stops."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("format_", ["json", "parquet"])
def test_a_file_that_may_not_be_read_is_left_out_and_taken_as_soon_as_it_may(open_to_all: Path, format_: str) -> None:
    files = source(open_to_all, format=format_)
    for name in ("a", "b"):
        (open_to_all / name).write_bytes(PARQUET)
    os.chmod(open_to_all / "a", 0)
    with an_ordinary_user():
        assert taken(files) == ["b"], "the others go on"
        pending = source(open_to_all, format=format_).latest(files.start())
        assert (pending.chunks, pending.note) == (1, "a cannot be read: Permission denied")
        assert [str(notice.problem) for notice in pending.notices] == [
            f"is left out: {current_user()} cannot read it: Permission denied"
        ]
    os.chmod(open_to_all / "a", 0o644)
    with an_ordinary_user():
        assert taken(files) == ["a", "b"]


def test_a_file_that_may_no_longer_be_read_when_it_is_loaded_is_an_error_that_says_whom_to_allow(
    open_to_all: Path,
) -> None:
    files = source(open_to_all)
    write(open_to_all, "a.json", "b.json")
    with an_ordinary_user():
        found = files.next_range(files.start(), Limit())
    assert found is not None
    os.chmod(open_to_all / "a.json", 0)
    with an_ordinary_user():
        with pytest.raises(SourceUnreadable, match=r"a\.json cannot be read: Permission denied\. Allow the user"):
            files.read(None, found)  # type: ignore[arg-type]
        assert taken(files) == ["b.json"], "the next try goes on without it"


def test_a_directory_that_may_not_be_listed_is_an_error(open_to_all: Path) -> None:
    locked = open_to_all / "locked"
    locked.mkdir(mode=0)
    with an_ordinary_user(), pytest.raises(SourceUnreadable, match="locked cannot be listed: Permission denied"):
        source(locked).latest(FileOffset())


def test_a_directory_below_that_may_not_be_listed_is_left_out_and_taken_as_soon_as_it_may(open_to_all: Path) -> None:
    write(open_to_all, "a.json", "x/b.json", "y/c.json")
    files = source(open_to_all, recursive=True)
    offset = after_loading_all(files)
    write(open_to_all, "x/d.json", "y/e.json")
    os.chmod(open_to_all / "x", 0)
    try:
        with an_ordinary_user():
            assert taken(files, offset) == ["y/e.json"], "the others go on, and what was loaded is not missing"
            pending = files.latest(offset)
            assert (pending.chunks, pending.note) == (1, "x cannot be read: Permission denied")
            contents, said = source(open_to_all, recursive=True).contents(None)
            assert (contents, said.note) == (None, pending.note), "a dimension would be without some of its rows"
    finally:
        os.chmod(open_to_all / "x", 0o755)
    assert taken(files, offset) == ["x/d.json", "y/e.json"]


def test_what_is_found_while_a_range_is_chosen_is_told_by_the_next_poll(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "secret").touch()
    (tmp_path / "landing/out.json").symlink_to(tmp_path / "secret")
    files = source(tmp_path / "landing")
    assert files.next_range(files.start(), Limit()) is None
    assert [notice.chunk for notice in files.latest(files.start()).notices] == ["out.json"]
    other = source(tmp_path / "landing")
    assert [notice.chunk for notice in other.contents(None)[1].notices] == ["out.json"]
    assert other.contents(None)[1].notices == ()


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO, errno.ELOOP, errno.ENOTCONN])
def test_whatever_the_file_system_says_a_look_names_the_directory_and_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(path: object) -> None:
        raise OSError(code, os.strerror(code), os.fspath(path))  # type: ignore[call-overload]

    files = source(tmp_path)
    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(SourceUnreadable, match=f"{tmp_path} cannot be listed: {os.strerror(code)}"):
        files.latest(files.start())


@pytest.mark.parametrize("seed", range(40))
def test_whatever_fails_in_the_file_system_a_look_finds_what_it_can_or_raises_an_error_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    write(tmp_path, "a", "b", "c", "x/d")
    (tmp_path / "link").symlink_to("a")
    files = source(tmp_path, recursive=True, format=chance.choice(["json", "parquet"]))
    offset = FileOffset({name: Stamp(3, 5) for name in ("a", "gone")}, {}, {"b": SetAside(3, 5, 5, 0, "bad")})
    dimension = FileRange({"a": Stamp(3, 5), "gone": Stamp(1, 1)}, 0.0, 0.0)
    codes = [errno.EIO, errno.ESTALE, errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EMFILE]

    def failing(function: Callable[..., object]) -> Callable[..., object]:
        def called(path: object, *args: object, **options: object) -> object:
            if chance.random() < 0.3 and str(path).startswith(str(tmp_path)):
                code = chance.choice(codes)
                raise OSError(code, os.strerror(code), str(path))
            return function(path, *args, **options)

        return called

    with monkeypatch.context() as patch:
        for name in ("stat", "lstat", "scandir"):
            patch.setattr(os, name, failing(getattr(os, name)))
        patch.setattr("builtins.open", failing(open))
        for _ in range(20):
            for look in (
                lambda: files.latest(offset),
                lambda: files.next_range(offset, Limit()),
                lambda: files.contents(dimension),
                lambda: files.contents(None),
            ):
                with contextlib.suppress(SourceError):
                    look()
    found = files.next_range(offset, Limit())
    expected = ["b", "c", "link", "x/d"] if files.format == "json" else []
    assert ([] if found is None else sorted(found.files)) == expected, "nothing stays behind"


def test_a_file_that_the_file_system_cannot_tell_about_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a", "b")
    files = source(tmp_path)
    offset = after_loading_all(files)
    write(tmp_path, "c")
    (tmp_path / "a").rename(tmp_path / ".a")
    lstat = os.lstat

    def failing(path: object) -> os.stat_result:
        if str(path).endswith("/a"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return lstat(path)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "lstat", failing)
    found = files.next_range(offset, Limit())
    assert found is not None and not found.missing


def test_a_file_that_never_stays_as_it_is_does_not_keep_the_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a")
    files = source(tmp_path)
    lstat, times = os.lstat, 0

    def growing(path: object) -> os.stat_result:
        nonlocal times
        if str(path).endswith("/a"):
            times += 1
            assert times < 100
            os.utime(tmp_path / "a", (times, times))
        return lstat(path)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "lstat", growing)
    assert files.next_range(files.start(), Limit()) is None
    assert files.contents(None)[0] is None


def test_a_file_from_the_year_300000_is_told_to_have_changed(tmp_path: Path) -> None:
    files = source(tmp_path)
    write(tmp_path, "a.json")
    found = files.next_range(files.start(), Limit())
    assert found is not None
    stamp = found.files["a.json"]._replace(modified=10**19)
    with pytest.raises(SourceChanged, match=r"a\.json changed"):
        files.verify(FileRange({"a.json": stamp}, 0.0, 0.0))
    os.utime(tmp_path / "a.json", ns=(0, 2**62))
    with pytest.raises(SourceChanged, match=r"a\.json changed"):
        files.verify(found)


def test_a_name_that_is_no_text_is_reported_once_and_left_out(tmp_path: Path) -> None:
    try:
        (tmp_path / os.fsdecode(b"caf\xe9.json")).touch()
    except OSError:
        pytest.skip("this file system takes only names in UTF-8")
    write(tmp_path, "ünïcode\n.json")
    files = source(tmp_path)
    assert files.latest(files.start()).notices == (
        Notice("caf\\xe9.json", "is left out: its name is not valid UTF-8; rename it"),
    )
    assert files.latest(files.start()).notices == ()
    assert taken(files) == ["ünïcode\n.json"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        pytest.param({"path": ""}, "Files needs the directory", id="no path"),
        pytest.param({"path": "s3://bucket/x"}, "a directory of this machine, not an address; mount it", id="address"),
        pytest.param({"format": "xml"}, "format takes one of json, csv, parquet, orc, text; got 'xml'", id="format"),
        pytest.param({"schema": ""}, "needs a schema", id="no schema"),
        pytest.param({"schema": "ts timestmap"}, "unknown type 'timestmap'", id="bad schema"),
        pytest.param({"order": "size"}, "order takes one of name, modified; got 'size'", id="order"),
        pytest.param({"pattern": "x/*"}, "pattern is compared with names without their directories", id="pattern"),
        pytest.param({"settle": "soon"}, "settle takes a length of time", id="settle"),
        pytest.param({"settle": -1}, "settle takes a length of time", id="negative settle"),
        pytest.param({"options": {"MODE": "DROPMALFORMED"}}, "the option 'MODE' cannot be set: Headgate", id="mode"),
        pytest.param({"options": {"multiLine": True}}, "'multiLine' cannot be set: a row is one line", id="many lines"),
        pytest.param({"options": {"header": True}}, "the option 'header' cannot be set", id="header of json"),
        pytest.param({"format": "csv", "schema": "a array<int>"}, "which csv files cannot hold", id="array in csv"),
        pytest.param({"format": "text", "schema": "a int"}, "text has the schema 'value string'", id="schema of text"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(wrong: dict[str, object], said: str) -> None:
    declared: dict[str, object] = {"path": "landing", "schema": SCHEMA} | wrong
    with pytest.raises(DeclarationError, match=said):
        Files(**declared)  # type: ignore[arg-type]


def test_relative_paths_count_from_the_folder_of_the_pipeline_file(tmp_path: Path) -> None:
    write(tmp_path, "landing/a.json")
    declared = source(Path("landing"), order="modified")
    resolved = declared.resolve(tmp_path)
    assert taken(resolved) == ["a.json"]
    assert (resolved.order, resolved.schema) == ("modified", SCHEMA)
    assert resolved.resolve(Path("/elsewhere")) == resolved


def test_a_declaration_prints_as_it_was_written() -> None:
    assert repr(Files("landing", format="text")).startswith(
        "Files(path='landing', format='text', schema='value string'"
    )


# --- cost ---------------------------------------------------------------------------------------------------------


def test_a_directory_that_stands_still_is_not_listed_again(tmp_path: Path) -> None:
    clock = Clock()
    files = source(tmp_path, clock=clock)
    long_ago = (1_000_000_000, 1_000_000_000)
    write(tmp_path, "a.json")
    os.utime(tmp_path, long_ago)
    assert taken(files) == ["a.json"]
    write(tmp_path, "b.json")
    os.utime(tmp_path, long_ago)  # as on a file system that does not keep the times of directories
    assert taken(files) == ["a.json"]
    clock.ahead = LIST_ANYWAY_SECONDS
    assert taken(files) == ["a.json", "b.json"]


@pytest.mark.parametrize(
    "changed_at",
    [
        pytest.param(lambda now: now + 1, id="a file system that counts in milliseconds"),
        pytest.param(lambda now: now // 1_000_000_000 * 1_000_000_000, id="a file system that counts in seconds"),
    ],
)
def test_a_directory_that_has_just_changed_is_listed_again_whatever_its_time_says(
    tmp_path: Path, changed_at: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What has just changed is so for longer than a step takes here, however slow the machine is.
    for step in ("FINE_STEP_NS", "COARSE_STEP_NS"):
        monkeypatch.setattr(directory, step, 1000 * getattr(directory, step))
    files = source(tmp_path)
    write(tmp_path, "a.json")
    changed = changed_at(time.time_ns())
    os.utime(tmp_path, ns=(changed, changed))
    assert taken(files) == ["a.json"]
    write(tmp_path, "b.json")
    os.utime(tmp_path, ns=(changed, changed))  # as if both fell into one step of the file system's clock
    assert taken(files) == ["a.json", "b.json"]


def test_a_loaded_file_that_an_old_listing_does_not_have_is_not_forgotten(tmp_path: Path) -> None:
    long_ago = (1_000_000_000, 1_000_000_000)
    files = source(tmp_path)
    write(tmp_path, "a.json")
    os.utime(tmp_path, long_ago)
    assert taken(files) == ["a.json"]
    write(tmp_path, "b.json")
    os.utime(tmp_path, long_ago)
    offset = after_loading_all(source(tmp_path, pattern="b.*"))
    found = files.next_range(offset, Limit())
    assert found is not None
    assert (list(found.files), found.gone, dict(found.missing)) == (["a.json"], (), {})


@pytest.mark.slow
@pytest.mark.parametrize("recursive", [False, True], ids=["one directory", "a hundred directories"])
def test_polling_beside_ten_thousand_loaded_files_lists_no_directory_again(
    tmp_path: Path, recursive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in range(100):
        (tmp_path / f"{folder}").mkdir()
        for number in range(100):
            name = f"{folder}/{number:08d}.json" if recursive else f"{folder:04d}{number:04d}.json"
            (tmp_path / name).touch()
        os.utime(tmp_path / f"{folder}", (1, 1))
    os.utime(tmp_path, (1, 1))
    files = source(tmp_path, recursive=recursive)
    offset = after_loading_all(files)
    assert len(offset.files) == 10_000
    files.latest(offset)
    listed: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(str(path)) or scandir(path))
    assert files.latest(offset).chunks == 0
    assert listed == []
    write(tmp_path, "7/new.json" if recursive else "new.json")
    assert files.latest(offset).chunks == 1
    assert len(listed) == 1, "only the directory that has changed"


class CountedNames(dict[str, Stamp]):
    """Loaded files that count how often they are asked for a name."""

    asked = 0

    def __contains__(self, name: object) -> bool:
        self.asked += 1
        return super().__contains__(name)


def test_a_look_at_an_unchanged_directory_asks_for_no_name(tmp_path: Path) -> None:
    write(tmp_path, *(f"{number}.json" for number in range(20)))
    long_ago = (1, 1)
    os.utime(tmp_path, long_ago)
    files = source(tmp_path)
    loaded = CountedNames(after_loading_all(files).files)
    offset = FileOffset(loaded)
    assert files.latest(offset).chunks == 0
    assert loaded.asked >= 20
    loaded.asked = 0
    assert files.latest(offset).chunks == 0
    assert loaded.asked == 0
    write(tmp_path, "new.json")
    assert files.latest(offset).chunks == 1
    os.utime(tmp_path, long_ago)
    assert (files.latest(offset).chunks, taken(files, offset)) == (1, ["new.json"])
    loaded.asked = 0
    assert files.latest(offset).chunks == 1
    assert loaded.asked == 0


def test_a_large_directory_that_always_changes_is_listed_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "MANY_NAMES", 3)
    monkeypatch.setattr(directory, "BETWEEN_LISTINGS_PER_NAME", 10.0)
    clock = Clock()
    files = source(tmp_path, clock=clock)
    write(tmp_path, "a", "b", "c")
    assert taken(files) == ["a", "b", "c"]
    write(tmp_path, "d")
    assert taken(files) == ["a", "b", "c", "d"], "as long as it is small"
    write(tmp_path, "e")
    (tmp_path / "a").unlink()
    assert taken(files) == ["b", "c", "d"], "what an old listing has is checked before it is loaded"
    clock.ahead = 41.0
    assert taken(files) == ["b", "c", "d", "e"]


def test_a_range_names_sizes_and_times(tmp_path: Path) -> None:
    write(tmp_path, "a.json", "b.json")
    os.utime(tmp_path / "a.json", ns=(0, 1_234_567_891))
    first = os.stat(tmp_path / "a.json").st_ctime
    while os.stat(tmp_path / "b.json").st_ctime <= first:
        os.utime(tmp_path / "b.json", ns=(0, 1_000))
    files = source(tmp_path)
    found = files.next_range(FileOffset(), Limit())
    assert isinstance(found, FileRange)
    assert (found.chunks, found.bytes) == (2, 6)
    assert found.to_json()["files"] == [["a.json", 3, 1_234_567], ["b.json", 3, 1]]
    assert (found.oldest, found.newest) == (first, os.stat(tmp_path / "b.json").st_ctime)
    pending = files.latest(files.start())
    assert (pending.oldest, pending.newest) == (found.oldest, found.newest)
