"""Policies for tables (Golab et al., 3.1): the nearest deadline first, or the most freshness per second of work."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from headgate.core.flow import at_least_a_moment
from headgate.core.graph import Floats, Ints
from headgate.core.matrix import FeatureView
from headgate.core.policy import Policy, of_highest_rank

#: The sets that Lookahead weighs are made of at most so many ready jobs,
MOST_READY = 10
#: and are followed by one of at most so many jobs still to come. Both are those with the highest marginal benefit.
MOST_FUTURE = 16
#: Row by row, which of the ready jobs are in the set; without the empty set. Rows with early jobs come first.
_SETS: Floats = np.array(list(product((1.0, 0.0), repeat=MOST_READY)))[:-1]


@dataclass(frozen=True)
class EarliestDeadline(Policy):
    """The update whose deadline is nearest runs first; the deadline is when the next data are expected.
    Meets most deadlines if jobs could be interrupted, which updates cannot.

    Rule: ``-(release_time + period)``.
    Features: release_time, period.
    Fails: knows no priorities; under overload everything is late, and an update with a long period waits that long.
    Paper: Golab et al., section 3.1.
    """

    name = "edf"
    summary = "the update with the nearest deadline"
    paper = "Golab 3.1"
    needs = ("release_time", "period")
    local = True

    def priorities(self, view: FeatureView) -> Floats:
        return -(view["release_time"] + view["period"])


@dataclass(frozen=True)
class PriorityDeadline(Policy):
    """The table with the highest priority runs first, the nearest deadline between equals.
    Simple, and as good as ``max-benefit`` as long as tables differ little in speed.

    Rule: ``(priority, -(release_time + period))``.
    Features: priority, release_time, period.
    Fails: a little staleness of an important table outweighs any staleness of others, which can wait for ever.
    Paper: Golab et al., section 3.1 (EDF-P).
    """

    name = "edf-p"
    summary = "the update with the highest priority, then the nearest deadline"
    paper = "Golab 3.1"
    needs = ("priority", "release_time", "period")
    local = True
    starves = True

    def priorities(self, view: FeatureView) -> Floats:
        return np.column_stack((view["priority"], -(view["release_time"] + view["period"])))

    def joining(self, view: FeatureView, offered: Ints, others: Ints) -> Ints:
        return of_highest_rank(view["priority"], offered, others)


@dataclass(frozen=True)
class MaxBenefit(Policy):
    """The update that takes most weighted staleness away per second of work runs first.
    The greedy way to the least total priority-weighted staleness.

    Rule: ``p dF / E``; p priority, dF freshness gained, E expected execution time.
    Features: priority, freshness_delta, execution_time.
    Fails: as data pile up the ratio levels off at p / beta, so under overload a table with a low ratio waits for ever
    (the loop's guard is for this). Does not see that a much better job is about to be released.
    Paper: Golab et al., section 3.1.
    """

    name = "max-benefit"
    summary = "the update with the most freshness, times priority, per second of work"
    paper = "Golab 3.1"
    needs = ("priority", "freshness_delta", "execution_time")
    local = True
    starves = True

    def priorities(self, view: FeatureView) -> Floats:
        return marginal_benefit(view)


@dataclass(frozen=True)
class MaxBenefitLookahead(Policy):
    """Max Benefit, unless some shorter jobs now and a better one that is about to be released are worth more.
    Then the best of the shorter ones goes first, so that the better one finds the worker free.

    Rule: ``(1 if looking ahead chose the node else 0, p dF / E)``; see ``look_ahead``.
    Features: those of max-benefit, and for the jobs to come: ready, period, next_release, setup_time, time_per_unit.
    Fails: like Max Benefit, also in that a job can wait for ever; and where the expected release times are unreliable
    it prefers short jobs in vain. In the paper's experiments it almost always chose what Max Benefit chose.
    Paper: Golab et al., section 3.1.
    """

    name = "max-benefit-lookahead"
    summary = "like max-benefit, but leaves room for better updates that are due soon"
    paper = "Golab 3.1"
    needs = (*MaxBenefit.needs, "ready", "period", "next_release", "setup_time", "time_per_unit")
    starves = True

    def priorities(self, view: FeatureView) -> Floats:
        chosen = np.zeros(len(view))
        ahead = look_ahead(view)
        if ahead is not None:
            chosen[ahead.chosen] = 1.0
        return np.column_stack((chosen, marginal_benefit(view)))


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Why another job than Max Benefit's goes first."""

    #: J_i, the ready job with the highest marginal benefit, which has to wait
    instead_of: int
    #: J_k, the job still to be released that makes this worth while
    future: int
    #: S*, the ready jobs to run before it, the highest marginal benefit first
    jobs: tuple[int, ...]
    #: B[S*], the marginal benefit of all of S* followed by J_k
    benefit: float

    @property
    def chosen(self) -> int:
        """The job that goes first: the best of S*."""
        return self.jobs[0]


def marginal_benefit(view: FeatureView) -> Floats:
    """p dF / E of every node in view: weighted staleness taken away per second of work."""
    return _waiting(view).marginal


def look_ahead(view: FeatureView) -> Lookahead | None:
    """The set of jobs that should go before Max Benefit's J_i because of one still to come; None if J_i should go.

    For each future J_k due within E_i of now whose marginal benefit, with the data of one period, is above that of J_i,
    and for each set S of ready jobs that leaves no gap before J_k and ends before J_i would
    (``r_k - now <= sum of E_m < E_i``): ``B[S] = (sum of p_m dF_m + p_k dF_k) / (sum of E_m + E_k)``. S* has the
    largest B, and counts if that is above the marginal benefit of J_i. A release that is overdue is not waited for.
    """
    waiting, coming, ready = _waiting(view), _coming(view), view["ready"] > 0
    due = view["next_release"] - view.now
    released = _best(view, waiting, ready, 1)
    if not len(released):
        return None
    first = int(released[0])
    threshold, limit = waiting.marginal[first], waiting.seconds[first]
    futures = _best(view, coming, ~ready & (due >= 0) & (due <= limit) & (coming.marginal > threshold), MOST_FUTURE)
    shorter = _best(view, waiting, ready & (waiting.seconds < limit), MOST_READY)
    if not len(futures) or not len(shorter):
        return None
    sets = _SETS[1 - 2 ** len(shorter) :, -len(shorter) :]
    worth = _worth(sets, waiting.of(shorter), coming.of(futures), due[futures], limit)
    which, members = np.unravel_index(int(np.argmax(worth)), worth.shape)
    if not worth[which, members] > threshold:
        return None
    jobs = tuple(shorter[sets[members] > 0].tolist())
    return Lookahead(first, int(futures[which]), jobs, float(worth[which, members]))


@dataclass(frozen=True, slots=True, eq=False)
class _Jobs:
    """Jobs by what they take away of weighted staleness and how long they need."""

    gain: Floats
    seconds: Floats

    @property
    def marginal(self) -> Floats:
        return self.gain / self.seconds

    def of(self, nodes: Ints) -> _Jobs:
        return _Jobs(self.gain[nodes], self.seconds[nodes])


def _waiting(view: FeatureView) -> _Jobs:
    """Each node's job with the data that wait now."""
    return _Jobs(view["priority"] * view["freshness_delta"], at_least_a_moment(view["execution_time"]))


def _coming(view: FeatureView) -> _Jobs:
    """Each node's job with the data of one period, to run as soon as they are there."""
    period = np.where(np.isfinite(view["period"]), view["period"], 0.0)
    seconds = view["setup_time"] + view["time_per_unit"] * period
    return _Jobs(view["priority"] * period, at_least_a_moment(seconds))


def _worth(sets: Floats, ready: _Jobs, future: _Jobs, due: Floats, limit: float) -> Floats:
    """B of every set before every future job, one row per future job; -inf where the set does not fit."""
    seconds, gain = sets @ ready.seconds, sets @ ready.gain
    worth = (gain + future.gain[:, np.newaxis]) / (seconds + future.seconds[:, np.newaxis])
    fits = (seconds < limit) & (seconds >= due[:, np.newaxis])
    return np.where(fits, worth, -np.inf)


def _best(view: FeatureView, jobs: _Jobs, eligible: NDArray[np.bool_], most: int) -> Ints:
    """The ``most`` eligible nodes with the highest marginal benefit, the best first; of equals, those downstream."""
    nodes = np.flatnonzero(eligible)
    marginal = jobs.marginal[nodes]
    if len(nodes) > most:
        among = marginal >= np.partition(marginal, -most)[-most]
        nodes, marginal = nodes[among], marginal[among]
    return nodes[np.lexsort((view.graph.tie[nodes], -view.graph.depth[nodes], -marginal))][:most]
