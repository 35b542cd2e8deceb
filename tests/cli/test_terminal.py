"""Whatever data, names and messages hold, nothing of it reaches the terminal as an order."""

from __future__ import annotations

import ast
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

import headgate.cli
from headgate.cli import main
from headgate.cli.live import UpdateLines, live_view, print_summary
from headgate.cli.output import PlainConsole
from headgate.core.errors import HeadgateError
from headgate.core.explain import Explanation
from headgate.core.trace import Change, RunNotice, Trace, TraceHeader, TraceTable
from headgate.core.trace.lines import end_line, header_line
from headgate.core.update import OperatorFigures, Update
from headgate.warehouse.report.printable import printable
from headgate.warehouse.report.report import FORMATS, write_report
from headgate.warehouse.schedule.ledger import NodeStatistics
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState
from tests.sim.recording import START
from tests.warehouse.control_helpers import Recorder, serving, statistics_of

#: sets the title of the window, clears the screen, goes back to the beginning of the line; in 7 and in 8 bits
EVIL = "\x1b]0;owned\x07\x1b[2J\rgone\x9b31m\u202eabc"
#: what is left of it: it stays readable, and is nothing but text
SHOWN = r"\u001b]0;owned\u0007\u001b[2J\u000dgone\u009b31m\u202eabc"
#: what people write
NORMAL = "Größe 12 °C, 東京, שלום, مرحبا, 👩‍👩‍👧 é [red]x[/red] :smile: \\u001b"


def orders_in(text: str) -> list[str]:
    return re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


# --- the one function -----------------------------------------------------------------------------------------------


def test_orders_are_written_out_and_normal_text_stays_as_it_is() -> None:
    assert printable(EVIL) == SHOWN
    assert printable(NORMAL) == NORMAL
    assert printable("two\nlines and\ta tab") == "two\nlines and\ta tab"


def test_what_is_printable_can_be_written_anywhere() -> None:
    everything = "".join(map(chr, range(0x11_0000)))
    assert orders_in(printable(everything)) == []
    printable(everything).encode("utf-8")  # half characters, as in names of files that are not UTF-8, cannot be


def test_a_line_of_json_means_the_same_afterwards() -> None:
    value = {"text": "".join(map(chr, range(0xD800))) + NORMAL}
    line = printable(json.dumps(value, ensure_ascii=False))
    assert orders_in(line) == []
    assert json.loads(line) == value


# --- nobody else prints ---------------------------------------------------------------------------------------------

MODULES = sorted(Path(headgate.cli.__file__).parent.glob("*.py"))


def printing(module: Path) -> list[str]:
    """Calls that print past ``headgate.cli.output``."""
    calls = [node for node in ast.walk(ast.parse(module.read_text("utf-8"))) if isinstance(node, ast.Call)]
    names = [ast.unparse(call.func) for call in calls]
    past = {"print", "Console", "Text", "Text.from_markup", "typer.echo", "typer.secho", "click.echo"}
    return [name for name in names if name in past or name.endswith((".write", ".print_exception", "print_exc"))]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_every_module_of_the_command_line_prints_through_one(module: Path) -> None:
    if module.stem == "output":
        assert printing(module) != []
    else:
        assert [name for name in printing(module) if name != "pipeline.write"] == []


# --- what users see -------------------------------------------------------------------------------------------------


class Done(NamedTuple):
    """What a command left behind."""

    status: int
    out: str
    err: str


Headgate = Callable[..., Done]


