"""Commands to a running warehouse, over a real socket: done, refused, or nobody there to be asked."""

from __future__ import annotations

import fcntl
import json
import math
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.core.errors import DeclarationError, HeadgateError, InvariantError, UserCodeError
from headgate.core.registry import placement_from, policy_from
from headgate.warehouse.run import control_client
from headgate.warehouse.run.control import MOST_CONNECTIONS, ControlServer
from headgate.warehouse.run.control_client import ControlError, NotRunningError, RefusedError, RunningWarehouse
from headgate.warehouse.run.control_commands import MOST_BYTES
from headgate.warehouse.run.lock import FILE_NAME, Holder, WarehouseInUseError, WarehouseLock, holder, running_process
from headgate.warehouse.schedule.ledger import NodeStatistics
from tests.warehouse.control_helpers import TABLES, Recorder, serving, statistics_of

#: how long a test waits for what should happen at once
SOON = 120.0


@pytest.fixture
def run() -> Recorder:
    return Recorder()


@pytest.fixture
def served(tmp_path: Path, run: Recorder) -> Iterator[Path]:
    """The directory of a warehouse that takes commands."""
    with serving(tmp_path, run):
        yield tmp_path


def control_of(directory: Path) -> Path:
    found = holder(directory)
    assert found is not None and found.control is not None
    return Path(found.control)


