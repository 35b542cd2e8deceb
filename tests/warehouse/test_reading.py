"""Reading a warehouse from its directory: several tables at one edge, by name, by SQL and on the command line."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner, Result

from headgate.cli.read import query as query_command
from headgate.cli.read import status as status_command
from headgate.core.errors import DeclarationError, HeadgateError, UnknownNameError
from headgate.warehouse import reading
from headgate.warehouse.run.lock import WarehouseLock
from headgate.warehouse.storage import PARTITION_COLUMN
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState

SECOND = 1_000_000
TIME = pa.timestamp("us", tz="UTC")


def add(
    warehouse: Path,
    name: str,
    seconds: list[int],
    freshness: int | None,
    *,
    update: int = 1,
    kind: str = "load",
    sources: dict[str, int] | None = None,
) -> TableStore:
    """Append one row for each event time, ``v`` being the second, and say that the table is complete up to there."""
    store = TableStore(warehouse / "tables" / name, "ts")
    rows = pa.table({"ts": pa.array([s * SECOND for s in seconds], TIME), "v": pa.array(seconds, pa.int64())})
    fresh = None if freshness is None else freshness * SECOND
    state = CommitState(update, kind, fresh, rows.num_rows, time="ts", sources=sources or {})
    store.commit(update, store.write_arrow(update, rows, 3600), state=state.to_json(), schema=rows.schema)
    return store


def add_rejected(warehouse: Path, stream: str) -> None:
    store = TableStore(warehouse / "tables" / f"{stream}__rejected")
    rows = pa.table({"reason": ["no event time"]})
    state = CommitState(1, "load", rows=1)
    store.commit(1, store.write_arrow(1, rows), state=state.to_json(), schema=rows.schema)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Clicks up to 30, of which alerts have seen those up to 20; one click was rejected."""
    add(tmp_path, "clicks", [10, 20, 30], 30)
    add(tmp_path, "alerts", [20], 20, kind="append")
    add_rejected(tmp_path, "clicks")
    return tmp_path


def seconds_of(rows: pa.Table) -> list[int]:
    return sorted(rows.column("v").to_pylist())


# ---- what there is ---------------------------------------------------------------------------------------------


def test_every_table_tells_of_its_newest_commit(warehouse: Path) -> None:
    add(warehouse, "clicks", [40], 40, update=2)
    alerts, clicks, rejected = reading.tables(warehouse)
    assert (clicks.name, clicks.version, clicks.rows, clicks.files, clicks.update) == ("clicks", 1, 4, 2, 2)
    assert (clicks.freshness, clicks.time, clicks.kind) == (40 * SECOND, "ts", "load")
    files = (warehouse / "tables" / "clicks" / "data").rglob("*.parquet")
    assert clicks.bytes == sum(file.stat().st_size for file in files)
    assert (alerts.name, alerts.kind, alerts.freshness) == ("alerts", "append", 20 * SECOND)
    assert (rejected.name, rejected.rejected_of, rejected.rows) == ("clicks__rejected", "clicks", 1)
    assert (rejected.freshness, rejected.time) == (None, None)


def test_maintenance_changes_the_files_and_not_what_a_table_tells_of_its_last_update(warehouse: Path) -> None:
    add(warehouse, "clicks", [40], 40, update=2).compact()
    clicks = next(table for table in reading.tables(warehouse) if table.name == "clicks")
    assert (clicks.version, clicks.files, clicks.rows) == (2, 1, 4)
    assert (clicks.update, clicks.kind, clicks.freshness) == (2, "load", 40 * SECOND)


def test_rejected_rows_stand_right_after_their_stream(warehouse: Path) -> None:
    add(warehouse, "clicks2", [1], 1)
    names = [table.name for table in reading.tables(warehouse)]
    assert names == ["alerts", "clicks", "clicks__rejected", "clicks2"]


def test_a_table_exists_from_its_first_commit_on(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "tables" / "clicks", "ts")
    store.write_arrow(1, pa.table({"ts": pa.array([1], TIME)}), 3600)
    assert reading.tables(tmp_path) == ()


def test_the_trailing_edge_is_the_least_freshness_of_tables_with_event_time(warehouse: Path) -> None:
    found = reading.tables(warehouse)
    assert reading.trailing_edge(found) == 20 * SECOND
    assert reading.trailing_edge(t for t in found if t.name != "alerts") == 30 * SECOND
    assert reading.trailing_edge(t for t in found if t.rejected_of) is None


