"""Whether a table's query is still the one that its rows were computed by: a fingerprint that its commits carry.

It is made of Spark's analysed plan, without what differs from one analysis to the next (ids of columns, aliases, seeds
of random numbers) and, if the plan calls Python functions, of their code. So whitespace, comments, names of columns
inside a query and the order of declarations do not matter.

Other versions of Spark plan differently and other versions of Python compile differently. Fingerprints of different
versions are therefore not compared: the query is taken to be the same. Only what a table that is kept by merging keeps
of its groups is always compared: a table whose aggregates are others cannot go on with the states it has.

A plan has the columns of its sources, so it also changes when one of these does. They are noted apart, to tell people.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headgate.core.lengths import plural
from headgate.warehouse.declare.code_text import code_text
from headgate.warehouse.declare.plan_tree import SOURCE_MARK, PlanNodes
from headgate.warehouse.declare.spec import TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from headgate.stream.spark.hosted_frame import Request

#: changes when fingerprints are made in another way
_FORMAT = 1
#: {"plan": of the plan, "code": of Python functions, "by": the versions that made them}; "merge" is ``MergePlan.text``,
#: "columns of T" of the columns of the source T
QueryFingerprint = Mapping[str, str]

#: keys of Spark's JSON that differ between analyses of the same query, or are names without a meaning
_IGNORED = {
    *("jvmId", "qualifier", "metadata", "nonInheritableMetadataKeys", "desc", "rdd", "session", "origin", "func"),
    *("randomSeed", "seed", "resultId", "isTempView"),
}
#: begins the key of the columns of a source
_COLUMNS = "columns of "
#: steps of a plan that only name what is below them
_NAMES_ONLY = {"SubqueryAlias", "View"}
#: expressions whose names have no meaning: they are referred to by id
_NAMED = {"Alias", "AttributeReference", "NamedLambdaVariable", "OuterReference"}
#: expressions with a seed as their last argument
_RANDOM = {"Rand", "Randn", "RandStr", "Uniform"}


def query_fingerprint(
    table: TableSpec,
    result: DataFrame,
    plan: PlanNodes,
    sources: Mapping[str, StructType],
    requests: Sequence[Request] = (),
) -> dict[str, str]:
    """Of the query of ``table``, whose analysed frame over empty ``sources`` is ``result``, with its stream queries."""
    columns = [(field.name, field.dataType.simpleString()) for field in result.schema]
    written = json.dumps([_Normaliser().of(plan), columns, table.time, table.lookback], sort_keys=True)
    made = {"plan": _hash(written), "by": f"{_FORMAT} spark {_minor(result.sparkSession.version)} python {_PYTHON}"}
    if requests:
        made["code"] = _hash(code_text([(r.keys, r.time, r.buckets, r.spec.operators) for r in requests]))
    elif table.function is not None and "Python" in written:
        made["code"] = _hash(code_text(table.function))
    return made | {_COLUMNS + name: _hash(sources[name].json()) for name in table.sources}


def has_changed(then: QueryFingerprint, now: QueryFingerprint) -> bool:
    """Whether a query is another one than when the fingerprint ``then`` was made; no if that cannot be told."""
    if then.get("by") != now.get("by"):
        return "merge" in then and "merge" in now and then["merge"] != now["merge"]
    return {"plan": then.get("plan"), "code": then.get("code")} != {"plan": now.get("plan"), "code": now.get("code")}


def what_changed(then: QueryFingerprint, now: QueryFingerprint) -> str:
    """Why a table is not computed any more as when the fingerprint ``then`` was made, as people are told."""
    columns = [key for key in now if key.startswith(_COLUMNS)]
    others = [key.removeprefix(_COLUMNS) for key in columns if key in then and then[key] != now[key]]
    if others:
        return f"the columns of its {plural('source', len(others))} {', '.join(others)} have changed"
    if columns and not any(key.startswith(_COLUMNS) for key in then):  # fingerprints of older versions do not say
        return "its query has changed, or the columns of its sources"
    return "its query has changed"


class _Normaliser:
    """Numbers the ids in a plan in the order in which they appear, and drops what has no meaning."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, Any], int] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.of(each) for each in self._kept(value)]
        if not isinstance(value, dict):
            return value
        kind = str(value.get("class", "")).rpartition(".")[2]
        if str(value.get("product-class", "")).endswith(".ExprId"):
            return self._number("column", value.get("id"))
        kept = {key: each for key, each in value.items() if key not in _IGNORED}
        if kind in _NAMED:
            kept.pop("name", None)
        if kind.startswith("CTERelation"):
            for key in kept.keys() & {"id", "cteId"}:
                kept[key] = self._number("cte", kept[key])
        return {key: self.of(each) for key, each in kept.items()}

    def _number(self, kind: str, value: Any) -> int:
        return self._numbers.setdefault((kind, value), len(self._numbers))

    @staticmethod
    def _kept(nodes: list[Any]) -> list[Any]:
        """A tree as Spark writes it, its nodes before their children, without names and seeds."""
        kept = []
        seed_follows = False
        for node in nodes:
            kind = str(node.get("class", "")).rpartition(".")[2] if isinstance(node, dict) else ""
            if seed_follows and kind == "Literal":
                seed_follows = False
                continue
            seed_follows = kind in _RANDOM
            is_source = kind == "SubqueryAlias" and SOURCE_MARK in json.dumps(node.get("identifier"))
            if kind not in _NAMES_ONLY or is_source:
                kept.append(node)
        return kept


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
