"""Simulated worlds: whatever happens to the machine and to the files, every table becomes its query again.

``python -m scripts.simulate_world FIRST COUNT`` plays many more, and makes those that fail smaller.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.warehouse.updates.load import StreamNode
from tests.world import tables
from tests.world.clock import START
from tests.world.events import Crash, Land, Line, Restart
from tests.world.schedule import FAULTS, Schedule, random_schedule
from tests.world.shrink import played, shrunk
from tests.world.tables import DERIVED, Declaration

#: (kind of fault, seed, what was wrong when it was found)
FOUND = [
    ("power cut", 0, "a table could not be opened: entries of its log were lost"),
    ("torn log entry", 0, "a table could not be opened"),
    ("torn checkpoint", 0, "commits stood but counted as failures, and dependants missed rows"),
    ("empty pointer", 12, "commits stood but counted as failures, and dependants missed rows"),
    ("disk full", 54, "the keeper ended because it could not note what is to be recomputed"),
    ("disk full for long", 0, "the stream was held until a person acted"),
    ("log cleaned while held", 22, "files with changes were deleted before the held table had read them"),
    ("bad line mended", 0, "the stream insisted on the file as it was"),
    ("broken file", 4, "the stream waited for the broken file for ever"),
    ("share empty", 0, "files that came back were loaded twice"),
    ("shops replaced", 0, "the rows of the replaced file were gone for a moment"),
    ("shops deleted", 0, "the dimension was never empty again"),
    ("clock set back", 0, "nothing was looked at until the clock had caught up"),
    ("table removed", 1, "the table was held for ever"),
    ("table removed", 4, "the keeper ended: a table had consumed a later version of its source than there was"),
    ("foreign delete", 0, "the keeper ended"),
]


#: (seed with all kinds of faults, what was wrong when it was found)
FOUND_AMONG_ALL = [
    (21080, "an entry of another program was kept through a power cut, the file that it names was not"),
    (63, "a file that was away while the clock was set forward by days was loaded again"),
    (22050, "the same, without a crash"),
    (24314, "a table was deleted while it was updated, and then had the rows of that update only"),
    (27761, "another program's file was lost in a power cut, but not the entry that names it"),
]


def failure(schedule: Schedule, real_log: bool = False) -> str:
    """What is wrong at the end of a world, with all that is needed to see it again; empty if nothing is."""
    problems = played(schedule, real_log).problems
    return "\n".join([*problems, str(schedule)]) if problems else ""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 150, 25), ids=lambda first: f"seeds {first} to {first + 24}")
def test_tables_are_their_queries_whatever_happens(first: int) -> None:
    for seed in range(first, first + 25):
        assert not failure(random_schedule(seed, FAULTS))


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "what"), FOUND_AMONG_ALL, ids=[str(seed) for seed, _ in FOUND_AMONG_ALL])
def test_what_was_once_wrong_among_all_faults_stays_right(seed: int, what: str) -> None:
    assert not failure(random_schedule(seed, FAULTS)), f"once, {what}"


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_every_kind_of_fault_is_survived(name: str) -> None:
    for seed in range(4):
        assert not failure(random_schedule(seed, [name]))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed", "what"), FOUND, ids=[f"{name} {seed}" for name, seed, _ in FOUND])
def test_what_was_once_wrong_stays_right(name: str, seed: int, what: str) -> None:
    assert not failure(random_schedule(seed, [name])), f"once, {what}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [434, 1112], ids=str)
def test_an_entry_whose_process_died_before_it_was_synced_is_synced_by_the_next(seed: int) -> None:
    assert not failure(random_schedule(seed, FAULTS))


@pytest.mark.slow
def test_worlds_go_the_same_way_with_the_real_delta_library() -> None:
    for seed in range(8):
        assert not failure(random_schedule(seed, ["crash", "commits fail", "answers are lost"]), real_log=True)


def test_the_same_seed_gives_the_same_world() -> None:
    one, two = (played(random_schedule(7, FAULTS)) for _ in range(2))
    assert one == two
    assert one.steps > 20


def test_every_step_may_be_the_last() -> None:
    """One file through all tables: the process dies before and after every single step that changes something."""
    lines = (Line(1, round(START) * 1_000_000 - 1, "a", 80), Line(2, round(START) * 1_000_000 - 2, "b", 5, "garbage"))
    quiet = Schedule(0, Declaration(("large", "hourly")), (Land(0.0, "f.json", lines),))
    assert not failure(quiet)
    for kind in ("write", "commit", "change"):
        for step in range(1, 5):
            for how in ("before", "after"):
                dies = Crash(0.0, step, how, 1.0, kind)  # type: ignore[arg-type]
                assert not failure(replace(quiet, events=(*quiet.events, dies)))


# --- the world itself must be able to find what is wrong --------------------------------------------------------


def test_a_table_that_is_not_its_query_is_found_and_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake Spark that computes something else stands for any defect of the warehouse."""
    kind = tables.KINDS["large"]
    monkeypatch.setitem(tables.KINDS, "large", replace(kind, computed=lambda least: kind.computed(least + 30)))
    schedule = replace(random_schedule(3, FAULTS), declared=Declaration(DERIVED))
    outcome = played(schedule)
    assert "large is not its query" in outcome.problems[0]
    small, wrong = shrunk(schedule, outcome)
    assert small.declared.tables == ("large",)
    assert [len(event.lines) for event in small.events if isinstance(event, Land)] == [1]
    assert "large is not its query" in wrong.problems[0]


def test_rows_that_are_loaded_twice_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that forgets at a restart what it has loaded."""
    monkeypatch.setattr(StreamNode, "_stored_offset", lambda node: node.source.start())
    landed = Land(0.0, "f.json", (Line(1, round(START) * 1_000_000 - 1),))
    outcome = played(Schedule(0, Declaration(("large",)), (landed, Restart(10.0))))
    assert "orders has row 1 2 times" in outcome.problems
