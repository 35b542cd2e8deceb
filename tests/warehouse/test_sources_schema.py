"""Schemas are read far enough to find the mistakes people make, and no further."""

from __future__ import annotations

import pytest

from headgate.core.errors import DeclarationError
from headgate.warehouse.sources.schema import Column, parse_schema


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        pytest.param("ts timestamp", [("ts", "timestamp")], id="one column"),
        pytest.param(
            " ts TIMESTAMP ,\n sensor String", [("ts", "TIMESTAMP"), ("sensor", "String")], id="spaces and capitals"
        ),
        pytest.param("a: int, b :double", [("a", "int"), ("b", "double")], id="colons"),
        pytest.param("a decimal(10, 2), b decimal", [("a", "decimal(10, 2)"), ("b", "decimal")], id="decimals"),
        pytest.param("`a b` int, `x``y` long", [("a b", "int"), ("x`y", "long")], id="quoted names"),
        pytest.param("grün int", [("grün", "int")], id="letters of other languages"),
        pytest.param("a int COMMENT 'one, two > three', b int", [("a", "int"), ("b", "int")], id="comments"),
        pytest.param(
            "a array<struct<x: int, y: map<string, double>>>, b variant",
            [("a", "array<struct<x: int, y: map<string, double>>>"), ("b", "variant")],
            id="nested types",
        ),
        pytest.param("_id string", [("_id", "string")], id="an underscore alone is nobody's"),
    ],
)
def test_columns_are_found(text: str, columns: list[tuple[str, str]]) -> None:
    assert parse_schema(text, "here") == tuple(Column(*column) for column in columns)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "needs a schema: write it as in 'ts timestamp, sensor string", id="empty"),
        pytest.param(None, "needs a schema", id="not given"),
        pytest.param("ts", "'ts' is not a column of a schema", id="no type"),
        pytest.param("ts timestamp,", "'' is not a column", id="comma at the end"),
        pytest.param(
            "ts timestmap", "'ts' has the unknown type 'timestmap'; did you mean 'timestamp'", id="typing error"
        ),
        pytest.param("ts timestamp sensor string", "which is not written as Spark writes types", id="comma missing"),
        pytest.param("a array<int", "its brackets do not match in the schema 'a array<int'", id="bracket open"),
        pytest.param("a array<int>>, b int", "its brackets do not match", id="bracket too many"),
        pytest.param("`a int", "a ` is not closed", id="quote open"),
        pytest.param("a array", "'a' has the type 'array'; write array<string>", id="array of nothing"),
        pytest.param("a map<string>", "write map<string, double>", id="map without values"),
        pytest.param("a array<strng>", "'a' has the unknown type 'strng'; did you mean 'string'", id="inside an array"),
        pytest.param("a struct<x>", "'x' is not a column", id="inside a struct"),
        pytest.param("a int(3)", "has the type 'int\\(3\\)'; write just int", id="size of an int"),
        pytest.param("a varchar(3)", "unknown type 'varchar\\(3\\)'", id="type that Spark does not read"),
        pytest.param("a int NOT NULL", "says NOT NULL, which a source cannot promise", id="not null"),
        pytest.param("a int, A string", "two columns called 'A' \\(case does not count\\)", id="twice"),
        pytest.param("_raw string", "'_raw', a name that Headgate uses itself; rename it", id="reserved"),
        pytest.param("_Partition string", "'_Partition', a name that Headgate uses itself", id="reserved, in capitals"),
        pytest.param("_headgate_x int", "a name that Headgate uses itself", id="private prefix"),
    ],
)
def test_a_mistake_is_named(text: str, said: str) -> None:
    with pytest.raises(DeclarationError, match=f"^here.*{said}"):
        parse_schema(text, "here")


@pytest.mark.parametrize(
    ("written", "kind"),
    [("NUMERIC(10, 2)", "decimal"), ("Long", "bigint"), ("timestamp_ltz", "timestamp"), ("array<int>", "array")],
)
def test_the_kind_of_a_type_has_one_spelling(written: str, kind: str) -> None:
    assert Column("a", written).kind == kind
