"""User code may raise what is no ``Exception``: ``sys.exit()``, Ctrl-C, anything. It ends its query and no other."""

from __future__ import annotations

import math
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from headgate.core import Lanes, Placement, Workers, placement_from
from headgate.core.errors import UserCodeError
from headgate.core.graph import Floats
from headgate.core.matrix import FeatureView
from headgate.core.policy import Policy
from headgate.stream import EventTime, Lines, Output, Part, Snapshot, from_batches, from_rows, to_function, to_list
from headgate.stream.engine import LOOPS, LoopName
from headgate.stream.errors import QueryError, Reject
from headgate.stream.query import Query, Stream
from headgate.stream.sources.source import Chunk, Wake
from tests.stream.test_endings import SCHEMA, TIMEOUT, Pipe, running, some_rows


class Leaving(BaseException):
    """An exit of the user's own making."""


EXITS = (SystemExit, KeyboardInterrupt, GeneratorExit, Leaving)
Exit = type[BaseException]


class Leaver:
    """Calls of the user's functions; each one raises if there are rows, as those that find the columns have none."""

    def __init__(self, kind: Exit) -> None:
        self.kind = kind

    def leave_at_once(self, *_: Any) -> Any:
        raise self.kind("the user leaves")

    def leave_at_rows(self, batch: Any) -> Any:
        if batch.num_rows:
            self.leave_at_once()
        return batch


# --- the places where user code is called ------------------------------------------------------------------------


