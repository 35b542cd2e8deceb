"""The policy ``auto`` in a real run: a switch and how it is told, and the process that replays beside the run."""

from __future__ import annotations

import errno
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.apart import started_apart
from headgate.core import (
    FeatureView,
    HeadgateError,
    Lanes,
    ParameterError,
    Placement,
    Policy,
    Workers,
    placement_from,
    policy_from,
)
from headgate.core.autopilot import ReplayedWindow, RunSettings, window_to_json
from headgate.core.placements import Anywhere
from headgate.core.policies import MaxBenefit
from headgate.core.trace import TraceHeader
from headgate.core.trace.lines import header_line
from headgate.warehouse import Files, Warehouse
from headgate.warehouse.report.figures import figures_of
from headgate.warehouse.run.autopilot import AutopilotWatch
from headgate.warehouse.run.autopilot_process import AutopilotProcess
from headgate.warehouse.run.runtime import Runtime
from headgate.warehouse.run.trace import read_trace
from headgate.warehouse.schedule.run_options import RunOptions
from tests.sim.recording import BUSY, START, recorded
from tests.warehouse.test_notices import NO_SPARK, declared, opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = RunSettings("max-benefit", "proportional", 1)
PRICED = RunSettings("priced-benefit", "proportional", 1)
HEADER = TraceHeader("w", 1_794_736_800.0, 1, "auto", "proportional", "default", None, ())
#: longer than any of this takes
PATIENCE = 600.0


def told(now: RunSettings = HERE, **more: float) -> Mapping[str, Any]:
    """What the process would say of a window in which priced-benefit would have saved a fifth."""
    replayed = {HERE: 100.0, PRICED: 80.0}
    window = ReplayedWindow(300.0, 2_000, now, more.get("measured", replayed[now]), 40.0, replayed)
    # Through text, as between processes.
    return dict(json.loads(json.dumps({"window": window_to_json(window), "share": 0.004})))


def shop(folder: Path) -> Warehouse:
    landing = folder / "landing"
    landing.mkdir()
    (landing / "1.json").write_text('{"ts": "2026-11-15T12:00:00", "n": 1}')
    warehouse = Warehouse("shop", folder / "shop.warehouse", sync=False)
    warehouse.stream("orders", Files(landing, schema="ts timestamp, n int", settle=0), time="ts")
    warehouse.sql("hours", "SELECT date_trunc('hour', ts) AS hour, count(*) AS n FROM orders GROUP BY 1", time="hour")
    return warehouse


@pytest.mark.spark
@pytest.mark.slow
def test_a_switch_is_made_told_recorded_and_explained_and_taken_back(tmp_path: Path, spark: SparkSession) -> None:
    with shop(tmp_path).start(spark=spark, tracks=1, policy="auto") as run:
        run.wait_until_fresh("5 min")
        autopilot, runtime = run.autopilot, run.runtime
        for _ in range(2):
            autopilot.heard(told())
        assert runtime.glance().policy == "auto"
        assert "3 windows are asked for" in str(runtime.explain("hours"))
        autopilot.heard(told())
        assert (runtime.glance().policy, runtime.glance().placement) == ("auto:now=priced-benefit", "proportional")
        explained = str(runtime.explain("hours"))
        assert "autopilot: max-benefit with proportional is replaced by priced-benefit with proportional" in explained
        assert "its process takes 0.40% of a core" in explained
        # A window that was replayed before the switch came too late.
        autopilot.heard(told())
        assert runtime.glance().policy == "auto:now=priced-benefit"
        for _ in range(3):
            autopilot.heard(told(PRICED, measured=120.0))
        assert runtime.glance().policy == "auto"
        # Another policy ends it, for good.
        runtime.replace_policy(policy_from("fifo"))
        for _ in range(4):
            autopilot.heard(told())
        assert runtime.glance().policy == "fifo"
        assert "autopilot" not in str(runtime.explain("hours"))
        # And it can be asked for while a run goes on.
        runtime.replace_policy(policy_from("auto"))
        for _ in range(3):
            autopilot.heard(told())
        assert runtime.glance().policy == "auto:now=priced-benefit"
        assert run.trace is not None
        trace = read_trace(run.trace)
    changes = [(change.what["policy"], "why" in change.what) for change in trace.changes]
    by_itself, back = ("auto:now=priced-benefit", True), ("auto", True)
    assert changes == [by_itself, back, ("fifo", False), ("auto", False), by_itself]
    notices = [notice.text for notice in trace.notices if notice.text.startswith("autopilot: ")]
    assert [text.split()[1] for text in notices] == ["max-benefit", "back", "max-benefit"]
    assert notices[0] == trace.changes[0].what["why"]
    assert any("which would have saved 20.0%" in what for _, what in figures_of(trace).changes)


