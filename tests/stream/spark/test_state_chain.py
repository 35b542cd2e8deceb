"""Chains of files: reading them gives the states, and neither reading nor writing costs more than it must."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headgate.stream.kernel import Part, State
from headgate.stream.keyed import Aggregate, Dedupe, RunningAggregate, TumblingAggregate
from headgate.stream.spark.state_files import SMALL, Chain, SnapshotError, read_states, write_states

SCHEMA = pa.schema([("user", pa.int64()), ("ts", pa.int64())])


def new_states() -> dict[str, State]:
    return {
        "running": RunningAggregate(SCHEMA, ["user"], [Aggregate("count"), Aggregate("max", "ts")]),
        "dedupe": Dedupe(SCHEMA, ["user"]),
        "windows": TumblingAggregate(SCHEMA, ["user"], "ts", 10, [Aggregate("count")]),
    }


def process(states: dict[str, State], users: np.ndarray, ts: int) -> None:
    times = np.full(len(users), ts)
    batch = pa.RecordBatch.from_arrays([pa.array(users), pa.array(times)], schema=SCHEMA)
    for state in states.values():
        state.process(Part.whole(batch, times))


def restored(folder: Path, chain: Chain) -> dict[str, State]:
    states = new_states()
    for name, snapshot in read_states(folder, chain)[0].items():
        states[name].restore(snapshot)
    return states


def assert_same(found: dict[str, State], expected: dict[str, State]) -> None:
    for name, state in expected.items():
        for table, rows in state.snapshot().tables.items():
            assert found[name].snapshot().tables[table].equals(rows), (name, table)


def size(folder: Path, name: str) -> int:
    return (folder / name).stat().st_size


@pytest.mark.parametrize("living", [True, False], ids=["states live on", "a fresh worker every time"])
def test_chains_stay_short_and_what_is_written_grows_with_the_changes(tmp_path: Path, living: bool) -> None:
    count, touched, updates = 40_000, 100, 60
    states, twins = new_states(), new_states()
    for each in (states, twins):
        process(each, np.arange(count), 0)
        process(each, np.arange(1), 15)
    chain = write_states(tmp_path, "u0", states, (), {"update": 0})
    whole = size(tmp_path, chain[0])
    assert whole > SMALL
    written, longest = 0, 0
    chance = np.random.default_rng(3)
    for update in range(1, updates + 1):
        users = np.unique(chance.integers(0, count + 20 * update, touched))
        if not living:
            states = restored(tmp_path, chain)
        for each in (states, twins):
            process(each, users, 15 + 10 * update)
        chain = write_states(tmp_path, f"u{update}", states, chain, {"update": update})
        written += size(tmp_path, chain[0])
        longest = max(longest, len(chain))
        sizes = [size(tmp_path, name) for name in chain]
        assert sum(sizes[:-1]) <= 0.6 * sizes[-1]
    assert longest <= 3 + math.log2(updates)
    assert written < 2 * whole, "sixty whole files would be thirty times as much"
    assert_same(restored(tmp_path, chain), twins)
    assert read_states(tmp_path, chain)[1] == {"update": updates}


def test_the_files_of_the_chain_are_all_that_is_needed(tmp_path: Path) -> None:
    states = new_states()
    process(states, np.arange(2_000), 0)
    chain: Chain = write_states(tmp_path, "u0", states, (), {}, small=0)
    lengths = set()
    for update in range(1, 30):
        process(states, np.arange(update, update + 5), 0)
        chain = write_states(tmp_path, f"u{update}", states, chain, {}, small=0)
        lengths.add(len(chain))
        for path in tmp_path.iterdir():
            if path.name not in chain:
                path.unlink()
        assert_same(restored(tmp_path, chain), {name: states[name] for name in ("running", "dedupe")})
    assert max(lengths) > 1


@pytest.mark.parametrize(
    ("touched", "small", "lost", "expected"),
    [
        (5, 0, False, 2),
        (2_000, 0, False, 1),
        (5, SMALL, False, 1),
        (5, 0, True, 1),
    ],
    ids=["little has changed", "much has changed", "the state is small", "the file before is lost"],
)
def test_changes_are_written_only_where_they_pay(
    tmp_path: Path, touched: int, small: int, lost: bool, expected: int
) -> None:
    states = {"running": new_states()["running"]}
    process(states, np.arange(4_000), 0)
    chain = write_states(tmp_path, "u0", states, (), {}, small)
    if lost:
        (tmp_path / chain[0]).unlink()
    process(states, np.arange(touched), 1)
    chain = write_states(tmp_path, "u1", states, chain, {}, small)
    assert len(chain) == expected
    assert_same({"running": restored(tmp_path, chain)["running"]}, states)


def test_states_that_cannot_tell_changes_are_whole_in_every_file(tmp_path: Path) -> None:
    states = {"windows": new_states()["windows"]}
    process(states, np.arange(500), 0)
    chain: Chain = ()
    for update in range(3):
        process(states, np.arange(3), update)
        chain = write_states(tmp_path, f"u{update}", states, chain, {}, small=0)
        assert len(chain) == 1
    assert_same({"windows": restored(tmp_path, chain)["windows"]}, states)


def test_a_commit_that_names_other_files_is_refused(tmp_path: Path) -> None:
    states = new_states()
    process(states, np.arange(10), 0)
    chain = write_states(tmp_path, "u0", states, (), {})
    with pytest.raises(SnapshotError, match=r"but the commit names u-1\.state"):
        read_states(tmp_path, (*chain, "u-1.state"))
