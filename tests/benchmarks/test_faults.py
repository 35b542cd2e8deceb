"""The parts of the benchmarks of faults and overload that judge: if they are wrong, a fault goes unnoticed."""

from __future__ import annotations

import itertools
import os
import random
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from benchmarks import faults, overload
from benchmarks.fault.feeder import BAD, Feeder, land
from benchmarks.fault.kinds import FAULTS, SHARES
from benchmarks.fault.levels import Level, growth, look
from benchmarks.fault.oracle import MINUTE, compare, expected, micros
from benchmarks.fault.power import cut_copy, put_in_place
from benchmarks.fault.trial import HOOK, chosen
from benchmarks.harness import Row
from benchmarks.overload import phases, recovered
from benchmarks.spark.arrivals import Landing
from benchmarks.spark.log import Visible
from benchmarks.spark.workload import stream_of

T = "2026-01-01T10:00:00.000000Z"
START = micros(T)


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """Three orders, one line that is none, one click, and a bad file."""
    folder = tmp_path / "landing"
    for name in ("orders", "clicks", "items"):
        (folder / name).mkdir(parents=True)
    orders = [(1, 5, 1, 600), (2, 5, 2, 100), (3, 6, 1, 50)]
    lines = [
        f'{{"ts": "{T}", "id": {id}, "customer": {customer}, "item": {item}, "amount": {amount}}}'
        for id, customer, item, amount in orders
    ]
    land(folder / "orders" / "1.json", "\n".join([*lines, "no row"]) + "\n")
    land(folder / "orders" / f"{BAD}1.json", lines[0])
    land(folder / "clicks" / "1.csv", f"ts,id,customer\n{T},4,5\n")
    land(folder / "items" / "0.csv", "item,category\n1,c1\n")
    return folder


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("orders", [(START, 1, 5, 1, 600), (START, 2, 5, 2, 100), (START, 3, 6, 1, 50)]),
        ("orders__rejected", [("no row",)]),
        ("clicks", [(START, 4, 5)]),
        ("large", [(START, 1, 5, 600)]),
        ("categorised", [(START, 1, 600, "c1"), (START, 3, 50, "c1")]),
        ("marked", [(START, 1, 600 * 7 % 13), (START, 2, 700 % 13), (START, 3, 350 % 13)]),
        ("by_minute", [(START, 1, 2, 650), (START, 2, 1, 100)]),
        ("by_hour", [(START, 3, 650)]),
        ("totals", [(5, 2, 700), (6, 1, 50)]),
        ("top", [(5, 700), (6, 50)]),
        ("active", []),
        ("visitors", [(START // MINUTE * MINUTE, 1)]),
    ],
)
def test_the_oracle_computes_each_table_from_the_files(
    table: str, rows: list[tuple[object, ...]], landing: Path
) -> None:
    assert expected(landing)[table] == Counter(rows)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        pytest.param([(5, 2, 700), (6, 1, 50)], [], id="equal"),
        pytest.param([(5, 2, 700)], ["totals: 1 rows missing, 0 too many"], id="lost"),
        pytest.param([(5, 2, 700), (6, 1, 50), (6, 1, 50)], ["totals: 0 rows missing, 1 too many"], id="twice"),
        pytest.param([(5, 2, 701), (6, 1, 50)], ["totals: 1 rows missing, 1 too many"], id="wrong"),
        pytest.param(None, ["totals cannot be read: "], id="not there"),
    ],
)
def test_a_table_that_differs_is_named(
    rows: list[tuple[int, int, int]] | None, said: list[str], landing: Path, tmp_path: Path
) -> None:
    if rows is not None:
        columns = zip(*rows, strict=True)
        table = pa.table(dict(zip(("customer", "orders", "amount"), map(list, columns), strict=True)))
        write_deltalake(tmp_path / "tables" / "totals", table)
    found = [str(each) for each in compare(landing, tmp_path / "tables", ["totals"])]
    assert [each[: len(wanted)] for each, wanted in zip(found, said, strict=True)] == said


