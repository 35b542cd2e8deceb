"""How many times its lower bound a run is at, for those who watch: seldom computed, and apart from the run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.core.trace import NotLoaded, RunBound
from headgate.monitor.bounding import EVERY, FIRST, TIMES, WINDOW, RunBounds, bound_apart, bound_of
from headgate.monitor.recorded import RecordedRun
from headgate.monitor.top_rows import headline
from headgate.monitor.watch import RunWatch
from headgate.warehouse.run.trace import runs_folder
from tests.monitor.pretended import PretendedRun
from tests.monitor.test_recorded import asked, written
from tests.sim.recording import BUSY, recorded

FOUND = RunBound(106.0, 100.0, 3.0, 600.0, 2, True, 24, 1)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def kept(window: float | None, clock: Clock, took: float = 0.0) -> tuple[RunBounds, list[tuple[Path, float | None]]]:
    """Bounds that note what was asked for, and take so many seconds."""
    questions: list[tuple[Path, float | None]] = []

    def ask(trace: Path, seconds: float | None) -> RunBound:
        questions.append((trace, seconds))
        clock.now += took
        return FOUND

    return RunBounds(window, clock, ask), questions


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(runs_folder(tmp_path_factory.mktemp("city")), recorded(BUSY, "fifo")[1])


@pytest.mark.slow
def test_the_bound_is_the_same_apart_and_here_and_beside_the_run(trace: Path) -> None:
    here = bound_of(recorded(BUSY, "fifo")[1])
    assert isinstance(here, RunBound)
    apart = bound_apart(trace)
    assert isinstance(apart, RunBound)
    assert apart.least == pytest.approx(here.least, rel=1e-6)
    run = RecordedRun(trace)
    assert run.overview()["bound"] is None, "nobody has asked yet"
    told = asked(run, "GET", "/api/bound").json()
    assert told["times"] == pytest.approx(here.times, rel=1e-6)
    assert told["why"] == ""
    assert run.overview()["bound"] == told


def test_without_a_table_of_which_it_is_known_what_waited_there_is_no_bound() -> None:
    whole = recorded(BUSY, "fifo")[1]
    first = {update.table: update for update in reversed(whole.updates)}
    loaded_once = replace(whole, updates=tuple(first.values()))
    assert bound_of(loaded_once) == "it is not recorded whether data waits that is not loaded"
    assert isinstance(bound_of(replace(loaded_once, not_loaded=NotLoaded(whole.finish, {}))), RunBound)


@pytest.mark.parametrize(
    ("window", "least", "most"),
    [
        pytest.param(None, 60.0, 60.0, id="the whole run"),
        pytest.param(20.0, 20.0, 20.0, id="its last seconds"),
        pytest.param(WINDOW, 60.0, 60.0, id="it was shorter than that"),
    ],
)
def test_of_a_run_that_goes_on_its_last_seconds_count(window: float | None, least: float, most: float) -> None:
    found = bound_of(recorded(BUSY, "fifo")[1], window)
    assert isinstance(found, RunBound)
    assert least <= found.seconds <= most


def test_of_more_updates_than_can_be_reckoned_with_the_latest_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.monitor.bounding.MOST_UPDATES", 60)
    found = bound_of(recorded(BUSY, "fifo")[1])
    assert isinstance(found, RunBound)
    assert 10 < found.seconds < 50


@pytest.mark.parametrize(
    ("scenario", "why"),
    [
        pytest.param(replace(BUSY, horizon=3.0), "a run of 10 s", id="too short"),
        pytest.param(
            replace(BUSY, tables=tuple(replace(t, priority=0.0) for t in BUSY.tables)), "stale", id="nothing counts"
        ),
    ],
)
def test_a_run_that_has_no_bound_says_why(scenario: object, why: str) -> None:
    found = bound_of(recorded(scenario, "fifo")[1])  # type: ignore[arg-type]
    assert isinstance(found, str)
    assert why in found


def test_it_is_not_computed_again_too_soon() -> None:
    clock = Clock()
    bounds, questions = kept(WINDOW, clock, took=10.0)
    assert not bounds.is_due, "a run that has just begun has nothing to compare"
    clock.now += FIRST
    assert bounds.is_due
    told = bounds.of(Path("a"))
    assert told["times"] == pytest.approx(1.06)
    clock.now += EVERY
    assert bounds.of(Path("a")) is told and not bounds.is_due, "it took long"
    clock.now += TIMES * 10.0
    assert bounds.is_due
    bounds.of(Path("a"))
    assert questions == [(Path("a"), WINDOW)] * 2


def test_that_of_a_run_that_is_over_stays_the_same() -> None:
    clock = Clock()
    bounds, questions = kept(None, clock)
    first = bounds.of(Path("a"))
    clock.now += 1e9
    assert bounds.of(Path("a")) is first
    assert len(questions) == 1


def test_if_it_could_not_be_computed_it_is_tried_again_later() -> None:
    clock, answers = Clock(), iter(["it took too long", FOUND])
    bounds = RunBounds(None, clock, lambda trace, window: next(answers))
    assert bounds.of(Path("a")) == {"times": None, "why": "it took too long"}
    assert bounds.of(Path("a"))["times"] is None
    clock.now += EVERY
    assert bounds.of(Path("a"))["times"] == pytest.approx(1.06)


def test_that_there_is_no_bound_yet_is_not_kept_for_minutes_although_it_took_long_to_find_out() -> None:
    clock, answers = Clock(), iter(["most tables have had rows for less than 10 s", FOUND])

    def ask(trace: Path, seconds: float | None) -> RunBound | str:
        clock.now += 10.0  # a machine that is busy with the start of the run
        return next(answers)

    bounds = RunBounds(WINDOW, clock, ask)
    assert bounds.of(Path("a"))["times"] is None
    clock.now += EVERY
    assert bounds.of(Path("a"))["times"] == pytest.approx(1.06)


def test_a_run_is_asked_by_a_thread_of_its_own_and_only_if_somebody_looks(tmp_path: Path) -> None:
    clock, threads = Clock(), list[str]()
    watch = RunWatch(every=None)
    run = PretendedRun(watch)
    watch.trace = tmp_path / "trace"
    sent: list[tuple[str, object]] = []
    asking = threading.Event()

    def ask(trace: Path, seconds: float | None) -> RunBound:
        threads.append(threading.current_thread().name)
        asking.wait(60.0)
        return FOUND

    watch.bounds = RunBounds(WINDOW, clock, ask)
    clock.now += FIRST
    watch.look()
    assert threads == [], "nobody looks"
    told = threading.Event()
    watch.feed = _Heard(lambda kind, content: (sent.append((kind, content)), kind == "bound" and told.set()))  # type: ignore[assignment]
    watch.look()  # comes back although the answer is not there
    watch.look()
    asking.set()
    assert told.wait(60.0)
    assert threads == ["headgate-bound"]
    assert watch.overview()["bound"]["times"] == pytest.approx(1.06)
    run.stop_soon()


class _Heard:
    """A feed that somebody reads."""

    viewers = 1

    def __init__(self, send: Callable[[str, object], object]) -> None:
        self.send = send


def test_a_run_that_is_not_recorded_has_none() -> None:
    watch = RunWatch(every=None)
    PretendedRun(watch)
    assert watch.bound() == {"times": None, "why": "this run is not recorded"}


def test_the_line_on_top_of_the_terminal_has_it_if_it_is_known() -> None:
    overview = {"tables": {}, "staleness": [(0.0, 2.0)], "settings": {"policy": "fifo", "tracks": 2}}
    assert "bound" not in headline(overview, 0.0, "live")
    assert "bound" not in headline({**overview, "bound": {"times": None, "why": "too short"}}, 0.0, "live")
    assert "staleness 2.0 s  ·  1.06 times the bound" in headline({**overview, "bound": {"times": 1.06}}, 0.0, "live")
