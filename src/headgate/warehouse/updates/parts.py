"""Up to which event time a stream is complete whose source has parts that grow side by side, as partitions of a topic.

Each part is loaded in its own order. As long as more of a part is waiting, the stream is complete only up to what that
part has given; rows of other parts that lie beyond are *ahead*. When nothing is left, all that was loaded counts. What
comes later with an earlier event time is late, as in every stream.

Commits keep only the parts that are ahead of the freshness. Of a part that is not among them, the freshness says
enough: it never goes down.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.warehouse.declare.plan_tree import quoted
from headgate.warehouse.sources.protocol import FILE_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_AT = "@"


@dataclass(frozen=True, slots=True)
class Reached:
    """Up to which event time a stream is complete, and the parts that have come further; all in microseconds."""

    freshness: int | None = None
    ahead: Mapping[str, int] = field(default_factory=dict)

    def after(self, last: int | None, by_part: Mapping[str, int], left: Collection[str]) -> Reached:
        """After a load up to event time ``last``, in each part up to ``by_part``; more of the parts ``left`` waits."""
        given = dict(self.ahead)
        for part, moment in by_part.items():
            given[part] = max(moment, given.get(part, moment))
        if left:
            bounds = [given.get(part, self.freshness) for part in left]
            known = [bound for bound in bounds if bound is not None]
            bound = min(known) if len(known) == len(bounds) else None
        else:
            bound = max((moment for moment in (last, *given.values()) if moment is not None), default=None)
        fresh = max((moment for moment in (bound, self.freshness) if moment is not None), default=None)
        ahead = {part: moment for part, moment in sorted(given.items()) if fresh is None or moment > fresh}
        return Reached(fresh, ahead if left else {})


def reached_in_rows(rows: pa.Table, time: str) -> dict[str, int]:
    """The newest event time of each part, of good rows with the column ``_file``."""
    found: dict[str, int] = {}
    files = rows.column(FILE_COLUMN).combine_chunks().cast(pa.binary())
    moments = pc.cast(rows.column(time), pa.int64()).combine_chunks()
    # The names of parts have few different lengths, and slices of one length are cheap.
    lengths = pc.find_substring(files, _AT)
    for length in pc.unique(lengths).to_pylist():
        here = pc.equal(lengths, length)
        names = pc.binary_slice(files.filter(here), 0, length).dictionary_encode()
        last = np.full(len(names.dictionary), np.iinfo(np.int64).min)
        np.maximum.at(last, names.indices.to_numpy(), moments.filter(here).to_numpy())
        found |= zip((name.decode() for name in names.dictionary.to_pylist()), last.tolist(), strict=True)
    return found


def reached_in_frame(good: DataFrame, time: str) -> dict[str, int]:
    """The same inside Spark; one row for each part comes to the driver."""
    from pyspark.sql import functions as F

    part = F.substring_index(F.col(FILE_COLUMN), _AT, 1)
    last = F.max(F.unix_micros(F.col(quoted(time))))
    return {row[0]: row[1] for row in good.groupBy(part).agg(last).collect()}
