"""How long packets take to read and write, by where they are: L2 of the thread, L3 of the node, near or far memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from benchmarks.locality_sim.config import Machine


class LruCache:
    """Which part of which packet a cache of fixed size holds.

    All packets have the same size. Room is made by taking from the packet touched longest ago, as much as is needed:
    a packet can be held in part, as in a real cache, where lines are evicted and not packets.

    Invariants: ``used`` is the sum of ``held``, at most ``capacity``; nothing held is zero or above ``size``; at most
    the packet touched longest ago is held in part, unless packets are larger than the cache.
    """

    __slots__ = ("capacity", "held", "size", "used")

    def __init__(self, capacity: int, size: int) -> None:
        self.capacity = capacity
        #: what a packet occupies; at most the capacity, because of a larger one only the end stays
        self.size = min(size, capacity)
        self.used = 0
        #: {packet: part of it held}, least recently touched first
        self.held: OrderedDict[int, int] = OrderedDict()

    def touch(self, packet: int) -> int:
        """Read or write the packet; how much of it was there. Afterwards it is held and the most recently used."""
        held = self.held
        size = self.size
        part = held.get(packet, 0)
        if part:
            held.move_to_end(packet)
            if part == size:
                return part
        held[packet] = size
        excess = self.used + size - part - self.capacity
        if excess <= 0:
            self.used += size - part
            return part
        self.used = self.capacity
        while True:
            oldest, its_part = held.popitem(last=False)
            if its_part > excess:
                held[oldest] = its_part - excess
                held.move_to_end(oldest, last=False)
                return part
            excess -= its_part
            if not excess:
                return part


class Memory:
    """The caches and memories of a machine, and what was read from where.

    A packet is written to the memory of the node that makes it, through that thread's L2 and that node's L3. Not
    modelled: writing back, traffic between caches of different nodes, and two threads slowing each other down.
    """

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
            near = min(l2.touch(packet), room)
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
        """Time to get what the L2 lacks of a packet. Reads that the L2 answers in full never reach the L3."""
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
