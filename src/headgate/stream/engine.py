"""The stream engine: several queries in one process, on a few threads, by a loop and a policy that the user picks.

    with Engine(workers=2, policy="last-in-pipeline") as engine:
        run = engine.add(query)
        run.result()

The output of a query is the sequence of a serial run, whatever is picked here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Self

from headgate.core.consumption import Consumption, consumption_from
from headgate.core.errors import DeclarationError, UnknownNameError
from headgate.core.placement import Placement
from headgate.core.policy import Policy
from headgate.core.registry import placement_from, policy_from
from headgate.core.worklist import RoundsConfig
from headgate.stream.errors import EngineStoppedError
from headgate.stream.loops.dispatch import SLICE, DispatchThreads
from headgate.stream.loops.locality import LocalityThreads
from headgate.stream.loops.loop import EngineLoop
from headgate.stream.loops.rounds import BATCH, RoundsThreads
from headgate.stream.loops.threads import OperatorThreads
from headgate.stream.operators.operator import Clock
from headgate.stream.query import Query
from headgate.stream.query_run import CAPACITY, Buffer, Ending, QueryRun, Scheme
from headgate.stream.spec import QuerySpec
from headgate.stream.statistics import EngineStatistics, query_statistics
from headgate.stream.switching import SWITCH_INTERVAL, Switching

LoopName = Literal["dispatch", "rounds", "locality", "threads", "fifo"]
LOOPS: tuple[LoopName, ...] = ("dispatch", "rounds", "locality", "threads", "fifo")
DEFAULT_POLICY = "lp"
#: seconds that a source waits for more rows after a packet that was not full
LINGER = 0.005
#: queries that have ended and can still be asked about
KEPT_RUNS = 1000


class Engine:
    """Runs queries. Start it, add queries, stop it; or use it in a ``with`` statement, which does the first and the
    last.

    ``loop``: *dispatch* decides whenever a worker is free, *rounds* every ``period`` seconds for all workers,
    *locality* keeps packets in the cache of the core that made them, *threads* leaves it to the operating system with
    one thread per operator, and *fifo* is the simple scheduler that *locality* is compared with.
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
        # Where one worker at a time runs an operator, more than one bucket would only cost. Where several may, each
        # bucket costs as well: no more than there can be workers, as far as that is known.
        buckets = max(count, cores) if loop == "dispatch" else 1
        self._settings: dict[str, Any] = {
            "scheme": scheme,
            "buffer": buffer,
            "capacity": capacity,
            "packet_rows": packet_rows,
            "buckets": buckets,
            "linger": linger,
        }
        self._switching = Switching(switch_interval)
        chosen = policy_from(policy) if isinstance(policy, str) else policy
        placed = placement_from(placement) if isinstance(placement, str) else placement
        taken = consumption_from(consumption) if isinstance(consumption, str) else consumption
        makers: dict[str, Callable[[], EngineLoop]] = {
            "dispatch": lambda: DispatchThreads(
                clock, count, chosen, placed, consumption=taken, seed=seed, history=history
            ),
            "rounds": lambda: RoundsThreads(
                clock, count, chosen, placed, config=RoundsConfig(period=period, batch=batch, seed=seed)
            ),
            "locality": lambda: LocalityThreads(clock, count, nodes=nodes),
            "fifo": lambda: LocalityThreads(clock, count, fifo=True),
            "threads": lambda: OperatorThreads(clock),
        }
        if loop not in makers:
            raise UnknownNameError("loop", loop, makers)
        self.loop = makers[loop]()
        self._loop_name = loop
        self._policy = str(chosen) if loop in ("dispatch", "rounds") else "-"
        self._runs: dict[str, QueryRun] = {}

    # --- life -----------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Begin to run queries; those added before begin now."""
        if self.loop.started:
            raise EngineStoppedError("the engine has been started before; make a new one for another run")
        self._switching.begin()
        self.loop.start()
        return self

    def stop(self, *, drain: bool = False, timeout: float | None = None) -> None:
        """End everything. With ``drain``, sources read no more and what was read goes through first, for at most
        ``timeout`` seconds; otherwise packets under way are dropped."""
        if drain:
            deadline = None if timeout is None else self.clock() + timeout
            for run in self._runs.values():
                run.drain()
            for run in self._runs.values():
                run.wait(None if deadline is None else max(0.0, deadline - self.clock()))
        try:
            self.loop.stop()
        finally:
            self._switching.end()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- queries --------------------------------------------------------------------------------------------

    def add(self, query: Query | QuerySpec, **settings: Any) -> QueryRun:
        """Take up a query, also while others run. ``settings`` are those of ``QueryRun`` that differ from the engine's.

        Before the engine is started, states can still be given to the run's operators.
        """
        spec = query.spec() if isinstance(query, Query) else query
        known = self._runs.get(spec.name)
        if known is not None and not known.wait(0):
            raise DeclarationError(
                f"a query called {spec.name!r} runs already, or was stopped and has not let go of everything yet; "
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
        """An engine that is used for long does not remember every query that it ever ran."""
        ended = [name for name, run in self._runs.items() if run.stopped]
        for name in ended[: max(0, len(ended) - KEPT_RUNS)]:
            del self._runs[name]

    def remove(self, name: str, *, drain: bool = True, timeout: float | None = None) -> QueryRun:
        """End one query while the others go on; with ``drain``, what it has read goes through first."""
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
        chosen = policy_from(policy) if isinstance(policy, str) else policy
        self.loop.replace_policy(chosen)
        self._policy = str(chosen)

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
        """Check the invariants of the loop, and the books of queries that have ended; for tests and debugging."""
        self.loop.validate()
        for run in self._runs.values():
            if run.stopped and run.wait(0):
                for operator in run.operators.values():
                    if run.ending is Ending.DONE:
                        operator.books.validate()

    def statistics(self) -> EngineStatistics:
        """How everything stands, as frozen numbers."""
        scheduling = self.loop.scheduling()
        total = sum(scheduling.values())
        spent = total + self.loop.busy
        return EngineStatistics(
            loop=self._loop_name,
            policy=self._policy,
            workers=self.loop.workers,
            decisions=self.loop.decisions,
            busy=self.loop.busy,
            scheduling=scheduling,
            scheduling_share=total / spent if spent else 0.0,
            queries=tuple(query_statistics(run) for run in self._runs.values()),
        )


def run(*queries: Query | QuerySpec, **options: Any) -> tuple[QueryRun, ...]:
    """Run queries until all have ended; raises the error of the first that failed. Options are those of ``Engine``."""
    with Engine(**options) as engine:
        runs = [engine.add(query) for query in queries]
        for each in runs:
            each.wait()
    return tuple(each.result() for each in runs)
