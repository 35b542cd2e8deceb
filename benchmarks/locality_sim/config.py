"""The modelled machine and load of the locality simulation, and random execution plans. All times in whole nanoseconds.

Cache sizes, cores per node and NUMA factors are those of the paper's machine (Falt and Yaghob, section 6 and table 1).
The paper gives no bandwidths or overheads: those are round numbers of our own, each with its reason, and a result that
depends on them should be shown for several values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from headgate.core import FifoStealScheduler, LocalityScheduler, ParameterError
from headgate.core.locality import BALANCE_PERIOD, TaskScheduler

PAPER_NUMA_FACTORS = (
    (1.0, 1.4, 1.5, 1.4),
    (1.5, 1.0, 1.4, 1.4),
    (1.4, 1.5, 1.0, 1.5),
    (1.5, 1.5, 1.5, 1.0),
)
"""Table 1: row = node that computes, column = node that holds the memory."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Threads with a private L2, nodes with a shared L3 and their own memory.

    One thread per core: the two logical processors of a core share its L2 and its units, which is not modelled.
    """

    numa_factors: tuple[tuple[float, ...], ...] = PAPER_NUMA_FACTORS
    """How many times slower memory of another node is; square, one row per node."""
    threads_per_node: int = 6
    l2_kib: int = 256
    l3_kib: int = 18 * 1024
    structures_kib: int = 32
    """Part of the L2 that the scheduler, the allocator and the operators themselves occupy (4.1: hard to estimate)."""
    l2_ns_per_kib: int = 64
    """16 lines of 64 bytes, 4 ns (8 cycles at 2 GHz) each."""
    l3_ns_per_kib: int = 160
    """10 ns a line."""
    memory_ns_per_kib: int = 400
    """25 ns a line: 2.6 GB/s for each of six cores that share about 16 GB/s."""
    dispatch_ns: int = 5_000
    """Per task, whatever the scheduler: call the operator, allocate the packet, synchronise the input buffer."""
    wake_ns: int = 5_000
    """From waking a thread until it looks for a task."""
    semaphore_ns: int = 500
    """One semaphore operation, taken as a system call (5.2: every change of the value yields to one)."""
    shared_semaphore_ns: int = 100
    """The part of an operation on the *global* semaphore during which all other threads must wait for it."""
    balance_ns: int = round(BALANCE_PERIOD * 1e9)

    def __post_init__(self) -> None:
        nodes = len(self.numa_factors)
        if nodes == 0 or any(len(row) != nodes for row in self.numa_factors):
            raise ParameterError(f"numa_factors must be a square table, one row per node; got {self.numa_factors}")
        if any(factor < 1 for row in self.numa_factors for factor in row):
            raise ParameterError(f"a NUMA factor is at least 1, the speed of local memory; got {self.numa_factors}")
        if nodes > 256:
            raise ParameterError(f"at most 256 nodes can be modelled; got {nodes}")
        _at_least(1, threads_per_node=self.threads_per_node, l2_kib=self.l2_kib, l3_kib=self.l3_kib)
        _at_least(1, balance_ns=self.balance_ns)
        if not 0 <= self.structures_kib < self.l2_kib:
            raise ParameterError(
                f"structures_kib must be from 0 to below l2_kib={self.l2_kib}; got {self.structures_kib}"
            )

    @property
    def nodes(self) -> int:
        return len(self.numa_factors)

    @property
    def threads(self) -> int:
        return self.nodes * self.threads_per_node


@dataclass(frozen=True, slots=True)
class QueryLoad:
    """N times M queries at once, all with the same plan (the label "N x M" of the paper's figure 3)."""

    rounds: int = 1
    """N: a round starts when the one before is complete."""
    concurrent: int = 4
    """M: queries per round."""
    operators: int = 170
    widest_layer: int = 6
    """The plan is built in layers of 1 to this many operators."""
    skip_chance: float = 0.1
    """How likely an operator has one more input, from any earlier layer."""
    input_kib: int = 10 * 1024
    """Read by each source of a query."""
    packet_kib: int = 128
    buffer_packets: int = 4
    """Packets an input buffer holds; a producer whose packet would be rejected waits."""
    compute_ns_per_kib: int = 512
    """Mean over the operators: one cycle a byte at 2 GHz. Each operator's own is drawn from half to one and a half."""

    def __post_init__(self) -> None:
        _at_least(1, rounds=self.rounds, concurrent=self.concurrent, operators=self.operators)
        _at_least(1, widest_layer=self.widest_layer, packet_kib=self.packet_kib, buffer_packets=self.buffer_packets)
        _at_least(1, input_kib=self.input_kib)
        _at_least(0, compute_ns_per_kib=self.compute_ns_per_kib)
        if not 0 <= self.skip_chance <= 1:
            raise ParameterError(f"skip_chance is a probability, from 0 to 1; got {self.skip_chance}")

    @property
    def packets(self) -> int:
        """Packets that each operator of one query makes; the last one is modelled as full, too."""
        return -(-self.input_kib // self.packet_kib)


@dataclass(frozen=True, slots=True)
class LocalityConfig:
    """One simulated run."""

    scheduler: str = "locality"
    """A name in ``SCHEDULERS``."""
    machine: Machine = field(default_factory=Machine)
    load: QueryLoad = field(default_factory=QueryLoad)
    seed: int = 1
    """Decides the plan; nothing else is random."""

    def __post_init__(self) -> None:
        if self.scheduler not in SCHEDULERS:
            raise ParameterError(f"scheduler must be one of {', '.join(SCHEDULERS)}; got {self.scheduler!r}")


def _locality(machine: Machine) -> TaskScheduler:
    return LocalityScheduler([machine.threads_per_node] * machine.nodes)


def _fifo_steal(machine: Machine) -> TaskScheduler:
    return FifoStealScheduler(machine.threads)


SCHEDULERS: dict[str, Callable[[Machine], TaskScheduler]] = {"locality": _locality, "fifo-steal": _fifo_steal}


def _at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise ParameterError(f"{name} must be at least {least}; got {value}")


# --- execution plans --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PacketPlan:
    """A layered graph of operators that branches and merges.

    Operators are numbered in topological order. Every run of an operator takes one packet from each input and makes
    one packet that all its consumers read."""

    inputs: tuple[tuple[int, ...], ...]
    """Per operator; empty for a source."""
    consumers: tuple[tuple[int, ...], ...]
    """Per operator; empty for a sink."""
    compute_ns_per_kib: tuple[int, ...]

    @property
    def sources(self) -> tuple[int, ...]:
        return tuple(operator for operator, inputs in enumerate(self.inputs) if not inputs)


def random_plan(load: QueryLoad, seed: int) -> PacketPlan:
    """Layers of random width. Each operator feeds the next layer: a wider one makes branches, a narrower one merges."""
    random = Random(seed)
    inputs: list[list[int]] = []
    above: list[int] = []
    while len(inputs) < load.operators:
        width = min(_whole(random, 1, load.widest_layer), load.operators - len(inputs))
        layer = list(range(len(inputs), len(inputs) + width))
        inputs += _layer_inputs(random, layer, above, load.skip_chance)
        above = layer
    consumers: list[list[int]] = [[] for _ in inputs]
    for operator, feeding in enumerate(inputs):
        for producer in feeding:
            consumers[producer].append(operator)
    mean = load.compute_ns_per_kib
    return PacketPlan(
        inputs=tuple(map(tuple, inputs)),
        consumers=tuple(map(tuple, consumers)),
        compute_ns_per_kib=tuple(round(mean * (0.5 + random.random())) for _ in inputs),
    )


def _layer_inputs(random: Random, layer: list[int], above: list[int], skip_chance: float) -> list[list[int]]:
    feeding: list[set[int]] = [set() for _ in layer]
    if above:
        for place in range(max(len(layer), len(above))):
            feeding[place % len(layer)].add(above[place % len(above)])
        for chosen in feeding:
            if random.random() < skip_chance:
                chosen.add(_whole(random, 0, layer[0] - 1))
    return [sorted(chosen) for chosen in feeding]


def _whole(random: Random, low: int, high: int) -> int:
    # Of the generator's methods only random() is promised to give the same numbers in every version of Python.
    return low + int(random.random() * (high - low + 1))
