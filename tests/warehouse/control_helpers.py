"""A running warehouse to give commands to, without Spark: it writes down what it was told."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from headgate.core.errors import HeadgateError, UnknownNameError
from headgate.core.explain import DispatchExplanation, Explanation, Ranked
from headgate.core.placement import Lane, Placement
from headgate.core.policy import Policy
from headgate.core.trace import RunNotice, TraceTable
from headgate.warehouse.run.control import ControlServer
from headgate.warehouse.run.lock import WarehouseLock
from headgate.warehouse.schedule.glance import Glance, RunningUpdate
from headgate.warehouse.schedule.ledger import NodeStatistics

TABLES = ("air", "alerts", "meters")
#: how long a server waits for requests, unless a test is about that; clients of a busy machine take their time
PATIENCE = 120.0


class Recorder:
    """Has three tables, knows what may go wrong, and does nothing else."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.asked_to_stop = threading.Event()
        #: what was asked to be checked last
        self.checked: tuple[Any, ...] = ()
        #: the names of policies that are refused when they are checked
        self.refused: tuple[str, ...] = ()
        #: raised by the next command
        self.trouble: Exception | None = None

    def statistics(self) -> tuple[NodeStatistics, ...]:
        return tuple(statistics_of(name, priority=10.0 * place) for place, name in enumerate(TABLES, 1))

    def notices(self) -> tuple[RunNotice, ...]:
        return ()

    def glance(self) -> Glance:
        running = (RunningUpdate("meters", "meters", "live", 0, 99.0),)
        queue = (Ranked("alerts", (3.0,), 2.0),)
        return Glance(
            100.0, "max-benefit", "proportional", 2, 1.0, self.statistics(), queue, running, (), "no!", "sum", "auto"
        )

    def declared(self) -> tuple[TraceTable, ...]:
        return tuple(TraceTable(name) for name in TABLES)

    def explain(self, name: str) -> Explanation:
        self._known(name)
        ahead = (Ranked("meters", (3.0,), 2.0),)
        return DispatchExplanation(
            name, 100.0, "max-benefit", (), 2, (1.5,), math.inf, ahead, Lane((0, 1)), {0: "meters"}
        )

    def check_settings(
        self,
        policy: Policy | None = None,
        placement: Placement | None = None,
        tracks: int | None = None,
        names: Iterable[str] = (),
    ) -> None:
        self.checked = (policy, placement, tracks, tuple(map(self._known, names)))
        if policy is not None and policy.name in self.refused:
            raise HeadgateError(f"policy {policy.name!r} needs what nobody has")

    def replace_policy(self, policy: Policy) -> None:
        self._tell("replace_policy", policy)

    def replace_placement(self, placement: Placement) -> None:
        self._tell("replace_placement", placement)

    def set_inheritance(self, inheritance: str) -> None:
        self._tell("set_inheritance", inheritance)

    def set_together(self, together: str) -> None:
        self._tell("set_together", together)

    def set_budget(self, budget: float | None) -> None:
        self._tell("set_budget", budget)

    def set_tracks(self, count: int) -> None:
        self._tell("set_tracks", count)

    def set_priority(self, name: str, priority: float) -> None:
        self._tell("set_priority", self._known(name), priority)

    def pause(self, name: str) -> None:
        self._tell("pause", self._known(name))

    def resume(self, name: str) -> None:
        self._tell("resume", self._known(name))

    def refresh(self, name: str) -> None:
        self._tell("refresh", self._known(name))

    def backfill(self, name: str, first: int, last: int, chunk: float | None = None) -> None:
        self._tell("backfill", self._known(name), first, last, chunk)

    def stop_soon(self) -> None:
        self._tell("stop_soon")
        self.asked_to_stop.set()

    def _tell(self, *what: Any) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.told.append(what)

    def _known(self, name: str) -> str:
        if name not in TABLES:
            raise UnknownNameError("table", name, TABLES)
        return name


def statistics_of(name: str, **known: Any) -> NodeStatistics:
    """Zero in every field that is not given and not a word."""
    values: dict[str, Any] = {field.name: 0 for field in fields(NodeStatistics)}
    values |= {"name": name, "state": "ok", "operators": ()}
    values |= dict.fromkeys(("error", "note", "target_note", "target_help"), "")
    return NodeStatistics(**(values | known))


@contextmanager
def serving(directory: Path, run: Recorder, patience: float = PATIENCE) -> Iterator[WarehouseLock]:
    """``run`` as what runs the warehouse in ``directory``, in this process."""
    with WarehouseLock(directory) as lock, ControlServer(run, lock, patience):
        yield lock
