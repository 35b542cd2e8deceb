"""A scenario that somebody sent may be anything: it is refused in a line, in a moment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headgate.core.errors import ScenarioError
from headgate.sim import read_scenario

TABLES = 'grain = "tables"\n'
OPERATORS = 'grain = "operators"\n[[query]]\nname = "q"\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("grain = []", "grain takes one of", id="a grain that is a list"),
        pytest.param(
            f"{TABLES}[[table]]\nname = 'a'\nperiod = 1\narrivals = [1, 2]", "remove one of them", id="two ways to come"
        ),
        pytest.param(f"{TABLES}[[table]]\nname = []", "'name'", id="a name that is a list"),
        pytest.param(
            f'{TABLES}[[table]]\nname = "a"\ncount = 2\nsources = [[]]', "sources", id="a source that is a list"
        ),
        pytest.param(
            f"{OPERATORS}arrivals = {{pattern = []}}\n[[query.operator]]\nname = 'o'", "pattern", id="a pattern"
        ),
        pytest.param(
            f"{OPERATORS}arrivals = {{pattern = 'constant', rate = 1}}\n[[query.operator]]\nname = 'o'\ncost = 1\n"
            "[loop]\nkind = []",
            "kind",
            id="a loop",
        ),
        pytest.param("x = " + "[" * 100_000 + "]" * 100_000, "not valid TOML", id="lists in lists"),
        pytest.param("events = " + "1" * 100_000, "not valid TOML", id="a number without end"),
        pytest.param("a." * 50_000 + "a = 1", "line 1 has more than 100 dots", id="a key without end"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "sent.toml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=complaint):
        read_scenario(path)


def test_what_has_no_end_is_not_read(tmp_path: Path) -> None:
    pipe, large = tmp_path / "pipe.toml", tmp_path / "large.toml"
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate(1 << 40)
    for path, complaint in ((pipe, "not a file"), (large, "more than 16 MB"), (tmp_path, "not a file")):
        with pytest.raises(ScenarioError, match=complaint):
            read_scenario(path)