class Overtaken(Runtime):
    """A run in which a user sets a policy just before the autopilot changes something."""

    first = ""

    def switch(self, *args: Any, **options: Any) -> bool:
        if self.first:
            self.replace_policy(policy_from(self.first))
        return super().switch(*args, **options)


def silent() -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(["tail", "-f", "/dev/null"], stdin=pipe, stdout=pipe, stderr=pipe)


@pytest.mark.parametrize(
    ("first", "policy", "said"),
    [
        pytest.param("", "auto:now=priced-benefit", "is replaced by", id="nobody else does anything"),
        pytest.param("auto:window=60", "auto:window=60.0", "", id="another autopilot"),
        pytest.param("fifo", "fifo", "", id="no autopilot any more"),
    ],
)
def test_a_change_that_came_too_late_is_not_told(tmp_path: Path, first: str, policy: str, said: str) -> None:
    watch = AutopilotWatch(lambda: START, partial(AutopilotProcess, start=silent))
    options = RunOptions(tracks=1, policy=policy_from("auto"))
    run = Overtaken(opened(declared(tmp_path, "hot"), tmp_path), NO_SPARK, options, on_change=watch.changed)
    run.first = first
    watch.begin(HEADER)
    watch.start(run)
    for _ in range(3):
        watch.heard(told())
    assert run.glance().policy == policy
    assert said in run.autopilot and bool(said) == bool(run.autopilot)
    watch.stop()


class Demanding(MaxBenefit):
    """Reads what no table has."""

    def requires(self) -> tuple[str, ...]:
        return ("colour",)


class Lonely(Anywhere):
    """Takes one track only."""

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        if len(workers) > 1:
            raise ParameterError("one track, please")
        return super().lanes(view, workers)


@pytest.mark.parametrize(
    ("policy", "placement", "refused"),
    [
        pytest.param(Demanding(), Anywhere(), "colour", id="the policy"),
        pytest.param(MaxBenefit(), Lonely(), "one track, please", id="the placement, on so many tracks"),
    ],
)
def test_a_switch_of_which_a_part_is_refused_changes_nothing(
    tmp_path: Path, policy: Policy, placement: Placement, refused: str
) -> None:
    changes: list[Mapping[str, object]] = []
    options = RunOptions(tracks=1, policy=policy_from("auto"), placement=placement_from("proportional"))
    warehouse = opened(declared(tmp_path, "hot"), tmp_path)
    run = Runtime(warehouse, NO_SPARK, options, on_change=lambda at, what: changes.append(what))
    with pytest.raises(HeadgateError, match=refused):
        run.switch(policy, placement, 2, "because", lambda: True)
    glance = run.glance()
    assert (glance.policy, glance.placement, run.tracks, changes) == ("auto", "proportional", 1, [])


def test_an_autopilot_that_is_asked_for_again_has_not_failed(tmp_path: Path) -> None:
    watch = AutopilotWatch(lambda: START, partial(AutopilotProcess, start=silent))
    options = RunOptions(tracks=1, policy=policy_from("auto"))
    run = Runtime(opened(declared(tmp_path, "hot"), tmp_path), NO_SPARK, options, on_change=watch.changed)
    watch.begin(HEADER)
    watch.start(run)
    watch.heard(told())
    broken, watch._process = watch._process, None  # it ends by itself
    watch.failed("out of memory")
    assert "the autopilot has failed: out of memory" in run.autopilot
    run.replace_policy(policy_from("auto"))
    assert run.autopilot == ""
    watch.heard(told())
    assert "in 1 window" in run.autopilot, "what was seen before does not count either"
    watch.stop()
    assert broken is not None
    broken.end()