def test_a_feeder_lands_rows_that_the_oracle_understands(tmp_path: Path) -> None:
    feeder = Feeder(tmp_path / "landing", seed=1)
    feeder.start()
    feeder.stop()
    rows = expected(tmp_path / "landing")
    assert rows["orders"] and rows["clicks"] and rows["items"]
    ids = [row[1] for row in (*rows["orders"].elements(), *rows["clicks"].elements())]
    assert len(ids) == len(set(ids))


def note(log: Path, *paths: Path) -> None:
    """What the hook of a run writes when these are synced."""
    with log.open("a") as file:
        for path in paths:
            file.write(f"{time.time_ns() + 10**9} {path.stat().st_dev} {path.stat().st_ino} {path}\n")


def fates(folder: Path, log: Path, copies: Path, name: str) -> set[int]:
    """How long a file of 5 bytes may be after power cuts; -1 if it is not there."""
    found = set()
    for seed in range(40):
        cut_copy(folder, copies / str(seed), log, random.Random(seed))
        path = copies / str(seed) / name
        found.add(path.stat().st_size if path.exists() else -1)
    return found


@pytest.mark.parametrize(
    ("synced", "possible"),
    [
        pytest.param(("a/file", "a", "."), {5}, id="all of it: nothing can happen"),
        pytest.param(("a", "."), {0, 1, 2, 3, 4, 5}, id="its name only: it may be cut"),
        pytest.param(("a/file", "."), {-1, 5}, id="its bytes only: it may be missing"),
        pytest.param(("a/file", "a"), {-1, 5}, id="not the folder above: all may be missing"),
        pytest.param((), {-1, 0, 1, 2, 3, 4, 5}, id="nothing: anything"),
    ],
)
def test_after_a_power_cut_only_what_was_synced_is_sure(
    synced: tuple[str, ...], possible: set[int], tmp_path: Path
) -> None:
    folder, log = tmp_path / "warehouse", tmp_path / "syncs"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "file").write_text("12345")
    note(log, *(folder / name for name in synced))
    assert fates(folder, log, tmp_path / "copies", "a/file") <= possible
    assert (fates(folder, log, tmp_path / "more", "a/file") == {5}) == (possible == {5})


def test_what_has_survived_a_power_cut_survives_the_next(tmp_path: Path) -> None:
    folder, log = tmp_path / "warehouse", tmp_path / "syncs"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "old").write_text("old")
    copy = tmp_path / "copy"
    (copy / "a").mkdir(parents=True)
    (copy / "a" / "file").write_text("12345")
    put_in_place(copy, folder, log)
    note(log, folder, folder / "a")  # as put_in_place has done, for clocks that are coarse
    assert not (folder / "a" / "old").exists() and not copy.exists()
    assert fates(folder, log, tmp_path / "copies", "a/file") == {5}


def test_many_faults_are_the_same_with_the_same_seed_and_of_every_kind() -> None:
    many = chosen("many", 200, random.Random(1))
    assert many == chosen("many", 200, random.Random(1))
    assert set(many) == set(SHARES) == set(FAULTS)
    assert chosen("jvm", 3, random.Random(1)) == ["jvm"] * 3


