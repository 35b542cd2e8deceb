"""Follow the log of a Delta table from what has been loaded on: the files to load next, and what stands in the way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from headgate.warehouse.sources.delta.log import AddedFile, ForeignEntry, ForeignLog
from headgate.warehouse.sources.delta.offsets import DeltaOffset, DeltaRange, Place

#: so many versions and files are looked at ahead of what is loaded
MOST_VERSIONS, MOST_FILES = 500, 2000
#: after so many seconds without a new version the folder of the log is listed, in case that it is another table now
LIST_AGAIN = 30.0


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to be loaded: its place, the place after it, and when its version was committed, in milliseconds."""

    place: Place
    following: Place
    file: AddedFile
    committed: int
    of_contents: bool

    @property
    def size(self) -> int:
        return self.file.size

    @property
    def arrived(self) -> float:
        return self.committed / 1000


@dataclass(frozen=True, slots=True)
class Followed:
    """What a look found: the entries that are to be loaded, in order, and why there are no more.

    ``is_stuck``: more will not come by itself.
    """

    entries: tuple[ForeignEntry, ...]
    note: str = ""
    is_stuck: bool = False

    def runs(self, offset: DeltaOffset, since: int) -> Iterator[list[FoundFile]]:
        """The files that are not loaded, as lists without a loaded file in between; none is empty."""
        gaps = list(offset.gaps(since))
        run: list[FoundFile] = []
        gap_of_run: tuple[Place, Place | None] | None = None
        for found in self._files(offset):
            gap = next((g for g in gaps if g[0] <= found.place and (g[1] is None or found.place < g[1])), None)
            if run and (gap != gap_of_run or found.of_contents != run[-1].of_contents):
                yield run
                run = []
            if gap is not None:
                run.append(found)
            gap_of_run = gap
        if run:
            yield run

    def _files(self, offset: DeltaOffset) -> Iterator[FoundFile]:
        for index, entry in enumerate(self.entries):
            of_contents = offset.contents and entry.version == offset.first
            last = len(entry.added) - 1
            # Versions that add nothing are passed together with the one before.
            after = entry.version + 1
            for later in self.entries[index + 1 :] if entry.added else ():
                if later.added or later.version != after:
                    break
                after += 1
            for number, file in enumerate(entry.added):
                place = (entry.version, number)
                following = (after, 0) if number == last else (entry.version, number + 1)
                yield FoundFile(place, following, file, entry.committed, of_contents)


class DeltaFollower:
    """Follows one log. ``look`` is for one thread at a time; entries that were read are remembered."""

    def __init__(self, log: ForeignLog, *, ignores_changes: bool, since: int) -> None:
        self._log = log
        self._ignores_changes = ignores_changes
        self._since = since
        self._entries: dict[tuple[int, bool], ForeignEntry] = {}
        #: the version that was not there yet when the folder was last listed, and when that was
        self._tail: tuple[int, float] | None = None

    def look(self, offset: DeltaOffset) -> Followed:
        first = next(iter(self._needed(offset)))
        known = {key: entry for key, entry in self._entries.items() if key[0] >= first}
        found: list[ForeignEntry] = []
        files, is_new = 0, False
        note, is_stuck = "", False
        for version in self._needed(offset):
            key = (version, offset.contents and version == offset.first)
            entry = known.get(key)
            if entry is None:
                entry = self.entry(version, of_contents=key[1])
                if entry is None:
                    note, is_stuck = self._why_not(version, offset)
                    break
                known[key], is_new = entry, True
            if entry.changes_rows and not self._ignores_changes:
                note, is_stuck = self._changed(version), True
                break
            if entry.renames_columns:
                note, is_stuck = self.mapped_columns(), True
                break
            found.append(entry)
            files += len(entry.added)
            if len(found) >= MOST_VERSIONS or files >= MOST_FILES:
                break
        if is_new and (other := self._is_another_table(offset)):
            self._entries = {}  # or the next look would find nothing new, and load what is remembered
            return Followed((), other, True)
        self._entries = known
        return Followed(tuple(found), note, is_stuck)

    def _needed(self, offset: DeltaOffset) -> Iterator[int]:
        """The versions with files that may not be loaded, without end."""
        before = -1
        for (version, _), end in offset.gaps(self._since):
            needed = count(version) if end is None else range(version, end[0] + (1 if end[1] else 0))
            for each in needed:
                if each != before:
                    yield each
                before = each

    def entry(self, version: int, *, of_contents: bool) -> ForeignEntry | None:
        """A version as a stream takes it in; None if it is not in the log."""
        entry = self._log.entry(version)
        if entry is None or not of_contents:
            if entry is not None and entry.changes_rows and self._ignores_changes:
                return ForeignEntry(version, entry.committed)
            return entry
        return ForeignEntry(version, entry.committed, self._log.contents(version))

    def files_of(self, wanted: DeltaRange) -> list[AddedFile] | None:
        """The files of a range; None if an entry of its versions is not there any more."""
        files: list[AddedFile] = []
        last = wanted.end[0] if wanted.end[1] else wanted.end[0] - 1
        for version in range(wanted.begin[0], last + 1):
            key = (version, wanted.of_contents and version == wanted.begin[0])
            entry = self._entries.get(key) or self.entry(version, of_contents=key[1])
            if entry is None:
                return None
            files += [file for number, file in enumerate(entry.added) if wanted.begin <= (version, number) < wanted.end]
        return files

    def _is_another_table(self, offset: DeltaOffset) -> str:
        if offset.newest is None:
            return ""
        version, committed = offset.newest
        entry = self._log.entry(version)
        if entry is None or entry.committed == committed:
            return ""
        return self._made_anew(version)

    def _why_not(self, version: int, offset: DeltaOffset) -> tuple[str, bool]:
        """Why there is no entry of a version, and whether that will not pass by itself."""
        now = time.monotonic()
        if self._tail is not None and self._tail[0] == version and now - self._tail[1] < LIST_AGAIN:
            return "", False
        self._tail = None
        listed = self._log.versions()
        if not listed:
            return f"waiting for the Delta table {self._log.uri}, which does not exist", True
        later = next((each for each in listed if each > version), None)
        if later is not None and version not in listed:
            missing = f"version {version}" if later == version + 1 else f"versions {version} to {later - 1}"
            return (
                f"the log of the Delta table {self._log.uri} begins with version {later}: {missing} were cleaned up "
                f"before they were loaded, so what they added is not known. To go on without them, declare the source "
                f"with start={later}; to load all rows that are there now, declare a new stream with start='contents'",
                True,
            )
        if offset.newest is not None and listed[-1] < offset.newest[0]:
            return self._made_anew(offset.newest[0]), True
        if listed[-1] < version - 1:
            return f"waiting for version {version}; the Delta table {self._log.uri} has version {listed[-1]}", False
        self._tail = (version, now)
        return "", False

    def _made_anew(self, version: int) -> str:
        return (
            f"the Delta table {self._log.uri} is not the one whose version {version} was loaded: it was made anew or "
            "put back. Declare the stream under a new name to load it from the beginning"
        )

    def mapped_columns(self) -> str:
        return (
            f"the Delta table {self._log.uri} has columns with other names in its files (column mapping), which cannot "
            "be followed; declare it as a dimension"
        )

    def _changed(self, version: int) -> str:
        return (
            f"version {version} of the Delta table {self._log.uri} removed or replaced rows, and a stream takes only "
            "rows that are added. To go on without this version and others like it, declare the source with "
            "changes='ignore'; to have the table as it is, declare it as a dimension"
        )
