"""The state that every commit of a table carries, so that a restarted warehouse continues where it stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.core import HeadgateError
from headgate.warehouse.updates.spans import Span

FORMAT = 1


class StateError(HeadgateError):
    """The newest commit of a table carries a state that this version of Headgate cannot read."""


@dataclass(frozen=True, slots=True)
class CommitState:
    """The state of a table after update number ``update``; number 0 is before the first update.

    ``freshness`` is the event time up to which the table reflects its sources, in microseconds. A derived table has
    ``sources``, the versions it has consumed, ``source_ids``, the ids of these versions, and ``dirty``, the event times
    still to be recomputed. Commits of older releases have no ids. A stream or dimension has the ``range`` that the
    update loaded, and in the first commit and some others the whole ``offset``, both as the source writes them.
    ``time`` is the event-time column, None in tables without; readers without the declaration need it. ``queries`` are
    the stream queries in the table's function and the files with their states (``headgate.stream.spark``).
    ``rejected_files`` are the files with rows that these queries rejected, or for a stream or dimension the folders
    with its rejected rows, and the update that wrote them. ``query`` is the fingerprint of the query that computed the
    rows of a derived table (``declare.query_fingerprint``), ``mode`` how it was kept up to date (``declare.modes``).
    ``ahead`` are the parts of a stream's source that have come further than its freshness (``updates.parts``).
    """

    update: int = 0
    kind: str = ""
    freshness: int | None = None
    rows: int = 0
    rejected: int = 0
    sources: Mapping[str, int] = field(default_factory=dict)
    source_ids: Mapping[str, str] = field(default_factory=dict)
    dirty: tuple[Span, ...] = ()
    range: Mapping[str, Any] | None = None
    offset: Mapping[str, Any] | None = None
    time: str | None = None
    queries: Mapping[str, Any] = field(default_factory=dict)
    rejected_files: Mapping[str, Any] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    mode: str | None = None
    ahead: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """As it is written in a commit; empty fields are left out."""
        written = {
            "format": FORMAT,
            "update": self.update,
            "kind": self.kind,
            "freshness": self.freshness,
            "rows": self.rows,
            "rejected": self.rejected,
            "sources": dict(self.sources),
            "source_ids": dict(self.source_ids),
            "dirty": [list(span) for span in self.dirty],
            "range": self.range,
            "offset": self.offset,
            "time": self.time,
            "queries": dict(self.queries),
            "set_aside": self.rejected_files,  # its name in tables that are there already
            "query": dict(self.query),
            "mode": self.mode,
            "ahead": dict(self.ahead),
        }
        return {key: value for key, value in written.items() if value is not None and value not in ([], {})}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], table: str = "a table") -> CommitState:
        """The state in a commit of ``table``; before the first commit, an empty one."""
        if not stored:
            return cls()
        if stored.get("format") != FORMAT:
            raise StateError(
                f"the newest commit of {table} carries a state of format {stored.get('format')!r}; this version of "
                f"Headgate understands format {FORMAT}: was the table written by a newer version?"
            )
        return cls(
            update=int(stored["update"]),
            kind=str(stored["kind"]),
            freshness=stored.get("freshness"),
            rows=int(stored.get("rows", 0)),
            rejected=int(stored.get("rejected", 0)),
            sources={str(name): int(version) for name, version in stored.get("sources", {}).items()},
            source_ids={str(name): str(version_id) for name, version_id in stored.get("source_ids", {}).items()},
            dirty=tuple((int(first), int(last)) for first, last in stored.get("dirty", ())),
            range=stored.get("range"),
            offset=stored.get("offset"),
            time=stored.get("time"),
            queries=stored.get("queries", {}),
            rejected_files=stored.get("set_aside"),
            query=stored.get("query", {}),
            mode=stored.get("mode"),
            ahead={str(part): int(moment) for part, moment in stored.get("ahead", {}).items()},
        )
