"""Arithmetic on spans of event time. Its cost depends on the number of spans, never on how long they are.

Results are *joined*: in the order of time, and no two of them touch or overlap.
"""

from __future__ import annotations

from collections.abc import Iterable

#: event time from a moment to a moment, both included, in microseconds
Span = tuple[int, int]
Spans = tuple[Span, ...]


def join(spans: Iterable[Span]) -> Spans:
    """The spans in order; those that touch or overlap are merged."""
    joined: list[Span] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def minus(spans: Iterable[Span], others: Iterable[Span]) -> Spans:
    """What is in ``spans`` and not in ``others``."""
    left: list[Span] = []
    cuts, next_cut = join(others), 0
    for first, last in join(spans):
        begin = first
        while next_cut < len(cuts) and cuts[next_cut][0] <= last:
            cut_first, cut_last = cuts[next_cut]
            if cut_first > begin:
                left.append((begin, cut_first - 1))
            begin = max(begin, cut_last + 1)
            if cut_last > last:
                break  # it may reach into the next span
            next_cut += 1
        if begin <= last:
            left.append((begin, last))
    return tuple(left)


def common(spans: Iterable[Span], others: Iterable[Span]) -> Spans:
    """What is in ``spans`` and in ``others``."""
    joined = join(spans)
    return minus(joined, minus(joined, others))


def clip(spans: Iterable[Span], first: int | None = None, last: int | None = None) -> Spans:
    """What of ``spans`` lies from ``first`` to ``last``, both included; None is no limit."""
    clipped = (
        (begin if first is None else max(begin, first), end if last is None else min(end, last)) for begin, end in spans
    )
    return join((begin, end) for begin, end in clipped if begin <= end)


def length(spans: Iterable[Span]) -> int:
    """How long joined spans are together."""
    return sum(last - first + 1 for first, last in spans)


def first_part(spans: Iterable[Span], most: int) -> Spans:
    """The earliest part of joined spans, ``most`` long or all of them."""
    taken: list[Span] = []
    for first, last in spans:
        if most <= 0:
            break
        end = min(last, first + most - 1)
        taken.append((first, end))
        most -= end - first + 1
    return tuple(taken)


def last_part(spans: Iterable[Span], most: int) -> Spans:
    """The latest part of joined spans, ``most`` long or all of them."""
    mirrored = first_part(((-last, -first) for first, last in reversed(tuple(spans))), most)
    return tuple((-last, -first) for first, last in reversed(mirrored))
