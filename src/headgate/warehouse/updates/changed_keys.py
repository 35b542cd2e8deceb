"""Computing a table again for the keys of changed rows only: which keys, and the sources' rows with these keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.warehouse.declare.keys import TableKeys
from headgate.warehouse.storage import HIDDEN_PREFIX
from headgate.warehouse.updates.plan import MICROS, Span

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DAY = 86_400 * MICROS
#: how long after a truncated time the time itself can be, in microseconds
_LONGEST = {
    **{"microsecond": 0, "millisecond": 1_000, "second": MICROS, "minute": 60 * MICROS, "hour": 3_600 * MICROS},
    **{"day": _DAY, "dd": _DAY, "week": 7 * _DAY, "month": 31 * _DAY, "quarter": 92 * _DAY, "year": 366 * _DAY},
}
_TRUNCATED = re.compile(r"date_trunc\('(\w+)', (`(?:[^`]|``)*`)\)")


def keys_of(rows: DataFrame, keys: TableKeys, source: str) -> DataFrame:
    """The keys of a source's rows, once for each way in which the query uses the source."""
    from pyspark.sql import functions as F

    frames = [
        rows.select(*(F.expr(sql).alias(_name(i)) for i, sql in enumerate(origin))) for origin in keys.origins[source]
    ]
    return reduce(lambda one, other: one.unionAll(other), frames)


def collected(frames: Sequence[DataFrame]) -> pa.Table:
    """All the keys in ``frames``, each once."""
    return reduce(lambda one, other: one.unionAll(other), frames).distinct().toArrow()


def only_with(frame: DataFrame, keys: TableKeys, source: str, affected: DataFrame) -> DataFrame:
    """The rows of a source whose keys are among ``affected``."""
    from pyspark.sql import functions as F

    def equal(origin: Sequence[str], prefix: str) -> Column:
        parts = [F.expr(sql).eqNullSafe(F.col(f"{prefix}{_name(i)}")) for i, sql in enumerate(origin)]
        return reduce(lambda one, other: one & other, parts)

    origins = keys.origins[source]
    if len(origins) == 1:
        return frame.join(F.broadcast(affected), equal(origins[0], ""), "left_semi")
    columns = frame.columns
    for use, origin in enumerate(origins):
        prefix = f"{HIDDEN_PREFIX}u{use}"
        named = affected.withColumnsRenamed({name: f"{prefix}{name}" for name in affected.columns})
        frame = frame.join(F.broadcast(named.withColumn(f"{prefix}in", F.lit(True))), equal(origin, prefix), "left")
    flags = [F.coalesce(F.col(f"{HIDDEN_PREFIX}u{use}in"), F.lit(False)) for use in range(len(origins))]
    return frame.where(reduce(lambda one, other: one | other, flags)).select(*(F.col(f"`{c}`") for c in columns))


def span_of(affected: pa.Table, keys: TableKeys, source: str, time: str) -> Span | None:
    """The event times of a source's rows that can have the ``affected`` keys; None if the keys do not tell."""
    spans = []
    quoted = f"`{time.replace('`', '``')}`"
    for origin in keys.origins[source]:
        for i, sql in enumerate(origin):
            truncated = _TRUNCATED.fullmatch(sql)
            unit = truncated.group(1).lower() if truncated is not None and truncated.group(2) == quoted else None
            longest = 0 if sql == quoted else _LONGEST.get(unit or "")
            bounds = None if longest is None else bounds_of(affected.column(i))
            if bounds is not None and longest is not None:
                spans.append((bounds[0], bounds[1] + longest))
                break
        else:
            return None
    return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None


def bounds_of(times: pa.ChunkedArray) -> Span | None:
    """The first and the last of some times, in microseconds; None if there are none, or nulls among them."""
    if times.null_count or not len(times) or not pa.types.is_timestamp(times.type):
        return None
    bounds = pc.min_max(times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()))
    return bounds["min"].as_py(), bounds["max"].as_py()


def _name(key: int) -> str:
    return f"{HIDDEN_PREFIX}k{key}"
