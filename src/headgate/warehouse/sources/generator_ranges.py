"""Offsets and ranges of generated chunks, which are numbered 0, 1, 2, … from the moment the stream began."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from headgate.warehouse.sources.protocol import Offset, Range


@dataclass(frozen=True, slots=True)
class GeneratorOffset(Offset, kind="generator"):
    """When the stream began, in microseconds since the epoch, and which chunks have been loaded.

    ``loaded`` are runs of chunks, first and last, in order, none touching the next. Newest first leaves gaps.
    """

    began: int
    loaded: tuple[tuple[int, int], ...] = ()

    def after(self, first: int, last: int) -> GeneratorOffset:
        """The offset with the chunks ``first`` to ``last`` loaded, too."""
        runs: list[tuple[int, int]] = []
        for begin, end in sorted([*self.loaded, (first, last)]):
            if runs and begin <= runs[-1][1] + 1:
                runs[-1] = (runs[-1][0], max(runs[-1][1], end))
            else:
                runs.append((begin, end))
        return GeneratorOffset(self.began, tuple(runs))

    def gaps(self, arrived: int) -> Iterator[tuple[int, int]]:
        """The runs of chunks not loaded among the first ``arrived`` ones."""
        begin = 0
        for first, last in self.loaded:
            if begin < min(first, arrived):
                yield begin, min(first, arrived) - 1
            begin = last + 1
        if begin < arrived:
            yield begin, arrived - 1

    def _content(self) -> dict[str, object]:
        return {"began": self.began, "loaded": [list(run) for run in self.loaded]}

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls(int(content["began"]), tuple((int(first), int(last)) for first, last in content["loaded"]))


@dataclass(frozen=True, slots=True)
class GeneratorRange(Range, kind="generator"):
    """The chunks ``first`` to ``last`` of a stream that began at ``began``, in microseconds since the epoch."""

    began: int
    first: int
    last: int
    bytes_per_chunk: int
    oldest: float
    newest: float

    @property
    def chunks(self) -> int:
        return self.last - self.first + 1

    @property
    def bytes(self) -> int:
        return self.chunks * self.bytes_per_chunk

    def _content(self) -> dict[str, object]:
        return {
            "began": self.began,
            "chunks": [self.first, self.last],
            "bytes_per_chunk": self.bytes_per_chunk,
            "oldest": self.oldest,
            "newest": self.newest,
        }

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        first, last = content["chunks"]
        return cls(
            began=int(content["began"]),
            first=int(first),
            last=int(last),
            bytes_per_chunk=int(content["bytes_per_chunk"]),
            oldest=float(content["oldest"]),
            newest=float(content["newest"]),
        )
