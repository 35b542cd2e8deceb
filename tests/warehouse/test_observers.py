"""Those who are told of a run may fail: users learn of that, and nothing else happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.core.trace import RunNotice
from headgate.core.update import Update
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.run.observers import NOTICES_KEPT, Observers
from headgate.warehouse.updates.open_warehouse import OpenWarehouse


def fails(*told: object) -> None:
    raise BrokenPipeError("nobody reads this any more")


def failure(when: str) -> str:
    return f"what is called {when} has failed: BrokenPipeError: nobody reads this any more"


@pytest.fixture
def warehouse(tmp_path: Path) -> OpenWarehouse:
    spec = Warehouse("empty", tmp_path).spec()
    return OpenWarehouse(spec, spec.graph(), {})


def test_users_are_told_once_of_each_observer_that_fails(warehouse: OpenWarehouse) -> None:
    told: list[str] = []
    observers = Observers(fails, fails, lambda notice: told.append(notice.text), fails)
    for now in (1.0, 2.0):
        observers.updated(Update("a"), now)
        observers.changed(now, {"paused": "a"})
        observers.redeclared(now, warehouse)
    assert told == [failure(f"after every {what}") for what in ("update", "change")] + [
        failure("when tables were opened again")
    ]


def test_notices_are_kept_even_if_nobody_can_be_told_of_them() -> None:
    observers = Observers(on_notice=fails)
    observers.notice(RunNotice(1.0, "a", "its source is not there"))
    observers.notice(RunNotice(2.0, "b", "its source is not there"))
    assert [notice.text for notice in observers.notices] == [
        "its source is not there",
        failure("with every notice"),
        "its source is not there",
    ]


def test_the_latest_notices_are_kept() -> None:
    observers = Observers()
    for number in range(NOTICES_KEPT + 5):
        observers.notice(RunNotice(float(number), None, str(number)))
    assert [notice.text for notice in observers.notices] == [str(number) for number in range(5, NOTICES_KEPT + 5)]