class Line:
    """A connection on which anything can be said."""

    def __init__(self, directory: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(SOON)
        self._socket.connect(str(control_of(directory)))
        self._answers = self._socket.makefile("rb")

    def say(self, data: bytes) -> None:
        self._socket.sendall(data)

    def hear(self) -> dict[str, Any] | None:
        """The next answer, None if the other side has closed the connection, having read all that was said or not."""
        try:
            line = self._answers.readline()
        except ConnectionResetError:
            return None
        return json.loads(line, parse_constant=pytest.fail) if line else None

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._socket.close()


# ---- commands --------------------------------------------------------------------------------------------------

COMMANDS: dict[str, tuple[Callable[[RunningWarehouse], object], tuple[Any, ...]]] = {
    "a policy": (
        lambda there: there.replace_policy("multi-class:3=fcfs,default=(qst:capacity=500)"),
        ("replace_policy", policy_from("multi-class:3=fcfs,default=(qst:capacity=500)")),
    ),
    "a placement": (
        lambda there: there.replace_placement("proportional:k=2"),
        ("replace_placement", placement_from("proportional:k=2")),
    ),
    "inheritance": (lambda there: there.set_inheritance("sum"), ("set_inheritance", "sum")),
    "shared jobs": (lambda there: there.set_together("auto"), ("set_together", "auto")),
    "tracks": (lambda there: there.set_tracks(5), ("set_tracks", 5)),
    "a budget": (lambda there: there.set_budget(0.5), ("set_budget", 0.5)),
    "no budget": (lambda there: there.set_budget(None), ("set_budget", None)),
    "a priority": (lambda there: there.set_priority("air", 2.5), ("set_priority", "air", 2.5)),
    "pause": (lambda there: there.pause("air"), ("pause", "air")),
    "resume": (lambda there: there.resume("air"), ("resume", "air")),
    "refresh": (lambda there: there.refresh("air"), ("refresh", "air")),
    "backfill": (lambda there: there.backfill("air", -5, 7), ("backfill", "air", -5, 7, None)),
    "backfill in chunks": (lambda there: there.backfill("air", 0, 7, 0.5), ("backfill", "air", 0, 7, 0.5)),
    "stop": (lambda there: there.stop_soon(), ("stop_soon",)),
}


@pytest.mark.parametrize(("command", "told"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_is_done_as_given(
    served: Path, run: Recorder, command: Callable[[RunningWarehouse], object], told: tuple[Any, ...]
) -> None:
    command(RunningWarehouse(served))
    assert run.told == [told]


def test_a_policy_comes_back_with_all_its_parameters(served: Path) -> None:
    assert RunningWarehouse(served).replace_policy("max-benefit") == "max-benefit"
    assert RunningWarehouse(served).replace_placement("proportional:k=2") == "proportional:k=2.0"


def test_settings_are_checked_together_and_nothing_is_done(served: Path, run: Recorder) -> None:
    there = RunningWarehouse(served)
    there.check_settings("qst:capacity=500", "proportional:k=2", 5, ["air", "alerts"])
    assert run.checked == (policy_from("qst:capacity=500"), placement_from("proportional:k=2"), 5, ("air", "alerts"))
    there.check_settings(names=["air"])
    assert run.checked == (None, None, None, ("air",))
    with pytest.raises(DeclarationError, match="Did you mean 'air'"):
        there.check_settings(names=["meters", "airs"])
    assert run.told == []


def test_statistics_have_every_field_of_every_table(served: Path, run: Recorder) -> None:
    as_lists = [asdict(row) | {"operators": list(row.operators)} for row in run.statistics()]
    assert list(RunningWarehouse(served).statistics()) == as_lists


class Unusual(Recorder):
    def statistics(self) -> tuple[NodeStatistics, ...]:
        return (statistics_of("air", staleness=math.inf, mean_staleness=math.nan, max_staleness=None),)


def test_numbers_that_json_does_not_have_arrive_as_unknown(tmp_path: Path) -> None:
    with serving(tmp_path, Unusual()), Line(tmp_path) as line:
        line.say(b'{"command": "statistics"}\n')
        told = line.hear()
    assert told is not None
    assert [told["answer"][0][f"{kind}staleness"] for kind in ("", "mean_", "max_")] == [None, None, None]


def test_an_explanation_arrives_as_the_text_that_people_read(served: Path, run: Recorder) -> None:
    text = RunningWarehouse(served).explain("air")
    assert text == str(run.explain("air"))
    assert "ahead of it: meters" in text


# ---- refused ---------------------------------------------------------------------------------------------------


def test_an_unknown_table_is_refused_with_the_nearest_names(served: Path, run: Recorder) -> None:
    with pytest.raises(DeclarationError, match=r"no table called 'alert'\. Did you mean 'alerts'"):
        RunningWarehouse(served).pause("alert")
    assert run.told == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("max-benifit", "Did you mean 'max-benefit'", id="unknown"),
        pytest.param("qst:capacity=many", "'capacity' takes a number", id="a bad parameter"),
        pytest.param("no_such_module_here.Mine", "no module 'no_such_module_here'", id="a class that is not there"),
    ],
)
def test_a_policy_that_cannot_be_made_is_refused_and_changes_nothing(
    served: Path, run: Recorder, text: str, said: str
) -> None:
    with pytest.raises(DeclarationError, match=said):
        RunningWarehouse(served).replace_policy(text)
    assert run.told == []


def test_what_the_run_cannot_do_is_raised_where_it_was_asked_for(served: Path, run: Recorder) -> None:
    run.trouble = UserCodeError("your policy divides by zero")
    with pytest.raises(RefusedError, match=r"^your policy divides by zero$") as refused:
        RunningWarehouse(served).replace_policy("fifo")
    assert refused.value.kind == "UserCodeError"


def test_a_bug_is_told_with_its_traceback_and_the_next_command_is_taken(served: Path, run: Recorder) -> None:
    run.trouble = ZeroDivisionError("nobody thought of this")
    with pytest.raises(RefusedError, match=r"(?s)Traceback.*in _tell.*nobody thought of this") as refused:
        RunningWarehouse(served).pause("air")
    assert refused.value.kind == "ZeroDivisionError"
    run.trouble = None
    RunningWarehouse(served).pause("air")
    assert run.told == [("pause", "air")]


def asking(command: str, **arguments: object) -> bytes:
    return json.dumps({"command": command, "arguments": arguments}).encode()


MALFORMED = {
    "nothing": (b"", "cannot be read"),
    "not JSON": (b"pause air", "cannot be read"),
    "not text": (b"\xff\xfe", "cannot be read"),
    "too deep": (b"[" * 50_000, "cannot be read"),
    "not an object": (b'["pause", "air"]', '"command"'),
    "no command": (b"{}", '"command"'),
    "a command that is not a name": (b'{"command": 7}', '"command"'),
    "arguments that are not named": (b'{"command": "pause", "arguments": ["air"]}', '"command"'),
    "something besides": (b'{"command": "pause", "arguments": {"name": "air"}, "x": 1}', '"command"'),
    "an unknown command": (asking("pauze", name="air"), "Did you mean 'pause'"),
    "an argument missing": (asking("pause"), 'needs the argument "name"'),
    "an argument too many": (asking("pause", name="air", how="fast"), 'does not take the argument "how"'),
    "an argument for none": (asking("stop_soon", now=True), "it takes no arguments"),
    "a number as a name": (asking("pause", name=7), "takes a text as 'name'; got 7"),
    "no tracks": (asking("set_tracks", count=0), "a whole number from 1 to 1000 as 'count'; got 0"),
    "a billion tracks": (asking("set_tracks", count=10**9), "from 1 to 1000 as 'count'; got 1000000000"),
    "truth as a number": (asking("set_tracks", count=True), "as 'count'; got true"),
    "half a track": (asking("set_tracks", count=1.5), "as 'count'; got 1.5"),
    "an infinite priority": (
        asking("set_priority", name="air", priority=math.inf),
        "from 0 to 1e+12 as 'priority'",
    ),
    "an immense priority": (
        asking("set_priority", name="air", priority=10**400),
        "from 0 to 1e+12 as 'priority'",
    ),
    "a time beyond all": (asking("backfill", name="air", first=0, last=2**70, chunk=None), "microseconds as 'last'"),
    "a name for names": (
        asking("check_settings", policy=None, placement=None, tracks=None, names="air"),
        "a list of texts as 'names'; got",
    ),
    "a policy that is no text": (
        asking("check_settings", policy=3, placement=None, tracks=None, names=[]),
        "null or a text as 'policy'; got 3",
    ),
    "an empty chunk": (
        asking("backfill", name="air", first=0, last=1, chunk=0),
        "1e+09 seconds as 'chunk'; got 0",
    ),
}


@pytest.mark.parametrize(("request_line", "said"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_request_is_told_what_is_wrong_and_the_next_one_is_read(
    served: Path, run: Recorder, request_line: bytes, said: str
) -> None:
    with Line(served) as line:
        line.say(request_line + b"\n" + asking("pause", name="air") + b"\n")
        refused, done = line.hear(), line.hear()
    assert refused is not None
    assert said in refused["error"]["message"]
    assert len(refused["error"]["message"]) < 1000
    assert done == {"answer": None}
    assert run.told == [("pause", "air")]


def test_a_request_that_is_too_long_is_refused_and_ends_the_connection(served: Path, run: Recorder) -> None:
    with Line(served) as line:
        line.say(asking("pause", name="x" * MOST_BYTES) + b"\n" + asking("pause", name="air") + b"\n")
        told = line.hear()
        assert told is not None
        assert f"at most {MOST_BYTES} bytes" in told["error"]["message"]
        assert line.hear() is None
    assert run.told == []


def test_requests_of_one_connection_are_answered_in_order(served: Path, run: Recorder) -> None:
    with Line(served) as line:
        line.say(b"".join(asking("pause", name=name) + b"\n" for name in TABLES))
        assert [line.hear() for _ in TABLES] == [{"answer": None}] * len(TABLES)
    assert run.told == [("pause", name) for name in TABLES]


# ---- several at once -------------------------------------------------------------------------------------------


class Slow(Recorder):
    """Takes its time to refresh: until ``go_on``."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def refresh(self, name: str) -> None:
        self.begun.set()
        assert self.go_on.wait(SOON)
        super().refresh(name)


def test_a_client_is_answered_while_the_command_of_another_takes_its_time(tmp_path: Path) -> None:
    run = Slow()
    with serving(tmp_path, run), ThreadPoolExecutor() as pool:
        slow = pool.submit(RunningWarehouse(tmp_path).refresh, "air")
        assert run.begun.wait(SOON)
        RunningWarehouse(tmp_path).pause("meters")
        assert not slow.done()
        run.go_on.set()
        slow.result(SOON)
    assert run.told == [("pause", "meters"), ("refresh", "air")]


def test_a_silent_client_keeps_nobody_waiting(served: Path, run: Recorder) -> None:
    with Line(served), Line(served) as half:
        half.say(b'{"command": "pau')
        RunningWarehouse(served).pause("air")
    assert run.told == [("pause", "air")]


def test_a_silent_client_is_let_go(tmp_path: Path, run: Recorder) -> None:
    with serving(tmp_path, run, patience=0.02), Line(tmp_path) as line:
        assert line.hear() is None


def test_more_clients_than_are_served_at_once_wait_for_their_turn(served: Path, run: Recorder) -> None:
    lines = [Line(served) for _ in range(MOST_CONNECTIONS)]
    with Line(served) as one_more:
        one_more.say(asking("pause", name="meters") + b"\n")
        for line in lines:
            with line:
                line.say(asking("pause", name="air") + b"\n")
                assert line.hear() == {"answer": None}
        assert one_more.hear() == {"answer": None}
    assert ("pause", "meters") in run.told


@pytest.mark.slow
def test_clients_that_drip_are_let_go_and_others_get_their_turn(tmp_path: Path, run: Recorder) -> None:
    """Each of them sends a byte whenever it can, so that it is never silent."""
    # As long as the thread of the other one may have to wait for its turn among all these.
    with serving(tmp_path, run, patience=2.0), ThreadPoolExecutor() as pool:
        lines = [Line(tmp_path) for _ in range(2 * MOST_CONNECTIONS)]
        let_go = threading.Event()

        def drip() -> None:
            open_ones = list(lines)
            while open_ones:
                for line in list(open_ones):
                    try:
                        line.say(b"{")
                    except OSError:
                        open_ones.remove(line)
            let_go.set()

        dripping = pool.submit(drip)
        RunningWarehouse(tmp_path, SOON).pause("air")
        assert let_go.wait(SOON)
        dripping.result()
        for line in lines:
            line.__exit__()
    assert run.told == [("pause", "air")]


class Stuck(Recorder):
    """Refreshes nothing until ``go_on``."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()

    def refresh(self, name: str) -> None:
        self.begun.release()
        assert self.go_on.wait(SOON)


@pytest.mark.slow
def test_the_end_does_not_wait_for_each_stuck_command_in_turn(tmp_path: Path) -> None:
    run, many = Stuck(), MOST_CONNECTIONS
    with WarehouseLock(tmp_path) as lock, ThreadPoolExecutor(many + 1) as pool:
        server = ControlServer(run, lock)
        server.start()
        stuck = [pool.submit(RunningWarehouse(tmp_path, SOON).refresh, "air") for _ in range(many)]
        assert all(run.begun.acquire(timeout=SOON) for _ in range(many))
        server._patience = 1.0  # only now: their requests may take longer to arrive
        try:
            pool.submit(server.stop).result(many - 1)
        finally:
            run.go_on.set()
        for each in stuck:
            each.result(SOON)


# ---- where it listens ------------------------------------------------------------------------------------------


def test_nobody_but_the_user_can_reach_the_socket(served: Path) -> None:
    control = control_of(served)
    assert stat.S_ISSOCK(control.stat().st_mode)
    assert stat.S_IMODE(control.parent.stat().st_mode) == 0o700


def test_nothing_is_left_after_the_end(tmp_path: Path, run: Recorder) -> None:
    before = threading.enumerate()  # a test before this one may have left some that are about to end

    def control_threads() -> list[str]:
        new = [thread.name for thread in threading.enumerate() if thread not in before]
        return [name for name in new if name.startswith("headgate-control")]

    with WarehouseLock(tmp_path) as lock:
        server = ControlServer(run, lock)
        server.start()
        control = control_of(tmp_path)
        with Line(tmp_path) as line:
            line.say(asking("pause", name="air") + b"\n")
            assert line.hear() == {"answer": None}
            assert len(control_threads()) == 2
            server.stop()
            assert line.hear() is None
        assert not control.parent.exists()
        assert control_threads() == []
        assert holder(tmp_path) == Holder(os.getpid(), None, socket.gethostname())


def test_a_command_that_is_being_done_at_the_end_is_still_answered(tmp_path: Path) -> None:
    run = Slow()
    with ThreadPoolExecutor() as pool:
        with WarehouseLock(tmp_path) as lock:
            server = ControlServer(run, lock)
            server.start()
            refreshed = pool.submit(RunningWarehouse(tmp_path).refresh, "air")
            assert run.begun.wait(SOON)
            stopped = pool.submit(server.stop)
            run.go_on.set()
            stopped.result(SOON)
        refreshed.result(SOON)
    assert run.told == [("refresh", "air")]


def test_a_warehouse_may_have_a_path_too_long_for_a_socket(tmp_path: Path, run: Recorder) -> None:
    deep = tmp_path / ("x" * 120) / ("y" * 120)
    with serving(deep, run):
        RunningWarehouse(deep).pause("air")
    assert run.told == [("pause", "air")]


def test_the_folder_for_temporary_files_may_have_a_path_too_long_for_a_socket(
    tmp_path: Path, run: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with serving(tmp_path, run):
        RunningWarehouse(tmp_path).pause("air")
    assert run.told == [("pause", "air")]
    assert list(deep.iterdir()) == []


def test_where_no_socket_can_be_made_the_run_is_told_so(
    tmp_path: Path, temporary: Path, run: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "nowhere"))
    with WarehouseLock(tmp_path) as lock, pytest.raises(HeadgateError, match=r"nowhere.*TMPDIR"):
        ControlServer(run, lock).start()


def leave_behind(folder: Path, *names: str) -> Path:
    """What a process leaves that is killed."""
    abandoned = folder / "headgate-control-dead"
    abandoned.mkdir(0o700)
    for name in names:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
            left.bind(str(abandoned / name))
    return abandoned


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for temporary files."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


@pytest.mark.parametrize("names", [(), ("control",)], ids=["before it listened", "while it listened"])
def test_the_folders_of_killed_processes_are_removed(
    tmp_path: Path, temporary: Path, run: Recorder, names: tuple[str, ...]
) -> None:
    abandoned = leave_behind(temporary, *names)
    with serving(tmp_path, run):
        assert not abandoned.exists()
        assert control_of(tmp_path).parent.parent == temporary
    assert list(temporary.iterdir()) == []


def test_the_folder_of_a_run_that_lives_is_left_alone(tmp_path: Path, temporary: Path, run: Recorder) -> None:
    with serving(tmp_path / "one", run), serving(tmp_path / "other", run):
        RunningWarehouse(tmp_path / "one").pause("air")
        RunningWarehouse(tmp_path / "other").pause("meters")
    assert run.told == [("pause", "air"), ("pause", "meters")]
    assert list(temporary.iterdir()) == []


def test_what_is_not_ours_is_left_alone(tmp_path: Path, temporary: Path, run: Recorder) -> None:
    (temporary / "elsewhere").mkdir()
    link = temporary / "headgate-control-link"
    link.symlink_to(temporary / "elsewhere")
    file = temporary / "headgate-control-file"
    file.write_text("mine")
    full = leave_behind(temporary, "control", "another")
    with serving(tmp_path, run):
        pass
    assert sorted(temporary.iterdir()) == sorted([temporary / "elsewhere", link, file, full])
    assert sorted(path.name for path in full.iterdir()) == ["another", "control"]


HOLD = """
import sys, pathlib
from headgate.warehouse.run.control_folder import ControlFolder
folder = ControlFolder()
print(folder.socket.parent, flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_killed_process_has_its_folder_removed_by_the_next_run(
    tmp_path: Path, temporary: Path, run: Recorder
) -> None:
    command = [sys.executable, "-c", HOLD]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        with serving(tmp_path, run):
            assert folder.is_dir()
        process.send_signal(signal.SIGKILL)
        process.wait()
    with serving(tmp_path, run):
        assert not folder.exists()


# ---- nobody there ----------------------------------------------------------------------------------------------


@contextmanager
def answering(directory: Path, reply: bytes | None) -> Iterator[None]:
    """Something that listens for the warehouse and sends ``reply`` to every request, or nothing at all if None."""
    folder = Path(tempfile.mkdtemp())
    with WarehouseLock(directory) as lock, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(folder / "s"))
        listener.listen()
        lock.announce(folder / "s")
        thread = threading.Thread(target=_reply_once, args=(listener, reply))
        if reply is not None:
            thread.start()
        try:
            yield
        finally:
            if reply is not None:
                thread.join()
            (folder / "s").unlink()
            folder.rmdir()


def _reply_once(listener: socket.socket, reply: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(MOST_BYTES)
        connection.sendall(reply)


def test_a_warehouse_that_nobody_runs_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(NotRunningError, match=r"no process runs a warehouse in .*`headgate run FILE`"):
        RunningWarehouse(tmp_path).pause("air")
    with pytest.raises(NotRunningError, match="not even a directory"):
        RunningWarehouse(tmp_path / "nowhere").stop_soon()


def test_what_a_killed_process_has_left_in_the_lock_file_counts_for_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('{"process": 1, "control": "/tmp/headgate-gone/control"}\n')
    with pytest.raises(NotRunningError):
        RunningWarehouse(tmp_path).pause("air")
    with WarehouseLock(tmp_path):
        assert holder(tmp_path) == Holder(os.getpid(), None, socket.gethostname())


def test_a_process_that_is_still_starting_is_said_to_take_no_commands(tmp_path: Path) -> None:
    with WarehouseLock(tmp_path), pytest.raises(ControlError, match=rf"process {os.getpid()} runs .*takes no commands"):
        RunningWarehouse(tmp_path).pause("air")


def test_a_command_can_wait_until_a_process_that_is_starting_takes_commands(
    tmp_path: Path, run: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WarehouseLock(tmp_path) as lock, ExitStack() as started:
        looks_again = SimpleNamespace(monotonic=time.monotonic)
        looks_again.sleep = lambda _: started.enter_context(ControlServer(run, lock))
        monkeypatch.setattr(control_client, "time", looks_again)
        RunningWarehouse(tmp_path, start_patience=SOON).pause("air")
    assert run.told == [("pause", "air")]


def test_a_socket_that_is_gone_is_named(tmp_path: Path) -> None:
    with WarehouseLock(tmp_path) as lock:
        lock.announce(tmp_path / "gone")
        with pytest.raises(ControlError, match=r"does not listen at .*/gone: No such file"):
            RunningWarehouse(tmp_path).pause("air")


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        pytest.param(None, "has not answered within 0.02 s", id="silence"),
        pytest.param(b"", "ended before it answered", id="the end"),
        pytest.param(b"hello\n", "cannot be understood: b'hello", id="not JSON"),
        pytest.param(b'{"error": 5}\n', "cannot be understood", id="not an answer"),
    ],
)
def test_an_answer_that_is_none_is_an_error(tmp_path: Path, reply: bytes | None, said: str) -> None:
    patience = 0.02 if reply is None else SOON
    with answering(tmp_path, reply), pytest.raises(ControlError, match=said):
        RunningWarehouse(tmp_path, patience).pause("air")


# ---- the lock file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"4711", id="a number"),
        pytest.param(b"{", id="half of it"),
        pytest.param(b"\xff", id="not text"),
        pytest.param(b"[" * 4000, id="too deep"),
        pytest.param(b'{"process": "me"}', id="a word for a number"),
    ],
)
def test_a_lock_file_that_cannot_be_read_still_locks(tmp_path: Path, content: bytes) -> None:
    with WarehouseLock(tmp_path):
        (tmp_path / FILE_NAME).write_bytes(content)
        assert holder(tmp_path) == Holder(None, None)
        assert running_process(tmp_path) == -1
        with pytest.raises(WarehouseInUseError, match="process id unknown"):
            WarehouseLock(tmp_path).acquire()


def test_a_shorter_line_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    with WarehouseLock(tmp_path) as lock:
        lock.announce(Path("/a/path/to/a/socket"))
        assert holder(tmp_path) == Holder(os.getpid(), "/a/path/to/a/socket", socket.gethostname())
        lock.announce(None)
        written = {"process": os.getpid(), "host": socket.gethostname(), "control": None}
        assert json.loads((tmp_path / FILE_NAME).read_text()) == written
    assert (tmp_path / FILE_NAME).read_text() == ""


def test_somebody_who_only_looks_is_not_taken_for_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / FILE_NAME).open("w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        monkeypatch.setattr("time.sleep", lambda _: looking.close())
        with WarehouseLock(tmp_path):
            assert running_process(tmp_path) == os.getpid()


def test_only_who_holds_the_lock_says_where_commands_are_taken(tmp_path: Path) -> None:
    with pytest.raises(InvariantError, match="acquire"):
        WarehouseLock(tmp_path).announce(tmp_path)
