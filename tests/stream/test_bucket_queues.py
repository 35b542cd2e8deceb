"""All three schemes: items of a bucket worked on once, in order, never two at once, whatever the threads do.

Sections: one thread; the orders of threads that matter, forced by scripts; any order, drawn from seeds; real threads.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import get_args

import pytest

from headgate.core.errors import InvariantError, ParameterError, UnknownNameError
from headgate.stream import atomic
from headgate.stream import bucket_queues as bucket_queues_module
from headgate.stream.bucket_queues import (
    BucketQueues,
    HybridQueues,
    PartitionedQueues,
    Scheme,
    SharedQueue,
    bucket_queues,
)
from tests.stream.interleave import (
    Blocks,
    CooperativeLock,
    Ends,
    Randomly,
    Script,
    Until,
    point,
    run,
    run_threads,
    told_by,
)

SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
ALL = pytest.mark.parametrize("scheme", SCHEMES)
MODULES = [atomic, bucket_queues_module]

Items = Sequence[tuple[int, str]]


@pytest.fixture
def cooperative_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in MODULES:
        monkeypatch.setattr(module, "Lock", CooperativeLock)


INTERLEAVED = pytest.mark.usefixtures("cooperative_locks")


class Work:
    """An operator that keeps what it was given, fails where it is told to, and is at one item of a bucket at a time."""

    def __init__(self, tuples: int = 1, failing: str = "") -> None:
        self.items: list[str] = []
        self._tuples = tuples
        self._failing = failing.split()
        self._at: dict[int, str] = {}

    def operate(self, bucket: int, item: str) -> int:
        assert bucket not in self._at, f"{item} is worked on while {self._at[bucket]} of the same bucket is"
        self._at[bucket] = item
        try:
            self.items.append(item)
            point(f"at {item}")
            if item in self._failing:
                raise OSError(f"{item} cannot be processed")
            return self._tuples
        finally:
            del self._at[bucket]

    @property
    def story(self) -> str:
        return " ".join(self.items)


def filled(scheme: Scheme, items: str, buckets: int = 3) -> BucketQueues[str]:
    """Queues with these items, such as "a1 b1 a2"; a belongs to bucket 0, b to bucket 1, and so on."""
    queues: BucketQueues[str] = bucket_queues(scheme, buckets)
    for item in items.split():
        queues.add("abc".index(item[0]), item)
    return queues


# One thread


@pytest.mark.parametrize(
    ("scheme", "order"),
    [
        pytest.param("hybrid", "a1 a2 b1 a3 c1 b2", id="hybrid: as they came"),
        pytest.param("partitioned", "a1 a2 a3 b1 b2 c1", id="partitioned: runs ahead on one bucket"),
        pytest.param("shared", "a1 a2 b1 a3 c1 b2", id="shared: as they came"),
    ],
)
def test_the_order_in_which_one_worker_takes_items(scheme: Scheme, order: str) -> None:
    queues, work = filled(scheme, "a1 a2 b1 a3 c1 b2"), Work()
    assert queues.consume(work.operate, limit=100) == 6
    assert work.story == order
    queues.validate()


@ALL
@pytest.mark.parametrize(
    ("tuples", "limit", "taken", "processed"),
    [
        pytest.param(1, 0, 0, 0, id="a limit of nothing"),
        pytest.param(1, 1, 1, 1, id="one item"),
        pytest.param(10, 1, 1, 10, id="an item of more tuples than the limit"),
        pytest.param(10, 20, 2, 20, id="the limit is met exactly"),
        pytest.param(10, 21, 3, 30, id="the item that reaches the limit is the last"),
        pytest.param(10, 1000, 4, 40, id="fewer items than the limit"),
        pytest.param(0, 1, 4, 0, id="items without tuples"),
    ],
)
def test_a_worker_takes_items_until_the_limit_of_tuples_is_reached(
    scheme: Scheme, tuples: int, limit: int, taken: int, processed: int
) -> None:
    queues, work = filled(scheme, "a1 b1 a2 c1"), Work(tuples)
    assert queues.consume(work.operate, limit) == processed
    assert len(work.items) == taken
    assert len(queues) == 4 - taken
    assert queues.can_take() is (taken < 4)
    queues.validate()


@ALL
def test_items_count_until_a_worker_begins_with_them(scheme: Scheme) -> None:
    queues: BucketQueues[str] = bucket_queues(scheme, 2)
    assert (len(queues), queues.can_take()) == (0, False)
    queues.add(1, "b1")
    queues.add(1, "b2")
    assert (len(queues), queues.can_take()) == (2, True)
    lengths: list[int] = []

    def operate(bucket: int, item: str) -> int:
        lengths.append(len(queues))
        return 1

    queues.consume(operate, limit=10)
    assert lengths == [1, 0]
    assert (len(queues), queues.can_take()) == (0, False)
    assert queues.consume(operate, limit=10) == 0


@ALL
def test_an_item_that_fails_counts_as_taken_and_everything_goes_on(scheme: Scheme) -> None:
    queues, work = filled(scheme, "a1 a2 b1 a3"), Work(failing="a2")
    with pytest.raises(OSError, match="a2 cannot be processed"):
        queues.consume(work.operate, limit=10)
    assert (len(queues), queues.can_take()) == (2, True)
    queues.validate()
    assert queues.consume(work.operate, limit=10) == 2
    assert sorted(work.items) == ["a1", "a2", "a3", "b1"]
    queues.validate()


@ALL
def test_items_may_be_added_by_what_is_worked_on(scheme: Scheme) -> None:
    queues = filled(scheme, "a1")
    taken: list[str] = []

    def operate(bucket: int, item: str) -> int:
        taken.append(item)
        if len(taken) < 4:
            queues.add(bucket, f"a{len(taken) + 1}")
        return 1

    assert queues.consume(operate, limit=10) == 4
    assert taken == ["a1", "a2", "a3", "a4"]


def test_partitioned_buckets_do_not_starve_beside_one_that_is_never_empty() -> None:
    queues, work = filled("partitioned", "a1 a2 a3 a4 a5 b1 b2 c1"), Work()
    while queues.consume(work.operate, limit=1):
        pass
    assert work.story == "a1 b1 c1 a2 b2 a3 a4 a5"


@ALL
@pytest.mark.parametrize("buckets", [0, -1])
def test_queues_without_buckets_cannot_be_made(scheme: Scheme, buckets: int) -> None:
    with pytest.raises(ParameterError, match=f"buckets={buckets}"):
        bucket_queues(scheme, buckets)


def test_schemes_are_chosen_by_name() -> None:
    made = {scheme: type(bucket_queues(scheme, 1)) for scheme in SCHEMES}
    assert made == {"hybrid": HybridQueues, "partitioned": PartitionedQueues, "shared": SharedQueue}
    with pytest.raises(UnknownNameError, match=r"'hybird'. Did you mean 'hybrid'"):
        bucket_queues("hybird", 1)  # type: ignore[arg-type]


def break_hybrid_inv1(queues: HybridQueues[str]) -> None:
    queues._master.popleft()


def break_hybrid_inv2(queues: HybridQueues[str]) -> None:
    queues._counts[queues._master.popleft()].fetch_add(1)


def break_partitioned_inv1(queues: PartitionedQueues[str]) -> None:
    queues._free.append(0)


def break_partitioned_inv2(queues: PartitionedQueues[str]) -> None:
    queues._worked_on[1] = True


def break_shared_inv1(queues: SharedQueue[str]) -> None:
    queues._busy[1].acquire()


def break_shared_inv2(queues: SharedQueue[str]) -> None:
    queues._turn.acquire()


@pytest.mark.parametrize(
    ("scheme", "break_it", "told"),
    [
        pytest.param("hybrid", break_hybrid_inv1, "inv1", id="hybrid inv1"),
        pytest.param("hybrid", break_hybrid_inv2, "inv2", id="hybrid inv2"),
        pytest.param("partitioned", break_partitioned_inv1, "inv1", id="partitioned inv1"),
        pytest.param("partitioned", break_partitioned_inv2, "inv2", id="partitioned inv2"),
        pytest.param("shared", break_shared_inv1, "inv1", id="shared inv1"),
        pytest.param("shared", break_shared_inv2, "inv2", id="shared inv2"),
    ],
)
def test_validate_finds_what_is_broken(scheme: Scheme, break_it: Callable[..., None], told: str) -> None:
    queues = filled(scheme, "a1 b1 a2")
    queues.validate()
    break_it(queues)
    with pytest.raises(InvariantError, match=told):
        queues.validate()


# Orders that matter


def worker(queues: BucketQueues[str], work: Work, limit: int = 100) -> Callable[[], None]:
    def consume() -> None:
        queues.consume(work.operate, limit)

    return consume


@INTERLEAVED
def test_hybrid_a_worker_delegates_the_item_of_a_busy_bucket_and_goes_on() -> None:
    queues, work = filled("hybrid", "a1 a2 b1"), Work()
    # B comes to a2 while A is at a1: it leaves a2 to A and takes b1. A does a2 although its limit is reached.
    script = Script(Until("A", "at a1"), Ends("B"), Until("A", "at a2"), Ends("A"))
    run({"A": worker(queues, work, limit=1), "B": worker(queues, work)}, script, MODULES)
    assert work.story == "a1 b1 a2"
    assert not queues.can_take()
    queues.validate()


@INTERLEAVED
@pytest.mark.parametrize(
    ("script", "story"),
    [
        pytest.param(
            Script(Until("A", "while count(-1) > 1"), Ends("B"), Ends("A")),
            "a1 b1 a2",
            id="A has done a1 and not counted it: B still delegates",
        ),
        pytest.param(
            Script(
                Until("A", "while count(-1) > 1"), Until("B", "if count(1) > 0"), Until("A", "while done"), Ends("B")
            ),
            "a1 a2 b1",
            id="A has counted a1 before B asks: the bucket is B's",
        ),
        pytest.param(
            Script(Until("A", "if count(1) > 0"), Ends("B"), Ends("A")),
            "a1 b1 a2",
            id="A has the first number of the bucket, and B comes with the second one first: items keep their order",
        ),
    ],
)
def test_hybrid_a_bucket_is_left_and_taken_without_a_gap(script: Script, story: str) -> None:
    queues, work = filled("hybrid", "a1 a2 b1"), Work()
    run({"A": worker(queues, work, limit=1), "B": worker(queues, work)}, script, [bucket_queues_module])
    assert work.story == story
    queues.validate()


@INTERLEAVED
def test_hybrid_what_was_delegated_to_a_worker_that_fails_can_be_taken_again() -> None:
    queues, work = filled("hybrid", "a1 a2 a3 b1"), Work(failing="a1")

    def fail() -> None:
        with pytest.raises(OSError, match="a1 cannot be processed"):
            queues.consume(work.operate, limit=100)

    # B has delegated a2 and a3 to A when A fails at a1.
    run({"A": fail, "B": worker(queues, work)}, Script(Until("A", "at a1"), Ends("B"), Ends("A")), MODULES)
    assert work.story == "a1 b1"
    assert (len(queues), queues.can_take()) == (2, True)
    queues.validate()
    queues.consume(work.operate, limit=100)
    assert work.story == "a1 b1 a2 a3"


@INTERLEAVED
@pytest.mark.parametrize("asks", ["fetch_add(-1) > 1", "delegated += 1", "extendleft"])
def test_hybrid_a_worker_may_come_while_a_failed_one_gives_its_bucket_back(asks: str) -> None:
    queues, work = filled("hybrid", "a1 a2 a3 a4"), Work(failing="a1")

    def fail() -> None:
        with pytest.raises(OSError, match="a1 cannot be processed"):
            queues.consume(work.operate, limit=1)

    # B delegates a2, A fails and is giving it back when C comes for the rest.
    script = Script(Until("A", "at a1"), Until("B", "continue"), Until("A", asks), Ends("C"), Ends("A"), Ends("B"))
    run({"A": fail, "B": worker(queues, work), "C": worker(queues, work)}, script, [bucket_queues_module])
    assert work.story == "a1 a2 a3 a4"
    queues.validate()


@INTERLEAVED
def test_partitioned_workers_have_different_buckets() -> None:
    queues, work = filled("partitioned", "a1 a2 b1 b2"), Work()
    script = Script(
        Until("A", "at a1"), Until("B", "at b1"), Until("A", "at a2"), Until("B", "at b2"), Ends("A"), Ends("B")
    )
    run({"A": worker(queues, work), "B": worker(queues, work)}, script, MODULES)
    assert work.story == "a1 b1 a2 b2"
    queues.validate()


@INTERLEAVED
def test_partitioned_a_worker_finds_nothing_while_another_has_the_only_bucket_with_items() -> None:
    queues, work = filled("partitioned", "a1 a2"), Work()
    seen: list[tuple[bool, int]] = []

    def look() -> None:
        seen.append((queues.can_take(), queues.consume(work.operate, limit=100)))

    # A reaches its limit with a2 left over: then it can be taken again.
    run({"A": worker(queues, work, 1), "B": look}, Script(Until("A", "at a1"), Ends("B"), Ends("A")), MODULES)
    assert seen == [(False, 0)]
    assert queues.can_take()
    queues.validate()


@INTERLEAVED
@pytest.mark.parametrize(
    ("scheme", "script", "story"),
    [
        pytest.param(
            "partitioned",
            Script(Until("A", "at a1"), Until("B", "at b3"), Ends("A"), Ends("B")),
            "a1 b1 b2 b3 a2 a3 c1 c2",
            id="partitioned: c1 and c2 come last, as no worker has their bucket",
        ),
        pytest.param(
            "hybrid",
            Script(Until("A", "at a1"), Ends("B"), Ends("A")),
            "a1 c1 c2 b1 b2 b3 a2 a3",
            id="hybrid: only what belongs to a busy bucket is overtaken",
        ),
        pytest.param(
            "shared",
            Script(Until("A", "at a1"), Until("B", "at b1"), Blocks("A")),
            "a1 c1 c2 b1 a2 b2 a3 b3",
            id="shared: as they came, but A waits",
        ),
    ],
)
def test_figure_6_how_far_workers_run_ahead(scheme: Scheme, script: Script, story: str) -> None:
    queues, work = filled(scheme, "a1 c1 c2 b1 a2 b2 a3 b3"), Work()
    run({"A": worker(queues, work), "B": worker(queues, work)}, script, MODULES)
    assert work.story == story
    queues.validate()


@INTERLEAVED
@pytest.mark.parametrize("place", ["bucket, item = queue[0]", "busy.acquire()", "queue.popleft()"])
def test_figure_5_shared_nobody_comes_between_taking_an_item_and_locking_its_bucket(place: str) -> None:
    queues, work = filled("shared", "a1 a2"), Work()
    script = Script(Until("A", place), Blocks("B"), Ends("A"), Ends("B"))
    run({"A": worker(queues, work, 1), "B": worker(queues, work, 1)}, script, [bucket_queues_module])
    assert work.story == "a1 a2"
    queues.validate()


@INTERLEAVED
def test_shared_a_busy_bucket_holds_up_a_worker_that_could_have_another_bucket() -> None:
    queues, work = filled("shared", "a1 a2 b1"), Work()
    # B waits for bucket a with the turn in its hand, so C cannot come to b1.
    script = Script(Until("A", "at a1"), Blocks("B"), Blocks("C"), Ends("A"), Ends("B"), Ends("C"))
    workers = {"A": worker(queues, work, 1), "B": worker(queues, work, 1), "C": worker(queues, work, 1)}
    run(workers, script, MODULES)
    assert work.story == "a1 a2 b1"
    queues.validate()


@INTERLEAVED
def test_hybrid_in_the_same_place_nobody_is_held_up() -> None:
    queues, work = filled("hybrid", "a1 a2 b1"), Work()
    script = Script(Until("A", "at a1"), Until("B", "continue"), Ends("C"), Ends("B"), Ends("A"))
    workers = {"A": worker(queues, work, 1), "B": worker(queues, work, 1), "C": worker(queues, work, 1)}
    run(workers, script, [bucket_queues_module])
    assert work.story == "a1 b1 a2"


@INTERLEAVED
def test_shared_a_worker_that_fails_lets_the_waiting_one_go_on() -> None:
    queues, work = filled("shared", "a1 a2"), Work(failing="a1")

    def fail() -> None:
        with pytest.raises(OSError, match="a1 cannot be processed"):
            queues.consume(work.operate, limit=100)

    run({"A": fail, "B": worker(queues, work)}, Script(Until("A", "at a1"), Blocks("B"), Ends("A"), Ends("B")), MODULES)
    assert work.story == "a1 a2"
    queues.validate()


# Any order


def random_items(generator: random.Random, count: int, buckets: int) -> list[tuple[int, str]]:
    return [(generator.randrange(buckets), f"item-{number}") for number in range(count)]


def assert_each_bucket_in_order(items: Items, done: Sequence[str], buckets: int) -> None:
    for bucket in range(buckets):
        added = [item for its, item in items if its == bucket]
        assert [item for item in done if item in set(added)] == added, f"bucket {bucket}"
    assert len(done) == len(items)


def consume_under(seed: int, scheme: Scheme, by_opcode: bool) -> None:
    """A producer and some workers with random limits over few buckets, perhaps one item failing, in a random order."""
    generator = random.Random(seed)
    buckets = generator.randint(1, 3)
    items = random_items(generator, generator.randint(3, 6), buckets)
    work = Work(failing=generator.choice(["", "", items[0][1], items[1][1]]))
    queues: BucketQueues[str] = bucket_queues(scheme, buckets)
    producing = True

    def produce() -> None:
        nonlocal producing
        for bucket, item in items:
            queues.add(bucket, item)
        producing = False

    def consume(limit: int) -> None:
        while producing or queues.can_take():
            try:
                queues.consume(work.operate, limit)
            except OSError:
                continue

    functions: dict[str, Callable[[], None]] = {"producer": produce}
    for number in range(generator.randint(2, 3)):
        limit = generator.choice([1, 2, 100])
        functions[f"worker {number}"] = lambda limit=limit: consume(limit)
    run(functions, Randomly(seed, stay=0.9 if by_opcode else 0.6), MODULES, by_opcode=by_opcode)
    assert_each_bucket_in_order(items, work.items, buckets)
    assert (len(queues), queues.can_take()) == (0, False)
    queues.validate()


@ALL
@pytest.mark.slow
@INTERLEAVED
@pytest.mark.parametrize(
    ("seeds", "by_opcode"),
    [
        pytest.param(range(1000), False, id="steps of a line"),
        pytest.param(range(2000, 2300), True, id="steps of a bytecode"),
    ],
)
def test_in_any_interleaving_every_bucket_is_worked_off_once_in_order(
    scheme: Scheme, seeds: range, by_opcode: bool
) -> None:
    for seed in seeds:
        with told_by(f"consume_under({seed}, {scheme!r}, by_opcode={by_opcode})"):
            consume_under(seed, scheme, by_opcode)


# Real threads


@ALL
@pytest.mark.parametrize("buckets", [1, 2, 16])
def test_real_threads_work_off_every_bucket_once_in_order(scheme: Scheme, buckets: int) -> None:
    items = random_items(random.Random(buckets), 500, buckets)
    queues: BucketQueues[str] = bucket_queues(scheme, buckets)
    # A list for each bucket: what two threads of one bucket would do to it is out of order, or missing.
    done: list[list[str]] = [[] for _ in range(buckets)]
    producing = True

    def produce() -> None:
        nonlocal producing
        for bucket, item in items:
            queues.add(bucket, item)
        producing = False

    def operate(bucket: int, item: str) -> int:
        mine = done[bucket]
        place = len(mine)
        mine.append(item)
        assert mine[place] == item, "somebody else is at this bucket"
        return 1

    def consume() -> None:
        while producing or queues.can_take():
            queues.consume(operate, limit=7)

    run_threads([produce, consume, consume, consume])
    assert_each_bucket_in_order(items, [item for its in done for item in its], buckets)
    assert not len(queues)
    queues.validate()
