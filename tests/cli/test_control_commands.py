"""The commands to a running warehouse as a user meets them: what is printed where, and with which exit status."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from headgate.cli import main
from headgate.cli.control import _still_doing
from headgate.core.errors import HeadgateError
from headgate.core.registry import placement_from, policy_from
from headgate.core.trace import RunNotice
from headgate.core.update import OperatorFigures
from headgate.warehouse.run.control import ControlServer
from headgate.warehouse.run.lock import WarehouseLock, running_process
from headgate.warehouse.schedule.ledger import NodeStatistics
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState
from tests.warehouse.control_helpers import TABLES, Recorder, serving, statistics_of

SECOND = 1_000_000
#: how long a test waits for what should happen at once
SOON = 300.0


class Done(NamedTuple):
    """What a command left behind."""

    status: int
    out: list[str]
    err: str


Headgate = Callable[..., Done]


@pytest.fixture
def headgate(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Headgate:
    """The command, run in this process."""

    def run(*arguments: str | Path) -> Done:
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setattr(sys, "argv", ["headgate", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Done(ended.value.code if isinstance(ended.value.code, int) else 0, out.splitlines(), err.strip())

    return run


@pytest.fixture
def run() -> Recorder:
    return Recorder()


@pytest.fixture
def served(tmp_path: Path, run: Recorder) -> Iterator[Path]:
    """The directory of a warehouse that takes commands."""
    with serving(tmp_path, run):
        yield tmp_path


@pytest.fixture
def committed(tmp_path: Path) -> Path:
    """A warehouse with one table, complete up to second 30 by its second update."""
    store = TableStore(tmp_path / "tables" / "air", "ts")
    for update, kind in ((1, "load"), (2, "append")):
        rows = pa.table({"ts": pa.array([15 * update * SECOND], pa.timestamp("us", tz="UTC"))})
        state = CommitState(update, kind, 15 * update * SECOND, 1, time="ts").to_json()
        store.commit(update, store.write_arrow(update, rows, 3600), state=state, schema=rows.schema)
    return tmp_path


@pytest.fixture
def closed(committed: Path) -> Iterator[Path]:
    """A warehouse that this user may not enter. Root may enter all, and so becomes somebody else meanwhile."""
    import_module("headgate.warehouse.reading")  # the other user may not be allowed to read it
    user = os.geteuid()
    committed.chmod(0o000)
    if user == 0:
        os.seteuid(65534)
    yield committed
    os.seteuid(user)
    committed.chmod(0o700)


def refused(done: Done, *said: str, status: int = 2) -> None:
    assert done.status == status, done
    assert len(done.err.splitlines()) == 1, done.err
    for words in said:
        assert words in done.err


# ---- what is changed -------------------------------------------------------------------------------------------

HOUR = 3600 * SECOND

COMMANDS = {
    "pause one": (["pause", "air"], [("pause", "air")], ["air: paused"]),
    "pause several": (
        ["pause", "air", "alerts"],
        [("pause", "air"), ("pause", "alerts")],
        ["air: paused", "alerts: paused"],
    ),
    "pause all": (["pause", "--all"], [("pause", name) for name in TABLES], [f"{name}: paused" for name in TABLES]),
    "resume all": (["resume", "--all"], [("resume", name) for name in TABLES], [f"{name}: resumed" for name in TABLES]),
    "refresh": (["refresh", "air"], [("refresh", "air")], ["air: will be updated next, with its sources"]),
    "backfill": (
        ["backfill", "air", "--from", "1970-01-01T01:00:00Z", "--to", "1970-01-01 03:00"],
        [("backfill", "air", HOUR, 3 * HOUR, None)],
        ["air: backfill scheduled from 1970-01-01T01:00:00Z to 1970-01-01 03:00; live updates go first"],
    ),
    "backfill in chunks": (
        ["backfill", "air", "--from", "1970-01-01", "--to", "1970-01-02", "--chunk", "90 min"],
        [("backfill", "air", 0, 24 * HOUR, 5400.0)],
        ["air: backfill scheduled from 1970-01-01 to 1970-01-02, 1.5 h per update; live updates go first"],
    ),
    "set a policy": (["set", "--policy", "fifo"], [("replace_policy", policy_from("fifo"))], ["policy: fifo"]),
    "set inheritance": (
        ["set", "--inheritance", "max-plus:k=3"],
        [("set_inheritance", "max-plus:k=3")],
        ["inheritance: max-plus:k=3"],
    ),
    "set who shares jobs": (["set", "--together", "auto"], [("set_together", "auto")], ["together: auto"]),
    "set a budget": (["set", "--budget", "500 ms"], [("set_budget", 0.5)], ["budget: 500 ms"]),
    "set no budget": (["set", "--budget", "none"], [("set_budget", None)], ["budget: none"]),
    "set everything": (
        ["set", "--priority", "air=2.5", "--tracks", "4", "--placement", "proportional:k=2", "--priority", "alerts=9"],
        [
            ("replace_placement", placement_from("proportional:k=2")),
            ("set_tracks", 4),
            ("set_priority", "air", 2.5),
            ("set_priority", "alerts", 9.0),
        ],
        ["placement: proportional:k=2.0", "tracks: 4", "air: priority 2.5", "alerts: priority 9"],
    ),
}


@pytest.mark.parametrize(("arguments", "told", "printed"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_is_done_and_says_what_is_so_now(
    headgate: Headgate,
    served: Path,
    run: Recorder,
    arguments: list[str],
    told: list[tuple[object, ...]],
    printed: list[str],
) -> None:
    command, *rest = arguments
    assert headgate(command, served, *rest) == Done(0, printed, "")
    assert run.told == told


WRONG = {
    "no table to pause": (["pause"], "name the tables, or give --all"),
    "both tables and all": (["resume", "air", "--all"], "not both"),
    "nothing to set": (["set"], "--policy, --placement, --inheritance, --together, --tracks, --budget or --priority"),
    "an unknown way to inherit": (["set", "--tracks", "3", "--inheritance", "most"], "inheritance is default, none"),
    "an unknown way to share jobs": (
        ["set", "--tracks", "3", "--together", "always"],
        "together is default, auto, declared or never; got 'always'",
    ),
    "a budget of nothing": (["set", "--budget", "0 s"], "from 1 ms to"),
    "a budget of a microsecond": (["set", "--budget", "1 us"], "--budget takes a length of time from 1 ms to"),
    "a budget without end": (["set", "--budget", "9" * 400 + " weeks"], "--budget takes a length of time"),
    "no grace": (["stop", "--grace", "0 s"], "--grace takes a length of time from 1 ms"),
    "an immense priority": (["set", "--tracks", "3", "--priority", "air=1e300"], "a number from 0 to 1e+12"),
    "a priority of nothing": (["set", "--priority", "=3"], "--priority takes TABLE=N"),
    "a priority without a number": (["set", "--tracks", "3", "--priority", "air"], "got 'air'"),
    "a priority that is no number": (["set", "--tracks", "3", "--priority", "air=high"], "got 'air=high'"),
    "a negative priority": (["set", "--tracks", "3", "--priority", "air=-1"], "a number from 0 to 1e+12"),
    "an infinite priority": (["set", "--tracks", "3", "--priority", "air=inf"], "got 'air=inf'"),
    "an unknown policy": (["set", "--policy", "fifa"], "Did you mean 'fifo'"),
    "an unknown table": (["pause", "metres"], "Did you mean 'meters'"),
    "a time that is none": (["backfill", "air", "--from", "noon", "--to", "1970-01-02"], "--from takes a time"),
    "times the wrong way round": (["backfill", "air", "--from", "1970-01-02", "--to", "1970-01-01"], "before --to"),
    "an unreadable chunk": (
        ["backfill", "air", "--from", "1970-01-01", "--to", "1970-01-02", "--chunk", "some"],
        "--chunk takes a length of time",
    ),
    "an empty chunk": (
        ["backfill", "air", "--from", "1970-01-01", "--to", "1970-01-02", "--chunk", "0 s"],
        "--chunk takes a length of time from 1 ms",
    ),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_what_is_asked_wrongly_is_refused_in_one_line_and_changes_nothing(
    headgate: Headgate, served: Path, run: Recorder, arguments: list[str], said: str
) -> None:
    command, *rest = arguments
    done = headgate(command, served, *rest)
    refused(done, said)
    assert (done.out, run.told) == ([], [])


SEVERAL = {
    "a table that does not exist": (
        ["--policy", "fifo", "--priority", "air=2", "--priority", "alarts=9"],
        "Did you mean 'alerts'",
        2,
    ),
    "a placement that does not exist": (["--policy", "fifo", "--placement", "anywere"], "Did you mean 'anywhere'", 2),
    "a policy that does not exist": (["--tracks", "3", "--policy", "fivo"], "Did you mean", 2),
    "a policy that the run refuses": (["--tracks", "3", "--policy", "lp"], "needs what nobody has", 1),
    "no number": (["--policy", "fifo", "--budget", "soon"], "--budget takes", 2),
}


@pytest.mark.parametrize(("options", "said", "status"), SEVERAL.values(), ids=SEVERAL)
def test_of_several_settings_none_is_changed_if_one_is_refused(
    headgate: Headgate, served: Path, run: Recorder, options: list[str], said: str, status: int
) -> None:
    run.refused = ("lp",)
    done = headgate("set", served, *options)
    refused(done, said, status=status)
    assert (done.out, run.told) == ([], [])


@pytest.mark.parametrize("count", ["0", "1001", "1000000000"])
def test_a_number_of_tracks_out_of_range_is_refused(
    headgate: Headgate, served: Path, run: Recorder, count: str
) -> None:
    done = headgate("set", served, "--tracks", count)
    assert (done.status, done.out, run.told) == (2, [], [])
    assert "--tracks" in done.err


def test_of_several_tables_those_before_an_unknown_one_are_done_and_printed(
    headgate: Headgate, served: Path, run: Recorder
) -> None:
    done = headgate("pause", served, "air", "alarts", "meters")
    refused(done, "Did you mean 'alerts'")
    assert done.out == ["air: paused"]
    assert run.told == [("pause", "air")]


def test_what_the_run_cannot_do_fails(headgate: Headgate, served: Path, run: Recorder) -> None:
    run.trouble = HeadgateError("the tracks are all busy")
    refused(headgate("set", served, "--tracks", "9"), "headgate: the tracks are all busy", status=1)


@pytest.mark.parametrize(
    "command", [["pause", "--all"], ["refresh", "air"], ["set", "--tracks", "2"], ["stop"]], ids=lambda words: words[0]
)
def test_a_command_to_a_warehouse_that_nobody_runs_fails(
    headgate: Headgate, tmp_path: Path, command: list[str]
) -> None:
    done = headgate(command[0], tmp_path, *command[1:])
    refused(done, "no process runs a warehouse in", "`headgate run FILE`", status=1)


@pytest.mark.slow
def test_a_command_comes_from_another_process(served: Path, run: Recorder) -> None:
    command = [sys.executable, "-m", "headgate.cli", "set", str(served), "--priority", "air=7"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SOON)
    assert (done.stdout, done.stderr) == ("air: priority 7\n", "")
    assert run.told == [("set_priority", "air", 7.0)]


# ---- stopping --------------------------------------------------------------------------------------------------


def run_until_asked_to_stop(directory: Path, run: Recorder, ready: threading.Event) -> None:
    with WarehouseLock(directory) as lock, ControlServer(run, lock):
        ready.set()
        run.asked_to_stop.wait(SOON)


def test_stop_returns_when_the_warehouse_can_be_run_again(headgate: Headgate, tmp_path: Path, run: Recorder) -> None:
    ready = threading.Event()
    runner = threading.Thread(target=run_until_asked_to_stop, args=(tmp_path, run, ready))
    runner.start()
    assert ready.wait(SOON)
    assert headgate("stop", tmp_path) == Done(0, [f"{tmp_path}: process {os.getpid()} has stopped"], "")
    assert running_process(tmp_path) is None
    runner.join()


def test_stop_without_waiting_returns_while_the_warehouse_still_runs(
    headgate: Headgate, served: Path, run: Recorder
) -> None:
    done = headgate("stop", served, "--no-wait")
    assert done == Done(0, [f"{served}: process {os.getpid()} is stopping"], "")
    assert run.asked_to_stop.is_set()
    assert running_process(served) == os.getpid()


class Busy(Recorder):
    """Has an update that never ends, so it never stops."""

    def statistics(self) -> tuple[NodeStatistics, ...]:
        return (statistics_of("air", state="updating"), statistics_of("alerts", state="ok"))


class PassingTime:
    """Stands for the module ``time``: whoever sleeps has slept already."""

    def __init__(self) -> None:
        self._slept = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self._slept

    def sleep(self, seconds: float) -> None:
        self._slept += seconds


@pytest.mark.parametrize(
    ("run", "said"),
    [
        pytest.param(Busy(), "It is updating air, and ends when that is done.", id="an update that does not end"),
        pytest.param(Recorder(), "It updates no table any more", id="a program that does not close it"),
    ],
)
def test_stop_comes_back_after_its_grace_period_and_says_what_still_runs(
    headgate: Headgate, tmp_path: Path, run: Recorder, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing = PassingTime()  # so that the grace can be long, and with it the time that the process has to answer
    monkeypatch.setattr("headgate.cli.control.time", passing)
    monkeypatch.setattr("headgate.warehouse.run.control_client.time", passing)
    with serving(tmp_path, run):
        done = headgate("stop", tmp_path, "--grace", "4 min")
    refused(done, f"process {os.getpid()} was asked to stop and still runs after 4 min.", said, "kill -9", status=1)
    assert (done.out, run.asked_to_stop.is_set()) == ([], True)


def test_a_run_that_takes_no_commands_any_more_is_said_to_be_ending(tmp_path: Path) -> None:
    """So it is while the report is written: the lock is held, and the control socket is gone."""
    with WarehouseLock(tmp_path):
        assert _still_doing(tmp_path, SOON) == (
            "It updates no table any more; it is closing the warehouse, and writing its report if it has one"
        )


def test_stop_comes_back_if_the_process_does_not_answer(headgate: Headgate, tmp_path: Path) -> None:
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        WarehouseLock(tmp_path) as lock,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent,
    ):
        silent.bind(f"{folder}/control")
        silent.listen()
        lock.announce(Path(folder) / "control")
        done = headgate("stop", tmp_path, "--grace", "100 ms")
    refused(done, "has not answered within 0.05 s", "kill -9", status=1)


# ---- explain ---------------------------------------------------------------------------------------------------


def test_explain_prints_the_whole_explanation(headgate: Headgate, served: Path, run: Recorder) -> None:
    assert headgate("explain", served, "air") == Done(0, str(run.explain("air")).splitlines(), "")


COMMITTED = "air: complete up to 1970-01-01T00:00:30.000000Z; last update: number 2, rows appended"


def test_explain_tells_what_is_committed_if_nobody_runs_the_warehouse(headgate: Headgate, committed: Path) -> None:
    done = headgate("explain", committed, "air")
    refused(done, "no process runs", status=1)
    assert done.out == [COMMITTED]


def test_explain_tells_what_is_committed_if_the_process_does_not_answer(headgate: Headgate, committed: Path) -> None:
    with WarehouseLock(committed):
        done = headgate("explain", committed, "air")
    refused(done, "takes no commands", status=1)
    assert done.out == [COMMITTED]


def test_explain_of_a_table_without_commits_and_a_process_says_both(headgate: Headgate, committed: Path) -> None:
    refused(headgate("explain", committed, "airs"), "Did you mean 'air'", "no process answers")


def test_explain_says_nothing_of_commits_before_there_are_any(headgate: Headgate, tmp_path: Path) -> None:
    with WarehouseLock(tmp_path):
        done = headgate("explain", tmp_path, "air")
    refused(done, "takes no commands", status=1)
    assert done.out == []
    refused(headgate("explain", tmp_path / "nowhere", "air"), "not even a directory", status=1)


# ---- status ----------------------------------------------------------------------------------------------------


class Troubled(Recorder):
    """Air has been updated and is in good order; alerts has never been, because it fails."""

    def statistics(self) -> tuple[NodeStatistics, ...]:
        return (
            statistics_of("air", priority=20.0, state="updating", staleness=90.0),
            statistics_of("alerts", priority=100.0, state="held", staleness=None, error="no such column"),
        )


class Hosting(Recorder):
    """Air holds a stream query of one operator."""

    FILTER = OperatorFigures("query", "cheap", "stateless", 10, 4, 1, 0.5, 8, 0.25, 2.0)

    def statistics(self) -> tuple[NodeStatistics, ...]:
        return (statistics_of("air", operators=(self.FILTER,)),)


def test_status_shows_priorities_and_states_of_a_running_warehouse(headgate: Headgate, committed: Path) -> None:
    with serving(committed, Troubled()):
        done = headgate("status", committed)
    first, headings, air, alerts, trouble = done.out
    assert first.endswith(f"being run by process {os.getpid()}")
    assert headings.split()[:6] == ["table", "prio", "state", "stale", "lag", "repair"]
    assert air.split()[:9] == ["air", "20", "updating", "1.5", "min", "0", "s", "-", "2"]
    assert alerts.split() == ["alerts", "100", "held", *["-"] * 10]
    assert trouble == "alerts is held: no such column"


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        pytest.param("load", "rows loaded", id="a stream"),
        pytest.param("recompute", "blocks recomputed", id="blocks"),
        pytest.param("merge", "groups merged", id="groups"),
        pytest.param("keys", "keys recomputed", id="keys"),
        pytest.param("whole", "all recomputed", id="all"),
        pytest.param("backfill", "past recomputed", id="a backfill"),
        pytest.param("of tomorrow", "of tomorrow", id="another version"),
    ],
)
def test_status_says_what_the_last_update_did(headgate: Headgate, committed: Path, kind: str, shown: str) -> None:
    store = TableStore(committed / "tables" / "air", "ts")
    state = CommitState(3, kind, 30 * SECOND, 0, time="ts").to_json()
    store.commit(3, (), state=state, schema=store.schema)
    _, headings, air = headgate("status", committed).out
    assert air[headings.index("last") :].startswith(f"{shown}  ")


def test_status_gives_what_the_process_says_as_json(headgate: Headgate, committed: Path) -> None:
    with serving(committed, Troubled()):
        told = json.loads("\n".join(headgate("status", committed, "--json").out))
    assert [table["name"] for table in told["tables"]] == ["air"]
    assert [(row["name"], row["state"], row["error"]) for row in told["live"]] == [
        ("air", "updating", ""),
        ("alerts", "held", "no such column"),
    ]


class Waiting(Recorder):
    """Air waits for its directory and has data of the past; a policy has failed."""

    NOTE = "waiting for the directory /landing"

    def statistics(self) -> tuple[NodeStatistics, ...]:
        return (statistics_of("air", state="waiting", staleness=9e7, lag=3.0, note=self.NOTE, rows=70, written=900),)

    def notices(self) -> tuple[RunNotice, ...]:
        failed = RunNotice(0.0, None, "policy 'mine' failed")
        return (failed, RunNotice(1.0, "air", "a.json changed"), RunNotice(2.0, "air", self.NOTE))


def test_status_shows_what_tables_wait_for_the_lag_and_the_notices_of_the_run(
    headgate: Headgate, committed: Path
) -> None:
    with serving(committed, Waiting()):
        done = headgate("status", committed)
        told = json.loads("\n".join(headgate("status", committed, "--json").out))
    _, _, air, *lines = done.out
    assert air.split()[:6] == ["air", "0", "waiting", "past", "3", "s"]
    assert lines == [
        "air is waiting: waiting for the directory /landing",
        "1970-01-01 00:00:00 UTC: policy 'mine' failed",
        "1970-01-01 00:00:01 UTC: air: a.json changed",
    ]
    assert (told["live"][0]["rows"], told["live"][0]["written"]) == (70, 900)
    assert told["notices"][1] == {"at": 1.0, "table": "air", "text": "a.json changed"}


class TooSlow(Recorder):
    """The target lags of air and alerts cannot be kept, and users were told so."""

    WHY = "its target lag of 1 s cannot be met: with its sources, an update takes 4 s at least"
    LATER = "its target lag of 9 s cannot be met together with the others, which take 1.37 tracks of 1"
    COARSER = "a target_lag of 41 s for air, or to leave out alerts"

    def statistics(self) -> tuple[NodeStatistics, ...]:
        some = f"for the other targets, 2 tracks, or {self.COARSER}"
        return (
            statistics_of("air", note=self.WHY, target_note=self.WHY, target_help=self.COARSER),
            statistics_of("alerts", note=self.LATER, target_note=self.LATER, target_help=some),
            statistics_of("meters"),
        )

    def notices(self) -> tuple[RunNotice, ...]:
        helps = "; it would help: 2 tracks; it would help: a target_lag of 40 s for air"
        return (RunNotice(0.0, None, f"air: {self.WHY}{helps}"),)


def test_status_says_once_what_would_help_target_lags(headgate: Headgate, committed: Path) -> None:
    with serving(committed, TooSlow()):
        *_, meters, air, alerts, helps, notice = headgate("status", committed).out
    assert meters.startswith("meters")
    assert (air, alerts) == (f"air: {TooSlow.WHY}", f"alerts: {TooSlow.LATER}")
    assert helps == f"what would help the target lags: for the other targets, 2 tracks, or {TooSlow.COARSER}"
    assert notice == f"1970-01-01 00:00:00 UTC: air: {TooSlow.WHY}"


def test_status_tells_as_json_what_operators_inside_a_table_did(headgate: Headgate, committed: Path) -> None:
    with serving(committed, Hosting()):
        told = json.loads("\n".join(headgate("status", committed, "--json").out))
    assert told["live"][0]["operators"] == [{**asdict(Hosting.FILTER), "inputs": []}]


def test_status_of_a_process_that_does_not_answer_is_what_is_committed(headgate: Headgate, committed: Path) -> None:
    with WarehouseLock(committed) as lock:
        lock.announce(committed / "gone")
        done = headgate("status", committed)
        told = json.loads("\n".join(headgate("status", committed, "--json").out))
    assert (done.status, done.err) == (0, "")
    assert done.out[1].split()[:4] == ["table", "stale", "repair", "rows"]
    assert (told["process"], told["live"]) == (os.getpid(), None)


@pytest.mark.parametrize("command", [["status"], ["query", "select * from air"], ["explain", "air"], ["stop"]])
def test_a_warehouse_of_somebody_else_is_said_to_be_so(headgate: Headgate, closed: Path, command: list[str]) -> None:
    refused(headgate(command[0], closed, *command[1:]), f"this user may not read or write {closed}", status=1)


# ---- a pipeline file for the directory -------------------------------------------------------------------------

PIPELINE = """
import headgate as hg
wh = hg.Warehouse("city", path="the tables")
wh.stream("air", hg.Generator(every="1 second"), time="ts")
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    file = tmp_path / "city.py"
    file.write_text(PIPELINE)
    return file


