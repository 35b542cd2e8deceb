"""Which chunk of a source makes a load fail, and when it is set aside so that the others go on.

A load reads many chunks at once, and Spark does not always say which one it failed at. So if a load fails, its chunks
are read again in halves, down to single ones, without writing anything. Those that cannot be read alone are left out
of the load. After a few loads, each is set aside: until it changes it is not tried again.

If Spark itself dies during a load (`note_death`), nobody can say more. The next loads take one chunk each, and a chunk
that Spark has died with for the third time, alone, is set aside.

Not every failure is about a chunk. If Spark cannot even compute an empty result, or every chunk can be read, or the
machine is short of something, then the load fails as it is, and nothing is counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.warehouse.sources import DataSource, Limit, Range, SourceBroken, SourceChanged, SourceUnreadable
from headgate.warehouse.sources.protocol import SetsAside
from headgate.warehouse.transient import DEATHS, is_transient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: a chunk is set aside when so many loads have found that it cannot be read
TRIES = 3
#: how many chunks that cannot be read are looked for in one load: the others are left to the next ones
MOST_PER_LOAD = 10
#: what an error says if somebody has cancelled the load
_CANCELLED = ("SPARK_JOB_CANCELLED", "cancelled part of cancelled job group")
_LONGEST_REASON = 300
_JAVA_PACKAGE = re.compile(r"^(?:[a-z]\w*\.){2,}(?=[A-Z])")


class BadChunks:
    """The chunks of one source that could not be read. For one thread at a time."""

    def __init__(self, source: DataSource) -> None:
        self._source = source
        #: {chunk: (as it was, how many loads have found that it cannot be read)}
        self._tries: dict[str, tuple[Range, int]] = {}
        #: {chunk that Spark has died with: (as it was, how often)}, and how many loads are still to take one chunk each
        self._suspects: dict[str, tuple[Range, int]] = {}
        self._one_by_one = 0
        #: {chunk that Spark has died of: (as it was, why)}: to be set aside by the next load
        self._deadly: dict[str, tuple[Range, str]] = {}

    def note_death(self, wanted: Range, reason: str) -> None:
        """Spark died while it loaded ``wanted``."""
        if not isinstance(self._source, SetsAside):
            return
        chunks = self._source.chunks_of(wanted)
        for name, chunk in chunks.items():
            known, deaths = self._suspects.get(name, (chunk, 0))
            deaths = deaths + 1 if chunk.names_the_same_as(known) else 1
            if len(chunks) == 1 and deaths >= DEATHS:
                self._deadly[name] = (chunk, reason)
            self._suspects[name] = (chunk, deaths)
        self._one_by_one = max(self._one_by_one, len(chunks))

    def limited(self, limit: Limit) -> Limit:
        """How much the next load may take."""
        return replace(limit, chunks=1) if self._one_by_one else limit

    def note_load(self) -> None:
        """A load was committed."""
        self._one_by_one = max(0, self._one_by_one - 1)
        if not self._one_by_one:
            self._suspects.clear()

    def without_deadly(self, wanted: Range) -> Range:
        """A range that sets aside those of its chunks that Spark has died of."""
        if not self._deadly or not isinstance(self._source, SetsAside):
            return wanted
        given_up = {
            name: self._deadly[name][1]
            for name, chunk in self._source.chunks_of(wanted).items()
            if name in self._deadly and chunk.names_the_same_as(self._deadly[name][0])
        }
        return self._source.set_aside(wanted, given_up)

    def left_out(self, spark: SparkSession, wanted: Range, error: Exception) -> Range:
        """What to load in place of ``wanted``, whose load has failed; raises ``error`` if nothing else would help."""
        source = self._source
        if not isinstance(source, SetsAside):
            raise error
        bad, unknown = self.found(spark, wanted, error)
        chunks = source.chunks_of(wanted)
        for_good = isinstance(error, SourceBroken)
        given_up = {
            name: reason for name, reason in bad.items() if for_good or self._counted(name, chunks[name]) >= TRIES
        }
        left_out = {*bad, *unknown}
        if not left_out or (left_out == chunks.keys() and not given_up):
            raise error
        for name in given_up:
            self._tries.pop(name, None)
        return source.without(source.set_aside(wanted, given_up), left_out)

    def found(self, spark: SparkSession, wanted: Range, error: Exception) -> tuple[dict[str, str], set[str]]:
        """The chunks because of which a load failed, each with the reason, and those that were not looked at any more.

        None if the failure is not about chunks.
        """
        source = self._source
        if not isinstance(source, SetsAside) or _is_not_the_content(error):
            return {}, set()
        names = list(source.chunks_of(wanted))
        if isinstance(error, SourceBroken):
            return {name: reason for name, reason in error.chunks.items() if name in names}, set()
        if self._failure(spark, source.without(wanted, names)) is not None:
            return {}, set()  # Spark itself does not work
        bad: dict[str, str] = {}
        unknown: set[str] = set()
        parts: list[Sequence[str]] = [names]
        while parts:
            part = parts.pop()
            if len(bad) >= MOST_PER_LOAD:
                unknown.update(part)
                continue
            failure = self._failure(spark, source.without(wanted, {*names} - {*part}))
            if failure is None:
                continue
            if _is_not_the_content(failure):
                return {}, set()
            if len(part) == 1:
                bad[part[0]] = reason_of(failure)
            else:
                half = len(part) // 2
                parts += [part[half:], part[:half]]
        return bad, unknown

    def _counted(self, name: str, chunk: Range) -> int:
        known, tries = self._tries.get(name, (chunk, 0))
        tries = tries + 1 if chunk.names_the_same_as(known) else 1
        self._tries[name] = (chunk, tries)
        return tries

    def _failure(self, spark: SparkSession, part: Range) -> Exception | None:
        """Why a part cannot be read; None if it can. Raises if it has changed meanwhile."""
        try:
            self._source.read(spark, part).write.format("noop").mode("overwrite").save()
        except (SourceChanged, SourceUnreadable):
            raise
        except Exception as error:
            self._source.verify(part)
            return error
        return None


def _is_not_the_content(error: Exception) -> bool:
    if isinstance(error, SourceChanged | SourceUnreadable) or is_transient(error):
        return True
    return any(said in str(error) for said in _CANCELLED)


def reason_of(error: Exception) -> str:
    """Why something failed, on one line: the innermost cause that Spark names, which is the most telling."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    text = causes[-1] if causes else lines[0] if lines else type(error).__name__
    text = _JAVA_PACKAGE.sub("", text)
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"
