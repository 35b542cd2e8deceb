"""Decisions of the scheduler, on tables that nobody runs: the nodes of one table never run at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.core.update import Update
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.schedule.scheduler import Scheduler
from headgate.warehouse.sources import Files
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.load import DimensionNode, StreamNode
from headgate.warehouse.updates.maintain import MOST_EXTRA_FILES
from headgate.warehouse.updates.open_warehouse import OpenWarehouse
from tests.warehouse.storage_helpers import clicks, load


@pytest.fixture
def warehouse(tmp_path: Path) -> OpenWarehouse:
    """One stream, with a file that has landed, and with so many small files that they should be merged."""
    landing = tmp_path / "landing"
    landing.mkdir()
    (landing / "1.json").write_text(json.dumps({"ts": "2026-01-01T00:00:00Z", "v": 1}) + "\n", encoding="utf-8")
    declared = Warehouse("small", path=tmp_path / "warehouse")
    source = Files(str(landing), format="json", schema="ts timestamp, v long", settle=0)
    declared.stream("clicks", source, time="ts", partition="1 hour")
    spec = declared.spec()
    store = TableStore(tmp_path / "clicks", "ts")
    for number in range(1, MOST_EXTRA_FILES + 3):
        load(store, number, clicks(number), state=CommitState(number, "load").to_json())
    node = StreamNode(spec.streams[0], store, TableStore(tmp_path / "rejected"))
    return OpenWarehouse(spec, spec.graph(), {"clicks": node})


def decided(scheduler: Scheduler, now: float) -> list[list[str]]:
    scheduler.poll(now)
    return [[update.name for update in updates] for updates in scheduler.decide(now)]


def test_a_table_is_loaded_and_maintained_one_after_the_other_however_many_tracks_are_free(
    warehouse: OpenWarehouse,
) -> None:
    scheduler = Scheduler(warehouse, RunOptions(tracks=2), 100.0)
    scheduler.poll(100.0)
    ((loading,),) = scheduler.decide(100.0)
    assert loading.name == "clicks"
    assert decided(scheduler, 101.0) == []
    loading.fails(OSError("no space left"))
    scheduler.ended(loading, 102.0)
    assert decided(scheduler, 102.0) == [["clicks (maintenance)"]], "the load is tried again later"
    assert decided(scheduler, 110.0) == [], "it waits for the maintenance now"


def test_a_failed_update_keeps_neither_its_plan_nor_figures_of_rows_that_are_in_no_table(
    warehouse: OpenWarehouse,
) -> None:
    scheduler = Scheduler(warehouse, RunOptions(tracks=1), 100.0)
    scheduler.poll(100.0)
    ((loading,),) = scheduler.decide(100.0)
    assert loading.plan is not None
    assert loading.arrived is not None
    loading.rejected = 7  # as when the rows were read and written, and the commit failed
    loading.began = 100.0
    loading.fails(OSError("no space left"), 0.5)
    scheduler.ended(loading, 101.0)
    nothing = Update("clicks", track=0, released=100.0, began=100.0, seconds=0.5, gained=loading.gained)
    nothing.error = "no space left"
    assert loading == nothing
    assert loading.plan is None


def test_a_dimension_that_has_changed_is_loaded_before_streams_that_have_waited_less(tmp_path: Path) -> None:
    declared = Warehouse("small", path=tmp_path / "warehouse")
    for name in ("people", "clicks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.json").write_text('{"ts": "2026-01-01T00:00:00Z", "v": 1}\n', encoding="utf-8")
        source = Files(str(tmp_path / name), format="json", schema="ts timestamp, v long", settle=0)
        if name == "people":
            declared.dimension(name, source)
        else:
            declared.stream(name, source, time="ts", period="1 s")
    spec = declared.spec()
    stores = {name: TableStore(tmp_path / "t" / name) for name in ("people", "clicks", "r1", "r2")}
    nodes = {
        "clicks": StreamNode(spec.streams[0], stores["clicks"], stores["r1"]),
        "people": DimensionNode(spec.dimensions[0], stores["people"], stores["r2"]),
    }
    landed = (tmp_path / "people" / "1.json").stat().st_mtime
    scheduler = Scheduler(OpenWarehouse(spec, spec.graph(), nodes), RunOptions(tracks=1), landed + 60.0)
    assert decided(scheduler, landed + 60.0) == [["people"]]
