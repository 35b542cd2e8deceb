"""The states of a bucket: restored before a task, saved after it.

A worker process outlives its task, and keeps the states in memory. The next task of the bucket uses them if they were
written to exactly the files that it has to start from; otherwise it reads the files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.stream.kernel import Snapshot, State
from headgate.stream.operators.partitioned import PartitionedOperator
from headgate.stream.operators.unpartitioned import StatefulOperator
from headgate.stream.query_run import QueryRun
from headgate.stream.spark.hosted_query import HostedQuery
from headgate.stream.spark.state_files import Chain, read_states, write_states

#: buckets whose states a worker process keeps after a task
KEPT_BUCKETS = 64

#: {operator: the states of its parts}
States = Mapping[str, Sequence[State]]


class LiveStates:
    """States that a worker process keeps in memory, by query and bucket, with the files that they were written to."""

    def __init__(self, most: int = KEPT_BUCKETS) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[str, str, int], tuple[Chain, States]] = OrderedDict()

    def take(self, query: HostedQuery, bucket: int) -> States | None:
        """The states of a bucket, if they are those of the files to start from. They are removed from here: a task that
        fails must not leave half-updated states."""
        kept = self._kept.pop(_key(query, bucket), None)
        return kept[1] if kept is not None and kept[0] == query.previous.get(bucket) else None

    def keep(self, query: HostedQuery, bucket: int, written: Chain, states: States) -> None:
        self._kept[_key(query, bucket)] = (written, states)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


def _key(query: HostedQuery, bucket: int) -> tuple[str, str, int]:
    return ("" if query.folder is None else str(query.folder), query.name, bucket)


@dataclass(frozen=True)
class RestoredStates:
    """The states to start from: in memory (``states``), or as read from files (``stored``).

    ``parts`` is the number of parts that the keys of each operator are divided into; 0 if there are no states yet.
    """

    parts: int = 0
    states: States = field(default_factory=dict)
    stored: Mapping[str, Snapshot] = field(default_factory=dict)

    def give(self, run: QueryRun) -> None:
        """Give the operators of a run their states; new operators start without."""
        for name, operator in _stateful(run):
            if name in self.states:
                operator.take_states(self.states[name])
                continue
            parts = _part_names(name, operator.max_workers)
            snapshots = [self.stored[part] for part in parts if part in self.stored]
            if snapshots:
                operator.take_states([_restored(operator, snapshot) for snapshot in snapshots])


def restore_states(query: HostedQuery, bucket: int, live: LiveStates) -> RestoredStates:
    """The states that a query starts from in a bucket."""
    chain = query.previous.get(bucket)
    if not query.keeps_states or chain is None:
        return RestoredStates()
    states = live.take(query, bucket)
    if states is not None:
        return RestoredStates(max(len(each) for each in states.values()), states)
    assert query.folder is not None
    stored, note = read_states(query.folder, chain)
    return RestoredStates(int(note["parts"]), stored=stored)


def save_states(query: HostedQuery, bucket: int, states: States, live: LiveStates) -> Chain:
    """Write the states of a bucket to files, and keep them in memory for the next task."""
    assert query.folder is not None
    parts = max((len(each) for each in states.values()), default=1)
    named = {
        part: state
        for name, each in states.items()
        for part, state in zip(_part_names(name, len(each)), each, strict=True)
    }
    note = {"query": query.name, "bucket": bucket, "update": query.update, "parts": parts}
    name = f"u{query.update}-b{bucket}"
    written = write_states(query.folder, name, named, query.previous.get(bucket, ()), note)
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
