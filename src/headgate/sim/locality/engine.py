"""Virtual time for the schedulers of operator tasks: runs the pure core against the modelled machine.

A run takes one packet from each input when it starts and sends one packet when it ends. What it costs: dispatch,
compute per KiB, and memory time, which depends on where each packet is (the thread's L2, the node's L3, or the memory
of the node that made it). A run that finds an input missing or an output buffer full costs dispatch only. Events at
the same moment happen in the order in which they were planned, so a run depends on its config alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from heapq import heappop, heappush

from headgate.core.errors import InvariantError
from headgate.core.locality import Choice, Instruction, StepLabel, Wake
from headgate.sim.locality.cache import LruCache
from headgate.sim.locality.config import SCHEDULERS, LocalityConfig, Machine
from headgate.sim.locality.plan import random_plan
from headgate.sim.locality.result import LocalityResult, PacketReads, TimeSpent

_BALANCE = -1
_IDLE = -1


def simulate(config: LocalityConfig) -> LocalityResult:
    """Run all queries of `config` to their end."""
    return _Simulation(config).run()


def packet_size_sweep(config: LocalityConfig, packet_kibs: Iterable[int]) -> tuple[LocalityResult, ...]:
    """The same queries once per packet size (the paper's figure 1)."""
    return tuple(simulate(replace(config, load=replace(config.load, packet_kib=kib))) for kib in packet_kibs)


class _Memory:
    """The caches and memories, and what was read from where."""

    def __init__(self, machine: Machine, packet_kib: int) -> None:
        self._kib = packet_kib
        self._l2_ns = machine.l2_ns_per_kib
        self._l3_ns = machine.l3_ns_per_kib
        self._memory_ns = tuple(
            tuple(round(machine.memory_ns_per_kib * factor) for factor in row) for row in machine.numa_factors
        )
        l2_for_packets = machine.l2_kib - machine.structures_kib
        self._l2 = [LruCache(l2_for_packets, packet_kib) for _ in range(machine.threads)]
        self._l3 = [LruCache(machine.l3_kib, packet_kib) for _ in range(machine.nodes)]
        #: indexed by packet: the node whose memory holds it
        self._home = bytearray()
        self.from_l2 = self.from_l3 = self.from_local = self.from_remote = 0

    def add_packets(self, count: int) -> None:
        """Room for packets not made yet."""
        self._home.extend(bytes(count))

    def run_time(self, thread: int, node: int, output: int, inputs: Iterable[int]) -> int:
        """Time to read the inputs, each part from the nearest place, and to write the output through the cache."""
        kib = self._kib
        l2 = self._l2[thread]
        # Inputs are read while the output is written, so its lines push out lines that are still to be read: an input
        # profits from the L2 only as far as it fits in beside the output.
        room = l2.capacity - l2.size
        time = kib * self._l2_ns
        for packet in inputs:
            near = l2.touch(packet)
            if near > room:
                near = room
            room -= near
            time += near * self._l2_ns
            self.from_l2 += near
            if near < kib:
                time += self._fetch(node, packet, kib - near)
        l2.touch(output)
        self._l3[node].touch(output)
        self._home[output] = node
        return time

    def _fetch(self, node: int, packet: int, missing: int) -> int:
        """Time to get what the L2 lacks of a packet. The L3 does not see what the L2 answers: it is touched only now."""
        middle = min(self._l3[node].touch(packet), missing)
        far = missing - middle
        home = self._home[packet]
        self.from_l3 += middle
        if home == node:
            self.from_local += far
        else:
            self.from_remote += far
        return middle * self._l3_ns + far * self._memory_ns[node][home]

    def input_time(self, node: int) -> int:
        """Time to read a packet's worth of the query's input, which lies in the node's own memory."""
        return self._kib * self._memory_ns[node][node]


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
        self._compute_ns = tuple(ns * load.packet_kib for ns in self._plan.compute_ns_per_kib)
        self._scheduler = SCHEDULERS[config.scheduler](machine)
        self._memory = _Memory(machine, load.packet_kib)
        self._node_of = tuple(thread // machine.threads_per_node for thread in range(machine.threads))

        #: indexed by operator number: packets made, packets taken from each input, waiting for room in a buffer
        self._made: list[int] = []
        self._taken: list[int] = []
        self._blocked: list[bool] = []
        #: indexed by request: runs still to make
        self._runs_left: list[int] = []
        self._open_requests = 0
        self._rounds_left = load.rounds

        self._now = 0
        self._makespan = 0
        #: heap of (time, running number, thread), _BALANCE in place of a thread; a thread has at most one entry
        self._events: list[tuple[int, int, int]] = []
        self._planned = 0
        #: indexed by thread: operator it runs, _IDLE if none; and whether that run makes a packet
        self._running = [_IDLE] * machine.threads
        self._makes_packet = [False] * machine.threads
        self._semaphore_free_at = 0

        self._runs = self._empty_runs = 0
        self._time_compute = self._time_memory = self._time_dispatch = self._time_semaphore = 0
        self._busy = [0] * machine.threads
        self._time_by_step: dict[StepLabel, int] = {}

    def run(self) -> LocalityResult:
        self._start_round()
        self._plan_event(self._config.machine.balance_ns, _BALANCE)
        events = self._events
        while self._open_requests:
            if not events:
                raise InvariantError(f"all threads sleep at {self._now} ns with {self._open_requests} requests open")
            self._now, _, thread = heappop(events)
            if thread == _BALANCE:
                self._balance()
            else:
                self._seek(thread)
        return self._result()

    # --- events ---------------------------------------------------------------------------------------------------

    def _plan_event(self, delay: int, thread: int) -> None:
        self._planned += 1
        heappush(self._events, (self._now + delay, self._planned, thread))

    def _obey(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Wake):
                self._plan_event(self._config.machine.wake_ns, instruction.thread)

    def _balance(self) -> None:
        if not self._events:
            return
        self._obey(self._scheduler.balance())
        self._plan_event(self._config.machine.balance_ns, _BALANCE)

    def _seek(self, thread: int) -> None:
        """The thread is free, at the end of a run or just woken: end the run, ask for a task, start it."""
        scheduler = self._scheduler
        operations = scheduler.semaphore_operations
        if self._running[thread] != _IDLE:
            self._end_run(thread)
        choice = scheduler.next_task(thread)
        if choice is None:
            return
        if choice.wakes:
            self._obey(choice.wakes)
        duration = self._begin_run(thread, choice)
        operations = scheduler.semaphore_operations - operations
        if operations:
            duration += self._semaphore_time(operations)
        self._busy[thread] += duration
        by_step = self._time_by_step
        by_step[choice.step] = by_step.get(choice.step, 0) + duration
        self._plan_event(duration, thread)

    def _semaphore_time(self, operations: int) -> int:
        machine = self._config.machine
        time = operations * machine.semaphore_ns
        if self._scheduler.has_global_semaphore:
            free_at = max(self._now, self._semaphore_free_at) + operations * machine.shared_semaphore_ns
            self._semaphore_free_at = free_at
            time += free_at - self._now
        self._time_semaphore += time
        return time

    # --- runs -----------------------------------------------------------------------------------------------------

    def _begin_run(self, thread: int, choice: Choice) -> int:
        """Take a packet from each input, if there is one and the output has room; how long the run will take."""
        operator = choice.operator
        assert isinstance(operator, int)
        self._running[thread] = operator
        dispatch = self._config.machine.dispatch_ns
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
        for producer in self._plan.inputs[place]:
            if self._blocked[base + producer] and self._has_room(base + producer, producer, base):
                self._blocked[base + producer] = False
                self._obey(self._scheduler.schedule_self(base + producer, thread))
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
                scheduler.schedule_self(operator, thread)
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
        for _ in range(self._config.load.concurrent):
            self._submit(len(self._runs_left))

    def _submit(self, request: int) -> None:
        count = self._operators
        self._runs_left.append(count * self._packets)
        self._made += [0] * count
        self._taken += [0] * count
        self._blocked += [False] * count
        self._memory.add_packets(count * self._packets)
        self._open_requests += 1
        base = request * count
        self._obey(self._scheduler.submit_request(request, range(base, base + count)))
        for source in self._plan.sources:
            self._obey(self._scheduler.schedule_self(base + source))

    def _count_down(self, request: int) -> None:
        self._runs_left[request] -= 1
        if self._runs_left[request]:
            return
        self._scheduler.remove_request(request)
        self._open_requests -= 1
        self._makespan = self._now
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