@pytest.fixture
def headgate_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Headgate:
    def run(*arguments: str | Path) -> Done:
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setattr(sys, "argv", ["headgate", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Done(ended.value.code if isinstance(ended.value.code, int) else 0, out, err)

    return run


@pytest.fixture
def committed(tmp_path: Path) -> Path:
    """A warehouse with rejected rows that somebody has sent to be looked at."""
    store = TableStore(tmp_path / "tables" / "air__rejected", None)
    rows = pa.table({"reason": [EVIL], f"raw{EVIL}": [[EVIL]], "place": [NORMAL]})
    state = CommitState(1, "load", None, 1).to_json()
    store.commit(1, store.write_arrow(1, rows, None), state=state, schema=rows.schema)
    return tmp_path


class Told(Explanation):
    """An explanation that holds a name from outside."""

    def __init__(self) -> None:
        pass

    def __str__(self) -> str:
        return f"{EVIL} waits"


class Hostile(Recorder):
    """Everything that it says holds orders."""

    def statistics(self) -> tuple[NodeStatistics, ...]:
        return (statistics_of(f"air{EVIL}", state="held", error=f"no such column {EVIL}"),)

    def notices(self) -> tuple[RunNotice, ...]:
        return (RunNotice(0.0, f"air{EVIL}", f"{EVIL}.json changed"),)

    def explain(self, name: str) -> Explanation:
        return Told()

    def pause(self, name: str) -> None:
        raise HeadgateError(f"cannot: {EVIL}")


COMMANDS = {
    "query": ["query", "select * from air__rejected"],
    "query as JSON": ["query", "select * from air__rejected", "--json"],
    "status": ["status"],
    "status as JSON": ["status", "--json"],
    "explain": ["explain", "air"],
    "an error": ["pause", "air"],
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_no_command_lets_orders_through(headgate_command: Headgate, committed: Path, arguments: list[str]) -> None:
    command, *rest = arguments
    with serving(committed, Hostile()):
        done = headgate_command(command, committed, *rest)
    assert orders_in(done.out + done.err) == []
    assert r"\u001b" in done.out + done.err


def test_normal_values_are_printed_as_they_are(headgate_command: Headgate, committed: Path) -> None:
    assert NORMAL in headgate_command("query", committed, "select place from air__rejected").out
    assert json.loads(headgate_command("query", committed, "select * from air__rejected", "--json").out) == {
        "reason": EVIL,
        f"raw{EVIL}": [EVIL],
        "place": NORMAL,
    }


def test_updates_that_fail_and_messages_are_printed_without_orders(capsys: pytest.CaptureFixture[str]) -> None:
    lines = UpdateLines()
    update = Update(f"air{EVIL}")
    update.fails(ValueError(f"cannot read {EVIL}"))
    lines.note(update)
    lines.message(EVIL)
    out, err = capsys.readouterr()
    assert orders_in(out + err) == []
    assert err.count(SHOWN) >= 3


def test_the_live_table_and_the_summary_have_no_orders(capsys: pytest.CaptureFixture[str]) -> None:
    operator = OperatorFigures(EVIL, f"[red]{EVIL}", "stateless", 10, 4, 1, 0.5, 8, 0.25, 2.0)
    rows = [statistics_of(f"[/b]{EVIL}", state="held", error=EVIL, operators=(operator,))]
    console = PlainConsole(file=io.StringIO(), width=2000)
    console.print(live_view(EVIL, rows, 0.0))
    print_summary(EVIL, Path(EVIL), rows, 1.0, [("trace", Path(EVIL))])
    shown = console.file.getvalue() + capsys.readouterr().out  # type: ignore[attr-defined]
    assert orders_in(shown) == []
    assert f"[/b]{SHOWN}" in shown


def hostile_trace() -> Trace:
    tables = (
        TraceTable(f"[bold]</td>{EVIL}", kind="stream", freshness=round(START * 1e6)),
        TraceTable("<script>alert(1)</script>", sources=(f"[bold]</td>{EVIL}",)),
    )
    header = TraceHeader(f"[/]<b>{EVIL}", START, 1, "fifo", "anywhere", "max", None, tables)
    operator = OperatorFigures(EVIL, "<i>", EVIL, 10, 4, 1, 0.5, 8, 0.25, 2.0)
    arrived = (START, START, 1)
    good = Update(tables[0].name, "live", 0, START, START, 1.0, 1.0, 1, 0, round(START * 1e6) + 5, arrived, 0.0, None)
    good.operators = (operator,)
    bad = Update(tables[1].name, "live", 0, START, START, 1.0, 1.0, 1, 0, None, None, 0.0, f"<img src=x>{EVIL}")
    changes = (Change(START + 1, {"paused": f"<u>{EVIL}", EVIL: EVIL}),)
    return Trace(header, (good, bad), changes, START + 60, notices=(RunNotice(START + 1, EVIL, f"<p>{EVIL}"),))


@pytest.mark.parametrize("suffix", FORMATS)
def test_no_report_has_orders(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"report{suffix}"
    write_report(hostile_trace(), path)
    content = path.read_text("utf-8")
    assert orders_in(content) == []
    assert r"\u001b" in content


def test_a_page_has_no_elements_from_data(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(hostile_trace(), path)
    elements = set(re.findall(r"<(\w+)", path.read_text("utf-8")))
    assert elements.isdisjoint({"script", "img", "i", "u"})
    assert "&lt;script&gt;alert(1)" in path.read_text("utf-8")


def test_a_replay_prints_no_orders_and_takes_nothing_for_markup(headgate_command: Headgate, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    header = hostile_trace().header
    path.write_text(header_line(header) + end_line(START + 60))
    done = headgate_command("simulate", path)
    assert (done.status, done.err) == (0, "")
    assert orders_in(done.out) == []
    assert "[/]<b>" in done.out
    assert "[bold]</td>" in done.out