def test_the_pipeline_file_stands_for_its_directory(headgate: Headgate, pipeline: Path, run: Recorder) -> None:
    directory = pipeline.parent / "the tables"
    (directory / "tables").mkdir(parents=True)
    with serving(directory, run):
        assert headgate("pause", pipeline, "air") == Done(0, ["air: paused"], "")
        assert headgate("status", pipeline).out[0] == f"{directory}: being run by process {os.getpid()}"
    refused(headgate("query", pipeline, "select 1 from air"), "no table called 'air'")


def test_a_pipeline_file_that_is_not_there_is_refused(headgate: Headgate, pipeline: Path) -> None:
    refused(headgate("stop", pipeline.with_name("citi.py")), "cannot read the pipeline file", "did you mean city.py")


#: nobody listens at this port
AWAY = 'orders = hg.PostgresChanges("postgresql://headgate:hush@127.0.0.1:1/shop", "orders")\n'


@pytest.mark.parametrize("command", ["status", "pause", "explain"])
def test_a_source_that_is_away_does_not_keep_a_pipeline_file_from_standing_for_its_directory(
    headgate: Headgate, pipeline: Path, run: Recorder, command: str
) -> None:
    pipeline.write_text(PIPELINE + AWAY + 'wh.stream("orders", orders, time="_committed")\n')
    directory = pipeline.parent / "the tables"
    (directory / "tables").mkdir(parents=True)
    with serving(directory, run):
        assert headgate(command, pipeline, *([] if command == "status" else ["air"])).status == 0


@pytest.mark.parametrize("command", ["status", "stop", "explain"])
def test_a_pipeline_file_that_needs_a_source_that_is_away_is_refused_with_the_way_on(
    headgate: Headgate, pipeline: Path, command: str
) -> None:
    pipeline.write_text(PIPELINE + AWAY + 'wh.sql("now", orders.current_rows("orders", key="id"), time=None)\n')
    done = headgate(command, pipeline, *(["air"] if command == "explain" else []))
    assert (done.status, done.out) == (1, [])
    hint, said = done.err.splitlines()
    assert "the folder of the warehouse can be given instead" in hint
    assert "city.py:6: the PostgreSQL server" in said and "cannot be reached" in said and "hush" not in said


def test_a_directory_may_be_called_like_a_pipeline_file(headgate: Headgate, tmp_path: Path, run: Recorder) -> None:
    with serving(tmp_path / "odd.py", run):
        assert headgate("pause", tmp_path / "odd.py", "air").status == 0
