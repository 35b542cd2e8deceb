"""A cache as the simulation sees it: packets, least recently used first, each held in whole or in part."""

from __future__ import annotations

from collections import OrderedDict


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
