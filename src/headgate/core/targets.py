"""Target lags as arithmetic: what they ask of sources, what they take of the tracks, and which can be kept.

A table with a period P gets data every P seconds, and an update of n seconds of data takes E(n) = alpha + beta n. Data
waits from when it arrives. If every update takes in k periods, the oldest of them waits for the others, (k - 1) P, and
for the update itself. So the table keeps a target T if

    (k - 1) P + above + E(k P) <= T

where *above* is the time that data needs through the sources of the table, at least E(P) in each. The largest such k is
the laziest way to keep the target, and the cheapest: it takes ``alpha / (k P) + beta`` of a track. A source has to be
done in time for what is built on it: targets flow upstream, less the time that the tables in between need.

These conditions are necessary. If the sum over all tables is above the number of tracks, no policy keeps all targets.
They are not sufficient, as updates are not interrupted and do not always take as long as expected. So help is computed
with room to spare: an update may have to wait until another has ended, and ``ROOM`` of the tracks is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headgate.core.graph import Floats, Graph, Ints
from headgate.core.matrix import FeatureMatrix

#: the share of the tracks that targets may take if they are to be kept nearly always
ROOM = 0.9
#: targets that are coarser by more than this are no help
MOST_COARSER = 1e4
#: quotients of seconds are rounded: a limit that is missed by less than this is kept
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class TargetTables:
    """Tables with their targets, costs and periods: one entry per node of ``graph`` in each array.

    ``target`` is infinite for a table without one. A table whose cost or period is not known (NaN, or a period of 0) is
    taken to cost nothing, so nothing is called impossible because of it.
    """

    graph: Graph
    target: Floats
    period: Floats
    setup_time: Floats
    time_per_unit: Floats
    priority: Floats

    @property
    def known(self) -> NDArray[np.bool_]:
        """Of which tables cost and period are known."""
        counts = np.isfinite(self.period) & (self.period > 0)
        return counts & np.isfinite(self.setup_time) & np.isfinite(self.time_per_unit)

    @property
    def stated(self) -> Ints:
        """The tables that have a target."""
        return np.flatnonzero(np.isfinite(self.target))

    def executions(self) -> Floats:
        """E(P) of every table: the least time that new data needs to get into it."""
        with np.errstate(invalid="ignore"):
            return np.where(self.known, self.setup_time + self.time_per_unit * self.period, 0.0)

    def with_target(self, target: Floats) -> TargetTables:
        return replace(self, target=target)


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """What targets ask of every table, one entry per node in each array; see the head of this module.

    ``within`` is how long after its arrival data must be in the table, so that all targets hold; never less than
    ``least``, the lowest lag that the table can have; infinite for a table that nothing is asked of. ``share`` is what
    that takes of a track.
    """

    within: Floats
    least: Floats
    share: Floats

    @property
    def tracks(self) -> float:
        """How many tracks the targets take, all in all."""
        return float(self.share.sum())


def demand(tables: TargetTables, wait: float = 0.0) -> Demand:
    """What the targets ask for, if every update has to wait ``wait`` seconds for a track."""
    graph, known = tables.graph, tables.known
    period = np.where(known, tables.period, 1.0)
    alpha = np.where(known, tables.setup_time, 0.0)
    beta = np.where(known, tables.time_per_unit, 0.0)
    once = alpha + beta * period + np.where(known, wait, 0.0)
    # An update of a table that is slower than its data has more than one period to take in.
    with np.errstate(divide="ignore", invalid="ignore"):
        fewest = np.where(beta < 1, np.maximum(1.0, np.ceil(alpha / ((1 - beta) * period) - _ROUNDING)), np.inf)
        own = once + (fewest - 1) * (1 + beta) * period
    through, least = once.copy(), own.copy()
    above = np.zeros(len(graph))
    for level in graph.from_sources[1:]:
        above[level.nodes] = np.maximum.reduceat(through[level.neighbours], level.starts)
        through[level.nodes] = above[level.nodes] + once[level.nodes]
        slowest = np.maximum.reduceat(least[level.neighbours], level.starts)
        least[level.nodes] = np.maximum(slowest + once[level.nodes], above[level.nodes] + own[level.nodes])
    within = tables.target.copy()
    for level in graph.from_sinks[1:]:
        asked = np.minimum.reduceat((within - once)[level.neighbours], level.starts)
        within[level.nodes] = np.minimum(within[level.nodes], asked)
    asked_of = np.isfinite(within)
    # A table that cannot keep up at all is asked for nothing, and would take a whole track.
    within = np.where(asked_of, np.maximum(within, least), np.inf)
    periods = np.ones(len(graph))
    attainable = np.isfinite(within)
    room = within[attainable] - above[attainable] - once[attainable]
    periods[attainable] += np.maximum(0.0, np.floor(room / ((1 + beta) * period)[attainable] + _ROUNDING))
    share = np.where(attainable, alpha / (periods * period) + beta, 1.0)
    return Demand(within, least, np.where(asked_of & known, share, 0.0))


def blocking(tables: TargetTables, tracks: int) -> float:
    """How long an update may have to wait for a track: the longest updates of others have just begun on all of them."""
    longest = np.sort(tables.executions())[::-1]
    return float(longest[tracks - 1]) if tracks < len(longest) else 0.0


def exceeds(taken: float, tracks: float) -> bool:
    """Whether more tracks are taken than there are, by more than rounding."""
    return taken > tracks + _ROUNDING


def fits_with_room(taken: float, tracks: int) -> bool:
    """Whether no more than ``ROOM`` of the tracks is taken."""
    return not exceeds(taken, ROOM * tracks)


def is_possible(tables: TargetTables, tracks: int) -> bool:
    """Whether nothing says that all targets cannot be kept on so many tracks."""
    asked = demand(tables)
    return not impossible(tables, asked).any() and not exceeds(asked.tracks, tracks)


def has_room(tables: TargetTables, tracks: int) -> bool:
    """Whether all targets can be kept nearly always, with some room for updates that take longer than expected."""
    asked = demand(tables, blocking(tables, tracks))
    return not impossible(tables, asked).any() and fits_with_room(asked.tracks, tracks)


def reachable(tables: TargetTables, asked: Demand) -> TargetTables:
    """The tables without the targets that are ``impossible``: what those ask for nobody can give, on any tracks."""
    return tables.with_target(np.where(impossible(tables, asked), np.inf, tables.target))


def impossible(tables: TargetTables, asked: Demand) -> NDArray[np.bool_]:
    """The tables whose own target is below the lowest lag that they can have, however many tracks there are."""
    return tables.target < asked.least * (1 - _ROUNDING) - _ROUNDING


# --- which targets to keep ----------------------------------------------------------------------------------------


def kept_targets(tables: TargetTables, tracks: int) -> Floats:
    """The targets that can be kept together, infinite for the others; all of them if they can.

    Those that take least of a track for their priority come first; one that does not fit any more is left out, and
    so are those that nobody could keep.
    """
    tables = reachable(tables, demand(tables))
    if fits_with_room(demand(tables).tracks, tracks):
        return tables.target
    wait = blocking(tables, tracks) / 2  # on average; who has to wait longer is late now and then
    asked = demand(tables, wait)
    worth = asked.share / np.maximum(tables.priority, 1e-12)
    order = sorted(tables.stated.tolist(), key=lambda i: (worth[i], tables.graph.tie[i]))

    def only(chosen: list[int]) -> Floats:
        target = np.full(len(tables.graph), np.inf)
        target[chosen] = tables.target[chosen]
        return target

    def fit(chosen: list[int]) -> bool:
        return fits_with_room(demand(tables.with_target(only(chosen)), wait).tracks, tracks)

    low, high = 0, len(order)
    while low < high:  # the more targets, the more of the tracks they take
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fit(order[:middle]) else (low, middle - 1)
    kept = order[:low]
    for each in order[low:]:
        if fit([*kept, each]):
            kept.append(each)
    return only(kept)


def even_stretch(tables: TargetTables, tracks: int) -> float:
    """By how much all targets have to be coarser so that they take at most ``ROOM`` of the tracks; 1 if they do.

    Also 1 if not even ``MOST_COARSER`` is enough, as where each second of data takes too long: then the policy
    stretches them as it goes, by the largest ratio of lag to target.

    A table that cannot keep up at all does not count: no factor helps it, so with it none would help the others.
    """
    tables = tables.with_target(np.where(np.isinf(demand(tables).least), np.inf, tables.target))

    def fits(factor: float) -> bool:
        return fits_with_room(demand(tables.with_target(tables.target * factor)).tracks, tracks)

    return smallest_factor(fits) or 1.0


def smallest_factor(holds: Callable[[float], bool]) -> float | None:
    """The smallest factor from 1 to ``MOST_COARSER`` that holds, to a hundredth; None if none does."""
    low, high = 1.0, MOST_COARSER
    if holds(low):
        return low
    if not holds(high):
        return None
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def fill_targets(matrix: FeatureMatrix, target: Floats, priority: Floats, tracks: int) -> None:
    """Fill the features ``target_lag`` and ``kept_target_lag`` from the targets that are stated and the costs known.

    ``priority`` is the stated one. To be called again when costs, periods or the number of tracks have changed.
    """
    columns = matrix.columns
    tables = TargetTables(
        matrix.graph, target, columns["period"], columns["setup_time"], columns["time_per_unit"], priority
    )
    if not len(tables.stated):
        matrix.fill("target_lag", target)
        matrix.fill("kept_target_lag", target)
        return
    matrix.fill("target_lag", demand(tables.with_target(target * even_stretch(tables, tracks))).within)
    kept = tables.with_target(kept_targets(tables, tracks))
    matrix.fill("kept_target_lag", demand(kept).within if len(kept.stated) else kept.target)
