"""Runs a query packet by packet on one thread, in the plainest way: what every engine's output must equal.

It also checks what kernels promise: parents never decrease and lie in the part, schemas stay the same, and a snapshot
holds nothing but Arrow tables and JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.stream.kernel import Output, Part, Rejected, Snapshot, State
from headgate.stream.partition import Split
from headgate.stream.sources.source import Reader, Wake
from headgate.stream.spec import Kind, OperatorSpec, QuerySpec

#: {rows of a packet: rows of input}: few where every row is a packet of its own
SIZES = {1: 36, 7: 90, 100: 500, 5000: 1200}
BUCKETS = (1, 3, 8)
#: every packet size, every number of buckets; those of one row with the middle number only, for the time they take
GRID = [(size, buckets) for size in SIZES for buckets in BUCKETS if size > 1 or buckets == 3]
GRID_IDS = [f"packets of {size}, {buckets} buckets" for size, buckets in GRID]
MOST_ROWS = max(SIZES.values())


@dataclass(frozen=True)
class Given:
    """A source whose rows the driver is given apart from it."""

    schema: pa.Schema

    def open(self, wake: Wake, now: float) -> Reader:
        raise AssertionError("the driver does not read sources")


@dataclass
class Collected:
    """A sink that keeps what it gets."""

    batches: list[pa.RecordBatch] = field(default_factory=list)

    def open(self) -> Collected:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        assert batch.num_rows
        self.batches.append(batch)

    def close(self) -> None: ...

    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches for row in batch.to_pylist()]


@dataclass
class _Packet:
    batch: pa.RecordBatch
    origin: np.ndarray
    last: bool


@dataclass
class Run:
    """A query under way; ``rejected`` has rows of the whole input for operators that read packets of the source."""

    query: QuerySpec
    rejected: list[Rejected] = field(default_factory=list)
    states: dict[tuple[str, int], State] = field(default_factory=dict)
    schemas: dict[str, pa.Schema] = field(default_factory=dict)
    taken: int = 0

    def feed(self, rows: pa.RecordBatch, packet_rows: int) -> Run:
        for begin in range(0, rows.num_rows, packet_rows):
            batch = rows.slice(begin, packet_rows)
            self._packet(_Packet(batch, np.arange(batch.num_rows), last=False))
            self.taken += batch.num_rows
        return self

    def end(self, schema: pa.Schema) -> Run:
        self._packet(_Packet(pa.RecordBatch.from_pylist([], schema=schema), np.arange(0), last=True))
        for sink in self.query.sinks:
            sink.sink.open().close()
        return self

    def restart(self) -> Run:
        """Every state anew from its snapshot, which is written as bytes and read again."""
        for (name, bucket), state in self.states.items():
            again = self.query.by_name[name].state()
            again.restore(_written_and_read(state.snapshot()))
            self.states[name, bucket] = again
        return self

    def _packet(self, packet: _Packet) -> None:
        answers: dict[str, _Packet] = {}
        for operator in self.query.operators:
            inputs = [answers[name] for name in operator.inputs]
            answer = self._answer(operator, inputs or [packet])
            if operator.kind is not Kind.SINK:
                seen = self.schemas.setdefault(operator.name, answer.batch.schema)
                assert seen == answer.batch.schema, f"{operator.name} changes its schema"
            answers[operator.name] = answer

    def _answer(self, operator: OperatorSpec, inputs: list[_Packet]) -> _Packet:
        packet = inputs[0]
        match operator.kind:
            case Kind.SOURCE:
                return packet
            case Kind.STATELESS:
                output = operator.function(packet.batch)
                return self._answered(packet, [(Part.whole(packet.batch), output)], [])
            case Kind.STATEFUL:
                return self._buckets(operator, packet, [(0, Part.whole(packet.batch))], 1)
            case Kind.PARTITIONED:
                split = Split.of(packet.batch, operator.partitioning, operator.buckets or 1)
                places = [(bucket, split.rows_of(place)) for place, bucket in enumerate(split.buckets)]
                parts = [(bucket, Part(packet.batch.take(pa.array(rows)), rows)) for bucket, rows in places]
                return self._buckets(operator, packet, parts, operator.buckets or 1)
            case Kind.MERGE:
                batch = pa.concat_batches([each.batch for each in inputs])
                origin = np.concatenate([each.origin for each in inputs])
                order = np.argsort(origin, kind="stable")
                return _Packet(batch.take(pa.array(order)), origin[order], packet.last)
            case Kind.SINK:
                if packet.batch.num_rows:
                    operator.sink.open().write(packet.batch)
                return packet
        raise AssertionError(operator.kind)

    def _buckets(self, operator: OperatorSpec, packet: _Packet, parts: list[tuple[int, Part]], count: int) -> _Packet:
        if not parts:
            parts = [(0, Part.whole(packet.batch))]
        outputs = [(part, self._state(operator, bucket).process(part)) for bucket, part in parts]
        flushed = [self._state(operator, bucket).flush() for bucket in range(count)] if packet.last else []
        return self._answered(packet, outputs, flushed)

    def _state(self, operator: OperatorSpec, bucket: int) -> State:
        if (operator.name, bucket) not in self.states:
            self.states[operator.name, bucket] = operator.state()
        return self.states[operator.name, bucket]

    def _answered(self, packet: _Packet, outputs: list[tuple[Part, Output]], flushed: list[Output]) -> _Packet:
        parents = np.concatenate([_parents(part, output) for part, output in outputs])
        batch = pa.concat_batches([output.batch for _, output in outputs])
        order = np.argsort(parents, kind="stable")
        for _, output in outputs:
            self.rejected += [Rejected(self.taken + r.row, r.reason, r.raw) for r in output.rejected]
        batch = pa.concat_batches([batch.take(pa.array(order)), *(output.batch for output in flushed)])
        origin = packet.origin[parents[order]]
        return _Packet(batch, np.concatenate([origin, np.zeros(batch.num_rows - len(origin), dtype=int)]), packet.last)


def run(query: QuerySpec, rows: pa.RecordBatch, packet_rows: int, cut: int | None = None) -> Run:
    """The whole of ``rows`` and the end; with ``cut``, all states are put down and taken up after so many rows."""
    if cut is None:
        return Run(query).feed(rows, packet_rows).end(rows.schema)
    first, rest = rows.slice(0, cut), rows.slice(cut)
    return Run(query).feed(first, packet_rows).restart().feed(rest, packet_rows).end(rows.schema)


def _parents(part: Part, output: Output) -> np.ndarray:
    parents = part.rows if output.parents is None else output.parents
    assert len(parents) == output.batch.num_rows
    assert (np.diff(parents) >= 0).all(), "parents decrease"
    assert np.isin(parents, part.rows).all(), "a parent outside of the part"
    return parents


def _written_and_read(snapshot: Snapshot) -> Snapshot:
    def through_bytes(table: pa.Table) -> pa.Table:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return pa.ipc.open_stream(sink.getvalue()).read_all()

    tables = {name: through_bytes(table) for name, table in snapshot.tables.items()}
    return Snapshot(tables, json.loads(json.dumps(dict(snapshot.values), allow_nan=False)))


def rows_until(rows: list[dict[str, Any]], end: int, key: str = "msgid") -> list[dict[str, Any]]:
    """What a run over the first ``end`` rows of input must give, out of what one over all of them gives."""
    return [row for row in rows if row[key] < end]
