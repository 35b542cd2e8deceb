"""The stream engine runs queries in one process, on a few threads. The user picks the loop and the policy.

    with Engine(workers=2, policy="longest-queue") as engine:
        run = engine.add(query)
        run.result()

The output of a query is the row sequence of a serial run, whatever is picked.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from headgate.core import (
    Consumption,
    DeclarationError,
    Placement,
    Policy,
    RoundsConfig,
    UnknownNameError,
    consumption_from,
    placement_from,
    policy_from,
)
from headgate.stream.bucket_queues import Scheme
from headgate.stream.errors import EngineStoppedError
from headgate.stream.loops.dispatch import SLICE, DispatchThreads
from headgate.stream.loops.locality import LocalityThreads
from headgate.stream.loops.loop import EngineLoop
from headgate.stream.loops.rounds import BATCH, RoundsThreads
from headgate.stream.loops.threads import OperatorThreads
from headgate.stream.query import Query
from headgate.stream.query_run import CAPACITY, Buffer, Ending, QueryRun
from headgate.stream.spec import QuerySpec
from headgate.stream.statistics import EngineStatistics, query_statistics

if TYPE_CHECKING:
    from headgate.stream.operators.operator import Clock

LoopName = Literal["dispatch", "rounds", "locality", "threads", "fifo"]
LOOPS: tuple[LoopName, ...] = ("dispatch", "rounds", "locality", "threads", "fifo")
DEFAULT_POLICY = "lp"
#: seconds that a source waits for more rows after a packet that was not full
LINGER = 0.005
#: ended queries whose runs and statistics are kept
KEPT_RUNS = 1000
#: seconds after which the interpreter lets another thread run
SWITCH_INTERVAL = 0.0001


class SwitchInterval:
    """Sets a shorter switch interval of the interpreter from ``begin`` to ``end``.

    A worker whose Arrow or NumPy call has ended needs the interpreter again. If another worker has it, it waits until
    that one calls Arrow or NumPy, or until the switch interval is over. Python's default is 5 ms, many times what most
    calls take. A shorter interval makes two workers on two cores about 10 % faster and changes nothing for one.

    The interval belongs to the process, so several engines share it: the first to begin sets it, the last to end
    restores it.
    """

    _lock: ClassVar[Lock] = Lock()
    _before: ClassVar[list[float]] = []

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._begun = False

    def begin(self) -> None:
        if self._seconds is None or self._begun:
            return
        with self._lock:
            self._begun = True
            self._before.append(sys.getswitchinterval())
            sys.setswitchinterval(min(self._seconds, sys.getswitchinterval()))

    def end(self) -> None:
        if not self._begun:
            return
        with self._lock:
            self._begun = False
            longest = max(self._before)
            self._before.pop()
            if not self._before:
                sys.setswitchinterval(longest)


class Engine:
    """Runs queries. Start it, add queries, stop it; a ``with`` statement starts and stops it.

    What runs next:

    - ``workers``: threads; as many as the machine has cores if left out.
    - ``loop``: *dispatch* decides whenever a worker is free, *rounds* every ``period`` seconds for all workers,
      *locality* keeps packets in the cache of the core that made them, *threads* leaves it to the operating system with
      one thread per operator, and *fifo* is the simple scheduler that *locality* is compared with.
    - ``policy``, ``placement``: for *dispatch* and *rounds*, by name or as objects.
    - ``consumption``: how much a worker takes at a turn; for *dispatch*.
    - ``period``, ``batch``: seconds between rounds, and rows at a turn; for *rounds*.
    - ``nodes``: how many workers each NUMA node has, found out if left out; for *locality*.

    How packets flow:

    - ``scheme``: how parts of packets are queued at partitioned operators (``headgate.stream.bucket_queues``).
    - ``buffer``: how outputs are put back in order (``headgate.stream.reorder``).
    - ``capacity``: packets that wait at an operator before the one that feeds it has to pause.
    - ``packet_rows``: rows of a packet; measured while queries run if left out.
    - ``linger``: seconds that a source waits for more rows after a packet that was not full.

    The rest: ``switch_interval`` of the interpreter in seconds, None to leave it alone; ``seed`` of random choices;
    ``history``, decisions that are kept for ``explain``; ``clock`` in seconds.
    """

    def __init__(
        self,
        *,
        workers: int | None = None,
        loop: LoopName = "dispatch",
        policy: str | Policy = DEFAULT_POLICY,
        placement: str | Placement = "anywhere",
        scheme: Scheme = "hybrid",
        buffer: Buffer = "non-blocking",
        capacity: int = CAPACITY,
        packet_rows: int | None = None,
        consumption: str | Consumption = SLICE,
        period: float = 0.1,
        batch: int = BATCH,
        nodes: tuple[int, ...] | None = None,
        switch_interval: float | None = SWITCH_INTERVAL,
        linger: float = LINGER,
        seed: int = 0,
        history: int = 0,
        clock: Clock = time.perf_counter,
    ) -> None:
        self.clock = clock
        cores = os.cpu_count() or 1
        count = workers or cores
        # Each bucket costs something. Where one worker at a time runs an operator, one is enough; where several may, as
        # many as there can be workers, as far as that is known.
        buckets = max(count, cores) if loop == "dispatch" else 1
        self._settings: dict[str, Any] = {
            "scheme": scheme,
            "buffer": buffer,
            "capacity": capacity,
            "packet_rows": packet_rows,
            "buckets": buckets,
            "linger": linger,
        }
        self._switch_interval = SwitchInterval(switch_interval)
        ranker = policy_from(policy) if isinstance(policy, str) else policy
        placer = placement_from(placement) if isinstance(placement, str) else placement
        portion = consumption_from(consumption) if isinstance(consumption, str) else consumption
        makers: dict[str, Callable[[], EngineLoop]] = {
            "dispatch": lambda: DispatchThreads(
                clock, count, ranker, placer, consumption=portion, seed=seed, history=history
            ),
            "rounds": lambda: RoundsThreads(
                clock, count, ranker, placer, config=RoundsConfig(period=period, batch=batch, seed=seed)
            ),
            "locality": lambda: LocalityThreads(clock, count, nodes=nodes),
            "fifo": lambda: LocalityThreads(clock, count, fifo=True),
            "threads": lambda: OperatorThreads(clock),
        }
        if loop not in makers:
            raise UnknownNameError("loop", loop, makers)
        self.loop = makers[loop]()
        self._loop_name = loop
        self._policy = str(ranker) if loop in ("dispatch", "rounds") else "-"
        self._runs: dict[str, QueryRun] = {}

    # --- life -----------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Begin to run queries, including those added before."""
        if self.loop.started:
            raise EngineStoppedError("this engine has been started before; make a new one for another run")
        self._switch_interval.begin()
        self.loop.start()
        return self

    def stop(self, *, drain: bool = False, timeout: float | None = None) -> None:
        """End all queries. With ``drain``, sources stop reading and what was read is processed first, for at most
        ``timeout`` seconds; otherwise packets in the queues are dropped."""
        if drain:
            deadline = None if timeout is None else self.clock() + timeout
            for run in self._runs.values():
                run.drain()
            for run in self._runs.values():
                run.wait(None if deadline is None else max(0.0, deadline - self.clock()))
        try:
            self.loop.stop()
        finally:
            self._switch_interval.end()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- queries --------------------------------------------------------------------------------------------

    def add(self, query: Query | QuerySpec, **settings: Any) -> QueryRun:
        """Run a query; others may be running. ``settings`` are those of ``QueryRun`` that differ from the engine's."""
        spec = query.spec() if isinstance(query, Query) else query
        earlier = self._runs.get(spec.name)
        if earlier is not None and not earlier.wait(0):
            raise DeclarationError(
                f"a query called {spec.name!r} is running, or was stopped and has not been closed yet; "
                "give this one another name, or wait() for the other"
            )
        run = QueryRun(spec, self.clock, **{**self._settings, **settings})
        self._forget_old_runs()
        try:
            self.loop.add(run)
        except BaseException:
            run.close()
            raise
        self._runs[spec.name] = run
        return run

    def _forget_old_runs(self) -> None:
        """Keep only the newest ended queries: an engine may run for months."""
        ended = [name for name, run in self._runs.items() if run.stopped]
        for name in ended[: max(0, len(ended) - KEPT_RUNS)]:
            del self._runs[name]

    def remove(self, name: str, *, drain: bool = True, timeout: float | None = None) -> QueryRun:
        """End one query while the others go on; with ``drain``, what it has read is processed first."""
        if name not in self._runs:
            raise UnknownNameError("query", name, self._runs)
        run = self._runs[name]
        if drain:
            run.drain()
            run.wait(timeout)
        run.stop()
        run.wait(timeout)
        return run

    # --- change while running -------------------------------------------------------------------------------

    def set_workers(self, count: int) -> None:
        """More or fewer worker threads."""
        if count < 1:
            raise DeclarationError(f"an engine needs at least 1 worker; got {count}")
        self.loop.set_workers(count)

    def replace_policy(self, policy: str | Policy) -> None:
        """Rank by another policy from now on."""
        policy = policy_from(policy) if isinstance(policy, str) else policy
        self.loop.replace_policy(policy)
        self._policy = str(policy)

    def replace_placement(self, placement: str | Placement) -> None:
        """Place by another rule from now on."""
        self.loop.replace_placement(placement_from(placement) if isinstance(placement, str) else placement)

    # --- reports --------------------------------------------------------------------------------------------

    def explain(self, query: str, operator: str) -> str:
        """Why an operator runs or does not run at this moment."""
        if query not in self._runs:
            raise UnknownNameError("query", query, self._runs)
        operators = self._runs[query].operators
        if operator not in operators:
            raise UnknownNameError("operator", operator, operators)
        return self.loop.explain(operators[operator])

    def validate(self) -> None:
        """Check the invariants of the loop, and the counters of queries that have ended; for tests and debugging."""
        self.loop.validate()
        for run in self._runs.values():
            if run.stopped and run.wait(0):
                for operator in run.operators.values():
                    if run.ending is Ending.DONE:
                        operator.counters.validate()

    def statistics(self) -> EngineStatistics:
        """All numbers at this moment."""
        scheduling = self.loop.scheduling()
        scheduling_seconds = sum(scheduling.values())
        total = scheduling_seconds + self.loop.busy
        return EngineStatistics(
            loop=self._loop_name,
            policy=self._policy,
            workers=self.loop.workers,
            decisions=self.loop.decisions,
            busy=self.loop.busy,
            scheduling=scheduling,
            scheduling_share=scheduling_seconds / total if total else 0.0,
            queries=tuple(query_statistics(run) for run in self._runs.values()),
        )


def run(*queries: Query | QuerySpec, **options: Any) -> tuple[QueryRun, ...]:
    """Run queries until all have ended; raises the error of the first that failed. Options are those of ``Engine``."""
    with Engine(**options) as engine:
        runs = [engine.add(query) for query in queries]
        for each in runs:
            each.wait()
    return tuple(each.result() for each in runs)
