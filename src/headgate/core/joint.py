"""One job for several tables: who of those that wait is updated together with the one that was chosen.

Tables with the same sources can share a job: their updates run one after the other on one worker, each with a commit of
its own, and what the first one has set up and read serves the others. Golab et al. name this as future work. With
``E_i = alpha_i + beta_i n_i`` for an update alone, a job of the first table f and others S takes

    E_f + sum over j in S of c_j,   c_j = E_j - s min(alpha_f, alpha_j)

where s, the *shared share* of the set-up, is learned from jobs so far (``SharedSetup``).

A worker that takes on j now keeps those that j would have waited for waiting a little longer, and all others less long,
because j costs less. Let ``w_i = p_i dF_i`` be what an update takes away of weighted staleness. Of all that wait for a
worker and do not share the job, let A be those with a higher benefit ``w / E`` than j alone, which would run before it,
and B the rest. A waits longer if j is in the job, which costs ``c_j W_A``. But j has its turn earlier by the time of A,
which is worth ``w_j E_A``, and B waits less by what j saves, which is worth ``(E_j - c_j) W_B``. So j is in the job if

    w_j E_A + (E_j - c_j) W_B >= c_j W_A

(all seconds are divided by the number of workers, which changes nothing). If j with its cost in the job is better than
everybody else who waits, that always holds: then the job has the greatest benefit per second of work that there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from headgate.core.cost import LEAST_UPDATE_TIME
from headgate.core.errors import ParameterError
from headgate.core.matrix import FeatureMatrix

#: whether tables share jobs: as the scheduler finds best, only those of a group that a user has declared, or none
Together = Literal["auto", "declared", "never"]
AUTO: Together = "auto"
DECLARED: Together = "declared"
NEVER: Together = "never"
#: the shared share of a set-up before any job was observed: on Spark, five small tables over the same files took 280 ms
#: instead of 520
PRIOR_SHARE = 0.5
#: so many observed jobs weigh as much as the prior
PRIOR_WEIGHT = 2.0
#: the factor by which the weight of earlier jobs falls with each new one
FADING = 0.95
#: the same at every job that is not shared, because nothing seems to be saved
FORGETTING = 0.98
#: a job has at most so many updates beside the first
MOST_COMPANIONS = 32
#: one job tells at most so much, and at least minus so much: something else may have made it slow
MOST_SHARE = 1.0


def together_from(*texts: str) -> Together:
    """Who shares jobs: the first of ``texts`` that is not ``default``, or else ``declared``."""
    known: tuple[Together, ...] = get_args(Together)
    for text in texts:
        if text not in ("default", *known):
            raise ParameterError(
                f"together is default, {', '.join(known[:-1])} or {known[-1]}; got {str(text)[:100]!r}"
            )
    return next((way for text in texts for way in known if text == way), DECLARED)


class WaitingUpdate(NamedTuple):
    """An update that waits, in numbers: what it takes away of weighted staleness, and alone its time and its set-up."""

    node: int
    gain: float
    seconds: float
    setup: float

    @property
    def benefit(self) -> float:
        """Weighted staleness that it takes away per second of work, alone."""
        return self.gain / max(self.seconds, LEAST_UPDATE_TIME)


@dataclass(frozen=True, slots=True)
class JointChoice:
    """Who shares a job: ``members``, the first of them the one that was chosen, in the order in which they run.

    ``gain`` and ``seconds`` are those of the whole job, ``alone`` the seconds that its updates would take one by one,
    ``first`` the benefit per second of the first one alone, and ``share`` the shared share of a set-up. ``offered`` is
    how many could have shared it.
    """

    members: tuple[int, ...]
    gain: float
    seconds: float
    alone: float
    first: float
    share: float
    offered: int

    @property
    def benefit(self) -> float:
        """Weighted staleness that the job takes away per second of work."""
        return self.gain / max(self.seconds, LEAST_UPDATE_TIME)

    def told(self) -> str:
        """Why together or alone, with numbers."""
        of = f"of {self.offered} that could share its job"
        if len(self.members) == 1:
            removes = f"it removes {self.first:.4g} weighted staleness per second of work"
            return f"alone: none {of} is worth its time now; {removes}"
        others = len(self.members) - 1
        return (
            f"together with {others} {of}: {self.seconds:.3g} s instead of {self.alone:.3g} s one by one"
            f" (a set-up shares {self.share:.0%}), which removes {self.benefit:.4g} weighted staleness per second of"
            f" work; the first update alone, {self.first:.4g}"
        )


def seconds_in_job(update: WaitingUpdate, first: WaitingUpdate, share: float) -> float:
    """c_j: what an update takes in a job that another one has set up."""
    return max(update.seconds - share * min(first.setup, update.setup), LEAST_UPDATE_TIME)


def choose_together(
    first: WaitingUpdate, others: Iterable[WaitingUpdate], rivals: Sequence[WaitingUpdate], share: float
) -> JointChoice:
    """Who shares the job of ``first``: of ``others``, which could, those that the rule above takes.

    ``rivals`` wait for a worker, too, and cannot share the job. Who could and does not waits like them.
    """
    cheap = [(seconds_in_job(update, first, share), update) for update in others]
    # The greatest benefit first: its commit comes first.
    cheap.sort(key=lambda one: (-one[1].gain / one[0], one[1].node))
    waiting = _WaitingUpdates([*(update for _, update in cheap), *rivals])
    members = [first]
    for place, (cost, update) in enumerate(cheap):
        if len(members) > MOST_COMPANIONS:
            break
        if cost < update.seconds and waiting.relief(place, cost) >= 0:
            waiting.leaves(place)
            members.append(update)
    return joint_job(members, share, len(cheap))


def joint_job(updates: Sequence[WaitingUpdate], share: float, offered: int) -> JointChoice:
    """These updates in one job, the first of which sets it up, in numbers."""
    first, *others = updates
    return JointChoice(
        members=tuple(update.node for update in updates),
        gain=sum(update.gain for update in updates),
        seconds=first.seconds + sum(seconds_in_job(update, first, share) for update in others),
        alone=sum(update.seconds for update in updates),
        first=first.benefit,
        share=share,
        offered=offered,
    )


class _WaitingUpdates:
    """The updates that wait for a worker, by their place in a list."""

    def __init__(self, updates: Sequence[WaitingUpdate]) -> None:
        self._updates = updates
        self._gains = np.array([update.gain for update in updates])
        self._seconds = np.array([update.seconds for update in updates])
        self._benefits = np.array([update.benefit for update in updates])

    def leaves(self, place: int) -> None:
        """An update does not wait any more."""
        self._gains[place] = self._seconds[place] = 0.0

    def relief(self, place: int, cost: float) -> float:
        """How much less weighted staleness there is in all, if an update runs now and takes only ``cost``."""
        update = self._updates[place]
        before = self._benefits > update.benefit
        time_before, gain_before = float(self._seconds[before].sum()), float(self._gains[before].sum())
        gain_after = float(self._gains.sum()) - gain_before - update.gain
        return update.gain * time_before + (update.seconds - cost) * gain_after - cost * gain_before


class SharedSetup:
    """The shared share of a set-up, learned from jobs: each tells how much less it took than its updates alone.

    Invariant: ``_weight`` and ``_mean`` are the weight and the weighted mean of what jobs have told so far.
    """

    __slots__ = ("_mean", "_weight")

    def __init__(self) -> None:
        self._weight = 0.0
        self._mean = 0.0

    @property
    def share(self) -> float:
        """From 0 to 1."""
        known = self._weight * self._mean + PRIOR_WEIGHT * PRIOR_SHARE
        return min(1.0, max(0.0, known / (self._weight + PRIOR_WEIGHT)))

    def forget(self) -> None:
        """A job was not shared for what is known: later, that counts less, so that it is tried again some day."""
        self._weight *= FORGETTING

    def observe(self, expected: float, took: float, shareable: float) -> None:
        """The updates of a job after the first took so many seconds. One by one they were expected to take
        ``expected``, of which ``shareable`` are their set-ups, each at most as long as that of the first."""
        if shareable <= 0:
            return
        told = min(MOST_SHARE, max(-MOST_SHARE, (expected - took) / shareable))
        kept = FADING * self._weight
        self._weight = kept + 1.0
        self._mean += (told - self._mean) / self._weight


class JointJobs:
    """Chooses who shares the jobs of an engine's tables, and learns what they share.

    ``sharing`` are the sets of nodes that may share a job; no node is in two of them. ``matrix`` has the features of
    tables: ``gain`` is ``priority freshness_delta``, ``seconds`` is ``execution_time``.
    """

    def __init__(self, matrix: FeatureMatrix, sharing: Iterable[Sequence[int]]) -> None:
        self._columns = matrix.columns
        self._names = matrix.graph.names
        self._sharing = {node: tuple(nodes) for nodes in sharing if len(nodes) > 1 for node in nodes}
        self._learned: dict[tuple[int, ...], SharedSetup] = {nodes: SharedSetup() for nodes in self._sharing.values()}

    def go_on_from(self, before: JointJobs) -> None:
        """Keep what another one has learned of jobs of the same nodes, which may have had other numbers there."""
        known = {before._named(nodes): learned for nodes, learned in before._learned.items()}
        self._learned = {nodes: known.get(self._named(nodes), learned) for nodes, learned in self._learned.items()}

    def _named(self, nodes: Iterable[int]) -> frozenset[str]:
        return frozenset(self._names[node] for node in nodes)

    def companions(self, node: int) -> tuple[int, ...]:
        """The nodes that may share a job with ``node``, whether they wait or not."""
        return tuple(other for other in self._sharing.get(node, ()) if other != node)

    def learned(self, node: int) -> SharedSetup:
        """What was learned of the jobs of a node that may share some."""
        return self._learned[self._sharing[node]]

    def choose(self, first: int, offered: Sequence[int], share: float | None = None) -> JointChoice:
        """Who shares a job with a node that was just chosen; ``offered`` wait, and could. ``share`` as learned, unless
        it is known."""
        columns = self._columns
        rivals = (columns["ready"] > 0) & (columns["workers"] == 0) & (columns["layer"] >= columns["layer"][first])
        rivals[[first, *offered]] = False
        updates = self._waiting([first, *offered, *np.flatnonzero(rivals).tolist()])
        known = self.learned(first).share if share is None else share
        return choose_together(updates[0], updates[1 : 1 + len(offered)], updates[1 + len(offered) :], known)

    def _waiting(self, nodes: Sequence[int]) -> list[WaitingUpdate]:
        """What waits for nodes, in numbers."""
        columns, which = self._columns, np.array(nodes, dtype=np.intp)
        gains = columns["priority"][which] * columns["freshness_delta"][which]
        seconds = np.maximum(columns["execution_time"][which], LEAST_UPDATE_TIME)
        numbers = zip(nodes, gains.tolist(), seconds.tolist(), columns["setup_time"][which].tolist(), strict=True)
        return [WaitingUpdate(*each) for each in numbers]
