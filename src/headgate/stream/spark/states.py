"""States of a bucket, restored before a task and saved after it.

A worker process lives on after its task, and so may its states: the next task of the bucket goes on with them if the
files that it is to go on from are just those that they were written to, and reads the files otherwise.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headgate.stream.kernel import Snapshot, State
from headgate.stream.operators.partitioned import PartitionedOperator
from headgate.stream.operators.unpartitioned import StatefulOperator
from headgate.stream.query_run import QueryRun
from headgate.stream.spark.hosted_query import HostedQuery
from headgate.stream.spark.state_files import Chain, read_states, write_states

#: buckets whose states a worker process keeps after a task
KEPT_BUCKETS = 64

#: of each operator the states of its parts
States = Mapping[str, Sequence[State]]


class LiveStates:
    """States that a worker process still holds, by query and bucket, each with the files that it was written to."""

    def __init__(self, most: int = KEPT_BUCKETS) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[str, str, int], tuple[Chain, States]] = OrderedDict()

    def take(self, query: HostedQuery, bucket: int) -> States | None:
        """The states of a bucket if they are those of the files to go on from. They are gone from here: a task that
        fails must not leave half of what it did."""
        kept = self._kept.pop(_key(query, bucket), None)
        return kept[1] if kept is not None and kept[0] == query.previous.get(bucket) else None

    def keep(self, query: HostedQuery, bucket: int, written: Chain, states: States) -> None:
        self._kept[_key(query, bucket)] = (written, states)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


def _key(query: HostedQuery, bucket: int) -> tuple[str, str, int]:
    return (query.folder or "", query.name, bucket)


@dataclass(frozen=True)
class RestoredStates:
    """What there is to go on from: states as they are, or as they were written. ``parts`` is into how many parts each
    operator's keys were divided, 0 if there is nothing yet."""

    parts: int = 0
    states: States = field(default_factory=dict)
    stored: Mapping[str, Snapshot] = field(default_factory=dict)

    def give(self, run: QueryRun) -> None:
        """Let the operators of a run go on from here; those that are new begin anew."""
        for name, operator in _stateful(run):
            if name in self.states:
                operator.take_states(self.states[name])
                continue
            parts = _part_names(name, operator.max_workers)
            snapshots = [self.stored[part] for part in parts if part in self.stored]
            if snapshots:
                operator.take_states([_restored(operator, snapshot) for snapshot in snapshots])


def restore_states(query: HostedQuery, bucket: int, live: LiveStates) -> RestoredStates:
    """The states that a query goes on from in a bucket."""
    chain = query.previous.get(bucket)
    if not query.keeps_states or chain is None:
        return RestoredStates()
    states = live.take(query, bucket)
    if states is not None:
        return RestoredStates(max(len(each) for each in states.values()), states)
    assert query.folder is not None
    stored, note = read_states(Path(query.folder), chain)
    return RestoredStates(int(note["parts"]), stored=stored)


def save_states(query: HostedQuery, bucket: int, states: States, live: LiveStates) -> Chain:
    """Write the states of a bucket, and keep them for a task to come."""
    assert query.folder is not None
    parts = max((len(each) for each in states.values()), default=1)
    named = {
        part: state
        for name, each in states.items()
        for part, state in zip(_part_names(name, len(each)), each, strict=True)
    }
    note = {"query": query.name, "bucket": bucket, "update": query.update, "parts": parts}
    name = f"u{query.update}-b{bucket}"
    written = write_states(Path(query.folder), name, named, query.previous.get(bucket, ()), note)
    live.keep(query, bucket, written, states)
    return written


def states_of(run: QueryRun) -> States:
    """The states of all operators of a run that has ended."""
    return {name: operator.all_states() for name, operator in _stateful(run)}


def _stateful(run: QueryRun) -> Iterator[tuple[str, PartitionedOperator | StatefulOperator]]:
    for name, operator in run.operators.items():
        if isinstance(operator, PartitionedOperator | StatefulOperator):
            yield name, operator


def _part_names(operator: str, parts: int) -> list[str]:
    return [operator] if parts == 1 else [f"{operator}[{part}]" for part in range(parts)]


def _restored(operator: PartitionedOperator | StatefulOperator, snapshot: Snapshot) -> State:
    state = operator.new_state()
    state.restore(snapshot)
    return state
