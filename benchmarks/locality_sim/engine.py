"""Virtual time for the schedulers of operator tasks: runs the pure core against the modelled machine.

A run takes one packet from each input when it starts and sends one packet when it ends. What it costs: dispatch,
compute per KiB, and memory time, which depends on where each packet is (the thread's L2, the node's L3, or the memory
of the node that made it). A run that finds an input missing or an output buffer full costs dispatch only. Events at
the same moment happen in the order in which they were scheduled, so a run depends on its config alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from benchmarks.locality_sim.config import SCHEDULERS, LocalityConfig, random_plan
from benchmarks.locality_sim.memory import Memory
from headgate.core import InvariantError
from headgate.core.locality import Instruction, LocalityStatistics, StepLabel, TaskStart, Wake
from headgate.sim import EventQueue, Rank

_IDLE = -1


# --- what is measured -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PacketReads:
    """Where operators found the packets they read, in KiB."""

    l2: int
    l3: int
    local_memory: int
    remote_memory: int

    @property
    def total(self) -> int:
        return self.l2 + self.l3 + self.local_memory + self.remote_memory

    @property
    def l2_hit_rate(self) -> float:
        return self.l2 / self.total if self.total else 0.0

    @property
    def cache_hit_rate(self) -> float:
        """L2 and L3 together."""
        return (self.l2 + self.l3) / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Where the threads' busy time went, summed over all threads."""

    compute: int
    memory: int
    """Reading inputs and writing outputs, at the speed of the place where they are."""
    dispatch: int
    semaphore: int

    @property
    def total(self) -> int:
        return self.compute + self.memory + self.dispatch + self.semaphore


@dataclass(frozen=True, slots=True)
class LocalityResult:
    """One simulated run."""

    config: LocalityConfig
    makespan_ns: int
    """From the first request to the end of the last."""
    runs: int
    """Tasks that made a packet."""
    empty_runs: int
    """Tasks that found an input missing or an output buffer full."""
    reads: PacketReads
    time: TimeSpent
    time_by_step: tuple[tuple[str, int], ...]
    """(step, busy time of the tasks it chose), in the order of the steps."""
    utilisation: tuple[float, ...]
    """Per thread: busy time over makespan."""
    statistics: LocalityStatistics

    @property
    def makespan_seconds(self) -> float:
        return self.makespan_ns / 1e9

    @property
    def mean_utilisation(self) -> float:
        return sum(self.utilisation) / len(self.utilisation)


# --- the simulation ---------------------------------------------------------------------------------------------


def simulate(config: LocalityConfig) -> LocalityResult:
    """Run all queries of `config` to their end."""
    return _Simulation(config).run()


def packet_size_sweep(config: LocalityConfig, packet_kibs: Iterable[int]) -> tuple[LocalityResult, ...]:
    """The same queries once per packet size (the paper's figure 1)."""
    return tuple(simulate(replace(config, load=replace(config.load, packet_kib=kib))) for kib in packet_kibs)


