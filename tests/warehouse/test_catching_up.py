"""Catching up with what had arrived at one moment: which tables have, which will, and which need help."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.core import Update
from headgate.core.errors import HeadgateError, UnknownNameError
from headgate.errors import NotFreshError
from headgate.warehouse import Generator, Warehouse
from headgate.warehouse.run.run import SparkOptions, WarehouseRun
from headgate.warehouse.schedule.catching_up import Behind, CatchUp, PublicationStanding
from headgate.warehouse.schedule.explaining import Standing
from headgate.warehouse.sources import Pending
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import OpenWarehouse
from tests.warehouse.test_opened import arrive, city, counted, reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINCE = 100.0
SECOND = 1_000_000


class PlainNode(Node):
    """Has pending what it is told, in a table of commits without rows."""

    def __init__(self, table: str, folder: Path, sources: tuple[str, ...]) -> None:
        self.table = table
        self.store = TableStore(folder / table)
        self.sources = sources
        #: when the oldest data that waits has arrived; of a table, anything but None means that something is pending
        self.waiting: float | None = None
        self.trouble: Exception | None = None

    def plan(self) -> Update | None:
        if self.trouble is not None:
            raise self.trouble
        arrived = None if self.waiting is None or self.sources else (self.waiting, self.waiting, 1)
        return None if self.waiting is None else Update(self.table, arrived=arrived)

    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        raise NotImplementedError

    def run(self, update: Update, *others: Any) -> None:
        raise NotImplementedError

    def commits(
        self, sources: dict[str, int] | None = None, dirty: tuple[tuple[int, int], ...] = (), fresh: int = 9 * SECOND
    ) -> int:
        import pyarrow as pa

        number = self.state.update + 1
        state = CommitState(number, "load", fresh, sources=sources or {}, dirty=dirty)
        self.store.commit(number, (), state=state.to_json(), schema=pa.schema([("v", pa.int64())]))
        return self.store.version


class Situation:
    """readings -> minutes -> hours, and cars; all up to date."""

    def __init__(self, folder: Path) -> None:
        wh = Warehouse("w", folder)
        wh.stream("readings", Generator(), time="ts")
        wh.stream("cars", Generator(), time="ts")
        wh.sql("minutes", "select ts from readings", time="ts")
        wh.sql("hours", "select ts from minutes", time="ts")
        spec = wh.spec()
        above = {table.name: table.sources for table in spec.tables}
        self.nodes = {name: PlainNode(name, folder, above.get(name, ())) for name in spec.names()}
        self.warehouse = OpenWarehouse(spec, spec.graph(), self.nodes)
        self.standings = {name: Standing(name, node.sources) for name, node in self.nodes.items()}

    def stands(self, name: str, **fields: Any) -> None:
        self.standings[name] = replace(self.standings[name], **fields)

    def watch(self, *tables: str) -> CatchUp:
        return CatchUp(self.warehouse, SINCE, tables or None)

    def behind(self, catch_up: CatchUp) -> Behind:
        return catch_up.behind(self.warehouse, self.standings)


@pytest.fixture
def situation(tmp_path: Path) -> Situation:
    return Situation(tmp_path)


def test_when_nothing_waits_all_have_caught_up(situation: Situation) -> None:
    assert situation.behind(situation.watch()) == Behind({}, stuck=True)


def test_what_is_published_must_be_at_its_places_if_that_is_asked_for(situation: Situation) -> None:
    version = situation.nodes["hours"].commits()
    catch_up = CatchUp(situation.warehouse, SINCE, None, publications=True)

    def behind(*standing: Any) -> Behind:
        return catch_up.behind(situation.warehouse, situation.standings, {"hours": PublicationStanding(*standing)})

    assert behind(-1) == Behind({"hours (publish)": "it is not published yet"}, stuck=False)
    assert behind(version - 1, 5, "no route") == Behind({"hours (publish)": "no route"}, stuck=True)
    assert behind(version) == Behind({}, stuck=True)
    others = CatchUp(situation.warehouse, SINCE)
    assert others.behind(situation.warehouse, situation.standings, {"hours": PublicationStanding(-1)}).tables == {}


def test_tables_catch_up_one_after_the_other_and_what_arrives_later_does_not_matter(situation: Situation) -> None:
    readings, minutes, hours = (situation.nodes[name] for name in ("readings", "minutes", "hours"))
    catch_up = situation.watch()
    readings.waiting = SINCE - 1
    assert situation.behind(catch_up) == Behind(
        {
            "readings": "data that has arrived is not loaded yet",
            "minutes": "it waits for readings",
            "hours": "it waits for minutes",
        },
        stuck=False,
    )
    version = readings.commits()
    readings.waiting = SINCE + 5  # more has come
    minutes.waiting = 0.0
    assert set(situation.behind(catch_up).tables) == {"minutes", "hours"}
    situation.stands("minutes", updating=True)
    assert situation.behind(catch_up).tables["minutes"] == "it is being updated"
    situation.stands("minutes", updating=False)
    minutes.commits({"readings": version})
    readings.commits()  # a later version, so minutes still has something pending
    assert set(situation.behind(catch_up).tables) == set(), "hours has nothing pending"
    hours.waiting = 0.0
    assert set(situation.behind(situation.watch("hours")).tables) == {"minutes", "hours"}, "a later moment"


def test_a_table_that_has_computed_some_blocks_of_its_sources_has_not_caught_up(situation: Situation) -> None:
    readings, minutes = situation.nodes["readings"], situation.nodes["minutes"]
    version = readings.commits()
    minutes.waiting = 0.0
    catch_up = situation.watch("minutes")
    minutes.commits({"readings": version}, fresh=3 * SECOND - 1)
    assert situation.behind(catch_up).tables == {"minutes": "it has not taken in all of its sources"}
    readings.commits(fresh=20 * SECOND)  # what comes later does not matter
    minutes.commits({"readings": version + 1}, fresh=9 * SECOND)
    assert not situation.behind(catch_up).tables


def test_a_table_whose_past_is_to_be_recomputed_has_not_caught_up(situation: Situation) -> None:
    situation.nodes["minutes"].commits(dirty=((0, SECOND - 1),))
    catch_up = situation.watch()
    left = situation.behind(catch_up)
    assert left.tables["minutes"].startswith("still to be recomputed: 1 s of event time")
    assert (set(left.tables), left.stuck) == ({"minutes", "hours"}, False)
    situation.nodes["minutes"].commits()
    assert not situation.behind(catch_up).tables


@pytest.mark.parametrize(
    ("fields", "why", "stuck"),
    [
        ({"paused": True}, "paused, until it is resumed", True),
        ({"failures": 5, "held": True, "error": "no such column"}, "held after 5 failures", True),
        ({"failures": 1, "error": "no such column"}, "failed once, tried again", False),
    ],
    ids=["paused", "held", "failing"],
)
def test_tables_that_need_help_are_not_waited_for(
    situation: Situation, fields: dict[str, Any], why: str, stuck: bool
) -> None:
    situation.nodes["minutes"].waiting = 0.0
    situation.nodes["readings"].commits()
    situation.stands("minutes", **fields)
    left = situation.behind(situation.watch())
    assert left.tables["minutes"].startswith(why)
    assert (left.tables["hours"], left.stuck) == ("it waits for minutes", stuck)
    assert not situation.behind(situation.watch("cars")).tables, "other tables are fresh"
    situation.nodes["cars"].waiting = 1.0
    assert not situation.behind(situation.watch()).stuck, "cars can still catch up"


def test_a_table_that_is_paused_and_has_nothing_pending_is_fresh(situation: Situation) -> None:
    situation.stands("minutes", paused=True)
    assert not situation.behind(situation.watch()).tables


def test_a_source_that_cannot_be_read_is_not_waited_for(situation: Situation) -> None:
    situation.nodes["readings"].trouble = OSError("permission denied")
    left = situation.behind(situation.watch("hours"))
    assert left.tables["readings"] == "its source cannot be read: permission denied"
    assert (set(left.tables), left.stuck) == ({"readings", "minutes", "hours"}, True)


def test_a_source_that_is_asked_now_and_then_has_to_answer_first(situation: Situation) -> None:
    readings, catch_up = situation.nodes["readings"], situation.watch("readings")
    readings.last_poll = Pending(looked_at=SINCE - 1)
    assert situation.behind(catch_up) == Behind({"readings": "its source has not been looked at since"}, False)
    readings.last_poll = Pending(looked_at=-math.inf, note="Kafka does not answer", missing=True)
    assert situation.behind(catch_up) == Behind({"readings": "Kafka does not answer"}, stuck=True)
    readings.last_poll = Pending(looked_at=SINCE)
    assert situation.behind(catch_up).tables == {}


def test_an_unknown_table_is_refused(situation: Situation) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'hours'"):
        situation.watch("hour")


# ---- a real run ------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_run_can_be_waited_for_until_all_is_fresh(tmp_path: Path, spark: SparkSession) -> None:
    arrive(tmp_path, "readings", "1", [reading(0), reading(70, "a", 36)])
    arrive(tmp_path, "cars", "1", [counted(0, 3), counted(71)])
    with WarehouseRun(city(tmp_path), spark=SparkOptions(session=spark)) as run:
        run.wait_until_fresh("10 min")
        nodes = run.runtime.warehouse.nodes
        assert nodes["alerts"].store.arrow().num_rows == 1
        assert nodes["minutes"].freshness == nodes["readings"].freshness
        run.runtime.pause("minutes")
        arrive(tmp_path, "readings", "2", [reading(75, "a", 40)])
        run.wait_until_fresh("10 min", tables=["alerts"])
        assert nodes["alerts"].store.arrow().num_rows == 2
        assert "paused" in str(run.runtime.explain("minutes"))
        with pytest.raises(NotFreshError) as caught:
            run.wait_until_fresh("10 min")
        assert set(caught.value.tables) == {"minutes", "together"}
        assert "minutes is not fresh: paused" in str(caught.value)
        run.runtime.resume("minutes")
        run.wait_until_fresh("10 min")
    with pytest.raises(HeadgateError, match="not running"):
        WarehouseRun(city(tmp_path)).wait_until_fresh()
