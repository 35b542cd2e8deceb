"""Rounds without a barrier: each worker takes over its new list when the run it is in has ended.

Haren's barriers ensure two things: that all have reported what they ran before features are read, and that the new
assignment holds for everybody at once, so that no node is run by two workers. But with barriers every worker waits for
the longest run under way: where a run takes a millisecond and a period ten, that is most of what scheduling costs.
Threads can do without:

            case Reschedule():
                with the engine's lock:
                    if rounds.has_offer(worker) and not rounds.gathering: rounds.take_over(worker)
                    elif rounds.may_lead: rounds.lead(worker, now(), read)
                    else: the barrier, from arrive on (see ``headgate.core.rounds``)
                rounds.sort_own(worker)

The first worker whose period is over *leads*: it reads, deals out, and goes on with its own new list. The others are
offered theirs. Each of them ends the run it is in and takes over its new list before it begins another run. Of the two
things, the second holds as before: a node that somebody is still in is *held*, and for others it cannot run until that
run has ended. The first holds but for the runs under way: what they change is read at the next rescheduling, where it
counts as having just run.

The barrier is still needed when nodes or workers come or go, when somebody has not taken over the list before, and when
somebody owes the policy a look since its guard struck; so the guard's bound is that of barriers. A round of forced runs
may be cut short before the policy's order was looked at; then it is looked at first in the round after.

**Order.** Nothing here depends on the order in which threads see each other's writes (see ``headgate.stream.atomic``).
Every worker has a small lock, and that makes the order: whoever leads makes its offer and looks what the worker runs
under that lock; the worker looks for an offer under it after it has chosen a node and before it runs it, and ends its
runs under it. So of a run and an offer at the same moment the later one sees the earlier. Others look under it whether
a held node is free, so they see all that was done in the run before. Nobody holds such a lock for longer than a few
stores, and nobody waits for a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

# By name, so that tests can put a lock in its place that hands the turn to the next thread.
from threading import Lock
from typing import TypeVar

import numpy as np

from headgate.core import (
    FeatureMatrix,
    Ints,
    InvariantError,
    NewRound,
    Placement,
    Policy,
    Rounds,
    RoundsConfig,
    Start,
    Workers,
    user_error,
)
from headgate.core.matrix import Reader
from headgate.core.worklist import NOBODY, RESCHEDULE, CanRun, Step, Worklist

Reply = TypeVar("Reply")


class HandoverRounds(Rounds):
    """The rounds loop for threads. Beside the calls that ``Rounds`` allows to overlap, one thread at a time may be in
    ``lead`` or ``take_over``.

    Invariants, in addition to those of ``Rounds``, where a list on offer counts instead of the old one:
    5. While a worker has an offer, it begins no run.
    6. ``_held[w]`` is the node that worker w runs if it has an offer, else nobody.
    7. ``_awaited[w]`` holds all workers that are in nodes which may have been dealt to w. Only w itself changes it.
    """

    def __init__(
        self,
        matrix: FeatureMatrix,
        policy: Policy,
        placement: Placement,
        workers: Workers,
        config: RoundsConfig | None = None,
        *,
        now: float = 0.0,
    ) -> None:
        self._locks: list[Lock] = []
        #: the nodes that each worker is to take over; None if nobody has dealt out anew
        self._offers: list[Ints | None] = []
        self._held: list[int] = []
        self._awaited: list[list[int]] = []
        #: the workers that were in a run when the nodes were last dealt out
        self._in_old_runs: list[int] = []
        #: {node: seconds} of runs that ended between a rescheduling and the end of the list they were in
        self._late: dict[int, float] = {}
        super().__init__(matrix, policy, placement, workers, config, now=now)

    # --- in a round -----------------------------------------------------------------------------------------

    def next_step(self, worker: int, now: float, can_run: CanRun) -> Step:
        if self._offers[worker] is not None:
            return RESCHEDULE
        if self._awaited[worker] and (held := self._still_held(worker)):
            step = super().next_step(worker, now, lambda node: node not in held and can_run(node))
        else:
            step = super().next_step(worker, now, can_run)
        if not isinstance(step, Start):
            return step if self._offers[worker] is None else RESCHEDULE
        lock = self._locks[worker]
        lock.acquire()  # written out, as a ``with`` of a lock takes twice the time
        try:
            if self._offers[worker] is None:
                return step
            self._lists[worker].withdraw(step)
            self._held[worker] = NOBODY
        finally:
            lock.release()
        return RESCHEDULE

    def finished(self, worker: int, now: float) -> None:
        lock = self._locks[worker]
        lock.acquire()
        try:
            self._lists[worker].finished(now)
            self._held[worker] = NOBODY
        finally:
            lock.release()

    def _still_held(self, worker: int) -> set[int]:
        """The nodes that others are still in, of those that may be in this worker's list."""
        held = {}
        for other in self._awaited[worker]:
            with self._locks[other]:
                held[other] = self._held[other]
        self._awaited[worker] = [other for other, node in held.items() if node != NOBODY]
        return {node for node in held.values() if node != NOBODY}

    # --- the rescheduling -----------------------------------------------------------------------------------

    @property
    def gathering(self) -> bool:
        """Somebody has arrived at the barrier and waits for the others: everybody has to come."""
        return self._arrived > 0

    @property
    def may_lead(self) -> bool:
        """Whether a worker whose period is over may reschedule for all without a barrier."""
        if self._arrived or self._next_graphs or self._next_workers is not None:
            return False
        return all(offer is None and own.may_be_cut_short for offer, own in zip(self._offers, self._lists, strict=True))

    def lead(self, worker: int, now: float, read: Reader, fed: Iterable[int] = ()) -> NewRound:
        """Reschedule for all: like ``coordinate``, but the others are still in their runs."""
        if not self.may_lead:
            raise InvariantError(f"worker {worker} cannot lead: others must arrive, or take over what they were dealt")
        worker_of = self._decide(now, read, fed)
        self._in_old_runs = [own.worker for own in self._lists if own.worker != worker and self._offer(own, worker_of)]
        self._awaited[worker] = list(self._in_old_runs)
        self._lists[worker].deal(np.flatnonzero(worker_of == worker), self.config)
        return NewRound(self.round, (), (), len(self.workers))

    def _offer(self, own: Worklist, worker_of: Ints) -> bool:
        """Deal to a worker for when its run has ended; whether it is in one. It begins no other one from here on."""
        worker = own.worker
        with self._locks[worker]:
            self._offers[worker] = np.flatnonzero(worker_of == worker)
            self._held[worker] = own.running
            return own.running != NOBODY

    def has_offer(self, worker: int) -> bool:
        """Somebody has dealt out anew while ``worker`` was in its round."""
        return self._offers[worker] is not None

    def take_over(self, worker: int) -> None:
        """Put the list on offer in the place of the old one, whose last run has ended."""
        own, nodes = self._lists[worker], self._offers[worker]
        if nodes is None:
            raise InvariantError(f"worker {worker} has no list to take over: nobody has dealt out anew")
        for node, seconds in own.report().items():
            self._late[node] = self._late.get(node, 0.0) + seconds
        own.deal(nodes, self.config)
        self._awaited[worker] = [other for other in self._in_old_runs if other != worker]
        self._offers[worker] = None

    def _reports(self) -> list[tuple[dict[int, float], bool]]:
        late, self._late = self._late, {}
        reports = [(late, False)]
        for own in self._lists:
            with self._locks[own.worker]:
                reports.append((own.report(), own.refreshed))
        return reports

    def _ask(self, whom: Policy | Placement, question: Callable[..., Reply], *about: object) -> Reply:
        """As in ``Rounds``; but the threads here are the engine's, which ``sys.exit()`` must not end either."""
        try:
            return super()._ask(whom, question, *about)
        except Exception:
            raise
        except BaseException as error:
            raise user_error(f"{whom.name!r} failed at the rescheduling after round {self.round}", error) from error

    def _deal(self, worker_of: Ints) -> None:
        """At a barrier: nobody runs anything, so nothing is held and nothing stays on offer."""
        super()._deal(worker_of)
        count = len(self._lists)
        self._locks = [Lock() for _ in range(count)]
        self._offers = [None] * count
        self._held = [NOBODY] * count
        self._awaited = [[] for _ in range(count)]
        self._in_old_runs = []

    # --- reports --------------------------------------------------------------------------------------------

    def _dealt_list(self, own: Worklist) -> Worklist:
        offer = self._offers[own.worker]
        if offer is None:
            return own
        coming = Worklist(own.worker, self._records, self.config)
        coming.deal(offer, self.config)
        self._sort(coming)
        return coming

    def validate(self) -> None:
        super().validate()
        expected = [
            NOBODY if offer is None else own.running for offer, own in zip(self._offers, self._lists, strict=True)
        ]
        if expected != self._held:
            raise InvariantError(f"inv6: nodes {expected} are run from old lists, held are {self._held}")