class _Simulation:
    """State of one run. Operator i of request r has number r * n + i, n being the operators of the plan; its k-th
    packet has number (r * n + i) * packets + k.

    Buffers need no lists: consumer c has taken the first ``taken[c]`` packets of each producer p, so its buffer holds
    ``made[p] - taken[c]``.
    """

    def __init__(self, config: LocalityConfig) -> None:
        self._config = config
        machine, load = config.machine, config.load
        self._plan = random_plan(load, config.seed)
        self._operators = load.operators
        self._packets = load.packets
        self._capacity = load.buffer_packets
        self._dispatch_ns = machine.dispatch_ns
        self._compute_ns = tuple(ns * load.packet_kib for ns in self._plan.compute_ns_per_kib)
        self._scheduler = SCHEDULERS[config.scheduler](machine)
        self._memory = Memory(machine, load.packet_kib)
        self._node_of = tuple(thread // machine.threads_per_node for thread in range(machine.threads))

        #: indexed by operator number: packets made, packets taken from each input, waiting for room in a buffer
        self._made: list[int] = []
        self._taken: list[int] = []
        self._blocked: list[bool] = []
        #: indexed by request: runs still to make
        self._runs_left: list[int] = []
        self._open_requests = 0
        self._rounds_left = load.rounds

        self._makespan = 0
        #: at most one for each thread, and one to balance
        self._events: EventQueue[int] = EventQueue(0)
        #: indexed by thread: operator it runs, _IDLE if none; and whether that run makes a packet
        self._running = [_IDLE] * machine.threads
        self._makes_packet = [False] * machine.threads
        self._semaphore_free_at = 0
        #: semaphore operations accounted for; what exceeds it is paid by the thread at work
        self._operations = 0

        self._runs = self._empty_runs = 0
        self._time_compute = self._time_memory = self._time_dispatch = self._time_semaphore = 0
        self._busy = [0] * machine.threads
        self._time_by_step: defaultdict[StepLabel, int] = defaultdict(int)

    def run(self) -> LocalityResult:
        self._start_round()
        self._events.at(self._config.machine.balance_ns, Rank.WORK, self._balance)
        events = self._events
        while self._open_requests:
            if not events:
                raise InvariantError(f"all threads sleep at {events.now} ns with {self._open_requests} requests open")
            events.run_next()
        return self._result()

    # --- events ---------------------------------------------------------------------------------------------------

    def _obey(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Wake):
                self._events.at(
                    self._events.now + self._config.machine.wake_ns, Rank.WORK, self._seek, instruction.worker
                )

    def _balance(self, _: None, now: int) -> None:
        if not self._events:
            return
        before = self._scheduler.semaphore_operations
        self._obey(self._scheduler.balance())
        self._operations += self._scheduler.semaphore_operations - before
        self._events.at(now + self._config.machine.balance_ns, Rank.WORK, self._balance)

    def _seek(self, thread: int, now: int) -> None:
        """The thread is free, at the end of a run or just woken: end the run, ask for a task, start it."""
        if self._running[thread] != _IDLE:
            self._end_run(thread)
        choice = self._scheduler.next_start(thread)
        if choice is None:
            # It sleeps anyway: what its semaphore operations cost delays nobody.
            self._operations = self._scheduler.semaphore_operations
            return
        if choice.wakes:
            self._obey(choice.wakes)
        duration = self._begin_run(thread, choice)
        operations = self._scheduler.semaphore_operations
        if operations != self._operations:
            duration += self._semaphore_time(operations - self._operations)
            self._operations = operations
        self._busy[thread] += duration
        self._time_by_step[choice.step] += duration
        self._events.at(now + duration, Rank.WORK, self._seek, thread)

    def _semaphore_time(self, operations: int) -> int:
        machine = self._config.machine
        time = operations * machine.semaphore_ns
        now = self._events.now
        if self._scheduler.has_global_semaphore:
            free_at = max(now, self._semaphore_free_at) + operations * machine.shared_semaphore_ns
            self._semaphore_free_at = free_at
            time += free_at - now
        self._time_semaphore += time
        return time

    # --- runs -----------------------------------------------------------------------------------------------------

    def _begin_run(self, thread: int, choice: TaskStart) -> int:
        """Take a packet from each input, if there is one and the output has room; how long the run will take."""
        operator = choice.node
        assert isinstance(operator, int)
        self._running[thread] = operator
        dispatch = self._dispatch_ns
        self._time_dispatch += dispatch
        place = operator % self._operators
        base = operator - place
        has_input = self._has_input(operator, place, base)
        if not has_input or not self._has_room(operator, place, base):
            self._blocked[operator] = has_input
            self._makes_packet[thread] = False
            self._empty_runs += 1
            return dispatch
        self._makes_packet[thread] = True
        self._runs += 1
        memory = self._memory_time(thread, operator, place, base)
        compute = self._compute_ns[place]
        self._time_memory += memory
        self._time_compute += compute
        self._taken[operator] += 1
        blocked = self._blocked
        for producer in self._plan.inputs[place]:
            if blocked[base + producer] and self._has_room(base + producer, producer, base):
                blocked[base + producer] = False
                self._obey(self._scheduler.note_ready(base + producer, thread))
        return dispatch + compute + memory

    def _memory_time(self, thread: int, operator: int, place: int, base: int) -> int:
        memory = self._memory
        node = self._node_of[thread]
        packets = self._packets
        serial = self._taken[operator]
        inputs = [(base + producer) * packets + serial for producer in self._plan.inputs[place]]
        time = memory.run_time(thread, node, operator * packets + serial, inputs)
        return time if inputs else time + memory.input_time(node)

    def _end_run(self, thread: int) -> None:
        """Send the packet, note what the operator has still to do, and report the end."""
        scheduler = self._scheduler
        operator = self._running[thread]
        self._running[thread] = _IDLE
        if not self._makes_packet[thread]:
            self._obey(scheduler.finished(thread))
            return
        self._made[operator] += 1
        place = operator % self._operators
        base = operator - place
        for consumer in self._plan.consumers[place]:
            woken = scheduler.packet_received(base + consumer, thread)
            if woken:
                self._obey(woken)
        if self._has_input(operator, place, base):
            if self._has_room(operator, place, base):
                scheduler.note_ready(operator, thread)
            else:
                self._blocked[operator] = True
        woken = scheduler.finished(thread)
        if woken:
            self._obey(woken)
        self._count_down(operator // self._operators)

    def _has_input(self, operator: int, place: int, base: int) -> bool:
        taken = self._taken[operator]
        inputs = self._plan.inputs[place]
        if not inputs:
            return taken < self._packets
        made = self._made
        return all([made[base + producer] > taken for producer in inputs])

    def _has_room(self, operator: int, place: int, base: int) -> bool:
        limit = self._made[operator] - self._capacity
        taken = self._taken
        return all([taken[base + consumer] > limit for consumer in self._plan.consumers[place]])

    # --- requests -------------------------------------------------------------------------------------------------

    def _start_round(self) -> None:
        self._rounds_left -= 1
        before = self._scheduler.semaphore_operations
        for _ in range(self._config.load.concurrent):
            self._submit(len(self._runs_left))
        # The client wakes the threads here, so no worker pays for it.
        self._operations += self._scheduler.semaphore_operations - before

    def _submit(self, request: int) -> None:
        count = self._operators
        self._runs_left.append(count * self._packets)
        self._made += [0] * count
        self._taken += [0] * count
        self._blocked += [False] * count
        self._memory.add_packets(count * self._packets)
        self._open_requests += 1
        base = request * count
        self._obey(self._scheduler.add_query(request, range(base, base + count)))
        for source in self._plan.sources:
            self._obey(self._scheduler.note_ready(base + source))

    def _count_down(self, request: int) -> None:
        self._runs_left[request] -= 1
        if self._runs_left[request]:
            return
        self._scheduler.remove_query(request)
        self._open_requests -= 1
        self._makespan = self._events.now
        if not self._open_requests and self._rounds_left:
            self._start_round()

    def _result(self) -> LocalityResult:
        memory = self._memory
        return LocalityResult(
            config=self._config,
            makespan_ns=self._makespan,
            runs=self._runs,
            empty_runs=self._empty_runs,
            reads=PacketReads(memory.from_l2, memory.from_l3, memory.from_local, memory.from_remote),
            time=TimeSpent(self._time_compute, self._time_memory, self._time_dispatch, self._time_semaphore),
            time_by_step=tuple((step.name.lower(), self._time_by_step[step]) for step in sorted(self._time_by_step)),
            utilisation=tuple(busy / self._makespan for busy in self._busy),
            statistics=self._scheduler.statistics(),
        )
