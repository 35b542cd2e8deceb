"""How tables are kept is proved from their plans: queries at the edges of the proofs, and what they are proved to be.

Every query here was once kept in a way that is wrong for it, or failed, or was computed as a whole without need.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.core import DeclarationError, UserCodeError
from headgate.warehouse.declare.analysis import analyse
from headgate.warehouse.declare.modes import table_modes
from headgate.warehouse.declare.spec import WarehouseSpec
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.sources import Files
from headgate.warehouse.updates.open_warehouse import OpenWarehouse, open_warehouse
from tests.warehouse.random_trial import interpreted
from tests.warehouse.test_opened import START, arrive, assert_all_as_batch, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SALES = "ts timestamp, who string, n int, b bigint, x double, d decimal(38,18), e decimal(28,5)"
#: people who are in a city that is called like a customer
PEOPLE = [{"who": "ann", "city": "red"}, {"who": "bob", "city": "bob"}]

#: {what it is: (the query, how its table is kept)}
QUERIES: dict[str, tuple[str, str]] = {
    "a limit in a common table expression": (
        "with top as (select * from sales order by n desc, ts, who limit 3) "
        "select max(ts) as ts, who, count(*) as n from top group by who",
        "whole",
    ),
    "a limit in one side of a join": (
        "select s.ts, s.who, t.n from sales s join (select who, n from sales order by n desc, ts limit 2) t "
        "on s.who = t.who",
        "whole",
    ),
    "a common table expression below an aggregate": (
        "with t as (select ts, who, n from sales where n < 1000) "
        "select max(ts) as ts, who, count(*) as c, sum(n) + 1 as n from t group by who",
        "merge",
    ),
    "a common table expression of single rows": (
        "with t as (select ts, who, n from sales) select ts, upper(who) as who from t where n > 1",
        "append",
    ),
    "a common table expression that is used twice": (
        "with t as (select who, max(ts) as ts, count(distinct n) as n from sales group by who) "
        "select a.ts, a.who, a.n + b.n as n from t a join t b on a.who = b.who",
        "keys",
    ),
    "a common table expression in a subquery": (
        "with m as (select max(n) as n from sales where n < 1000) "
        "select ts, who, n from sales where n >= (select n from m)",
        "whole",
    ),
    "a window over rows of a dimension, too": (
        "select ts, c, p, count(*) over (partition by p) as n from (select ts, who as c, who as p from sales "
        "union all select timestamp'2026-11-15 09:00:00', concat(who, '!'), city from people)",
        "keys",
    ),
    "a window over constant rows, too": (
        "select ts, c, p, count(*) over (partition by p) as n from (select ts, who as c, who as p from sales "
        "union all select timestamp'2026-11-15 09:00:00', 'x', 'red')",
        "keys",
    ),
    "a window by an expression that is also shown": (
        "select ts, upper(who) as w, n, row_number() over (partition by upper(who) order by ts, n, x) as place "
        "from sales",
        "keys",
    ),
    "groups by a number, shown as text": (
        "select max(ts) as ts, cast(x as string) as k, count(*) as n from sales group by x",
        "whole",
    ),
    "a key that is written in another way": (
        "select max(ts) as ts, 1 + n as k, count(*) as c from sales where n < 1000 group by n + 1",
        "whole",
    ),
    "a time that may be missing": (
        "select max(a.ts) as ts, count(*) as n from sales a left join visits b on a.ts = b.ts group by coalesce(b.ts)",
        "whole",
    ),
    "a time of some rows of a group": (
        "select max(m) as ts, count(*) as c from (select date_trunc('hour', ts) as m, who, "
        "max(ts) filter (where n > 2) as late from sales group by 1, 2) group by late",
        "whole",
    ),
    "the time of a largest value": (
        "select max(m) as ts, count(*) as c from (select date_trunc('hour', ts) as m, who, max_by(ts, nullif(n, 1)) "
        "as late from sales group by 1, 2) group by late",
        "whole",
    ),
    "a key that cannot be computed for rows that are left out": (
        "select max(ts) as ts, n + 1 as k, count(distinct who) as c from sales where n < 1000 group by n + 1",
        "keys",
    ),
    "sums of as many digits as there can be": (
        "select max(ts) as ts, who, sum(d) as d, sum(e) as e from sales group by who",
        "merge",
    ),
    "a sum that becomes null when it is too large": (
        "select max(ts) as ts, who, try_sum(b) as b from sales group by who",
        "keys",
    ),
    "a key with a list in it": (
        "select max(ts) as ts, k.who as who, count(*) as n from (select ts, struct(who, array(n)) as k from sales) "
        "group by k",
        "whole",
    ),
    "a key of fields": (
        "select max(ts) as ts, k.who as who, count(*) as n from (select ts, struct(who, n) as k from sales) group by k",
        "merge",
    ),
    "groups of texts that are equal if only their case differs": (
        "select max(ts) as ts, lower(w) as w, count(*) as n from (select ts, who collate utf8_lcase as w from sales) "
        "group by w",
        "whole",
    ),
    "the newest of both sides": (
        "select coalesce(a.ts, b.ts) as ts, a.n, b.v from sales a full join visits b on a.ts = b.ts and a.n = b.v",
        "keys",
    ),
}
#: tables of tables
OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "counted": (
        {"query": "select who, map('n', count(*)) as m from sales group by who", "time": None, "key": ["who"]},
        "merge",
    ),
    "of_maps": ({"query": "select who, m['n'] + 1 as n from counted where m['n'] > 1", "time": None}, "keys"),
    "dotted": ({"query": "select ts as `event.ts`, who, n from sales where n > 0", "time": "event.ts"}, "append"),
    "of_dotted": (
        {
            "query": "select max(`event.ts`) as `event.ts`, d.who, count(distinct v) as v from dotted d join visits v "
            "on d.who = v.who group by d.who",
            "time": "event.ts",
        },
        "keys",
    ),
    "merged_dots": (
        {
            "query": "select date_trunc('hour', `event.ts`) as `event.ts`, count(*) as `a.n` from dotted group by 1",
            "time": "event.ts",
        },
        "merge",
    ),
}


def declared(folder: Path, **tables: Mapping[str, Any]) -> WarehouseSpec:
    wh = Warehouse("proofs", path=str(folder / "warehouse"))
    for name, schema in (("sales", SALES), ("visits", "ts timestamp, who string, v int")):
        source = Files(str(folder / name), format="json", schema=schema, settle=0)
        wh.stream(name, source, time="ts", partition="10 minutes", max_future=None)
    wh.dimension("people", Files(str(folder / "people"), format="json", schema="who string, city string", settle=0))
    for name, options in tables.items():
        wh.sql(name, **{"time": "ts", **options})
    return wh.spec()


def everything(folder: Path) -> WarehouseSpec:
    tables = {f"q{number}": {"query": query} for number, (query, _) in enumerate(QUERIES.values())}
    return declared(folder, **tables, **{name: options for name, (options, _) in OTHERS.items()})


def at(minute: float) -> str:
    return (START + timedelta(minutes=minute)).isoformat()


def sale(minute: float, who: str | None, n: int, x: float = 1.0, b: int = 1, d: str = "1.5") -> dict[str, Any]:
    return {"ts": at(minute), "who": who, "n": n, "x": x, "b": b, "d": d, "e": d}


LARGE = "12345678901234567890.123456789012345678"
#: rows of sales and visits that arrive one after the other
ROUNDS = (
    (
        [sale(0, "ann", 1, 0.0), sale(1, "red", 2), sale(70, "Bob", 3, b=1 << 62, d=LARGE)],
        [(0, "ann", 1), (75, "a", 9)],
    ),
    ([sale(80, "ann", 1, -0.0), sale(150, "bob", 5, b=1 << 62), sale(2, "red", 4, d="-2.25")], [(90, "red", 5)]),
    ([sale(200, "Bob", 3, b=1 << 62, d=LARGE), sale(201, "zoe", 2**31 - 1), sale(3, None, 1)], [(210, "bob", 3)]),
    ([sale(300, "red", 7), sale(301, "Bob", 1, b=-(1 << 62))], [(300, "red", 7)]),
)


def land(folder: Path, warehouse: OpenWarehouse, spark: SparkSession, name: str, **rows: list[dict[str, Any]]) -> None:
    """Rows arrive and are loaded into streams; the tables are not updated."""
    for stream, arrived in rows.items():
        arrive(folder, stream, name, arrived)
        assert warehouse.nodes[stream].update(spark) is not None
        warehouse.updated(stream)


def test_queries_are_kept_in_the_way_that_is_proved_right_for_them(tmp_path: Path, spark: SparkSession) -> None:
    modes = open_warehouse(everything(tmp_path), spark).modes
    expected = {f"q{number}": mode for number, (_, mode) in enumerate(QUERIES.values())}
    expected |= {name: mode for name, (_, mode) in OTHERS.items()}
    what = dict(zip(expected, (*QUERIES, *OTHERS), strict=True))
    wrong = {what[name]: str(mode) for name, mode in modes.items() if mode.name != expected[name]}
    assert wrong == {}


@pytest.mark.long
def test_after_every_update_they_are_their_queries(tmp_path: Path, spark: SparkSession) -> None:
    spark = interpreted(spark)
    arrive(tmp_path, "people", "1", PEOPLE)
    spec = everything(tmp_path)
    warehouse = open_warehouse(spec, spark)
    warehouse.nodes["people"].update(spark)
    for number, (sales, visits) in enumerate(ROUNDS):
        seen = [{"ts": at(minute), "who": who, "v": v} for minute, who, v in visits]
        land(tmp_path, warehouse, spark, str(number), sales=sales, visits=seen)
        warehouse.bring_up_to_date(spark)
        assert_all_as_batch(warehouse, spark)
        if number == 1:
            warehouse = open_warehouse(spec, spark)
    for name, node in warehouse.nodes.items():
        assert rows_of(node.store), name


def test_keys_are_those_of_the_sources_as_planned(tmp_path: Path, spark: SparkSession) -> None:
    # The rows of `latest` are replaced by later ones; those beyond the trailing edge wait for it.
    tables = {
        "latest": {"query": "select who, max(ts) as ts, max_by(n, ts) as n from sales group by who"},
        "seen": {"query": "select l.ts, l.who, l.n, v.who as by from latest l join visits v on l.n = v.v"},
    }
    warehouse = open_warehouse(declared(tmp_path, **tables), spark)
    seen = warehouse.nodes["seen"]
    visits = [{"ts": at(0), "who": f"v{v}", "v": v} for v in (1, 2, 3)]
    land(tmp_path, warehouse, spark, "0", sales=[sale(0, "ann", 1)], visits=visits)
    warehouse.bring_up_to_date(spark)
    land(tmp_path, warehouse, spark, "1", sales=[sale(10, "ann", 2)])
    warehouse.bring_up_to_date(spark)
    land(tmp_path, warehouse, spark, "2", visits=[{"ts": at(20), "who": "late", "v": 9}])
    update = seen.plan()
    assert update is not None
    assert seen.begin(update)
    land(tmp_path, warehouse, spark, "3", sales=[sale(30, "ann", 3)])  # after the update has chosen what it reads
    assert warehouse.nodes["latest"].update(spark) is not None
    seen.run(update, spark)
    update.commits(update.work)
    seen.end(update)
    assert [row[1:] for row in rows_of(seen.store)] == [("ann", 2, "v2")], "as of the version that the commit names"
    warehouse.updated("latest")
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)


def test_a_sum_that_does_not_fit_is_an_error_that_names_the_table_and_the_column(
    tmp_path: Path, spark: SparkSession
) -> None:
    spec = declared(tmp_path, totals={"query": "select max(ts) as ts, who, sum(b) as total from sales group by who"})
    warehouse = open_warehouse(spec, spark)
    for number in range(2):
        land(tmp_path, warehouse, spark, str(number), sales=[sale(number, "ann", 1, b=1 << 62)])
        if not number:
            warehouse.bring_up_to_date(spark)
    with pytest.raises(
        UserCodeError, match=r"table 'totals' failed: Sum in column 'total' of type int64 has become too"
    ):
        warehouse.nodes["totals"].update(spark)


def test_texts_with_a_collation_are_no_keys(tmp_path: Path, spark: SparkSession) -> None:
    tables = {
        "folded": {"query": "select ts, who collate utf8_lcase as who, n from sales"},
        "counted": {"query": "select max(ts) as ts, who, count(*) as c from folded group by who"},
        "shown": {"query": "select max(ts) as ts, cast(who as string) as w, count(*) as c from folded group by who"},
    }
    analyses = analyse(declared(tmp_path, **tables), spark)
    for name in ("counted", "shown"):
        assert analyses[name].keys is None
        assert analyses[name].merge == "a key of type string collate UTF8_LCASE cannot be looked up"


# --- what is said of a query --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("select ts, who from sales order by n, ts limit 3", "limit looks at many rows at once"),
        ("select ts, count(*) over (partition by who) as n from sales", "a window function looks at many rows at once"),
        ("select ts, who from sales where n > (select avg(n) from sales)", "it has a subquery that looks at all rows"),
    ],
)
def test_why_rows_cannot_be_appended_is_said_in_words(
    tmp_path: Path, spark: SparkSession, query: str, reason: str
) -> None:
    assert analyse(declared(tmp_path, t={"query": query}), spark)["t"].not_linear == reason


HOURLY = "select date_trunc('hour', ts) as ts, who, {} from sales group by date_trunc('hour', ts), who"
NOT_OTHERS = "no row depends on other partitions of time"
SAME_TIME = "only rows with the same 'ts' as changed rows change"


def test_why_an_aggregate_is_not_merged_is_said_and_what_lookback_means(tmp_path: Path, spark: SparkSession) -> None:
    """An aggregate that is not merged says why not; a table with ``lookback`` does depend on the time before."""
    last = "max_by(n, x) as n"
    tables: dict[str, dict[str, Any]] = {
        "merged": {"query": HOURLY.format(last)},
        "by_struct": {"query": HOURLY.format("max_by(n, struct(x, b)) as n")},
        "ordered": {"query": HOURLY.format(last) + " order by n"},
        "having": {"query": HOURLY.format(last) + " having count(*) > 1"},
        "collected": {"query": HOURLY.format(f"{last}, collect_set(n) as all")},
        "later": {"query": HOURLY.format("max_by(n, ts) as n").replace("from sales", "from merged")},
        "newest": {"query": HOURLY.format(last), "catch_up": "newest"},
        "joined": {
            "query": "select s.ts, max_by(v.v, s.n) as n from sales s join visits v on s.ts = v.ts group by s.ts"
        },
        "no_groups": {"query": "select ts, who, sum(n) over (partition by ts) as n from sales"},
        "looks_back": {"query": HOURLY.format(last), "lookback": "2 hours"},
    }
    spec = declared(tmp_path, **{name: {"partition": "1 hour", **options} for name, options in tables.items()})
    modes = table_modes(spec, analyse(spec, spark))
    assert {name: str(mode) for name, mode in modes.items()} == {
        "merged": "merge: new rows of 'sales' are merged into its groups",
        "by_struct": f"blocks: {NOT_OTHERS}; not merge: max_by by a value of type struct cannot be merged",
        "ordered": "merge: new rows of 'sales' are merged into its groups",
        "having": f"blocks: {NOT_OTHERS}; not merge: above its aggregate there is a filter",
        "collected": f"blocks: {NOT_OTHERS}; not merge: CollectSet has no state that can be merged",
        "later": f"blocks: {NOT_OTHERS}; not merge: rows of its source 'merged' change after they were added",
        "newest": f"blocks: {NOT_OTHERS}; not merge: catch_up is 'newest'",
        "joined": f"keys: {SAME_TIME}; not merge: it needs one source that is not a dimension",
        "no_groups": f"keys: {SAME_TIME}",
        "looks_back": "blocks: lookback is stated: rows depend on their partition of time and on 2 h before it",
    }


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ("who as __headgate_k0", "has a column '__headgate_k0', a name that Headgate uses itself"),
        ("who as _partition", "the column name '_partition' is taken"),
        ("cast(ts as timestamp_ntz) as local", "column 'local' is timestamp"),
        ("who, n as WHO", "two columns called 'who' and 'WHO'"),
        ("null as nothing", "give its nulls a type, with a cast"),
        ("ts - timestamp'2026-11-15' as since", "column 'since' is duration"),
    ],
)
def test_columns_that_cannot_be_stored_are_refused_before_anything_runs(
    tmp_path: Path, spark: SparkSession, columns: str, complaint: str
) -> None:
    with pytest.raises(DeclarationError, match=complaint):
        analyse(declared(tmp_path, t={"query": f"select ts, {columns} from sales"}), spark)


def test_a_stream_with_columns_that_cannot_be_stored_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    wh = Warehouse("local", path=str(tmp_path / "warehouse"))
    source = Files(str(tmp_path / "s"), format="json", schema="ts timestamp, at timestamp_ntz", settle=0)
    wh.stream("s", source, time="ts")
    with pytest.raises(DeclarationError, match="'s' has columns that cannot be stored: column 'at' is timestamp"):
        analyse(wh.spec(), spark)


def test_a_stated_key_by_which_no_rows_are_found_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    spec = declared(
        tmp_path,
        parts={"query": "select ts, split(who, ',') as k from sales"},
        t={"query": "select max(ts) as ts, k from parts group by k", "mode": "keys", "key": ["k"]},
    )
    with pytest.raises(DeclarationError, match=r"table 't' states the key 'k' of type array<string>"):
        open_warehouse(spec, spark)


@pytest.mark.parametrize(
    ("query", "called"),
    [
        ("select ts, uuid() as id, rand() as r from sales", ("rand()", "uuid()")),
        ("select ts, who from sales where ts < now()", ("now()",)),
        ("select ts, current_timestamp() as at, rand() as r from sales", ("current_timestamp()", "rand()")),
        ("select ts, who from sales tablesample (10 percent)", ("a sample",)),
        ("select max(ts) as ts, who, array_sort(collect_list(n)) as n from sales group by who", ()),
    ],
)
def test_what_gives_another_value_each_time_is_known(
    tmp_path: Path, spark: SparkSession, query: str, called: tuple[str, ...]
) -> None:
    assert analyse(declared(tmp_path, t={"query": query}), spark)["t"].unrepeatable == called
