"""Max Benefit with a price on workers' time, for times when there is too much to do."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from headgate.core.cost import LEAST_UPDATE_TIME
from headgate.core.flow import LEAST_TIME
from headgate.core.graph import Floats
from headgate.core.inheritance import Inheritance
from headgate.core.lengths import in_seconds
from headgate.core.matrix import FeatureView
from headgate.core.policies.tables import MaxBenefit, marginal_benefit
from headgate.core.policy import Policy, portion_of

#: an update is worth its set-up at so much of the price. The price goes by how long the overload has lasted, which says
#: little of how long it will last; with the whole of it, short overloads are up to 8 % worse, with 0.35 long ones 1 %
GATE = 0.7
#: an update takes in at least so much data that its set-up is this small a part of it
SETUPS = 32.0
#: of the backlog at which a table is worth its price, the share that one update takes in. With half of it, set-up takes
#: too much where the load is just what the tracks can do (figure 4, slowdown 2, load 1.1)
SHARE = 0.85
#: and at least so many periods of data
LEAST_PERIODS = 3.0
#: so much of a period is rounding, and not another period
ROUNDING = 1e-6
#: a fit in which set-up, or data, is a smaller share of an update than this knows nothing of one of the two
KNOWN_SHARE = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class Overload:
    """The memory of ``priced-benefit``: since when somebody has always been waiting, and by node the weighted
    staleness taken away per second of work when it was last started since then; infinity if it was not.

    ``last`` is when a node was last started, and ``who`` was left waiting then, one of those that were. If it is what
    the update was to leave of its own data that waits, it is a ``rest``."""

    since: float
    density: Floats
    last: float = -math.inf
    who: int = -1
    rest: bool = False
    #: the least of ``density``; infinity if nobody was started
    least: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "least", self.density.item(self.density.argmin()) if len(self.density) else math.inf)
        object.__setattr__(self, "last", max(self.since, self.last))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Overload):
            return NotImplemented
        ours, theirs = ((each.since, each.last, each.who, each.rest) for each in (self, other))
        return ours == theirs and bool(np.array_equal(self.density, other.density))

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def ended(cls, now: float, nodes: int) -> Overload:
        """Nobody waits at this moment."""
        return cls(now, np.full(nodes, math.inf))

    def price(self, now: float) -> float:
        """What a second of a worker is worth: who waits for it loses that much weighted staleness."""
        return (now - self.since) * self.least if self.least < math.inf else 0.0


@dataclass(frozen=True)
class PricedBenefit(Policy):
    """Max Benefit that knows what a second of a worker is worth to those who wait for it, and so when an update is not
    worth its set-up yet, and how much of a long backlog one update should take in. At low load, Max Benefit.

    Rule: ``d = p dF / E`` as in ``max-benefit``. ``price = (now - since) * least d``; since when somebody has always
    been waiting, and the least d at the last start of each node started since. The worth of an update is
    ``W = p (1/2 + beta) (n + P/2)^2 / alpha`` with n seconds pending: that price at which the table would be updated
    as often as that. ``gate``: ``(1, d)`` if ``W >= 0.7 price``, else ``(0, W)``. ``portions``: an update takes in
    ``max(32 alpha / min(beta, 1 - beta), 0.85 sqrt(2 price alpha / (p beta)))`` seconds of data, rounded up to whole
    periods, at least three; everything if ``beta >= 1``. ``density``: sources inherit by inheritance ``density``.
    A table whose alpha or beta is not known passes the gate, and its updates are whole.
    Features: those of max-benefit; ready, workers, pending, period, release_time, setup_time, time_per_unit.
    Fails: costs that are wrong mislead it, as they do Max Benefit; a table with a low ratio can wait for ever. With
    ``density``, a source of many tables whose updates are mostly set-up is updated too rarely.
    Paper: none; a Lagrangian price of the tracks (Whittle's index of weighted age with a set-up cost).
    """

    name = "priced-benefit"
    summary = "like max-benefit, but no update before it is worth its set-up, and backlogs in portions"
    paper = "our own"
    needs = (
        *MaxBenefit.needs,
        *("ready", "workers", "pending", "period", "release_time", "setup_time", "time_per_unit"),
    )
    starves = True

    gate: bool = True
    portions: bool = True
    density: bool = True

    @property
    def inheritance(self) -> Inheritance | None:
        """Without the gate, density can let much wait for little."""
        return "density" if self.density and self.gate else None

    def priorities(self, view: FeatureView) -> Floats:
        benefit = marginal_benefit(view)
        price = price_of(view) if self.gate else 0.0
        if price <= 0:
            return benefit
        return _gated(benefit, worth_of(view), price)

    @property
    def cuts(self) -> bool:
        return self.portions

    def portion(self, view: FeatureView) -> Floats:
        if not self.portions:
            return np.full(len(view), math.inf)
        tables = [view[name].tolist() for name in _TABLE]
        return np.array([*map(_portion, repeat(price_of(view)), *tables)])

    def remember(self, view: FeatureView, node: int) -> Overload:
        return _remembered(self, view, node)

    def notes(self, view: FeatureView, node: int) -> tuple[str, ...]:
        return (_told(view, node, float(self.portion(view)[node]), self.gate),)


def _gated(benefit: Floats, worth: Floats, price: float) -> Floats:
    """``(1, d)`` where an update is worth its price, else ``(0, W)``."""
    earned = worth >= GATE * price
    return np.array((earned, np.where(earned, benefit, worth))).T


def _remembered(policy: PricedBenefit, view: FeatureView, node: int) -> Overload:
    """The memory from now on, when ``node`` was started: the overload goes on, or nobody waits at this moment."""
    waiting = _waiting(view)
    waiting[node] = False
    if np.count_nonzero(waiting):
        return _after_start(view, node, waiting, who=int(waiting.argmax()), rest=False)
    if _leaves_much(policy, view, node):
        return _after_start(view, node, waiting, who=node, rest=True)
    return Overload.ended(view.now, len(view))


def _leaves_much(policy: PricedBenefit, view: FeatureView, node: int) -> bool:
    """Whether an update of ``node`` leaves so much that the rest counts as waiting, if the engine takes in no more than
    the portion."""
    pending, period = view["pending"].item(node), view["period"].item(node)
    if pending <= period or view["priority"].item(node) <= 0:
        return False
    return bool(pending - portion_of(policy, view, node) > period)


def _after_start(view: FeatureView, node: int, others: NDArray[np.bool_], who: int, rest: bool) -> Overload:
    """The memory from now on, when ``node`` was started and ``others`` wait, or it does itself."""
    now = view.now
    before = view.memory if isinstance(view.memory, Overload) else Overload.ended(now, len(view))
    if before.least < math.inf and not _goes_on(before, view):
        before = Overload.ended(before.last, len(view))
    since = before.since
    if before.least == math.inf:
        # The first that has to wait since then: nobody was waiting before its update was released.
        released = view["release_time"]
        since = max(since, min(now, released.item(node), *released[others].tolist()))
    density = before.density.copy()
    priority = view["priority"].item(node)
    if priority > 0:
        seconds = max(view["execution_time"].item(node), LEAST_TIME)
        density[node] = priority * view["freshness_delta"].item(node) / seconds
    return Overload(since, density, now, who, rest)


def _goes_on(memory: Overload, view: FeatureView) -> bool:
    """Whether somebody has always been waiting since the last start, by who waits now.

    That cannot be known when a node is started: an engine may take in more than the portion, who waits may be paused or
    share the job, and an update that was started at the same moment has not taken in its data yet.
    """
    everyone = view if view.rows is None else view.only(None)
    who, last, released = memory.who, memory.last, everyone["release_time"]
    if who >= 0 and released.item(who) <= last and _is_waiting(everyone, who):  # as usual
        return True
    waiting = _waiting(everyone)
    if np.count_nonzero(released[waiting] <= last):
        return True
    if not memory.rest or not waiting[who]:
        return False
    # An engine may release the rest only when the update has ended; it is older than what came since the start.
    older = everyone["pending"].item(who) - (everyone.now - last)
    return bool(older > everyone["period"].item(who))


def _told(view: FeatureView, node: int, portion: float, gated: bool) -> str:
    """What ``explain`` says of a node: price, worth and portion."""
    if not costs_are_known(view)[node]:
        unknown = "its set-up and its time per second of data are not known apart"
        return f"{unknown}, so it is ranked as by max-benefit, never cut"
    told = _told_worth(price_of(view), float(worth_of(view)[node]), gated)
    return told if portion == math.inf else f"{told}; one update takes in at most {in_seconds(portion)} of data"


def _told_worth(price: float, worth: float, gated: bool) -> str:
    if price <= 0:
        return "no table has waited for long, so this update is ranked as by max-benefit"
    track = f"a second of a track is worth {price:.4g} weighted staleness to the tables that wait"
    if not gated:
        return f"{track}; without the gate, this update is ranked as by max-benefit"
    needed, own = GATE * price, f"this update is worth {worth:.4g} per second of a track"
    if worth >= needed:
        return f"{track}; {own}, at least {GATE:g} of that ({needed:.4g}), so it is ranked as by max-benefit"
    return f"{track}; {own}, less than {GATE:g} of that ({needed:.4g}), so updates that are worth that go first"


def _waiting(view: FeatureView) -> NDArray[np.bool_]:
    """Who waits; what waits beside a running update counts if it is more than a period. Work of priority 0, such as
    upkeep, is done when there is time, and does not count."""
    waiting: NDArray[np.bool_] = (view["workers"] == 0) | (view["pending"] > view["period"])
    return waiting & (view["ready"] > 0) & (view["priority"] > 0)


def _is_waiting(view: FeatureView, node: int) -> bool:
    """``_waiting`` of one node, which is asked for several times at each start."""
    if not view["ready"].item(node) > 0 or not view["priority"].item(node) > 0:
        return False
    return view["workers"].item(node) == 0 or view["pending"].item(node) > view["period"].item(node)


def price_of(view: FeatureView) -> float:
    """The price of a worker's second by the memory of ``priced-benefit``; 0 while nobody has to wait for long."""
    memory = view.memory
    if not isinstance(memory, Overload) or memory.least == math.inf or not _goes_on(memory, view):
        return 0.0
    return memory.price(view.now)


def worth_of(view: FeatureView) -> Floats:
    """The price up to which it is worth to start each node now; infinity where its costs are not known."""
    alpha, beta, known = view["setup_time"], view["time_per_unit"], costs_are_known(view)
    age = view["pending"] + np.where(known, view["period"], 0.0) / 2  # a period may be infinite where they are not
    worth: Floats = view["priority"] * (0.5 + beta) * age * age / np.maximum(alpha, LEAST_UPDATE_TIME)
    worth[~known] = math.inf
    return worth


def costs_are_known(view: FeatureView) -> NDArray[np.bool_]:
    """``_is_known`` of every node in view."""
    alpha, period = view["setup_time"], view["period"]
    with np.errstate(invalid="ignore"):  # no time for each of endless data: no number, and so not known
        data = view["time_per_unit"] * (period + (period <= 0))
    known: NDArray[np.bool_] = np.minimum(alpha, data) > KNOWN_SHARE * (alpha + data)
    return known & (alpha > LEAST_UPDATE_TIME)


def _is_known(alpha: float, beta: float, period: float) -> bool:
    """Whether set-up and time per unit are known apart: not if a line was fitted to updates of one size only."""
    data = beta * (period if period > 0 else 1.0)
    least = KNOWN_SHARE * (alpha + data)
    return alpha > max(least, LEAST_UPDATE_TIME) and data > least


def _portion(price: float, alpha: float, beta: float, priority: float, period: float) -> float:
    """How many seconds of data an update of a table takes in; infinity for everything. One table at a time: the loop
    asks for one, and numbers are faster than arrays of one."""
    worth = priority * beta
    if beta >= 1 or worth <= 0 or not _is_known(alpha, beta, period):
        return math.inf
    setups = SETUPS * alpha / min(beta, 1 - beta)
    amount = max(setups, SHARE * math.sqrt(2 * price * alpha / worth))
    if not 0 < period < math.inf or amount == math.inf:
        return amount
    return max(LEAST_PERIODS, math.ceil(amount / period - ROUNDING)) * period


#: what ``_portion`` goes by
_TABLE = ("setup_time", "time_per_unit", "priority", "period")
