"""The locality loop's decision logic (Bobox): run each packet's task where the packet is still in a cache.

    tasks         nodes, their four states, task kinds, the five steps; which queries and nodes exist; instructions
    groups        the lists per group of workers, query and worker; when a query moves or is shared
    scheduler     LocalityScheduler: facts in, instructions out; TaskScheduler, the protocol of both schedulers
    fifo_steal    FifoStealScheduler, the simple one that the paper compares with
    reports       what a worker would choose, and why

A *group* of workers shares memory: a NUMA node. Pure: no clock, no thread, no I/O. It knows neither packets nor caches;
that fresh packets are hot is the idea behind the order of the lists, not something it measures.
"""

from headgate.core.errors import SchedulerMisuseError
from headgate.core.locality.fifo_steal import FifoStealScheduler, FifoStep
from headgate.core.locality.groups import BALANCE_PERIOD, GroupLoad, choose_group, plan_balance
from headgate.core.locality.scheduler import LocalityScheduler, LocalityStatistics, TaskScheduler
from headgate.core.locality.tasks import (
    Instruction,
    MoveQuery,
    NodeState,
    PlaceQuery,
    SearchStep,
    ShareQuery,
    StepLabel,
    TaskStart,
    Wake,
)

__all__ = [
    "BALANCE_PERIOD",
    "FifoStealScheduler",
    "FifoStep",
    "GroupLoad",
    "Instruction",
    "LocalityScheduler",
    "LocalityStatistics",
    "MoveQuery",
    "NodeState",
    "PlaceQuery",
    "SchedulerMisuseError",
    "SearchStep",
    "ShareQuery",
    "StepLabel",
    "TaskScheduler",
    "TaskStart",
    "Wake",
    "choose_group",
    "plan_balance",
]
