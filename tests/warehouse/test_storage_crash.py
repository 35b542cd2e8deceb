"""A process that is killed leaves the table as its last commit made it, wherever the kill strikes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headgate
from headgate.warehouse.storage.store import TableStore
from tests.warehouse.storage_helpers import CLICKS, HOUR, clicks, hours, load, on_disk, paths, seen_by_delta, values

SOURCES = Path(headgate.__file__).parents[1]
PREAMBLE = """
import sys
from headgate.warehouse.storage.store import TableStore
from tests.warehouse.storage_helpers import CLICKS, HOUR, clicks, hours, load

def say(word):
    print(word, flush=True)

store = TableStore(sys.argv[1], "ts")
"""
WAIT = "sys.stdin.read()\n"
STOP_BEFORE_THE_COMMIT = 'store.write_arrow(2, clicks(2), HOUR)\nsay("written")\n' + WAIT
STOP_AFTER_THE_COMMIT = 'load(store, 2, clicks(2), hours(0), {"update": 2})\nsay("committed")\n' + WAIT
GO_ON_FOR_EVER = """
update = 1
while True:
    update += 1
    load(store, update, clicks(update), state={"update": update})
    say(update)
    if update % 7 == 0:
        store.compact()
"""


@contextmanager
def process(program: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs ``program`` on the table, killed with SIGKILL in the end."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCES), str(Path(__file__).parents[2])])}
    child = subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + program, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with child:
        try:
            yield child
        finally:
            child.send_signal(signal.SIGKILL)


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    store = TableStore(tmp_path / "clicks", "ts")
    load(store, 1, clicks(1))
    return store


def said(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


@pytest.mark.slow
def test_killed_between_files_and_commit_only_files_that_no_commit_names_are_left(store: TableStore) -> None:
    committed = on_disk(store)
    with process(STOP_BEFORE_THE_COMMIT, store.directory) as child:
        assert said(child) == "written"
    again = TableStore(store.directory, "ts")
    assert (again.version, again.state, seen_by_delta(again)) == (0, {"update": 1}, values(clicks(1)))
    assert len(on_disk(again)) == 2
    again.sweep(0)
    assert on_disk(again) == committed
    load(again, 2, clicks(2))
    assert seen_by_delta(again) == values(clicks(1, 2))


@pytest.mark.slow
def test_killed_right_after_the_commit_nothing_is_lost(store: TableStore) -> None:
    with process(STOP_AFTER_THE_COMMIT, store.directory) as child:
        assert said(child) == "committed"
    again = TableStore(store.directory, "ts")
    assert (again.version, again.state, seen_by_delta(again)) == (1, {"update": 2}, values(clicks(2)))
    assert again.sweep(0) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_killed_at_any_moment_exactly_the_updates_up_to_the_state_are_there(store: TableStore, seed: int) -> None:
    chance = random.Random(seed)
    committed, further_characters = chance.randrange(2, 70), chance.randrange(0, 3)
    print(f"seed {seed}: killed after update {committed} was announced")
    with process(GO_ON_FOR_EVER, store.directory) as child:
        while said(child) != str(committed):
            assert child.poll() is None
        assert child.stdout is not None
        child.stdout.read(further_characters)
    again = TableStore(store.directory, "ts")
    reached = again.state["update"]
    assert isinstance(reached, int) and reached >= committed
    assert seen_by_delta(again) == values(clicks(*range(1, reached + 1)))
    again.sweep(0)
    again.vacuum(0)
    assert on_disk(again) == paths(again.files())
    files = again.write_arrow(reached + 1, clicks(5 * HOUR), HOUR)
    again.commit(reached + 1, files, replace=hours(0), state={"update": reached + 1}, schema=CLICKS)
    assert seen_by_delta(again) == values(clicks(5 * HOUR))
