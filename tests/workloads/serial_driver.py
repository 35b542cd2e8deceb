"""Runs a linear query in one thread, packet by packet: the sequence that every engine has to reproduce."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from headgate.stream.kernel import Output, Part, Snapshot, State
from headgate.stream.packet import Ints
from headgate.stream.partition import Split
from headgate.stream.sources.source import Chunk, Wake
from headgate.stream.spec import Kind, OperatorSpec, QuerySpec

Rows = list[tuple[object, ...]]


@dataclass(frozen=True)
class TableSource:
    """A table that is there already."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def open(self, wake: Wake, now: float) -> TableReader:
        return TableReader(self.table.combine_chunks())


@dataclass
class TableReader:
    table: pa.Table
    place: int = 0

    def ready_at(self, now: float) -> float:
        return now

    def waiting(self, now: float) -> int:
        return self.table.num_rows - self.place

    def read(self, most: int, now: float) -> Chunk | None:
        batches = self.table.slice(self.place, most).to_batches()
        if not batches:
            return None
        self.place += batches[0].num_rows
        return Chunk(batches[0], now, now)

    @property
    def ended(self) -> bool:
        return self.place >= self.table.num_rows

    def close(self) -> None:
        pass


@dataclass
class ListSink:
    """Keeps the batches that come."""

    batches: list[pa.RecordBatch] = field(default_factory=list)

    def open(self) -> ListSink:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def close(self) -> None:
        pass


class SerialRun:
    """One run of a query. Kept of it is what operators named in ``watched`` gave out, and how many rows all did."""

    def __init__(self, query: QuerySpec, watched: Sequence[str] = ()) -> None:
        source, *self._operators, sink = query.operators
        assert source.kind is Kind.SOURCE and source.source is not None
        assert sink.kind is Kind.SINK and sink.sink is not None
        assert all(after.inputs == (before.name,) for before, after in pairwise(query.operators))
        self._source, self._sink = source.source, sink.sink.open()
        self._states: dict[str, list[State]] = {
            operator.name: [operator.state() for _ in range(operator.buckets or 1)]
            for operator in self._operators
            if operator.state is not None
        }
        self.outputs: dict[str, list[pa.RecordBatch]] = {name: [] for name in watched}
        self.rows_out: dict[str, int] = {operator.name: 0 for operator in query.operators}

    def to_the_end(self, packet_rows: int) -> None:
        for batch in self.packets(packet_rows):
            self.push(batch)
        self.end()

    def packets(self, packet_rows: int) -> Iterator[pa.RecordBatch]:
        reader = self._source.open(lambda: None, 0.0)
        while (chunk := reader.read(packet_rows, 0.0)) is not None:
            yield chunk.batch

    def push(self, batch: pa.RecordBatch) -> None:
        """One packet through all operators."""
        self.rows_out["source"] += batch.num_rows
        for operator in self._operators:
            batch = self._given_out(operator, self._processed(operator, batch))
        self._write(batch)

    def end(self) -> None:
        """Operators give out what they kept, in their order; those after them have it to process first."""
        batch = pa.RecordBatch.from_arrays(
            [pa.array([], type=each.type) for each in self._source.schema], schema=self._source.schema
        )
        for operator in self._operators:
            batch = self._processed(operator, batch)
            if operator.name in self._states:
                flushed = _sorted([state.flush() for state in self._states[operator.name]], parents=None)
                batch = pa.concat_batches([batch, flushed])
            self._given_out(operator, batch)
        self._write(batch)
        self._sink.close()

    def snapshot(self) -> dict[str, list[Snapshot]]:
        """As it would come back from where it is kept."""
        return {name: [_kept(state.snapshot()) for state in states] for name, states in self._states.items()}

    def restore(self, kept: Mapping[str, Sequence[Snapshot]]) -> None:
        for name, states in self._states.items():
            for state, snapshot in zip(states, kept[name], strict=True):
                state.restore(snapshot)

    def _processed(self, operator: OperatorSpec, batch: pa.RecordBatch) -> pa.RecordBatch:
        if operator.function is not None:
            output = operator.function(batch)
            _check(output, np.arange(batch.num_rows))
            return output.batch
        states = self._states[operator.name]
        if operator.partitioning is None:
            part = Part.whole(batch)
            output = states[0].process(part)
            _check(output, part.rows)
            return output.batch
        split = Split.of(batch, operator.partitioning, operator.buckets or 1)
        outputs, parents = [], []
        for place, bucket in enumerate(split.buckets):
            part = Part(batch.take(pa.array(split.rows_of(place))), split.rows_of(place))
            output = states[bucket].process(part)
            _check(output, part.rows)
            outputs.append(output)
            parents.append(part.rows if output.parents is None else output.parents)
        if not outputs:
            return states[0].process(Part.whole(batch)).batch
        return _sorted(outputs, parents)

    def _given_out(self, operator: OperatorSpec, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.rows_out[operator.name] += batch.num_rows
        if operator.name in self.outputs:
            self.outputs[operator.name].append(batch)
        return batch

    def _write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._sink.write(batch)


def _kept(snapshot: Snapshot) -> Snapshot:
    return Snapshot(dict(snapshot.tables), json.loads(json.dumps(snapshot.values)))


def _check(output: Output, rows: Ints) -> None:
    """What the contract of kernels says of parents."""
    if output.parents is None:
        assert output.batch.num_rows == len(rows)
    else:
        assert len(output.parents) == output.batch.num_rows
        assert np.all(np.diff(output.parents) >= 0)
        assert not len(output.parents) or rows[0] <= output.parents[0] <= output.parents[-1] <= rows[-1]


def _sorted(outputs: Sequence[Output], parents: Sequence[Ints] | None) -> pa.RecordBatch:
    """Rows of all buckets by parent and then by what outputs sort by; flushed rows have no parents."""
    with_rows = [place for place, output in enumerate(outputs) if output.batch.num_rows]
    if len(with_rows) <= 1:
        return outputs[with_rows[0] if with_rows else 0].batch
    outputs = [outputs[place] for place in with_rows]
    batch = pa.concat_batches([output.batch for output in outputs])
    columns = zip(*(output.order for output in outputs), strict=True)
    keys = [np.concatenate([each.to_numpy(zero_copy_only=False) for each in column]) for column in columns]
    if parents is not None:
        keys.insert(0, np.concatenate([parents[place] for place in with_rows]))
    assert keys, "flushed rows of several buckets need an order"
    order = np.lexsort(keys[::-1]) if len(keys) > 1 else np.argsort(keys[0], kind="stable")
    return batch.take(pa.array(order))


def rows_of(batches: Sequence[pa.RecordBatch]) -> Rows:
    """Rows as tuples of Python values, lists included."""
    rows: Rows = []
    for batch in batches:
        rows.extend(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return rows