def test_an_autopilot_whose_process_could_not_be_started_can_be_asked_for_again(tmp_path: Path) -> None:
    def refused() -> subprocess.Popen[bytes]:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    starts, processes, has_failed = iter((refused, silent)), list[AutopilotProcess](), threading.Event()

    def begin(
        header: TraceHeader, heard: Callable[[Mapping[str, Any]], None], failed: Callable[[str], None]
    ) -> AutopilotProcess:
        def note(why: str) -> None:
            failed(why)
            has_failed.set()

        processes.append(AutopilotProcess(header, heard, note, next(starts)))
        return processes[-1]

    watch = AutopilotWatch(lambda: START, begin)
    options = RunOptions(tracks=1, policy=policy_from("auto"))
    run = Runtime(opened(declared(tmp_path, "hot"), tmp_path), NO_SPARK, options, on_change=watch.changed)
    watch.begin(HEADER)
    watch.start(run)
    assert has_failed.wait(PATIENCE)
    assert "the autopilot has failed: it cannot be started: Cannot allocate memory" in run.autopilot
    run.replace_policy(policy_from("auto"))
    assert run.autopilot == "" and len(processes) == 2
    watch.stop()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"priority": ["hot", 5.0]}, id="a priority"),
        pytest.param({"budget": 2.0}, id="the budget"),
        pytest.param({"inheritance": "sum"}, id="inheritance"),
        pytest.param({"together": "auto"}, id="shared jobs"),
        pytest.param({"paused": "hot"}, id="a table is paused"),
        pytest.param({"resumed": "hot"}, id="a table is resumed"),
        pytest.param(None, id="the declarations"),
    ],
)
def test_windows_before_a_change_by_a_user_do_not_count(tmp_path: Path, change: Mapping[str, Any] | None) -> None:
    watch = AutopilotWatch(lambda: START, partial(AutopilotProcess, start=silent))
    options = RunOptions(tracks=1, policy=policy_from("auto"))
    run = Runtime(opened(declared(tmp_path, "hot"), tmp_path), NO_SPARK, options, on_change=watch.changed)
    watch.begin(HEADER)
    watch.start(run)
    policies = []
    for number in range(5):
        if number == 2:
            watch.redeclared(()) if change is None else watch.changed(START, change)
        watch.heard(told())
        policies.append(run.glance().policy)
    assert policies == ["auto"] * 4 + ["auto:now=priced-benefit"], "three from then on"
    watch.stop()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"priority": ["hot", 5.0]}, "", id="a priority"),
        pytest.param({"placement": "anywhere"}, "", id="the placement"),
        pytest.param({"policy": "auto:window=60"}, "", id="another autopilot"),
        pytest.param(None, "", id="the declarations"),
        pytest.param({"refresh": "hot"}, "in 1 window", id="what changes no load"),
    ],
)
def test_what_was_said_before_a_change_by_a_user_is_not_said_any_more(
    tmp_path: Path, change: Mapping[str, Any] | None, said: str
) -> None:
    watch = AutopilotWatch(lambda: START, partial(AutopilotProcess, start=silent))
    options = RunOptions(tracks=1, policy=policy_from("auto"))
    run = Runtime(opened(declared(tmp_path, "hot"), tmp_path), NO_SPARK, options, on_change=watch.changed)
    watch.begin(HEADER)
    watch.start(run)
    watch.heard(told())
    assert "in 1 window" in run.autopilot
    watch.redeclared(()) if change is None else watch.changed(START, change)
    assert said in run.autopilot and bool(said) == bool(run.autopilot)
    watch.stop()


