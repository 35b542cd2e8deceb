"""A dbt manifest becomes a pipeline file: its Spark models are tables, and what cannot be taken over is named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from headgate.cli import app
from headgate.core import DeclarationError
from headgate.warehouse.declare.pipeline_file import load
from headgate.warehouse.declare.spec import WarehouseSpec
from headgate.warehouse.pipelines.dbt import ImportedPipeline, import_manifest
from headgate.warehouse.pipelines.dbt_incremental import for_whole, is_for_whole
from headgate.warehouse.run.run import resolved
from headgate.warehouse.updates.open_warehouse import open_warehouse
from tests.warehouse.test_opened import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def model(name: str, raw: str, on: list[str], kind: str = "table", compiled: str = "", **more: Any) -> dict[str, Any]:
    return {
        "resource_type": "model",
        "name": name,
        "alias": name,
        "relation_name": f"`shop`.`{name}`",
        "original_file_path": f"models/{name}.sql",
        "language": "sql",
        "config": {"materialized": kind, "enabled": True, "meta": more.pop("meta", {})},
        "depends_on": {"macros": [], "nodes": on},
        "raw_code": raw,
        "compiled_code": compiled or None,
        "description": "",
        **more,
    }


def source(name: str, **more: Any) -> dict[str, Any]:
    return {
        "resource_type": "source",
        "source_name": "raw",
        "name": name,
        "relation_name": f"`raw`.`{name}`",
        "original_file_path": "models/sources.yml",
        "columns": {},
        "meta": {},
        **more,
    }


ORDERS = source(
    "orders",
    loaded_at_field="ts",
    columns={c: {"name": c, "data_type": t} for c, t in (("ts", "timestamp"), ("who", "string"), ("n", "int"))},
    meta={"headgate": {"path": "landing", "format": "json", "settle": 0}},
)
SEED = {
    "resource_type": "seed",
    "name": "countries",
    "relation_name": "`shop`.`countries`",
    "original_file_path": "seeds/countries.csv",
    "columns": {c: {"name": c, "data_type": "string"} for c in ("who", "country")},
    "config": {"materialized": "seed"},
    "depends_on": {"nodes": []},
}
NODES = {
    "model.shop.staged": model(
        "staged",
        "{{ config(materialized='incremental') }} select * from {{ source('raw', 'orders') }} where n > 0 "
        "{% if is_incremental() %} and ts > (select max(ts) from {{ this }}) {% endif %}",
        ["source.shop.raw.orders"],
        "incremental",
        meta={"priority": 5, "time": "ts", "target_lag": "10 seconds", "owner": "ann"},
    ),
    "model.shop.large": model(
        "large", "select * from {{ ref('staged') }} where n > 5", ["model.shop.staged"], "ephemeral"
    ),
    "model.shop.by_country": model(
        "by_country",
        "",
        ["model.shop.large", "seed.shop.countries"],
        compiled="with __dbt__cte__large as (select * from `shop`.`staged` where n > 5) "
        "select c.country, sum(n) as n from __dbt__cte__large l join shop.countries c on l.who = c.who group by 1;",
    ),
    "model.shop.recent": model("recent", "select who from {{ ref('shop', 'staged') }}", ["model.shop.staged"], "view"),
    "seed.shop.countries": SEED,
    "test.shop.not_null": {"resource_type": "test", "name": "not_null", "depends_on": {"nodes": ["model.shop.staged"]}},
}


def written(folder: Path, nodes: dict[str, Any], sources: dict[str, Any] | None = None) -> Path:
    (folder / "target").mkdir()
    manifest = {
        "metadata": {
            "dbt_schema_version": "https://schemas.getdbt.com/dbt/manifest/v12.json",
            "adapter_type": "spark",
            "project_name": "shop",
        },
        "nodes": nodes,
        "sources": {"source.shop.raw.orders": ORDERS} if sources is None else sources,
    }
    file = folder / "target" / "manifest.json"
    file.write_text(json.dumps(manifest))
    return file


def spec_of(made: ImportedPipeline, folder: Path) -> WarehouseSpec:
    file = folder / "pipeline.py"
    file.write_text(made.text)
    return resolved(load(file).spec())


def test_models_sources_and_seeds_are_declared_with_what_meta_says(tmp_path: Path) -> None:
    made = import_manifest(written(tmp_path, NODES))
    spec = spec_of(made, tmp_path)
    tables = {table.name: table for table in spec.tables}
    assert made.left == []
    assert {name: set(table.sources) for name, table in tables.items()} == {
        "staged": {"orders"},
        "by_country": {"staged", "countries"},
        "recent": {"staged"},
    }
    staged = tables["staged"]
    assert (staged.priority, staged.time, staged.target_lag, tables["recent"].time) == (5, "ts", 10.0, None)
    assert [(stream.name, stream.time) for stream in spec.streams] == [("orders", "ts")]
    assert [dimension.name for dimension in spec.dimensions] == ["countries"]


@pytest.mark.spark
@pytest.mark.slow
def test_the_tables_of_a_manifest_equal_their_models(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "seeds").mkdir()
    (tmp_path / "seeds" / "countries.csv").write_text("who,country\nann,FR\nbob,DE\n")
    os.utime(tmp_path / "seeds" / "countries.csv", (1_700_000_000, 1_700_000_000))  # written long ago: complete
    orders = [("ann", 3), ("bob", 9), ("ann", 7), ("eve", 0)]
    (tmp_path / "landing" / "1.json").write_text(
        "".join(
            json.dumps({"ts": f"2026-11-15T10:0{i}:00Z", "who": w, "n": n}) + "\n" for i, (w, n) in enumerate(orders)
        )
    )
    warehouse = open_warehouse(spec_of(import_manifest(written(tmp_path, NODES)), tmp_path), spark)
    warehouse.bring_up_to_date(spark)
    assert rows_of(warehouse.nodes["by_country"].store) == [("DE", 9), ("FR", 7)]
    assert rows_of(warehouse.nodes["recent"].store) == [("ann",), ("ann",), ("bob",)]


def alone(node: dict[str, Any]) -> dict[str, Any]:
    return {"model.shop.staged": NODES["model.shop.staged"], "model.shop.x": node}


LEFT = {
    "a model in Python": (alone(model("x", "", [], language="python")), "it is written in Python"),
    "an unknown materialization": (alone(model("x", "", [], "kafka_sink")), "it is materialized as 'kafka_sink'"),
    "Jinja": (alone(model("x", "select {{ cents('n') }} from {{ ref('staged') }}", [])), "run dbt compile first"),
    "compiled for an increment": (
        alone(model("x", "", [], "incremental", compiled="select * from shop.x")),
        "its compiled code reads the table itself: run dbt compile --full-refresh",
    ),
    "maybe compiled for an increment": (
        alone(
            model(
                "x",
                "select * from {{ ref('staged') }} {% if is_incremental() %} where ts > current_date - 3 {% endif %}",
                [],
                "incremental",
                compiled="select * from `shop`.`staged` where ts > current_date  - 3",
            )
        ),
        "its compiled code may be the one for an increment, which would leave out rows from before: run dbt ",
    ),
    "an unknown option": (
        alone(model("x", "select * from {{ ref('staged') }}", ["model.shop.staged"], meta={"headgate": {"prio": 1}})),
        "its meta has the option 'prio'",
    ),
    "a snapshot": (
        alone({"resource_type": "snapshot", "name": "x", "original_file_path": "models/x.sql", "depends_on": {}}),
        "there is nothing like it here",
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_cannot_be_taken_over_is_named_with_its_file(tmp_path: Path, case: str) -> None:
    nodes, reason = LEFT[case]
    made = import_manifest(written(tmp_path, nodes))
    assert len(made.left) == 1
    assert made.left[0].startswith(("models/x.sql: ", "models/x.sql:1: "))
    assert reason in made.left[0]
    assert made.taken == ["orders", "staged"]
    assert f"# {made.left[0]}" in made.text
    spec_of(made, tmp_path)


WHOLE = {
    "nothing else": ("a{% if is_incremental() %} b {% endif %}c", "ac"),
    "else": ("a {%- if is_incremental() -%} b {%- else -%} c {%- endif %}d", "a  c d"),
    "not": ("a {% if not is_incremental() %}b{% else %}c{% endif %}", "a b"),
    "and": ("a {% if is_incremental() and var('x') %}b{% endif %}", "a "),
    "one in another": (
        "a{% if is_incremental() %}{% if x %}b{% else %}c{% endif %}d{% else %}e{% if is_incremental() %}f{% endif %}"
        "{% endif %}g",
        "aeg",
    ),
    "elif": ("{% if is_incremental() %}a{% elif x %}b{% else %}c{% endif %}", "{% if x %}b{% else %}c{% endif %}"),
    "or": ("{% if is_incremental() or x %}a{% endif %}", "{% if is_incremental() or x %}a{% endif %}"),
    "another condition": ("{% if x %}a{% endif %}", "{% if x %}a{% endif %}"),
}


@pytest.mark.parametrize("case", WHOLE)
def test_of_an_incremental_model_the_query_for_the_whole_table_is_left(case: str) -> None:
    code, whole = WHOLE[case]
    assert for_whole(code) == whole


INCREMENT = "select * from t {% if is_incremental() %} where ts > (select max(d) from {{ ref('d') }}){% endif %}"
HIDDEN = {
    "macro.shop.a": {"depends_on": {"macros": ["macro.shop.b"]}},
    "macro.shop.b": {"macro_sql": "is_incremental()"},
}
COMPILED = {
    "without the branch": (INCREMENT, "select * from t", [], True),
    "with the branch": (INCREMENT, "select * from t where  ts > (select max(d) from shop.d)", [], False),
    "no branch at all": ("select * from t", "select * from t", [], True),
    "a branch that is not in the code": ("select * from t", "select * from t", ["macro.dbt.is_incremental"], False),
    "in a macro": ("select {{ a() }} from t", "select 1 from t", ["macro.shop.a"], False),
    "in a variable": ("{% set x = is_incremental() %} select 1", "select 1", [], False),
    "a loop in the branch": ("a {% if is_incremental() %}{% for i in x %}b{% endfor %}{% endif %}", "a", [], False),
    "not": ("a {% if not is_incremental() %}b{% else %}c{% endif %}", "a b", [], True),
    "not, without else": ("a {% if not is_incremental() %}b{% endif %}", "a b", [], False),
}


@pytest.mark.parametrize("case", COMPILED)
def test_compiled_code_is_taken_for_the_whole_table_only_if_it_lacks_what_is_for_increments(case: str) -> None:
    code, compiled, macros, expected = COMPILED[case]
    assert is_for_whole(code, compiled, macros, HIDDEN) is expected


def test_code_that_was_compiled_for_a_full_refresh_is_taken_over(tmp_path: Path) -> None:
    nodes, _ = LEFT["maybe compiled for an increment"]
    file = written(tmp_path, nodes)
    file.write_text(file.read_text().replace('"adapter_type"', '"invocation_id": "i-1", "adapter_type"'))
    results = tmp_path / "target" / "run_results.json"
    for invocation, full, left in (("i-0", True, 1), ("i-1", False, 1), ("i-1", True, 0)):
        said = {"metadata": {"invocation_id": invocation}, "args": {"full_refresh": full}}
        results.write_text(json.dumps(said))
        assert len(import_manifest(file).left) == left


LINES = {
    "a materialization": (model("x", "\n{{ config(\n  materialized='kafka_sink') }} select 1", [], "kafka_sink"), 3),
    "Jinja": (model("x", "-- {{ ref('staged') }}\nselect\n  {{ cents('n') }}\nfrom {{ ref('staged') }}", []), 3),
    "a ref to nothing": (
        model("x", "select *\nfrom {{ ref('staged') }}\njoin {{ ref('nope') }}", ["model.shop.staged"]),
        3,
    ),
    "a source of nothing": (model("x", "select *\nfrom {{ source('raw', 'nope') }}", []), 2),
    "an increment": (
        model(
            "x",
            "select * from {{ ref('staged') }}\n{% if is_incremental() %} where ts > 3 {% endif %}",
            [],
            "incremental",
            compiled="select * from shop.staged where ts > 3",
        ),
        2,
    ),
    "the table itself": (
        model("x", "select * from\n {{ this }}", [], "incremental", compiled="select * from shop.x"),
        2,
    ),
    "an option": (
        model("x", "{{ config(\n meta={'headgate': {'prio': 1}}) }} select 1", [], meta={"headgate": {"prio": 1}}),
        2,
    ),
    "something left out": (
        model("x", "select *\nfrom {{ ref('shop', 'py') }}", ["model.shop.py"]),
        2,
    ),
    "a model in Python": (model("x", "import dbt\n\ndef model(dbt, session):\n    pass", [], language="python"), 3),
}


@pytest.mark.parametrize("case", LINES)
def test_what_cannot_be_taken_over_is_named_with_its_line(tmp_path: Path, case: str) -> None:
    node, line = LINES[case]
    nodes = {"model.shop.py": model("py", "", [], language="python"), **alone(node)}
    left = [each for each in import_manifest(written(tmp_path, nodes)).left if "'x'" in each]
    assert [each.partition(" ")[0] for each in left] == [f"models/x.sql:{line}:"]


def test_the_line_is_that_of_the_file_and_not_of_the_code_in_the_manifest(tmp_path: Path) -> None:
    manifest = written(
        tmp_path, {"model.shop.m": model("m", "select * from {{ ref('nope') }}", [])}, {"s": {**ORDERS, "meta": {}}}
    )
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.sql").write_text("\n\nselect * from {{ ref('nope') }}\n")
    (tmp_path / "models" / "sources.yml").write_text(
        "sources:\n  - name: orders\n    tables: [{name: x}]\n  - name: raw\n    tables:\n      - name: orders\n"
    )
    made = sorted(import_manifest(manifest).left)
    assert [each.partition(" ")[0] for each in made] == ["models/m.sql:3:", "models/sources.yml:6:"]


def test_what_is_built_on_something_left_out_is_left_out_too(tmp_path: Path) -> None:
    made = import_manifest(written(tmp_path, NODES, {"source.shop.raw.orders": {**ORDERS, "meta": {}}}))
    assert made.taken == ["countries"]
    assert "source 'orders': it is not known where its rows come from" in made.left[0]
    assert any("model 'staged': it is built on 'orders', which is not taken over" in line for line in made.left)


@pytest.mark.parametrize(
    ("nodes", "sources", "said"),
    [
        ({}, {"x": [1]}, "'x' in 'sources' is to be an object; got list"),
        ({}, [1], "'sources' is to be an object; got list"),
        ({"m": {**model("m", "", []), "name": 5}}, {}, "'m' is to have a text as 'name'; got 5"),
        ({"m": {**model("m", "", []), "depends_on": [1]}}, {}, "'depends_on' of 'm' is to be an object; got list"),
    ],
)
def test_a_manifest_of_another_shape_is_refused(tmp_path: Path, nodes: Any, sources: Any, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        import_manifest(written(tmp_path, nodes, sources))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select * from {{ ref('nope') }}", "it refers to 'nope', which is no model or seed"),
        ("select * from {{ source('raw', 'nope') }}", "it refers to the source raw.nope"),
    ],
)
def test_a_reference_to_nothing_is_named(tmp_path: Path, query: str, said: str) -> None:
    made = import_manifest(written(tmp_path, {"model.shop.m": model("m", query, ["model.shop.nope"])}))
    assert said in made.left[0]


def test_a_file_that_is_no_manifest_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "manifest.json"
    file.write_text("[]")
    with pytest.raises(DeclarationError, match="is not a manifest of dbt"):
        import_manifest(file)


def test_the_command_writes_a_file_once(tmp_path: Path) -> None:
    manifest, output = written(tmp_path, NODES), tmp_path / "shop.py"
    done = CliRunner().invoke(app, ["import-dbt", str(manifest), "--output", str(output)])
    assert (done.exit_code, "headgate check" in done.stdout) == (0, True)
    assert output.read_text() == import_manifest(manifest).text
    again = CliRunner().invoke(app, ["import-dbt", str(manifest), "--output", str(output)])
    assert isinstance(again.exception, DeclarationError)