# ---- several tables at one edge --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "at", "clicks"),
    [
        pytest.param(["clicks"], None, [10, 20, 30], id="alone, all there is"),
        pytest.param(["clicks", "alerts"], None, [10, 20], id="up to where the other is complete"),
        pytest.param(["clicks", "clicks__rejected"], None, [10, 20, 30], id="one without event time does not count"),
        pytest.param(["clicks", "alerts"], 15, [10], id="earlier, if asked"),
        pytest.param(["clicks", "alerts"], 10, [10], id="the edge is included"),
        pytest.param(["clicks", "alerts"], 9, [], id="before the first row"),
    ],
)
def test_rows_beyond_the_edge_are_left_out(
    warehouse: Path, names: list[str], at: int | None, clicks: list[int]
) -> None:
    micros = None if at is None else at * SECOND
    rows = reading.read(warehouse, names, micros)
    assert list(rows) == names
    assert seconds_of(rows["clicks"]) == clicks
    answer = reading.query(warehouse, f"select clicks.v from clicks {also_reading(names)}", micros)
    assert seconds_of(answer.rows) == clicks


def also_reading(names: list[str]) -> str:
    """Names the other tables in a query without changing its rows."""
    return " ".join(f"left join {name} on false" for name in names if name != "clicks")


def test_the_partition_column_is_not_read(warehouse: Path) -> None:
    assert reading.read(warehouse, ["clicks"])["clicks"].column_names == ["ts", "v"]
    assert reading.query(warehouse, "select * from clicks").rows.column_names == ["ts", "v"]
    assert PARTITION_COLUMN in TableStore(warehouse / "tables" / "clicks", "ts").arrow().column_names


def test_a_table_whose_commits_do_not_name_the_time_column_is_read_whole(warehouse: Path) -> None:
    store = TableStore(warehouse / "tables" / "old", "ts")
    rows = pa.table({"ts": pa.array([90 * SECOND], TIME), "v": [90]})
    state = CommitState(1, "load", 90 * SECOND, 1).to_json()
    store.commit(1, store.write_arrow(1, rows, 3600), state=state, schema=rows.schema)
    assert seconds_of(reading.read(warehouse, ["alerts", "old"])["old"]) == [90]
    answer = reading.query(warehouse, "select old.v from old left join alerts on false")
    assert (seconds_of(answer.rows), answer.whole, answer.edge) == ([90], ("old",), 20 * SECOND)


def test_an_edge_beyond_a_table_is_refused_by_its_name(warehouse: Path) -> None:
    with pytest.raises(reading.BeyondTheEdgeError, match=r"'alerts'.*00:00:25.*complete up to .*00:00:20"):
        reading.read(warehouse, ["clicks", "alerts"], 25 * SECOND)


def test_tables_of_which_one_is_empty_have_no_common_edge(warehouse: Path) -> None:
    add(warehouse, "orders", [], None)
    with pytest.raises(reading.NoCommonEdgeError, match="orders: no data yet"):
        reading.read(warehouse, ["clicks", "orders"])
    with pytest.raises(reading.BeyondTheEdgeError, match=r"'orders'.*has no data yet"):
        reading.read(warehouse, ["orders"], 1)


def test_an_empty_table_alone_is_read_as_empty(warehouse: Path) -> None:
    add(warehouse, "orders", [], None)
    assert reading.read(warehouse, ["orders"])["orders"].num_rows == 0
    assert reading.query(warehouse, "select v from orders").edge is None


# ---- SQL -------------------------------------------------------------------------------------------------------


def test_a_query_joins_tables_at_their_common_edge(warehouse: Path) -> None:
    add(warehouse, "alerts", [30], 20, update=2)  # a row ahead of what the table is complete up to
    answer = reading.query(warehouse, "with a as (select v from alerts) select c.v from clicks c join a on a.v = c.v")
    assert (seconds_of(answer.rows), answer.edge, answer.whole) == ([20], 20 * SECOND, ())


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        pytest.param("delete from clicks", "begins with 'delete'", id="not a question"),
        pytest.param("select 1", "reads no table", id="no table"),
        pytest.param("select w from clicks", "failed: .*w", id="unknown column"),
        pytest.param("select v from clicks where", "failed: ", id="half a query"),
        pytest.param("select v / 0 from clicks", "(?i)divide by zero", id="failing while it runs"),
    ],
)
def test_a_query_that_cannot_be_answered_is_refused_in_one_line(warehouse: Path, sql: str, said: str) -> None:
    with pytest.raises(reading.SqlError, match=said) as refused:
        reading.query(warehouse, sql)
    assert "\n" not in str(refused.value)


