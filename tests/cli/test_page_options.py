"""The options of the page: no token gets into a log, and it is opened by the names that were given."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from headgate.cli import main
from headgate.cli.page import PageOptions
from headgate.core import ParameterError
from headgate.monitor.access import TOKEN_VARIABLE
from headgate.warehouse.run.trace import runs_folder
from tests.monitor.test_recorded import written
from tests.sim.recording import BUSY, recorded

REFUSED = f"a page beyond this machine takes its token from {TOKEN_VARIABLE}"


class Stream(io.StringIO):
    """What a command writes to: a terminal, or a file."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def said(monkeypatch: pytest.MonkeyPatch, terminals: tuple[bool, bool], *arguments: object) -> str:
    """What a command says when its standard output and its standard error are terminals or not."""
    out, err = map(Stream, terminals)
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["headgate", *map(str, arguments)])
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return out.getvalue() + err.getvalue()


@pytest.mark.parametrize(
    ("terminals", "options", "is_refused"),
    [
        pytest.param((True, True), (), False, id="a terminal"),
        pytest.param((True, False), (), True, id="2> run.log"),
        pytest.param((False, True), (), False, id="> updates.log"),
        pytest.param((False, False), (), True, id="both in a log"),
        pytest.param((True, True), ("--log-json",), True, id="a log in JSON"),
        pytest.param((False, False), ("--no-ui",), False, id="no page"),
    ],
)
def test_a_run_refuses_a_token_where_its_address_would_be_logged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    terminals: tuple[bool, bool],
    options: tuple[str, ...],
    is_refused: bool,
) -> None:
    told = said(monkeypatch, terminals, "run", tmp_path / "none.py", "--ui-host", "0.0.0.0", *options)
    assert (REFUSED in told) == is_refused
    assert ("none.py" in told) != is_refused, "it goes on, to a file that is not there"


def test_ui_refuses_a_token_where_its_address_would_be_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, trace = recorded(BUSY, "fifo")
    written(runs_folder(tmp_path), trace)
    assert REFUSED in said(monkeypatch, (False, True), "ui", tmp_path, "--ui-host", "0.0.0.0")


@pytest.mark.parametrize(
    ("host", "token", "names", "is_refused"),
    [
        ("127.0.0.1", None, (), False),
        ("0.0.0.0", None, (), True),
        ("0.0.0.0", "a-token-of-the-user", (), False),
        ("127.0.0.1", None, ("city.example",), True),
    ],
)
def test_no_token_gets_into_the_log(host: str, token: str | None, names: tuple[str, ...], is_refused: bool) -> None:
    page = PageOptions(host, token=token, names=names)
    page.refuse_a_token_in(Stream(terminal=True))
    if not is_refused:
        page.refuse_a_token_in(Stream(terminal=False))
        return
    with pytest.raises(ParameterError, match=TOKEN_VARIABLE):
        page.refuse_a_token_in(Stream(terminal=False))


@pytest.mark.parametrize("name", ["http://city.example", "city.example:4300", "city.example/", "", "a b", "*"])
def test_what_is_no_name_is_refused_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    told = said(monkeypatch, (True, True), "run", tmp_path / "none.py", "--ui-name", "good.example", "--ui-name", name)
    assert "--ui-name takes a name without a scheme and a port, such as city.example" in told
