"""Whether target lags can be kept on so many tracks, for people: which cannot, by how much, and what would help.

The arithmetic is that of ``headgate.core.targets``. Everything that is named as help was tried in it: with it, all
targets would be kept with room to spare; with more tracks all but those that no number of tracks helps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from headgate.core.graph import Floats
from headgate.core.lengths import plural
from headgate.core.targets import (
    TargetTables,
    blocking,
    demand,
    exceeds,
    has_room,
    impossible,
    is_possible,
    kept_targets,
    reachable,
    smallest_factor,
)

Verdict = Literal["kept", "tight", "impossible"]

#: a single coarser target is looked for among so many tables, those that take most of a track
_MOST_SINGLE = 8
#: then one factor for so many of these, then for all
_SOME = (2, 3, 4, 6, 8)


@dataclass(frozen=True, slots=True)
class TargetDemand:
    """One table with a target. ``least`` is the lowest lag that it can have, infinite if it cannot keep up at all;
    if the target is below it, it ``is_impossible``.

    ``within`` is the lag that it must have for its own target and those of all tables built on it. ``share`` is what
    that takes of a track.
    """

    name: str
    target: float
    least: float
    within: float
    share: float
    is_impossible: bool


@dataclass(frozen=True, slots=True)
class TargetHelp:
    """What would help, each by itself; None or empty if it alone does not.

    ``tracks``: so many tracks, for the targets that can be reached at all. ``coarser``: these targets in place of the
    stated ones. ``without``: these tables left out. ``tracks_at_least`` is on how many fewer tracks targets would be
    missed only now and then, because an update may have to wait for ``longest`` seconds there; None if there is no such
    number.
    """

    tracks: int | None = None
    coarser: Mapping[str, float] | None = None
    without: tuple[str, ...] = ()
    tracks_at_least: int | None = None
    longest: float = 0.0


@dataclass(frozen=True)
class TargetPlan:
    """What all targets ask of ``tracks`` tracks.

    ``verdict``: "impossible" if no policy can keep all targets, "tight" if some will be missed now and then, "kept"
    otherwise. ``busy`` is how many tracks the targets take that can be reached, sources included. ``longest`` is how
    long an update may have to wait because others are not interrupted. ``given_up`` are tables whose target could be
    reached, but not together with the others. ``unknown`` are the tables whose cost or period is not known: they count
    as nothing.
    """

    tracks: int
    verdict: Verdict
    tables: tuple[TargetDemand, ...]
    busy: float
    longest: float
    given_up: tuple[str, ...]
    unknown: tuple[str, ...]
    _planned: TargetTables = field(repr=False, compare=False)

    @cached_property
    def help(self) -> TargetHelp:
        """What would help if not all targets can be kept; it takes much longer to find than all the rest."""
        return TargetHelp() if self.verdict == "kept" else _help(self._planned, self.tracks)

    @property
    def impossible(self) -> tuple[TargetDemand, ...]:
        """The tables whose target is below the lowest lag that they can have, however many tracks there are."""
        return tuple(table for table in self.tables if table.is_impossible)


def plan_targets(tables: TargetTables, tracks: int) -> TargetPlan:
    """Whether the targets can be kept on so many tracks, and what would help if not.

    ``tables`` must not change while the plan is in use.
    """
    asked = demand(tables)
    names = tables.graph.names
    stated = tables.stated.tolist()
    hopeless = impossible(tables, asked)
    rest = demand(reachable(tables, asked))
    verdict: Verdict = "kept"
    if hopeless.any() or exceeds(rest.tracks, tracks):
        verdict = "impossible"
    elif not has_room(tables, tracks):
        verdict = "tight"
    kept = kept_targets(tables, tracks) if verdict == "impossible" else tables.target
    return TargetPlan(
        tracks=tracks,
        verdict=verdict,
        tables=tuple(
            TargetDemand(
                names[i],
                float(tables.target[i]),
                float(asked.least[i]),
                float(asked.within[i]),
                float(asked.share[i]),
                bool(hopeless[i]),
            )
            for i in stated
        ),
        busy=rest.tracks,
        longest=blocking(tables, tracks),
        given_up=tuple(names[i] for i in stated if math.isinf(kept[i]) and not hopeless[i]),
        unknown=tuple(names[i] for i in np.flatnonzero(~tables.known & np.isfinite(asked.within)).tolist()),
        _planned=tables,
    )


# --- what would help ----------------------------------------------------------------------------------------------


def _help(tables: TargetTables, tracks: int) -> TargetHelp:
    rest = reachable(tables, demand(tables))
    enough, least = None, None
    if not has_room(rest, tracks):
        enough, least = _more_tracks(has_room, rest, tracks), _more_tracks(is_possible, rest, tracks)
    if least == enough or is_possible(rest, tracks):
        least = None
    longest = 0.0 if least is None else blocking(tables, least)
    return TargetHelp(enough, _coarser(tables, tracks), _fewer(tables, tracks), least, longest)


def _more_tracks(holds: Callable[[TargetTables, int], bool], tables: TargetTables, tracks: int) -> int | None:
    # A table is updated on one track at a time, so more tracks than tables are no help.
    return next((more for more in range(tracks + 1, len(tables.graph) + 1) if holds(tables, more)), None)


def _coarser(tables: TargetTables, tracks: int) -> Mapping[str, float] | None:
    """Targets that are coarse enough: of one table if that is enough, else of some that take the most, else of all."""
    alone = _single(tables, tracks)
    if alone is not None:
        return alone
    waiting = demand(tables, blocking(tables, tracks))
    least = np.where(np.isfinite(tables.target), np.maximum(tables.target, waiting.least), np.inf)
    if np.isinf(least[tables.stated]).any():
        return None

    def scaled(some: list[int], factor: float) -> Floats:
        target = tables.target.copy()
        target[some] = np.maximum(target[some] * factor, least[some])
        return target

    order = _most_first(tables)
    for count in (*(count for count in _SOME if count < len(order)), len(order)):

        def fits(factor: float, some: list[int] = order[:count]) -> bool:
            return has_room(tables.with_target(scaled(some, factor)), tracks)

        factor = smallest_factor(fits)
        if factor is not None:
            return _changed(tables, scaled(order[:count], factor), tracks)
    return None


def _most_first(tables: TargetTables) -> list[int]:
    """Tables with targets: those below their lowest lag, then by the share of a track that they take."""
    asked = demand(tables)
    shares = np.where(impossible(tables, asked), np.inf, asked.share)
    return sorted(tables.stated.tolist(), key=lambda i: (-shares[i], tables.graph.tie[i]))


def _single(tables: TargetTables, tracks: int) -> Mapping[str, float] | None:
    """The one target that has to become least coarser, relative to what it is, if one alone is enough."""
    best: tuple[float, Floats] | None = None
    for i in _most_first(tables)[:_MOST_SINGLE]:

        def scaled(factor: float, table: int = i) -> Floats:
            target = tables.target.copy()
            target[table] *= factor
            return target

        factor = smallest_factor(lambda f: has_room(tables.with_target(scaled(f)), tracks))
        if factor is not None and (best is None or factor < best[0]):
            best = (factor, scaled(factor))
    return None if best is None else _changed(tables, best[1], tracks)


def _changed(tables: TargetTables, target: Floats, tracks: int) -> Mapping[str, float] | None:
    """The targets that differ, rounded up to two digits: people write those."""
    rounded = np.array([_rounded_up(t) if t > before else t for t, before in zip(target, tables.target, strict=True)])
    if not has_room(tables.with_target(rounded), tracks):
        return None
    names = tables.graph.names
    return {names[i]: float(rounded[i]) for i in tables.stated.tolist() if rounded[i] > tables.target[i]}


def _fewer(tables: TargetTables, tracks: int) -> tuple[str, ...]:
    """Tables to leave out: those that cannot be kept, then those that are worth least for what they take of a track.

    Only tables that nothing else is built on: leaving out another one would leave out more.
    """
    graph = tables.graph
    asked = demand(tables)
    hopeless = impossible(tables, asked)
    candidates = [i for i in tables.stated.tolist() if not graph.downstream[i]]
    worth = tables.priority / np.maximum(asked.share, 1e-12)
    order = sorted(candidates, key=lambda i: (not hopeless[i], worth[i], graph.tie[i]))
    target, alpha = tables.target.copy(), tables.setup_time.copy()
    left_out: list[str] = []
    for i in order:
        target[i], alpha[i] = np.inf, np.nan  # a table whose cost is not known counts as nothing, as if left out
        left_out.append(graph.names[i])
        if has_room(replace(tables, target=target, setup_time=alpha), tracks):
            return tuple(left_out)
    return ()


def _rounded_up(seconds: float) -> float:
    """With two digits, upwards."""
    if not 0 < seconds < math.inf:
        return seconds
    step = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return round(math.ceil(seconds / step - 1e-9) * step, 9)


# --- in words -----------------------------------------------------------------------------------------------------

#: how a number of seconds is written
Written = Callable[[float], str]
#: what begins each part of a text that says what would help
_HELP = "it would help: "


def seconds_of(length: float) -> str:
    return f"{length:.3g} s"


def plan_lines(plan: TargetPlan, written: Written = seconds_of) -> list[str]:
    """What there is to say of the targets as a whole, a line for each thing; nothing if all can be kept."""
    if plan.verdict == "kept":
        return []
    return [*_said(plan, written), *(f"{_HELP}{line}" for line in help_lines(plan, written))]


def without_help(said: str) -> str:
    """``plan_lines`` as one text, without what would help."""
    return said.partition(f"; {_HELP}")[0]


def _said(plan: TargetPlan, written: Written) -> Iterator[str]:
    for table in plan.impossible:
        yield f"{table.name}: {impossible_line(table, written)}"
    tracks = f"{plan.tracks} {plural('track', plan.tracks)}"
    if exceeds(plan.busy, plan.tracks):
        which = "the other target lags" if plan.impossible else "the target lags"
        yield (
            f"{which} cannot all be met: they take {plan.busy:.2f} tracks at least, and there "
            f"{'is' if plan.tracks == 1 else 'are'} {tracks}"
        )
        if plan.given_up:
            yield f"the policy target-lag:goal=count gives up {', '.join(plan.given_up)}"
    elif plan.verdict == "tight":
        yield (
            f"target lags may be missed now and then: they take {plan.busy:.2f} of {tracks}, and an update may have to "
            f"wait {written(plan.longest)} for a track"
        )


def impossible_line(table: TargetDemand, written: Written = seconds_of) -> str:
    """Why no number of tracks helps a table."""
    if math.isinf(table.least):
        return (
            f"its target lag of {written(table.target)} cannot be met: its updates take longer than the time whose "
            "data they bring"
        )
    return (
        f"its target lag of {written(table.target)} cannot be met: with its sources, an update takes "
        f"{written(table.least)} at least"
    )


def help_lines(plan: TargetPlan, written: Written = seconds_of, more_tracks: bool = True) -> list[str]:
    """What would help, each by itself; without ``more_tracks`` only what also helps targets that cannot be reached."""
    found = _track_lines(plan, written) if more_tracks else []
    if plan.help.coarser:
        targets = [f"{written(target)} for {name}" for name, target in plan.help.coarser.items()]
        found.append(f"a target_lag of {', '.join(targets)}")
    if plan.help.without:
        found.append(f"to leave out {', '.join(plan.help.without)}")
    return found


def _track_lines(plan: TargetPlan, written: Written) -> list[str]:
    enough, least = plan.help.tracks, plan.help.tracks_at_least
    more = [] if enough is None else [f"{enough} tracks"]
    if least is not None:
        wait = f"an update may have to wait {written(plan.help.longest)} for a track"
        number = f"{least} tracks" if enough is None else f"or {least}"
        more.append(f"{number}, if targets may be missed now and then: on {least}, {wait}")
    whom = "for the other targets, " if plan.impossible else ""
    return [whom + "; ".join(more)] if more else []