def test_an_unknown_table_is_refused_with_the_nearest_names(warehouse: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"no table called 'click'.*Did you mean 'clicks'"):
        reading.query(warehouse, "select * from click")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        pytest.param(lambda path: None, "does not exist", id="nothing there"),
        pytest.param(lambda path: path.write_text(""), "is a file", id="a file"),
        pytest.param(lambda path: path.mkdir(), "no folder 'tables'", id="another directory"),
    ],
)
def test_what_is_not_a_warehouse_is_refused(tmp_path: Path, made: Callable[[Path], object], said: str) -> None:
    made(tmp_path / "here")
    with pytest.raises(reading.NotAWarehouseError, match=said):
        reading.tables(tmp_path / "here")


def test_a_warehouse_whose_first_run_is_just_starting_has_no_tables_yet(tmp_path: Path) -> None:
    with WarehouseLock(tmp_path):
        assert reading.tables(tmp_path) == ()
        assert "No table has been updated yet" in headgate("status", tmp_path).stdout


# ---- the commands ----------------------------------------------------------------------------------------------


def headgate(*arguments: str | Path) -> Result:
    app = typer.Typer()
    app.command()(status_command)
    app.command()(query_command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("late", "consumed", "missing_in"),
    [
        pytest.param([15], {"fast": 1, "slow": 0}, ("slow",), id="late rows that one has taken in"),
        pytest.param([15, 40], {"fast": 1, "slow": 0}, ("slow",), id="late and new rows together"),
        pytest.param([40], {"fast": 1, "slow": 0}, None, id="new rows lie beyond the edge"),
        pytest.param([15], {"fast": 1, "slow": 1}, None, id="both have them"),
        pytest.param([15], {"fast": 0, "slow": 0}, None, id="neither has them"),
    ],
)
def test_a_query_over_tables_that_differ_in_late_rows_says_so(
    tmp_path: Path, late: list[int], consumed: dict[str, int], missing_in: tuple[str, ...] | None
) -> None:
    add(tmp_path, "clicks", [10, 30], 30)
    add(tmp_path, "clicks", late, 40, update=2)
    for name, version in consumed.items():
        add(tmp_path, name, [10, 30], 30, kind="append", sources={"clicks": version})
    sql = "select count(*) as n from fast union all select count(*) from slow"
    found = reading.query(tmp_path, sql).late
    assert [(each.stream, each.missing_in) for each in found] == (
        [] if missing_in is None else [("clicks", missing_in)]
    )
    told = headgate("query", tmp_path, sql).stderr
    assert ("rows of clicks from 1970-01-01T00:00:15.000000Z on came late: slow will have them" in told) == bool(
        missing_in
    )


def test_late_rows_are_noticed_through_tables_between_and_beside_the_stream_itself(tmp_path: Path) -> None:
    add(tmp_path, "clicks", [10, 30], 30)
    add(tmp_path, "clicks", [15], 30, update=2)
    add(tmp_path, "between", [10, 30], 30, kind="append", sources={"clicks": 0})
    add(tmp_path, "far", [10, 30], 30, kind="append", sources={"between": 0})
    found = reading.query(tmp_path, "select * from clicks, far").late
    assert [(each.stream, each.missing_in, each.first) for each in found] == [("clicks", ("far",), 15 * SECOND)]


def test_query_prints_a_table_and_says_where_it_read(warehouse: Path) -> None:
    done = headgate("query", warehouse, "select v, null as nothing from clicks order by v", "--limit", "2")
    assert [line.split() for line in done.stdout.splitlines()] == [["v", "nothing"], ["10", "null"], ["20", "null"]]
    assert done.stderr.splitlines() == [
        "1 more row; --limit 3 prints all",
        "read up to 1970-01-01T00:00:30.000000Z",
    ]


def test_query_prints_twenty_rows_unless_told_but_all_as_json(warehouse: Path) -> None:
    add(warehouse, "many", list(range(50)), 50)
    assert len(headgate("query", warehouse, "select v from many").stdout.splitlines()) == 1 + 20
    assert len(headgate("query", warehouse, "select v from many", "--json").stdout.splitlines()) == 50


