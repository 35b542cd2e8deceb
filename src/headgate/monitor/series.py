"""Values over time in a fixed amount of memory: the longer they go on, the coarser they become."""

from __future__ import annotations

from collections.abc import Iterator


class Series:
    """Pairs of a time and a value, at most ``most`` of them, from the first to the latest.

    When it is full, every second pair is dropped, and from then on only every second, fourth, eighth ... one that is
    added is kept. The latest is always there.
    """

    __slots__ = ("_every", "_kept", "_latest", "_most", "_skipped")

    def __init__(self, most: int = 720) -> None:
        self._most = most
        self._kept: list[tuple[float, float | None]] = []
        self._latest: tuple[float, float | None] | None = None
        self._every = 1
        self._skipped = 0

    def add(self, at: float, value: float | None) -> None:
        self._latest = (at, value)
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self._kept.append(self._latest)
        if len(self._kept) >= self._most:
            del self._kept[1::2]
            self._every *= 2

    def __iter__(self) -> Iterator[tuple[float, float | None]]:
        yield from self._kept
        if self._latest is not None and (not self._kept or self._kept[-1] is not self._latest):
            yield self._latest

    def __len__(self) -> int:
        return sum(1 for _ in self)
