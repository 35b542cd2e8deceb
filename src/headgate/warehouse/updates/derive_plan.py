"""What an update of a derived table does and reads: fixed when it begins, computed by ``derive``.

From one update to the next only the list of files changes in the plan that Spark compiles. A literal that changes would
make Spark generate and compile code again, which takes as long as a small update. The trailing edge does change, so it
is compared as a decimal: Spark passes decimals by reference and does not write them into the code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Literal

from headgate.warehouse.declare.plan_tree import quoted
from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.plan import RecomputePlan, SourceState
from headgate.warehouse.updates.spans import Span
from headgate.warehouse.updates.spark_files import FileReader

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: what an update does: add rows, merge groups, recompute blocks (live or behind live updates) or keys, or compute
#: everything (live, or behind live updates)
PlanKind = Literal["append", "merge", "recompute", "backfill", "keys", "whole", "rebuild"]


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A source as a query reads it; ``time`` is None for a dimension, and for a table without event time."""

    name: str
    store: TableStore
    schema: StructType
    time: str | None
    is_dimension: bool = False


#: the files to read, by the name of the source
SourceFiles = Mapping[str, Sequence[DataFile]]


@dataclass(frozen=True, slots=True)
class DerivePlan:
    """What one update of a derived table reads: the sources as they were when it began, and their files.

    After the update the table reflects its sources up to ``freshness``, except for ``dirty``, which is still to be
    recomputed. Rows beyond the trailing ``edge`` are not used. ``blocks`` is what to recompute, if that is blocks of
    time. ``changed`` are files with the rows that were added to and removed from each source, if keys are recomputed;
    rows that were there, but beyond ``edge_before``, count as added. ``number_before`` is the number of the table's
    last commit. If the update fails, ``to_recompute`` is pending again. ``several_sources``: more than one is not a
    dimension, so that rows beyond the edge must be left out.
    """

    kind: PlanKind
    sources: tuple[SourceState, ...]
    files: SourceFiles
    number_before: int
    to_recompute: tuple[Span, ...]
    edge: int
    freshness: int
    dirty: tuple[Span, ...]
    blocks: RecomputePlan | None = None
    changed: Mapping[str, tuple[Sequence[DataFile], Sequence[DataFile]]] = field(default_factory=dict)
    edge_before: int | None = None
    several_sources: bool = False

    @property
    def versions(self) -> dict[str, int]:
        """The source versions that the table will have consumed."""
        return {source.name: source.version for source in self.sources}

    @property
    def source_ids(self) -> dict[str, str]:
        """The ids of these versions."""
        return {source.name: source.version_id for source in self.sources}

    @property
    def bytes(self) -> int:
        return sum(file.size for files in self.files.values() for file in files)

    @property
    def changed_bytes(self) -> int:
        """The size of the files with changed rows."""
        return sum(file.size for parts in self.changed.values() for part in parts for file in part)

    @property
    def commit_kind(self) -> str:
        """What the commit is called in the table's log."""
        return "backfill" if self.kind == "rebuild" else self.kind

    @property
    def computes(self) -> bool:
        """Whether there is anything to compute; otherwise the update only commits the new freshness."""
        if self.blocks is not None:
            return bool(self.blocks.spans)
        if self.kind in ("append", "merge"):
            return any(self.files[source.name] for source in self.sources if not source.is_dimension)
        return True


def read_source(spark: SparkSession, source: SourceTable, chosen: Sequence[DataFile], files: FileReader) -> DataFrame:
    """The rows of some files of a source."""
    if not chosen:
        return spark.createDataFrame([], source.schema)
    return files.parquet(source.schema, [source.store.path_of(file) for file in chosen])


def up_to_edge(spark: SparkSession, source: SourceTable, plan: DerivePlan, files: FileReader) -> DataFrame:
    """The rows of a source that an update computes from."""
    from pyspark.sql import functions as F

    chosen = plan.files.get(source.name, ())
    frame = read_source(spark, source, chosen, files)
    if source.time is None or not chosen:
        return frame
    micros = F.unix_micros(F.col(quoted(source.time)))
    if plan.several_sources:
        frame = frame.where(micros <= F.lit(Decimal(plan.edge)))
    if plan.blocks is not None and not all(is_covered(file, plan.blocks.read) for file in chosen):
        # A partition that maintenance has merged holds more than the plan reads.
        frame = frame.where(is_among(micros, plan.blocks.read))
    return frame


def is_covered(file: DataFile, spans: Sequence[Span]) -> bool:
    """Whether all rows of a file lie in one of ``spans``."""
    if file.first is None or file.last is None:
        return False
    first, last = file.first, file.last
    return any(a <= first and last <= b for a, b in spans)


def is_among(micros: Column, spans: Sequence[Span]) -> Column:
    """Whether a time lies in one of ``spans``, on Spark."""
    from pyspark.sql import functions as F

    inside = [(micros >= F.lit(Decimal(first))) & (micros <= F.lit(Decimal(last))) for first, last in spans]
    return reduce(lambda a, b: a | b, inside)