def test_the_hook_shifts_the_clock_and_notes_syncs(tmp_path: Path) -> None:
    clock, syncs, file = tmp_path / "clock", tmp_path / "syncs", tmp_path / "file"
    clock.write_bytes(struct.pack("d", -3600.0))
    code = "import os, sys, time; f = open(sys.argv[1], 'w'); os.fsync(f); os.fsync(f.fileno()); print(time.time())"
    environment = {
        **os.environ,
        **{"PYTHONPATH": str(HOOK), "HEADGATE_FAULT_CLOCK": str(clock), "HEADGATE_FAULT_SYNCS": str(syncs)},
    }
    before = time.time()
    said = subprocess.run(
        [sys.executable, "-c", code, str(file)], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert before - 3600 <= float(said) <= time.time() - 3600
    assert [line.split()[2:] for line in syncs.read_text().splitlines()] == [[str(file.stat().st_ino), str(file)]] * 2


def test_a_look_sees_this_process_and_its_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\0" * 3_000_000)
    level = look(os.getpid(), tmp_path)
    assert level.driver_memory > 1 and level.threads >= 1 and level.descriptors >= 3
    assert level.disk == 3.0


def test_growth_compares_the_last_quarter_with_the_second() -> None:
    levels = [Level(float(at), 100.0 + at, 0.0, 1, 1, 0.0) for at in range(40)]
    assert growth(levels, "driver_memory", 0.0, 40.0) == pytest.approx(134.5 / 114.5)
    assert growth(levels, "threads", 0.0, 40.0) == 1.0
    assert growth([], "threads", 0.0, 40.0) is None


def test_after_the_overload_files_come_on_with_other_names_and_more_rarely() -> None:
    files = list(itertools.takewhile(lambda each: each.due < 1060.0, phases(4.0, 1000.0, 1030.0, 0.5)))
    assert len({each.name for each in files}) == len(files)
    before = [each for each in files if each.due < 1030.0]
    assert len(before) > 6 * len(files[len(before) :])
    assert [each.due for each in files] == sorted(each.due for each in files)


def outcome(contender: str, fresh_again: float | None, beyond: float, grown: float) -> Row:
    levels = {f"{name}, growth": grown for name in overload.LEVELS}
    waits = {"beyond patience, s": beyond, "longest update, s": 2.0}
    return {"contender": contender, "all fresh again after, s": fresh_again, **waits, **levels}


@pytest.mark.parametrize(
    ("own", "plain", "held"),
    [
        pytest.param((5.0, -3.0, 1.1), 9.0, [True] * 6, id="all is well"),
        pytest.param((5.0, 2.5, 1.1), 9.0, [False] + [True] * 5, id="somebody waited too long"),
        pytest.param((5.0, -3.0, 1.5), 9.0, [True] + [False] * 4 + [True], id="everything grows"),
        pytest.param((None, -3.0, 1.1), 9.0, [True] * 5 + [False], id="not fresh in the time given"),
        pytest.param((5.0, -3.0, 1.1), None, [True] * 6, id="the other is never fresh"),
    ],
)
def test_what_is_claimed_of_an_overload(
    own: tuple[float | None, float, float], plain: float | None, held: list[bool]
) -> None:
    rows = [outcome(overload.HEADGATE, *own), outcome("streaming queries, as installed", plain, 0.0, 1.0)]
    rows.append({"contender": overload.HEADGATE, "since the start, s": 1.0})
    assert [claim.holds for claim in overload.claims(rows, {"recovery": 30.0})] == held


@pytest.mark.parametrize(
    ("wrong", "worst", "held"),
    [
        pytest.param(0, 12.0, [True, True], id="all is well"),
        pytest.param(1, 12.0, [True, False], id="a row is lost"),
        pytest.param(0, 21.0, [False, True], id="Spark took too long"),
        pytest.param(0, None, [False, True], id="Spark never came back"),
    ],
)
def test_what_is_claimed_of_faults(wrong: int, worst: float | None, held: list[bool]) -> None:
    rows: list[Row] = [{"part": "many", "fault": "jvm", "commit after, worst s": worst}]
    rows.append({"part": "many", "fault": "all", "faults": 1, "wrong": wrong, "first wrong": "", "tables": 13})
    rows[1]["rows compared"] = 100
    assert [claim.holds for claim in faults.claims(rows)] == held


@pytest.mark.parametrize(
    ("late", "after"), [pytest.param(112.5, 12.5, id="the last table"), pytest.param(None, None, id="one never was")]
)
def test_all_is_fresh_again_when_every_table_has_what_had_landed(late: float | None, after: float | None) -> None:
    landed = [Landing(stream, "1", 99.0, 98.0, 1) for stream in set(stream_of().values())]
    landed += [Landing(stream, "2", 105.0, 104.0, 1) for stream in set(stream_of().values())]
    updates = [Visible(table, 101.0, 98.0) for table in stream_of() if table != "air_top"]
    updates += [] if late is None else [Visible("air_top", 90.0, 80.0), Visible("air_top", late, 98.0)]
    assert recovered(landed, updates, 100.0) == after
