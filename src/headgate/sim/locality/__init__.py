"""Virtual-time simulation of the locality loop and of the simple scheduler it is compared with, on a modelled machine.

    config    the machine, the queries, which scheduler
    plan      random execution plans
    cache     packets in a cache, least recently used first
    memory    how long packets take to read and write, by where they are
    engine    simulate(), packet_size_sweep()
    result    what was measured

>>> load = QueryLoad(concurrent=2, operators=20, input_kib=1024)
>>> result = simulate(LocalityConfig("locality", load=load))
>>> result.runs == 2 * 20 * load.packets
True
"""

from headgate.sim.locality.cache import LruCache
from headgate.sim.locality.config import (
    PAPER_NUMA_FACTORS,
    SCHEDULERS,
    LocalityConfig,
    Machine,
    QueryLoad,
)
from headgate.sim.locality.engine import packet_size_sweep, simulate
from headgate.sim.locality.memory import Memory
from headgate.sim.locality.plan import Plan, random_plan
from headgate.sim.locality.result import LocalityResult, PacketReads, TimeSpent

__all__ = [
    "PAPER_NUMA_FACTORS",
    "SCHEDULERS",
    "LocalityConfig",
    "LocalityResult",
    "LruCache",
    "Machine",
    "Memory",
    "PacketReads",
    "Plan",
    "QueryLoad",
    "TimeSpent",
    "packet_size_sweep",
    "random_plan",
    "simulate",
]