def test_query_prints_values_as_they_are_and_cuts_nothing_off(warehouse: Path) -> None:
    done = headgate("query", warehouse, f"select '[red]{'x' * 200}' as long from alerts")
    assert done.stdout.splitlines()[1].strip() == "[red]" + "x" * 200


@pytest.mark.parametrize("at", ["1970-01-01T00:00:15Z", "1970-01-01 00:00:15", "1970-01-01T02:00:15+02:00"])
def test_query_reads_at_a_time_that_is_utc_unless_it_says_otherwise(warehouse: Path, at: str) -> None:
    done = headgate("query", warehouse, "select * from clicks", "--at", at, "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"ts": "1970-01-01T00:00:10Z", "v": 10}]
    assert "read up to 1970-01-01T00:00:15" in done.stderr


def test_query_names_the_tables_that_it_read_whole(warehouse: Path) -> None:
    done = headgate("query", warehouse, "select reason from clicks__rejected", "--json")
    assert json.loads(done.stdout) == {"reason": "no event time"}
    assert done.stderr.strip() == "read whole, because they have no event time: clicks__rejected"


def test_json_lines_can_be_parsed_whatever_the_values(warehouse: Path) -> None:
    sql = "select cast('nan' as double) as n, [ts] as l, cast(1.5 as decimal(4, 2)) as d, date '2026-01-02' as day"
    done = headgate("query", warehouse, f"{sql} from alerts", "--json")
    expected = {"n": "nan", "l": ["1970-01-01T00:00:20Z"], "d": "1.50", "day": "2026-01-02"}
    assert json.loads(done.stdout, parse_constant=pytest.fail) == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["select v from clicks", "--at", "noon"], "--at takes a time .* got 'noon'", id="not a time"),
        pytest.param(["select v from clicks", "--at", "1970-01-02"], "'clicks' cannot be read at", id="too late"),
        pytest.param(["select a.v, b.v from clicks a, clicks b", "--json"], "columns called 'v'", id="two of a name"),
    ],
)
def test_what_was_asked_wrongly_is_a_declaration_error(warehouse: Path, arguments: list[str], said: str) -> None:
    done = headgate("query", warehouse, *arguments)
    with pytest.raises(DeclarationError, match=said):
        raise done.exception or AssertionError(done.output)


def test_a_table_that_cannot_be_read_hides_no_other(warehouse: Path) -> None:
    (warehouse / "tables" / "alerts" / "_delta_log" / f"{0:020}.json").write_text("not a log entry")
    alerts, clicks, _ = reading.tables(warehouse)
    said = "table 'alerts' cannot be read, because its log is damaged: "
    assert (alerts.name, alerts.version) == ("alerts", -1)
    assert alerts.error.startswith(said)
    assert (clicks.rows, clicks.error) == (3, "")
    assert said in headgate("status", warehouse).output
    assert seconds_of(reading.read(warehouse, ["clicks"])["clicks"]) == [10, 20, 30]
    with pytest.raises(HeadgateError, match=said):
        reading.read(warehouse, ["alerts"])


def test_status_lists_the_tables_as_text(warehouse: Path) -> None:
    done = headgate("status", warehouse)
    first, headings, *rows = done.stdout.splitlines()
    assert first.endswith(": no process runs it")
    assert headings.split()[:4] == ["table", "stale", "repair", "rows"]
    assert [row.split()[0] for row in rows] == ["alerts", "clicks", "rejected"]
    assert rows[1].endswith("1970-01-01T00:00:30.000000Z")


def test_status_gives_staleness_and_the_process_as_json(warehouse: Path) -> None:
    with WarehouseLock(warehouse):
        told = json.loads(headgate("status", warehouse, "--json").stdout)
    assert told["process"] == os.getpid()
    alerts, clicks, rejected = told["tables"]
    assert alerts["staleness"] - clicks["staleness"] == pytest.approx(10)
    assert clicks["staleness"] == pytest.approx(time.time() - 30, abs=60)
    assert rejected["staleness"] is None


def test_status_of_a_warehouse_without_tables_says_so(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    assert "No table has been updated yet" in headgate("status", tmp_path).stdout
    with pytest.raises(HeadgateError, match="does not exist"):
        raise headgate("status", tmp_path / "nowhere").exception or AssertionError("nothing was raised")