class UserState:
    """A state that leaves in one of its methods."""

    def __init__(self, leaver: Leaver, where: str) -> None:
        self._leaver, self._where = leaver, where

    def process(self, part: Part) -> Output:
        if self._where == "process":
            self._leaver.leave_at_rows(part.batch)
        return Output(part.batch, part.rows)

    def flush(self) -> Output:
        if self._where == "flush":
            self._leaver.leave_at_once()
        return Output(pa.RecordBatch.from_pylist([], SCHEMA))

    def snapshot(self) -> Snapshot:
        return Snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Nothing is kept."""


class StateFactory:
    """Makes states; not those of a run, but the first, by which columns are found."""

    def __init__(self, leaver: Leaver) -> None:
        self._leaver, self._made = leaver, 0

    def __call__(self) -> UserState:
        self._made += 1
        if self._made > 1:
            self._leaver.leave_at_once()
        return UserState(self._leaver, "")


@dataclass(frozen=True)
class UserPartitioning:
    leaver: Leaver
    columns: tuple[str, ...] = ("n",)

    def buckets(self, batch: pa.RecordBatch, count: int) -> Any:
        self.leaver.leave_at_rows(batch)
        return np.zeros(batch.num_rows, dtype=np.uint16)


class UserReader:
    """A source of one row that leaves in one of its methods."""

    schema = SCHEMA

    def __init__(self, leaver: Leaver, where: str) -> None:
        self._leaver, self._where, self._read = leaver, where, False

    def open(self, wake: Wake, now: float) -> UserReader:
        return self

    def _at(self, where: str) -> None:
        if where == self._where:
            self._leaver.leave_at_once()

    def ready_at(self, now: float) -> float:
        self._at("ready_at")
        return math.inf if self._read else now

    def waiting(self, now: float) -> int:
        self._at("waiting")
        return 0 if self._read else 1

    def read(self, most: int, now: float) -> Chunk | None:
        self._at("read")
        # A worker asks again how many rows wait when it has read some.
        if self._where == "waiting":
            self._leaver.leave_at_once()
        if self._read:
            return None
        self._read = True
        return Chunk(pa.RecordBatch.from_pylist([{"n": 1}], SCHEMA), now, now)

    @property
    def ended(self) -> bool:
        self._at("ended")
        return self._read

    def close(self) -> None:
        self._at("close")


class UserSink:
    """A sink that leaves in one of its methods."""

    def __init__(self, leaver: Leaver, where: str, *, blocking: bool = False) -> None:
        self._leaver, self._where, self.blocking = leaver, where, blocking

    def open(self) -> UserSink:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        if self._where == "write":
            self._leaver.leave_at_once()

    def close(self) -> None:
        if self._where == "close":
            self._leaver.leave_at_once()


def leaving_rows(leaver: Leaver) -> Iterator[dict[str, int]]:
    yield {"n": 1}
    leaver.leave_at_once()


def leaving_batches(leaver: Leaver) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist([{"n": 1}], SCHEMA)
    leaver.leave_at_once()


def batches_after(event: threading.Event) -> Iterator[pa.RecordBatch]:
    event.wait(TIMEOUT)
    yield pa.RecordBatch.from_pylist([{"n": 1}], SCHEMA)


def refuse(row: Any) -> Any:
    raise Reject("no")


def operator(build: Callable[[Stream, Leaver], Stream]) -> Callable[[Leaver], Query]:
    return lambda leaver: build(Query("q").source(some_rows(3)), leaver).to(to_list([]))


def source(make: Callable[[Leaver], Any]) -> Callable[[Leaver], Query]:
    return lambda leaver: Query("q").source(make(leaver)).to(to_list([]))


def sink(make: Callable[[Leaver], Any]) -> Callable[[Leaver], Query]:
    return lambda leaver: Query("q").source(some_rows(3)).to(make(leaver))


def rejected(make: Callable[[Leaver], Any]) -> Callable[[Leaver], Query]:
    return lambda leaver: (
        Query("q", rejected=make(leaver)).source(some_rows(3)).map(refuse, over="row", schema=SCHEMA).to(to_list([]))
    )


PLACES: dict[str, Callable[[Leaver], Query]] = {
    "map": operator(lambda s, u: s.map(u.leave_at_rows, schema=SCHEMA)),
    "map over rows": operator(lambda s, u: s.map(u.leave_at_once, over="row", schema=SCHEMA)),
    "filter over rows": operator(lambda s, u: s.filter(u.leave_at_once, over="row")),
    "flat_map over rows": operator(lambda s, u: s.flat_map(u.leave_at_once, over="row", schema=SCHEMA)),
    "split": operator(lambda s, u: s.merge(*s.split(u.leave_at_once, over="row"))),
    "fold": operator(lambda s, u: s.fold(u.leave_at_once, 0, SCHEMA)),
    "fold of a key": operator(lambda s, u: s.key_by("n").fold(u.leave_at_once, 0, SCHEMA)),
    "finish of a fold": operator(
        lambda s, u: s.key_by("n").fold(lambda total, _: (total, []), 0, SCHEMA, finish=u.leave_at_once)
    ),
    "state": operator(lambda s, u: s.stateful(lambda: UserState(u, "process"))),
    "state of a key": operator(lambda s, u: s.key_by("n").state(lambda: UserState(u, "process"))),
    "flush of a state": operator(lambda s, u: s.stateful(lambda: UserState(u, "flush"))),
    "flush of a state of a key": operator(lambda s, u: s.key_by("n").state(lambda: UserState(u, "flush"))),
    "factory of states": operator(lambda s, u: s.key_by("n").state(StateFactory(u))),
    "partitioning": operator(lambda s, u: s.partitioned(lambda: UserState(u, ""), by=UserPartitioning(u))),
    "event time": operator(
        lambda s, u: s.key_by("n").state(lambda: UserState(u, ""), time=EventTime("n", u.leave_at_once))
    ),
    "rows of a generator": source(lambda u: from_rows(leaving_rows(u), SCHEMA)),
    "batches of a generator": source(lambda u: from_batches(leaving_batches(u), SCHEMA)),
    **{f"{where} of a reader": source(lambda u, where=where: UserReader(u, where)) for where in
       ("ready_at", "waiting", "read", "ended", "close")},
    "function of a sink": sink(lambda u: to_function(u.leave_at_once)),
    "function of a sink with a thread": sink(lambda u: to_function(u.leave_at_once, blocking=True)),
    "write": sink(lambda u: UserSink(u, "write")),
    "write with a thread": sink(lambda u: UserSink(u, "write", blocking=True)),
    "close": sink(lambda u: UserSink(u, "close")),
    "close with a thread": sink(lambda u: UserSink(u, "close", blocking=True)),
    "write of rejected rows": rejected(lambda u: UserSink(u, "write")),
    "close of rejected rows": rejected(lambda u: UserSink(u, "close")),
}  # fmt: skip


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("place", PLACES)
def test_an_exit_ends_its_query_with_the_users_traceback_and_no_other_query(place: str, loop: LoopName) -> None:
    pipe, found = Pipe(), list[pa.RecordBatch]()
    with running(loop, workers=2) as engine:
        other = engine.add(Query("other").source(pipe).to(to_list(found)))
        for number, kind in enumerate(EXITS):
            run = engine.add(PLACES[place](Leaver(kind)))
            with pytest.raises(QueryError, match=f"query 'q' stopped: .*{kind.__name__}: the user leaves") as caught:
                run.result(TIMEOUT)
            assert type(caught.value.__cause__) is kind
            assert "leave_at_once" in "".join(traceback.format_exception(caught.value))
            pipe.put(number)
        pipe.end()
        other.result(TIMEOUT)
        engine.validate()
    assert [row["n"] for batch in found for row in batch.to_pylist()] == list(range(len(EXITS)))


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise SystemExit("no words")


@pytest.mark.parametrize("loop", LOOPS)
def test_an_error_that_leaves_when_its_text_is_asked_for_ends_its_query_and_no_other(loop: LoopName) -> None:
    pipe = Pipe()
    with running(loop) as engine:
        other = engine.add(Query("other").source(pipe).to(to_list([])))
        run = engine.add(PLACES["map over rows"](Leaver(SpeechlessError)))
        with pytest.raises(QueryError, match="no text: its __str__ raised SystemExit"):
            run.result(TIMEOUT)
        pipe.end()
        other.result(TIMEOUT)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_parser_that_leaves_rejects_no_row_but_ends_its_query(loop: LoopName, tmp_path: Any) -> None:
    (tmp_path / "lines.txt").write_text("1\n")
    with running(loop) as engine:
        lines = Lines(tmp_path / "lines.txt", Leaver(SystemExit).leave_at_once, SCHEMA)
        with pytest.raises(QueryError, match="SystemExit"):
            engine.add(Query("q").source(lines).to(to_list([]))).result(TIMEOUT)


@pytest.mark.parametrize("rows_per_packet", [1, 2, 100])
def test_the_rows_before_an_exit_of_a_source_go_through_whatever_the_packets(rows_per_packet: int) -> None:
    found: list[pa.RecordBatch] = []
    with running("dispatch", packet_rows=rows_per_packet) as engine:
        source = from_batches(leaving_batches(Leaver(SystemExit)), SCHEMA)
        run = engine.add(Query("q").source(source).to(to_list(found)))
        with pytest.raises(QueryError, match="'source' failed at packet 1: SystemExit"):
            run.result(TIMEOUT)
        assert run.operators["source"].counters.rows_out == 1


# --- what decides ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeavingPolicy(Policy):
    """With ``local``, each worker ranks its own operators, and leaves on its own."""

    kind: Exit = SystemExit
    local: bool = False
    name = "leaving"
    needs = ()

    def priorities(self, view: FeatureView) -> Floats:
        raise self.kind("the policy leaves")


@dataclass
class LeavingPlacement(Placement):
    """Leaves, but not the first ``calls`` times that it is asked."""

    kind: Exit
    calls: int
    name = "leaving"
    needs = ()

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        self.calls -= 1
        if self.calls < 0:
            raise self.kind("the placement leaves")
        return placement_from("anywhere").lanes(view, workers)


@dataclass
class LeavingConsumption:
    kind: Exit

    def take(self, pending: int, cost: float) -> int:
        raise self.kind("the consumption leaves")


@pytest.mark.parametrize("kind", EXITS)
@pytest.mark.parametrize(
    ("loop", "options"),
    [
        ("dispatch", lambda kind: {"policy": LeavingPolicy(kind)}),
        ("rounds", lambda kind: {"policy": LeavingPolicy(kind)}),
        ("rounds", lambda kind: {"policy": LeavingPolicy(kind, local=True)}),
        ("rounds", lambda kind: {"placement": LeavingPlacement(kind, 0)}),
        ("dispatch", lambda kind: {"consumption": LeavingConsumption(kind)}),
    ],
    ids=["policy of dispatch", "policy of rounds", "policy of a worker's own", "placement of rounds", "consumption"],
)
def test_a_policy_that_leaves_ends_every_query_also_those_that_come_later(
    loop: LoopName, options: Callable[[Exit], dict[str, Any]], kind: Exit
) -> None:
    with running(loop, workers=2, **options(kind)) as engine:
        for name in ("first", "later"):
            query, added = Query(name), threading.Event()
            query.source(Pipe(), "endless").to(to_list([]))
            for number in range(4):  # who has no choice asks no policy: two keep the workers until two more are waiting
                query.source(from_batches(batches_after(added), SCHEMA), f"source {number}").to(to_list([]))
            run = engine.add(query)
            added.set()
            with pytest.raises(UserCodeError, match=kind.__name__):
                run.result(TIMEOUT)


@pytest.mark.parametrize("kind", EXITS)
def test_a_placement_that_leaves_when_a_query_ends_ends_all_others(kind: Exit) -> None:
    with running("dispatch", workers=2, placement=LeavingPlacement(kind, 2)) as engine:
        other = engine.add(Query("other").source(Pipe()).to(to_list([])))
        engine.add(Query("first").source(some_rows()).to(to_list([]))).result(TIMEOUT)
        with pytest.raises(UserCodeError, match="the placement leaves"):
            other.result(TIMEOUT)


@pytest.mark.parametrize("kind", EXITS)
def test_a_placement_that_leaves_when_a_query_comes_ends_all_others_and_is_told_to_who_adds_it(kind: Exit) -> None:
    with running("dispatch", workers=2, placement=LeavingPlacement(kind, 1)) as engine:
        other = engine.add(Query("other").source(Pipe()).to(to_list([])))
        told = kind if issubclass(kind, KeyboardInterrupt) else UserCodeError
        with pytest.raises(told, match="the placement leaves"):
            engine.add(Query("first").source(some_rows()).to(to_list([])))
        with pytest.raises(UserCodeError, match="the placement leaves"):
            other.result(TIMEOUT)
