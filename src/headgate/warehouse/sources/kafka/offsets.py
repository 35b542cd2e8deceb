"""Which records of a Kafka topic have been loaded, by partition, and which are loaded next.

A *run* is ``(partition, first, end)``: the offsets of a partition from ``first`` up to but without ``end``. Not every
offset has a record: compaction removes some, and the markers of transactions take some.

A topic that is deleted and created again begins anew at offset 0. So offsets and ranges carry the id of the topic, and
a range of another topic makes the offset begin anew with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from headgate.warehouse.sources.protocol import Offset, Range
from headgate.warehouse.sources.ranges import ArrivedRange


class Run(NamedTuple):
    """The offsets of a partition from ``first`` up to but without ``end``."""

    partition: int
    first: int
    end: int

    def __str__(self) -> str:
        last = f" to {self.end - 1:,}" if self.end - self.first > 1 else ""
        return f"partition {self.partition}, offset {self.first:,}{last}"


def merged(runs: Iterable[Run]) -> tuple[Run, ...]:
    """The same offsets in as few runs as possible, in order."""
    found: list[Run] = []
    for run in sorted(runs):
        if run.first >= run.end:
            continue
        before = found[-1] if found else None
        if before is not None and before.partition == run.partition and run.first <= before.end:
            found[-1] = before._replace(end=max(before.end, run.end))
        else:
            found.append(run)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class KafkaOffset(Offset, kind="kafka"):
    """What has been loaded of a topic: of each partition all before ``position``, and the runs in ``ahead``.

    Runs ahead come from loading the newest records first. A partition without a position has been added to the topic
    since, or nothing has been loaded yet (``topic`` and ``position`` are empty then).
    """

    topic: str = ""
    position: Mapping[int, int] = field(default_factory=dict)
    ahead: tuple[Run, ...] = ()

    def after(self, loaded: KafkaRange) -> KafkaOffset:
        """The offset with a range loaded, too."""
        here = self if self.topic == loaded.topic else KafkaOffset(loaded.topic)
        position = {**loaded.begin, **here.position}
        ahead: list[Run] = []
        for run in merged([*here.ahead, *loaded.runs, *loaded.skipped]):
            if run.first <= position.get(run.partition, 0):
                position[run.partition] = max(run.end, position.get(run.partition, 0))
            else:
                ahead.append(run)
        return KafkaOffset(loaded.topic, dict(sorted(position.items())), tuple(ahead))

    def waiting(self, partition: int, first: int, end: int) -> Iterator[Run]:
        """The runs of a partition that are not loaded, of its offsets from ``first`` up to ``end``."""
        begin = max(first, self.position.get(partition, 0))
        for run in self.ahead:
            if run.partition == partition and run.end > begin:
                if begin < min(run.first, end):
                    yield Run(partition, begin, min(run.first, end))
                begin = run.end
        if begin < end:
            yield Run(partition, begin, end)

    def _content(self) -> dict[str, object]:
        content: dict[str, object] = {"topic": self.topic, "position": _by_name(self.position)}
        return content | ({"ahead": [list(run) for run in self.ahead]} if self.ahead else {})

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls(str(content["topic"]), _by_number(content["position"]), _runs(content.get("ahead", ())))


@dataclass(frozen=True, slots=True)
class KafkaRange(ArrivedRange, kind="kafka"):
    """Some runs of a topic.

    ``begin`` are the offsets at which the loading of partitions begins that no range before it had. ``skipped`` were
    removed from the topic before they could be loaded. A chunk is a block of ``per_chunk`` offsets, or the part of it
    that is in a run. ``record_bytes`` is the size of a record, as far as it was known. ``left`` are the partitions that
    had more records after it when it was planned; none if it takes the newest.
    """

    topic: str
    runs: tuple[Run, ...]
    begin: Mapping[int, int] = field(default_factory=dict)
    skipped: tuple[Run, ...] = ()
    per_chunk: int = 1
    record_bytes: int = 1
    left: tuple[int, ...] = ()

    @property
    def offsets(self) -> int:
        """How many offsets it has: at most so many records."""
        return sum(run.end - run.first for run in self.runs)

    @property
    def chunks(self) -> int:
        return sum(chunks_in(run, self.per_chunk) for run in self.runs)

    @property
    def bytes(self) -> int:
        return self.offsets * self.record_bytes

    def names_the_same_as(self, other: Range) -> bool:
        return isinstance(other, KafkaRange) and (self.topic, self.runs) == (other.topic, other.runs)

    def _content(self) -> dict[str, object]:
        content: dict[str, object] = {
            "topic": self.topic,
            "runs": [list(run) for run in self.runs],
            **self._measures(),
            "per_chunk": self.per_chunk,
            "record_bytes": self.record_bytes,
        }
        if self.begin:
            content["begin"] = _by_name(self.begin)
        if self.skipped:
            content["skipped"] = [list(run) for run in self.skipped]
        if self.left:
            content["left"] = list(self.left)
        return content

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls(
            topic=str(content["topic"]),
            runs=_runs(content["runs"]),
            begin=_by_number(content.get("begin", {})),
            skipped=_runs(content.get("skipped", ())),
            per_chunk=int(content["per_chunk"]),
            record_bytes=int(content["record_bytes"]),
            left=tuple(map(int, content.get("left", ()))),
            **cls._measured(content),
        )


def chunks_in(run: Run, per_chunk: int) -> int:
    """How many blocks of ``per_chunk`` offsets a run touches; blocks begin at multiples of their size."""
    return (run.end - 1) // per_chunk - run.first // per_chunk + 1


def cut(run: Run, per_chunk: int, *, newest_first: bool = False) -> Iterator[Run]:
    """The chunks of a run, each as a run."""
    first, last = run.first // per_chunk, (run.end - 1) // per_chunk
    for block in range(last, first - 1, -1) if newest_first else range(first, last + 1):
        begin = block * per_chunk
        yield Run(run.partition, max(run.first, begin), min(run.end, begin + per_chunk))


def _by_name(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in numbers.items()}


def _by_number(stored: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in stored.items()}


def _runs(stored: Iterable[Any]) -> tuple[Run, ...]:
    return tuple(Run(int(partition), int(first), int(end)) for partition, first, end in stored)
