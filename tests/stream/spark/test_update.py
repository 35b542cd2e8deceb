"""What an update knows of its queries' files: which a commit names, which can go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headgate.stream.spark.update import HostedUpdate, StoredStates, tidy_states

HOUR = 3600.0


def test_states_go_into_a_commit_and_come_back() -> None:
    stored = StoredStates({"running": "partitioned user"}, 3, {0: ("u2-b0.state", "u1-b0.state"), 2: ("u1-b2.state",)})
    assert StoredStates.from_json(stored.to_json()) == stored


def test_files_that_the_newest_commit_does_not_need_are_deleted_when_nobody_can_be_writing_them(tmp_path: Path) -> None:
    ages = {
        "u2-b0.state": 2 * HOUR,
        "u1-b0.state": 5 * HOUR,  # the newest one stands on it
        "u0-b0.state": 9 * HOUR,
        "rejected-u2-b0.arrow": 2 * HOUR,
        "rejected-u1-b0.arrow": 5 * HOUR,
        "u3-b0.state": 0.0,  # of an update that is under way
        ".u3-b1.state": 9 * HOUR,  # left behind by a process that died while it wrote
    }
    for name, age in ages.items():
        path = tmp_path / name
        path.touch()
        moment = path.stat().st_mtime - age
        os.utime(path, (moment, moment))
    named = {"query": StoredStates({}, 1, {0: ("u2-b0.state", "u1-b0.state")})}

    def replaced() -> None:
        raise RuntimeError("another process commits by now")

    with pytest.raises(RuntimeError):
        tidy_states(tmp_path, named, ("rejected-u2-b0.arrow",), HOUR, replaced)
    assert {path.name for path in tmp_path.iterdir()} == set(ages)
    assert tidy_states(tmp_path, named, ("rejected-u2-b0.arrow",), HOUR, lambda: None) == 3
    kept = {"u2-b0.state", "u1-b0.state", "rejected-u2-b0.arrow", "u3-b0.state"}
    assert {path.name for path in tmp_path.iterdir()} == kept
    assert tidy_states(tmp_path / "nowhere", named, (), HOUR, lambda: None) == 0


def test_an_update_without_states_has_no_folder_in_which_a_worker_could_say_why_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "verdict-u0.txt").write_text("not about this table", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert HostedUpdate.without_states("t").verdict() is None
    assert HostedUpdate(0, tmp_path, table="t").verdict() == "not about this table"
