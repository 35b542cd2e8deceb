"""Which files an update of a derived table reads, and what it commits: one way for each mode of a table.

A ``DerivePlanner`` knows what does not change while a table is open, ``Unconsumed`` is what the table has not taken in
at one moment, and the result is a ``DerivePlan``. Only the stores' newest versions are looked at; nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from headgate.warehouse.storage.files import DataFile, directory_of
from headgate.warehouse.updates.derive import TableDeriver
from headgate.warehouse.updates.derive_plan import DerivePlan, PlanKind, SourceFiles, SourceTable
from headgate.warehouse.updates.plan import (
    MICROS,
    Shape,
    SourceState,
    TableState,
    few,
    is_pending,
    plan_update,
    trailing_edge,
)
from headgate.warehouse.updates.source_changes import SourceChanges, SourceVersion
from headgate.warehouse.updates.spans import Span, Spans, common


@dataclass(frozen=True, slots=True)
class Unconsumed:
    """What a table has not taken in: the ``changes`` of its sources, and what of its past is to be recomputed.

    ``number`` is that of the table's newest commit. ``to_recompute`` is the part of the dirty event times that no
    commit has noted yet.
    """

    changes: Mapping[str, SourceChanges]
    sources: tuple[SourceState, ...]
    table: TableState
    number: int
    to_recompute: tuple[Span, ...]

    @property
    def edge(self) -> int | None:
        return trailing_edge(self.sources)

    def start(self, edge: int) -> int:
        """The event time from which on a live update has something to do."""
        if self.table.freshness is not None:
            return self.table.freshness
        return min((first for changes in self.changes.values() for first, _ in changes.spans), default=edge)


class DerivePlanner:
    """Plans the updates of one derived table."""

    def __init__(self, deriver: TableDeriver) -> None:
        spec, sources = deriver.spec, deriver.sources
        self._deriver = deriver
        self._store = deriver.table
        self._mode = deriver.mode
        self._sources = {source.name: source for source in sources}
        block = None if deriver.hosted.have_states else self._mode.block
        #: the past can only be recomputed by rebuilding the table; queries with states go on from row to row
        self.rebuilds = self._mode.name not in ("append", "blocks") or block is None
        self.shape = Shape(
            block=block or 1,
            lookback=round(spec.lookback * MICROS),
            newest_first=spec.catch_up == "newest",
            several_sources=sum(not source.is_dimension for source in sources) > 1,
            appended=self._mode.name == "append",
        )

    # --- what is pending ------------------------------------------------------------------------------------

    def follows(self, source: SourceTable) -> bool:
        """Whether a change of a source says what changes in the table; otherwise everything may change."""
        if self._mode.name == "whole":
            return True
        if self._mode.keys is not None:
            return source.name in self._mode.keys.origins
        return not source.is_dimension

    def changing(self, changes: Mapping[str, SourceChanges]) -> Iterator[SourceChanges]:
        """The changes of the sources whose changes say what changes in the table."""
        return (changes[name] for name, source in self._sources.items() if self.follows(source))

    def is_pending(self, waiting: Unconsumed, edge: int) -> bool:
        """Whether a live update would have anything to do; ``edge`` is the trailing edge of the sources."""
        table = waiting.table
        if self._mode.name == "blocks":
            return is_pending(self.shape, table, waiting.sources)
        is_behind = table.freshness is None or edge > table.freshness
        return is_behind or any(changes.changed for changes in self.changing(waiting.changes))

    def whole_past(self, freshness: int | None) -> Spans:
        """From the first row of the table or its sources to the table's freshness, as far as there is anything."""
        stores = [self._store, *(source.store for source in self._sources.values())]
        firsts = [file.first for store in stores for file in store.files() if file.first is not None]
        if freshness is None:
            return ()
        past = (min([*firsts, freshness]), freshness)
        if self.rebuilds:
            return (past,)
        return few(self.shape, self._occupied((past,)), self._occupied)

    def _occupied(self, spans: Spans) -> Spans:
        """The parts of ``spans`` in which the table has rows, or that are computed from rows of its sources.

        Only files are looked at. A file that maintenance has merged counts from its first row to its last.
        """
        reaches = [(self._store, 0)]
        reaches += [(source.store, self.shape.lookback) for source in self._sources.values() if source.time]
        found: list[Span] = []
        for store, reach in reaches:
            for first, last in spans:
                for file in store.files_in(store.partitions_between(first - reach, last)):
                    if file.first is not None and file.last is not None:
                        found.append((file.first, file.last + reach))
        return common(spans, self.shape.whole_blocks(found))

    # --- the plans of updates -------------------------------------------------------------------------------

    def live(self, waiting: Unconsumed, most_seconds: float) -> DerivePlan | None:
        """The next live update, of at most ``most_seconds`` of data if it can be done in parts."""
        match self._mode.name:
            case "append" | "merge":
                return self._new_rows(waiting, most_seconds)
            case "blocks":
                return self.recompute(waiting, most_seconds, backfill=False)
            case "keys":
                return self._keys(waiting)
            case "whole":
                return self.everything(waiting, "whole")

    def _new_rows(self, waiting: Unconsumed, most_seconds: float) -> DerivePlan | None:
        """Append the rows of new source rows, or merge them into groups: up to ``most_seconds`` of them."""
        (growing,) = (s for s in self._sources.values() if not s.is_dimension)
        taken = self._first_versions(waiting, growing.name, most_seconds)
        sources = tuple(
            replace(state, version=taken[-1].version, version_id=taken[-1].version_id, freshness=taken[-1].freshness)
            if state.name == growing.name and taken
            else state
            for state in waiting.sources
        )
        edge = trailing_edge(sources)
        if edge is None:
            return None
        added = tuple(file for version in taken if not version.removed for file in version.added)
        files = {name: s.store.files() for name, s in self._sources.items() if s.is_dimension}
        files[growing.name] = added
        return self._plan("merge" if self._mode.name == "merge" else "append", waiting, files, edge, sources)

    @staticmethod
    def _first_versions(waiting: Unconsumed, source: str, most_seconds: float) -> list[SourceVersion]:
        """The first pending versions of a source that have at most ``most_seconds`` of data.

        At least one that has rows and a freshness: of a source with parts, the first rows may come without one.
        """
        start = waiting.start(0)
        taken: list[SourceVersion] = []
        for version in waiting.changes[source].pending:
            reached = start if version.freshness is None else version.freshness
            begun = any(each.added for each in taken) and taken[-1].freshness is not None
            if begun and (reached - start) / MICROS > most_seconds:
                break
            taken.append(version)
        return taken

    def _keys(self, waiting: Unconsumed) -> DerivePlan | None:
        """Compute the rows of changed keys again."""
        edge, before = waiting.edge, waiting.table.freshness
        if edge is None:
            return None
        if before is None:
            return self._plan("whole", waiting, self._all_files(), edge)
        changed = {
            changes.name: (
                tuple(file for version in changes.pending for file in version.added),
                tuple(file for version in changes.pending for file in version.removed),
            )
            for changes in self.changing(waiting.changes)
        }
        return replace(self._plan("keys", waiting, self._all_files(), edge), changed=changed, edge_before=before)

    def everything(self, waiting: Unconsumed, kind: PlanKind) -> DerivePlan | None:
        """Compute all from all that the sources have now."""
        edge = waiting.edge
        if edge is None:
            return None
        return replace(self._plan(kind, waiting, self._all_files(), edge), dirty=())

    def recompute(self, waiting: Unconsumed, most_seconds: float, backfill: bool) -> DerivePlan | None:
        """Recompute blocks of time: new and late ones, and with ``backfill`` also a part of the past."""
        blocks = plan_update(self.shape, waiting.table, waiting.sources, self._occupied, most_seconds, backfill)
        if blocks is None:
            return None
        files = {name: self._deriver.choose(source, blocks) for name, source in self._sources.items()}
        plan = self._plan("backfill" if backfill else "recompute", waiting, files, blocks.edge)
        return replace(plan, freshness=blocks.freshness, dirty=blocks.dirty, blocks=blocks)

    def _all_files(self) -> dict[str, tuple[DataFile, ...]]:
        return {name: source.store.files() for name, source in self._sources.items()}

    def _plan(
        self,
        kind: PlanKind,
        waiting: Unconsumed,
        files: SourceFiles,
        edge: int,
        sources: tuple[SourceState, ...] | None = None,
    ) -> DerivePlan:
        return DerivePlan(
            kind=kind,
            sources=waiting.sources if sources is None else sources,
            files=files,
            number_before=waiting.number,
            to_recompute=waiting.to_recompute,
            edge=edge,
            freshness=edge,
            dirty=waiting.table.dirty,
            several_sources=self.shape.several_sources,
        )

    # --- files that are gone --------------------------------------------------------------------------------

    def deleted_file(self, plan: DerivePlan) -> str:
        """Names a file with changes that was deleted before this table has read it; empty if all are there."""
        for name, source in self._sources.items():
            if missing := source.store.missing(_files_read(plan, name)):
                return f"{missing[0]} of {name!r} was deleted before its changes were taken in"
        return ""

    def unreadable_file(self, plan: DerivePlan, error: str) -> str:
        """Names a file with changes of a source that an error is about; empty if it is about something else."""
        for name, source in self._sources.items():
            for file in source.store.not_live(_files_read(plan, name)):
                if directory_of(file.path) in error:  # by its random name: Spark writes paths in a way of its own
                    return f"{file.path} of {name!r} cannot be read"
        return ""


def _files_read(plan: DerivePlan, source: str) -> list[DataFile]:
    added, removed = plan.changed.get(source, ((), ()))
    return [*plan.files.get(source, ()), *added, *removed]
