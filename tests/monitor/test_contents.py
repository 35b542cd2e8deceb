"""What is in a table: for people, never all of it, and no rows if previews are switched off."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from headgate.monitor.contents import LONGEST_CELL, ROWS, ROWS_READ, contents_of, opened_at
from headgate.monitor.server import application
from headgate.monitor.watch import RunWatch
from headgate.warehouse.declare.spec import Place, TableSpec
from headgate.warehouse.run.opened_table import OpenedTable, table_code
from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState
from tests.monitor.pretended import NASTY, PretendedRun


@pytest.fixture
def run(tmp_path: Path) -> PretendedRun:
    watch = RunWatch()
    made = PretendedRun(watch, tables=3, directory=tmp_path)
    watch.stop()
    return made


def test_columns_partitions_versions_rows_and_rejected_rows(run: PretendedRun) -> None:
    told = contents_of(run.opened("table001"), previews=True)
    assert [column["name"] for column in told["columns"]] == ["at", "sensor", "value"]
    assert told["rows"] == 16 and told["version"] == 1 and told["time"] == "at"
    assert sum(each["rows"] for each in told["partitions"]) == 16
    labels = [each["name"] for each in told["partitions"]]
    assert labels == sorted(labels, reverse=True) and all(each["bytes"] > 0 for each in told["partitions"])
    assert [(each["version"], each["update"], each["added"]) for each in told["versions"]] == [(1, 2, 8), (0, 1, 8)]
    assert told["preview"]["columns"] == ["at", "sensor", "value"]
    assert any(row[1:] == [NASTY, None] for row in told["preview"]["rows"])
    assert told["rejected"]["rows"][0][0] == "no event time" and NASTY in told["rejected"]["rows"][0][2]
    assert told["code"]["language"] == "sql"


def test_without_previews_no_cell_is_given_out(tmp_path: Path) -> None:
    watch = RunWatch()
    PretendedRun(watch, tables=3, directory=tmp_path)
    watch.look()

    async def ask(previews: bool) -> str:
        app = application(watch, "127.0.0.1", previews=previews)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:4300") as client:
            answer = await client.get("/api/tables/table001/contents")
            missing = await client.get("/api/tables/none/contents")
        assert answer.status_code == 200 and missing.status_code == 404
        return answer.text

    try:
        shown, hidden = asyncio.run(ask(True)), asyncio.run(ask(False))
    finally:
        watch.stop()
    assert "no event time" in shown and '"s3"' in shown
    assert "no event time" not in hidden and '"s3"' not in hidden and '"previews":false' in hidden


def test_of_a_table_with_many_long_cells_a_little_is_shown(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "t", syncs=False)
    rows = pa.table({"text": ["x" * 10_000] * 100})
    files = store.write_arrow(1, rows, None)
    store.commit(1, files, state=CommitState(update=1, kind="load").to_json(), schema=rows.schema)
    preview = contents_of(OpenedTable(store), previews=True)["preview"]["rows"]
    assert len(preview) == ROWS
    assert len(preview[0][0]) < LONGEST_CELL + 40 and preview[0][0].endswith("(10,000 characters)")


def test_of_a_file_with_many_rows_only_the_beginning_is_read(tmp_path: Path) -> None:
    read: list[int] = []

    class Counted(TableStore):
        def rows(self, *about: object, **more: object) -> pa.Table:
            raise AssertionError("all rows were read")

        def batches(self, files: Iterable[DataFile], schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
            for batch in super().batches(files, schema, most):
                read.append(batch.num_rows)
                yield batch

    store = Counted(tmp_path / "t", syncs=False)
    rows = pa.table({"text": ["x"] * 100_000})
    files = store.write_arrow(1, rows, None)
    store.commit(1, files, state=CommitState(update=1, kind="load").to_json(), schema=rows.schema)
    assert len(contents_of(OpenedTable(store), previews=True)["preview"]["rows"]) == ROWS
    assert sum(read) <= ROWS_READ


def test_tables_of_a_stopped_warehouse_are_found_by_name_only(tmp_path: Path, run: PretendedRun) -> None:
    run.opened("table001")  # stored as "1"
    found = opened_at(tmp_path, "1")
    assert found is not None and found.rejected is not None
    assert contents_of(found, previews=True)["time"] == "at"
    assert opened_at(tmp_path / "x", "../1") is None
    assert opened_at(tmp_path, "none") is None


def test_the_code_of_a_table_is_its_sql_or_its_function() -> None:
    def doubled(air: object) -> object:
        return air

    place = Place("city.py", 7)
    code = table_code(TableSpec("t", ("air",), "at", 60.0, place, function=doubled))
    assert code.language == "python" and code.text.startswith("def doubled(air") and code.place == "city.py:7"
    code = table_code(TableSpec("t", ("air",), "at", 60.0, place, query="  select *\n  from air"))
    assert (code.language, code.text) == ("sql", "select *\nfrom air")
    assert table_code(TableSpec("t", (), "at", 60.0, place, function=max)).text == ""