def test_that_the_autopilot_has_failed_is_said_until_it_is_asked_for_again(tmp_path: Path) -> None:
    watch = AutopilotWatch(lambda: START, partial(AutopilotProcess, start=silent))
    options = RunOptions(tracks=1, policy=policy_from("auto"))
    run = Runtime(opened(declared(tmp_path, "hot"), tmp_path), NO_SPARK, options, on_change=watch.changed)
    watch.begin(HEADER)
    watch.start(run)
    process = watch._process
    watch.failed("out of memory")
    watch.changed(START, {"priority": ["hot", 5.0]})
    assert "the autopilot has failed: out of memory" in run.autopilot
    run.replace_policy(policy_from("auto"))
    assert run.autopilot == ""
    watch.stop()
    assert process is not None
    process.end()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        pytest.param({}, "too little happened in the last window", id="too quiet"),
        pytest.param({"trouble": "bad luck"}, "the last window cannot be replayed: bad luck", id="cannot be replayed"),
    ],
)
def test_a_window_that_is_not_judged_is_told_of(tmp_path: Path, more: Mapping[str, str], said: str) -> None:
    watch = AutopilotWatch(lambda: START, partial(AutopilotProcess, start=silent))
    options = RunOptions(tracks=1, policy=policy_from("auto"))
    run = Runtime(opened(declared(tmp_path, "hot"), tmp_path), NO_SPARK, options, on_change=watch.changed)
    watch.begin(HEADER)
    watch.start(run)
    watch.heard(told())
    watch.heard({"share": 0.004, **more})
    assert run.autopilot == f"stays with max-benefit: {said}; its process takes 0.40% of a core"
    watch.stop()


def test_a_priority_that_a_user_has_set_stays_when_the_pipeline_is_read_again() -> None:
    _, trace = recorded(BUSY, "auto")
    tables = trace.header.tables
    watch = AutopilotWatch(lambda: START)
    watch.begin(trace.header)
    priorities = []
    for change, priority in ((50.0, 10.0), (None, 10.0), (None, 11.0), (None, 11.0)):
        if change is not None:
            watch.changed(START, {"priority": ["air", change]})
        watch.redeclared(replace(each, priority=priority) if each.name == "air" else each for each in tables)
        priorities.append({each.name: each.priority for each in watch._as_it_stands().tables}["air"])
    assert priorities == [50.0, 50.0, 11.0, 11.0]


def ended(pid: int) -> bool:
    """Whether a process ends, in the time that there is."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], PATIENCE)[0])
    finally:
        os.close(handle)


#: says which process it has started, and then waits for ever
PARENT = """
import threading
from headgate.warehouse.run.autopilot_process import AutopilotProcess
from tests.warehouse.test_autopilot import HEADER

process = AutopilotProcess(HEADER, print, print)
while process.process is None:
    threading.Event().wait(0.01)
print(process.process.pid, flush=True)
threading.Event().wait()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux tells when the process of another has ended")
def test_the_process_dies_with_a_run_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout as said:
        child = int(said.readline())
        parent.kill()
        parent.wait()
        assert ended(child)


@pytest.mark.slow
def test_an_interrupt_on_the_terminal_of_the_run_does_not_reach_the_process() -> None:
    with started_apart("headgate.autopilot") as process:
        assert process.stdin is not None
        assert os.getpgid(process.pid) == process.pid != os.getpgrp()
        process.stdin.write(header_line(HEADER).encode())
        process.stdin.close()  # as it is when the run has ended
        assert process.wait(PATIENCE) == 0


@pytest.mark.slow
def test_the_process_ends_when_it_is_told_to() -> None:
    failures: list[str] = []
    process = AutopilotProcess(HEADER, lambda said: None, failures.append)
    process.end()
    process.wait()
    assert process.process is None or process.process.wait(PATIENCE) != 0
    assert failures == []


@pytest.mark.slow
def test_a_process_that_fails_says_why_once() -> None:
    failures: list[str] = []
    failed = threading.Event()

    def note(why: str) -> None:
        failures.append(why)
        failed.set()

    process = AutopilotProcess(HEADER, lambda said: None, note, partial(started_apart, "headgate.no_such_module"))
    assert failed.wait(PATIENCE)
    process.tell("{}\n")
    process.end()
    process.wait()
    (why,) = failures
    assert "No module named headgate.no_such_module" in why


def test_a_process_that_does_not_listen_is_given_up() -> None:
    failures: list[str] = []
    stuck = threading.Event()

    def start() -> subprocess.Popen[bytes]:
        stuck.wait(PATIENCE)
        return subprocess.Popen(["true"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    process = AutopilotProcess(HEADER, lambda said: None, failures.append, start, most_waiting=10)
    for _ in range(20):
        process.tell("{}\n")
    stuck.set()
    process.wait()
    assert failures == ["it does not take in what happens"]
