"""The locality loop's decision logic (Bobox): run each packet's task where the packet is still in a cache.

    tasks         operators, their four states, task kinds, the five steps
    table         which requests and operators exist
    structures    the lists per node, request and thread, and what each step would take from them
    balance       where a new request goes; when a request moves or is shared
    scheduler     LocalityScheduler: facts in, instructions out
    explanation   what a thread would choose, and why
    invariants    validate()
    interface     the Protocol that this scheduler and FifoStealScheduler have in common

Pure: no clock, no thread, no I/O. It knows neither packets nor caches; that fresh packets are hot is the idea behind
the order of the lists, not something it measures.
"""

from headgate.core.locality.balance import BALANCE_PERIOD, NodeLoad, choose_node, plan_balance
from headgate.core.locality.errors import SchedulerMisuseError
from headgate.core.locality.explanation import ChoiceExplanation, StepReport
from headgate.core.locality.instructions import Instruction, Move, Place, Share, Wake
from headgate.core.locality.interface import SchedulerStatistics, TaskScheduler
from headgate.core.locality.scheduler import LocalityScheduler
from headgate.core.locality.tasks import Choice, OperatorState, Step, StepLabel, TaskKind

__all__ = [
    "BALANCE_PERIOD",
    "Choice",
    "ChoiceExplanation",
    "Instruction",
    "LocalityScheduler",
    "Move",
    "NodeLoad",
    "OperatorState",
    "Place",
    "SchedulerMisuseError",
    "SchedulerStatistics",
    "Share",
    "Step",
    "StepLabel",
    "StepReport",
    "TaskKind",
    "TaskScheduler",
    "Wake",
    "choose_node",
    "plan_balance",
]
