"""Virtual-time simulation of the locality loop and of the simple scheduler it is compared with, on a modelled machine.

    config    the machine, the queries, which scheduler; random execution plans
    memory    which packets are in which cache, and how long they take to read and write
    engine    simulate(), packet_size_sweep(), what they measure

>>> load = QueryLoad(concurrent=2, operators=20, input_kib=1024)
>>> result = simulate(LocalityConfig("locality", load=load))
>>> result.runs == 2 * 20 * load.packets
True
"""

from benchmarks.locality_sim.config import (
    PAPER_NUMA_FACTORS,
    SCHEDULERS,
    LocalityConfig,
    Machine,
    PacketPlan,
    QueryLoad,
    random_plan,
)
from benchmarks.locality_sim.engine import LocalityResult, PacketReads, TimeSpent, packet_size_sweep, simulate
from benchmarks.locality_sim.memory import LruCache, Memory

__all__ = [
    "PAPER_NUMA_FACTORS",
    "SCHEDULERS",
    "LocalityConfig",
    "LocalityResult",
    "LruCache",
    "Machine",
    "Memory",
    "PacketPlan",
    "PacketReads",
    "QueryLoad",
    "TimeSpent",
    "packet_size_sweep",
    "random_plan",
    "simulate",
]
