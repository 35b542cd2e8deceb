"""Alerts: what fires and what recovers, as tables; and delivery to a server that hangs, fails, and then answers."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

import headgate as hg
from headgate.core import DeclarationError
from headgate.warehouse.alerts import alert_watch
from headgate.warehouse.alerts.alert_watch import AlertWatch
from headgate.warehouse.alerts.delivery import MOST_CALLS, AlertError, Courier, call
from headgate.warehouse.alerts.rules import WINDOW_SECONDS, AlertRules
from headgate.warehouse.declare.checks import DeclarationErrors
from headgate.warehouse.schedule.ledger import NodeStatistics

HOOK = "https://hooks.example/secret"
#: how long a test waits for something that should happen at once on an idle machine
PATIENCE = 300.0
AIR = NodeStatistics(
    name="air",
    priority=1.0,
    state="ok",
    staleness=1.0,
    mean_staleness=1.0,
    max_staleness=1.0,
    lag=0.0,
    mean_lag=0.0,
    target_lag=60.0,
    target_met=1.0,
    rows=0,
    written=0,
    rejected=0,
    updates=0,
    last_update=None,
    last_seconds=None,
    next_update=None,
    updates_left=0,
    longest_wait=0.0,
    failures=0,
    error="",
    note="",
)
LATE = hg.Alert(HOOK, late="5 min", held=False)
HELD = hg.Alert(HOOK)
REJECTED = hg.Alert(HOOK, rejected=0.1, held=False)
SILENT = hg.Alert(HOOK, silent="1 hour", held=False)

#: a look: (when, what is different about the table, what is told: "firing", "recovered" or nothing)
Look = tuple[float, dict[str, Any], str]


@pytest.mark.parametrize(
    ("alert", "looks"),
    [
        pytest.param(
            LATE,
            [
                (0, {"lag": 50.0}, ""),
                (20, {"lag": 70.0}, ""),
                (300, {"lag": 350.0}, ""),
                (320, {"lag": 370.0}, "firing"),
                (400, {"lag": 450.0}, ""),
                (410, {"lag": 10.0, "last_update": 409.0}, "recovered"),
                (420, {"lag": 10.0, "last_update": 409.0}, ""),
            ],
            id="late for longer than stated, once, and once when it has recovered",
        ),
        pytest.param(
            LATE,
            [(0, {"lag": 200.0}, ""), (100, {"lag": 20.0, "last_update": 99.0}, ""), (400, {"lag": 320.0}, "")],
            id="late again counts from its beginning",
        ),
        pytest.param(LATE, [(0, {"lag": 9000.0, "target_lag": None}, "")], id="no target, never late"),
        pytest.param(
            HELD,
            [
                (0, {"state": "failing"}, ""),
                (10, {"state": "held", "error": "no"}, "firing"),
                (20, {"state": "updating"}, ""),
                (30, {"state": "held"}, ""),
                (40, {"state": "ok", "last_update": 39.0}, "recovered"),
            ],
            id="held; resumed is not recovered before an update is committed",
        ),
        pytest.param(HELD, [(0, {"state": "stopped"}, "firing")], id="the run has failed"),
        pytest.param(
            REJECTED,
            [
                (0, {"written": 100, "rejected": 5}, ""),
                (10, {"written": 100, "rejected": 20}, "firing"),
                (20, {"written": 110, "rejected": 20}, ""),
                (WINDOW_SECONDS, {"written": 110, "rejected": 20}, ""),
                (2 * WINDOW_SECONDS, {"written": 900, "rejected": 20, "last_update": 500.0}, "recovered"),
                (3 * WINDOW_SECONDS, {"written": 900, "rejected": 20, "last_update": 500.0}, ""),
                (3 * WINDOW_SECONDS + 1, {"written": 900, "rejected": 120, "last_update": 500.0}, "firing"),
            ],
            id="a share of the rows of the last minutes",
        ),
        pytest.param(
            SILENT,
            [
                (0, {}, ""),
                (100, {"last_update": 90.0}, ""),
                (3690, {"last_update": 90.0}, ""),
                (3691, {"last_update": 90.0}, "firing"),
                (3700, {"last_update": 90.0, "lag": 1.0}, "recovered"),
                (7300, {"last_update": 3702.0}, ""),
                (7303, {"last_update": 3702.0}, "firing"),
            ],
            id="a source that gives nothing",
        ),
    ],
)
def test_an_alert_fires_once_and_recovers_once(alert: hg.Alert, looks: list[Look]) -> None:
    rules = AlertRules({})
    for now, different, expected in looks:
        told = rules.look([alert], ["air"], [replace(AIR, **different)], now)
        statuses = ["recovered" if firing.recovered else "firing" for firing in told]
        assert statuses == ([expected] if expected else []), now


def test_a_restart_neither_repeats_nor_recovers_an_alert() -> None:
    first = AlertRules({})
    assert first.look([HELD], [], [replace(AIR, state="held")], 10)
    second = AlertRules(first.fired)
    for now, state in ((20, "ok"), (30, "failing"), (40, "held")):
        assert second.look([HELD], [], [replace(AIR, state=state)], now) == []
    (recovered,) = second.look([HELD], [], [replace(AIR, last_update=50.0)], 60)
    assert recovered.recovered


def test_an_alert_is_about_the_tables_that_it_names() -> None:
    rows = [replace(AIR, state="held"), replace(AIR, name="trips", state="held")]
    rules = AlertRules({})
    assert [firing.table for firing in rules.look([hg.Alert(HOOK, "trips")], [], rows, 0)] == ["trips"]
    assert rules.look([], [], rows, 1) == []
    assert rules.fired == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"to": "ftp://host/x"}, "URL of a webhook"),
        ({"to": "file:///etc/passwd"}, "URL of a webhook"),
        ({"to": []}, "a command"),
        ({"to": HOOK, "late": "soon"}, "late of an alert"),
        ({"to": HOOK, "rejected": 5}, "share above 0"),
        ({"to": HOOK, "held": False}, "got none"),
    ],
)
def test_a_mistake_in_an_alert_is_named(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        hg.Alert(**arguments)


def test_alerts_about_what_is_not_there_are_mistakes_with_their_line() -> None:
    alert = hg.Alert(HOOK, ["airr", "air", "mean"], late="1 min", silent="1 hour")
    wh = hg.Warehouse("city", alerts=[alert])
    air = wh.stream("air", SimpleNamespace(schema="ts timestamp"), time="ts")  # type: ignore[arg-type]
    wh.sql("mean", f"SELECT * FROM {air}", time="ts", target_lag="1 min")
    with pytest.raises(DeclarationErrors) as caught:
        wh.spec()
    said = [(mistake.place, mistake.text) for mistake in caught.value.mistakes]
    assert {place for place, _ in said} == {alert.place}
    assert alert.place.file == __file__
    assert [text.partition(",")[0] for _, text in said] == [
        "the alert is about 'airr'",
        "the alert is about 'air' being late",
        "the alert is about a silent source of 'mean'",
    ]


def test_where_an_alert_goes_is_not_shown() -> None:
    assert "secret" not in repr(HELD) + HELD.shown


# --- delivery ----------------------------------------------------------------------------------------------------


class Hook:
    """A webhook on loopback that does what ``plan`` says next: "hang", a status, or by default 200."""

    def __init__(self) -> None:
        self.plan: list[int | str] = []
        self.got: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.release = threading.Event()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                step = hook.plan.pop(0) if hook.plan else 200
                if step == "hang":
                    hook.release.wait(PATIENCE)
                    self.close_connection = True
                    return
                self.send_response(int(step))
                self.send_header("location", "/elsewhere")
                self.send_header("content-length", "0")
                if step == 200:  # before the answer, after which the next message may come on another thread
                    hook.got.put(body)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


def test_a_webhook_that_hangs_and_fails_gets_the_message_when_it_answers(hook: Hook) -> None:
    hook.plan = ["hang", 500, 302]
    done: SimpleQueue[object] = SimpleQueue()
    said: list[str] = []
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        courier._limit = 30.0  # only the first call hangs; the others may take their time
        return False

    courier = Courier(hook.url, "the hook", done.put, said.append, limit=0.2, wait=wait)
    message = {"text": "air is held"}
    assert courier.put(message)
    assert done.get(timeout=PATIENCE) is message
    assert hook.got.get(timeout=PATIENCE) == message
    assert waits == [1.0, 2.0, 4.0]
    assert len(said) == 1
    assert "/hook" not in said[0]
    courier.stop(2)


def test_a_message_that_nobody_takes_is_given_up(hook: Hook) -> None:
    hook.plan = [404] * MOST_CALLS
    done: SimpleQueue[object] = SimpleQueue()
    said: list[str] = []
    courier = Courier(hook.url, "the hook", done.put, said.append, wait=lambda seconds: False)
    courier.put({"text": "air is held"})
    done.get(timeout=PATIENCE)
    assert "given up: air is held" in said[-1]
    courier.stop(2)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ('import sys; sys.exit(sys.stdin.read() != \'{"text": "x"}\')', ""),
        ("import sys; sys.exit('no such channel')", "no such channel"),
        ("import time; time.sleep(600)", "took longer"),
    ],
)
def test_a_command_gets_the_message_on_its_standard_input(code: str, said: str) -> None:
    command = (sys.executable, "-c", code)
    limit = 0.2 if said == "took longer" else PATIENCE
    if not said:
        call(command, {"text": "x"}, limit)
        return
    with pytest.raises(AlertError, match=said):
        call(command, {"text": "x"}, limit)


def test_a_command_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AlertError, match="cannot be started"):
        call(("/no/such/program",), {"text": "x"})


def numbered(url: str) -> str:
    """By what a webhook is known in the file."""
    return f"sha256:{hashlib.sha256(json.dumps(url).encode()).hexdigest()}"


def test_alerts_survive_a_restart(hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_watch, "END_SECONDS", PATIENCE)  # each run delivers what it has to
    file = tmp_path / "alerts.json"
    spec = SimpleNamespace(name="city", alerts=(hg.Alert(hook.url),), streams=())
    row = replace(AIR, state="held", error="<b>no</b>")

    def run(row: NodeStatistics, now: float) -> None:
        watch = AlertWatch(lambda: spec, lambda: (row,), file, lambda line: None, lambda: now)  # type: ignore[arg-type,return-value]
        watch.look()
        watch.stop()

    run(row, 10.0)
    first = hook.got.get(timeout=PATIENCE)
    assert first == {
        "warehouse": "city",
        "table": "air",
        "condition": "held",
        "status": "firing",
        "at": 10.0,
        "text": "air is held: <b>no</b>",
    }
    run(row, 20.0)
    run(AIR, 30.0)
    assert hook.got.empty()
    run(replace(AIR, last_update=35.0), 40.0)
    assert hook.got.get(timeout=PATIENCE)["status"] == "recovered"
    run(AIR, 50.0)
    assert hook.got.empty()
    assert file.stat().st_mode & 0o077 == 0
    assert "hook" not in file.read_text(), "the URL of a webhook may be a secret"


def test_what_was_not_delivered_is_delivered_by_the_next_run(
    hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_watch, "END_SECONDS", PATIENCE)  # that it was delivered is noted before the end
    file = tmp_path / "alerts.json"
    file.write_text(
        json.dumps(
            {
                "version": 2,
                "fired": [[numbered(hook.url), "air", "held", 10.0]],
                "pending": [[numbered(hook.url), "air", "held", {"text": "air is held"}]],
            }
        )
    )
    spec = SimpleNamespace(name="city", alerts=(hg.Alert(hook.url),), streams=())
    watch = AlertWatch(lambda: spec, lambda: (AIR,), file, lambda line: None, lambda: 20.0)  # type: ignore[arg-type,return-value]
    watch.look()
    assert hook.got.get(timeout=PATIENCE) == {"text": "air is held"}
    watch.stop()
    assert json.loads(file.read_text())["pending"] == []


@pytest.mark.slow
def test_a_webhook_that_hangs_delays_neither_looks_nor_others_nor_the_end_and_is_told_by_the_next_run(
    hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_watch, "END_SECONDS", 0.1)
    hangs = Hook()
    hangs.plan = ["hang"] * 10
    file = tmp_path / "alerts.json"
    spec = SimpleNamespace(name="city", alerts=(hg.Alert(hangs.url), hg.Alert(hook.url)), streams=())
    rows = [replace(AIR, state="held", error="no")]

    def run(now: float) -> AlertWatch:
        patient = partial(Courier, limit=PATIENCE)  # a call that hangs goes on doing so
        return AlertWatch(lambda: spec, lambda: tuple(rows), file, lambda line: None, lambda: now, patient)  # type: ignore[arg-type,return-value]

    def noted() -> bool:
        """Whether the file says that the hook which answers has got all."""
        return numbered(hook.url) not in {to for to, *_ in json.loads(file.read_text())["pending"]}

    try:
        watch = run(10.0)
        watch.look()
        assert hook.got.get(timeout=PATIENCE)["status"] == "firing"
        rows[:] = [replace(AIR, last_update=15.0), replace(AIR, name="trips", state="held")]
        watch.look()
        told = [hook.got.get(timeout=PATIENCE) for _ in range(2)]
        assert [(each["table"], each["status"]) for each in told] == [("air", "recovered"), ("trips", "firing")]
        end = time.monotonic() + PATIENCE
        while not noted():  # the hook has a message before that is noted
            assert time.monotonic() < end
            threading.Event().wait(0.005)
        watch.stop()  # although the first call still hangs, as nothing has released it
        assert not hangs.release.is_set() and hangs.got.empty()
        hangs.plan.clear()
        again = run(20.0)
        again.look()
        told = [hangs.got.get(timeout=PATIENCE) for _ in range(3)]
        monkeypatch.setattr(alert_watch, "END_SECONDS", PATIENCE)
        again.stop()
        assert [(each["table"], each["status"]) for each in told] == [
            ("air", "firing"),
            ("air", "recovered"),
            ("trips", "firing"),
        ]
        assert hook.got.empty() and hangs.got.empty(), "nothing is repeated"
    finally:
        hangs.close()


def test_all_destinations_are_told_of_the_end_before_any_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_watch, "END_SECONDS", 0.2)
    hooks = [Hook() for _ in range(3)]
    told: list[tuple[str, str]] = []
    given: list[float] = []

    class Told(Courier):
        def take_no_more(self) -> None:
            told.append(("no more", str(self._to)))
            super().take_no_more()

        def try_no_more(self) -> None:
            told.append(("give up", str(self._to)))
            super().try_no_more()

        def join(self, seconds: float) -> None:
            told.append(("wait", str(self._to)))
            given.append(seconds)
            super().join(seconds)

    for each in hooks:
        each.plan = ["hang"]
    spec = SimpleNamespace(name="city", alerts=tuple(hg.Alert(each.url) for each in hooks), streams=())
    held = replace(AIR, state="held", error="no")
    patient = partial(Told, limit=PATIENCE)
    watch = AlertWatch(lambda: spec, lambda: (held,), tmp_path / "a.json", lambda line: None, time.time, patient)  # type: ignore[arg-type,return-value]
    try:
        watch.look()
        watch.stop()
    finally:
        for each in hooks:
            each.close()
    assert [what for what, _ in told] == ["no more"] * 3 + ["wait"] * 3 + ["give up"] * 3 + ["wait"] * 3
    assert len(set(told)) == 9
    # Each gets what the ones before it have left, so that all of them together take no longer than one.
    assert given[0] <= 0.2 and given[1:3] == sorted(given[1:3], reverse=True) and given[2] <= 0


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"version": 2, "fired": [["x"], [[]]], "pending": []}'])
def test_a_damaged_file_of_alerts_is_ignored(tmp_path: Path, content: str) -> None:
    file = tmp_path / "alerts.json"
    file.write_text(content)
    spec = SimpleNamespace(name="city", alerts=(HELD,), streams=())
    AlertWatch(lambda: spec, lambda: (AIR,), file, lambda line: None).look()  # type: ignore[arg-type,return-value]


def test_the_next_message_is_delivered_although_the_end_of_one_could_not_be_noted(hook: Hook) -> None:
    said: SimpleQueue[str] = SimpleQueue()

    def done(message: object) -> None:
        raise RuntimeError("dictionary changed size during iteration")

    courier = Courier(hook.url, "the hook", done, said.put)
    courier.put({"text": "first"})
    courier.put({"text": "second"})
    assert [hook.got.get(timeout=PATIENCE)["text"] for _ in range(2)] == ["first", "second"]
    assert "could not be noted" in said.get(timeout=PATIENCE)
    courier.stop(2)


def test_what_has_fired_changes_only_while_nobody_writes_it(tmp_path: Path) -> None:
    spec = SimpleNamespace(name="city", alerts=(HELD,), streams=())
    row = replace(AIR, state="held", error="no")
    free: list[bool] = []

    def clock() -> float:  # the rules are about to change what has fired
        free.append(watch._lock.acquire(blocking=False))
        return 10.0

    courier: Any = lambda *about: SimpleNamespace(put=lambda message: True, stop=lambda seconds: None)  # noqa: E731
    watch = AlertWatch(lambda: spec, lambda: (row,), tmp_path / "alerts.json", lambda line: None, clock, courier)  # type: ignore[arg-type,return-value]
    watch.look()
    assert free == [False]
