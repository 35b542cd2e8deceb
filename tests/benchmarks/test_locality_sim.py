"""The locality simulation: its cache, its plans, its arithmetic, and what it says about the two schedulers."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from dataclasses import replace

import pytest

import benchmarks.locality_sim
from benchmarks.locality_sim import (
    SCHEDULERS,
    LocalityConfig,
    LocalityResult,
    LruCache,
    Machine,
    Memory,
    QueryLoad,
    packet_size_sweep,
    random_plan,
    simulate,
)
from headgate.core.errors import ParameterError

ONE_NODE = ((1.0,),)

#: the paper's machine with short queries: a third of the operators, a tenth of the data
SHORT = QueryLoad(concurrent=8, operators=60, input_kib=1024)


def both(load: QueryLoad, machine: Machine | None = None) -> tuple[LocalityResult, LocalityResult]:
    """(locality, simple) on the same queries."""
    config = LocalityConfig("locality", machine or Machine(), load)
    return simulate(config), simulate(replace(config, scheduler="fifo-steal"))


# --- the cache --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "touches", "found"),
    [
        pytest.param(100, [1, 1], [0, 40], id="a packet stays"),
        pytest.param(100, [1, 2, 1, 2], [0, 0, 40, 40], id="two fit"),
        pytest.param(100, [1, 2, 3, 2, 3], [0, 0, 0, 40, 40], id="the third takes from the oldest"),
        pytest.param(100, [1, 2, 3, 1], [0, 0, 0, 20], id="of which a part stays"),
        pytest.param(100, [1, 2, 1, 3, 1, 2], [0, 0, 40, 0, 40, 20], id="reading makes it the newest"),
        pytest.param(80, [1, 2, 3, 1], [0, 0, 0, 0], id="nothing stays if the new one takes all"),
        pytest.param(30, [1, 1, 2, 1], [0, 30, 0, 0], id="a packet larger than the cache is held in part"),
    ],
)
def test_lru_cache(capacity: int, touches: list[int], found: list[int]) -> None:
    cache = LruCache(capacity, size=40)
    assert [cache.touch(packet) for packet in touches] == found
    assert cache.used == sum(cache.held.values()) <= capacity


# --- the memory -------------------------------------------------------------------------------------------------------

#: sizes in KiB: an L2 for two packets of 40 and a bit, an L3 for three; times per KiB 1, 10, 100 and, far away, 200
SMALL_MACHINE = Machine(
    numa_factors=((1.0, 2.0), (2.0, 1.0)),
    threads_per_node=2,
    l2_kib=100,
    structures_kib=10,
    l3_kib=120,
    l2_ns_per_kib=1,
    l3_ns_per_kib=10,
    memory_ns_per_kib=100,
)


@pytest.mark.parametrize(
    ("reader", "between", "expected"),
    [
        pytest.param((0, 0), [], 40 * 1, id="same thread: L2"),
        pytest.param((1, 0), [], 40 * 10, id="other thread of the node: L3"),
        pytest.param((0, 0), [(0, 0)] * 2, 10 * 1 + 30 * 10, id="same thread, two packets later: part L2, part L3"),
        pytest.param((0, 0), [(0, 0)] * 3, 40 * 100, id="same thread, three packets later: memory"),
        pytest.param((2, 1), [], 40 * 200, id="other node: far memory"),
    ],
)
def test_reading_a_packet_takes_as_long_as_the_place_it_is_in(
    reader: tuple[int, int], between: list[tuple[int, int]], expected: int
) -> None:
    memory = Memory(SMALL_MACHINE, packet_kib=40)
    memory.add_packets(9)
    write = 40 * 1
    assert memory.run_time(0, 0, 0, []) == write
    for packet, (thread, node) in enumerate(between, start=1):
        assert memory.run_time(thread, node, packet, []) == write
    assert memory.run_time(*reader, 8, [0]) == write + expected


def test_an_input_profits_from_the_l2_only_as_far_as_it_fits_in_beside_the_output() -> None:
    machine = replace(SMALL_MACHINE, structures_kib=40)  # 60 KiB for packets: the output leaves 20
    memory = Memory(machine, packet_kib=40)
    memory.add_packets(2)
    memory.run_time(0, 0, 0, [])
    assert memory.run_time(0, 0, 1, [0]) == 40 * 1 + 20 * 1 + 20 * 10


def test_all_inputs_together_have_only_the_room_beside_the_output() -> None:
    memory = Memory(SMALL_MACHINE, packet_kib=40)  # 90 KiB for packets: the output leaves 50
    memory.add_packets(3)
    memory.run_time(0, 0, 0, [])
    memory.run_time(0, 0, 1, [])
    assert memory.run_time(0, 0, 2, [0, 1]) == 40 * 1 + 40 * 1 + (10 * 1 + 30 * 10)
    assert (memory.from_l2, memory.from_l3, memory.from_local, memory.from_remote) == (50, 30, 0, 0)


# --- the plan ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_plan_is_layered_branches_and_merges(seed: int) -> None:
    load = QueryLoad()
    plan = random_plan(load, seed)
    assert len(plan.inputs) == len(plan.consumers) == 170
    assert all(producer < operator for operator, inputs in enumerate(plan.inputs) for producer in inputs)
    edges = {(producer, operator) for operator, inputs in enumerate(plan.inputs) for producer in inputs}
    assert edges == {(operator, taker) for operator, takers in enumerate(plan.consumers) for taker in takers}
    assert 1 <= len(plan.sources) <= load.widest_layer
    assert 1 <= sum(not takers for takers in plan.consumers) <= load.widest_layer
    assert any(len(inputs) > 1 for inputs in plan.inputs)
    assert any(len(takers) > 1 for takers in plan.consumers)


def test_the_seed_decides_the_plan() -> None:
    load = QueryLoad()
    assert random_plan(load, 1) == random_plan(load, 1)
    assert random_plan(load, 1) != random_plan(load, 2)


def test_skip_chance_gives_operators_one_more_input() -> None:
    never, always = (random_plan(QueryLoad(skip_chance=chance), 1) for chance in (0.0, 1.0))
    assert max(map(len, never.inputs)) <= QueryLoad().widest_layer
    assert sum(map(len, always.inputs)) > 1.5 * sum(map(len, never.inputs))


# --- the arithmetic ---------------------------------------------------------------------------------------------------


def chain(operators: int, packets: int = 1, **changes: int) -> QueryLoad:
    size = QueryLoad().packet_kib
    load = QueryLoad(concurrent=1, operators=operators, widest_layer=1, skip_chance=0, input_kib=packets * size)
    return replace(load, **changes)


def test_a_single_run_takes_wake_up_dispatch_compute_and_memory_time() -> None:
    machine = Machine(numa_factors=ONE_NODE, threads_per_node=1)
    load = chain(1)
    compute = random_plan(load, 1).compute_ns_per_kib[0] * 128
    result = simulate(LocalityConfig("locality", machine, load))
    assert result.makespan_ns == 5_000 + 5_000 + compute + 128 * 64 + 128 * 400
    assert result.time.memory == 128 * (64 + 400)
    assert result.statistics.semaphore_operations == 2  # woken at the start, asleep at the end


def test_the_global_semaphore_is_paid_for_every_task() -> None:
    machine = Machine(numa_factors=ONE_NODE, threads_per_node=1)
    load = chain(3, packets=10)
    locality, simple = both(load, machine)
    assert locality.time.semaphore == 0
    # 30 tasks sought and 29 created by the one thread; the client created the first
    assert simple.time.semaphore == 59 * (500 + 100)
    assert simple.runs == 30


def test_threads_wait_for_each_other_at_the_global_semaphore() -> None:
    machine = Machine(semaphore_ns=0, shared_semaphore_ns=20_000)
    crowd = simulate(LocalityConfig("fifo-steal", machine, SHORT))
    assert crowd.time.semaphore > 2 * 20_000 * crowd.statistics.semaphore_operations


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_operator_makes_every_packet_and_the_books_balance(scheduler: str) -> None:
    load = replace(SHORT, rounds=2, concurrent=3, input_kib=640)
    result = simulate(LocalityConfig(scheduler, load=load))
    edges = sum(len(inputs) for inputs in random_plan(load, 1).inputs)
    assert result.runs == 2 * 3 * load.operators * load.packets
    assert result.reads.total == 2 * 3 * edges * load.packets * load.packet_kib
    assert result.runs + result.empty_runs == result.statistics.tasks_created
    assert sum(time for _, time in result.time_by_step) == result.time.total
    assert sum(result.utilisation) * result.makespan_ns == pytest.approx(result.time.total)
    assert max(result.utilisation) <= 1
    assert (result.statistics.queries, result.statistics.waiting_tasks) == (0, 0)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_full_buffer_holds_its_producer_back_but_loses_nothing(scheduler: str) -> None:
    load = replace(SHORT, concurrent=2, buffer_packets=1, input_kib=640)
    result = simulate(LocalityConfig(scheduler, load=load))
    assert result.runs == 2 * load.operators * load.packets


@pytest.mark.parametrize(("buffer_packets", "held_back"), [(1, True), (20, False)], ids=["small", "large"])
def test_in_a_chain_only_a_full_buffer_makes_a_run_empty(buffer_packets: int, held_back: bool) -> None:
    machine = Machine(numa_factors=ONE_NODE)
    result = simulate(LocalityConfig("fifo-steal", machine, chain(20, packets=20, buffer_packets=buffer_packets)))
    assert (result.empty_runs > 0) == held_back


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_same_config_gives_the_same_bytes(scheduler: str) -> None:
    config = LocalityConfig(scheduler, load=replace(SHORT, concurrent=3, operators=40))
    first, second = simulate(config), simulate(config)
    assert repr(first) == repr(second)
    assert simulate(replace(config, seed=2)).makespan_ns != first.makespan_ns


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda: Machine(numa_factors=((1.0, 1.4),)), "square table", id="NUMA table not square"),
        pytest.param(lambda: Machine(numa_factors=((0.5,),)), "at least 1", id="NUMA factor below 1"),
        pytest.param(lambda: Machine(structures_kib=256), "below l2_kib=256", id="no L2 left"),
        pytest.param(lambda: Machine(threads_per_node=0), "threads_per_node must be at least 1", id="no thread"),
        pytest.param(lambda: QueryLoad(concurrent=0), "concurrent must be at least 1", id="no query"),
        pytest.param(lambda: QueryLoad(skip_chance=1.5), "from 0 to 1; got 1.5", id="not a probability"),
        pytest.param(lambda: LocalityConfig("fifo"), "one of locality, fifo-steal; got 'fifo'", id="no such scheduler"),
    ],
)
def test_impossible_configs_are_refused(change: Callable[[], object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        change()


def test_the_example_in_the_docstring_runs() -> None:
    failed, tried = doctest.testmod(benchmarks.locality_sim)
    assert failed == 0 < tried


# --- what comes out ---------------------------------------------------------------------------------------------------


def test_in_a_chain_on_one_thread_locality_finds_every_packet_in_the_l2_and_fifo_few() -> None:
    machine = Machine(numa_factors=ONE_NODE, threads_per_node=1)
    locality, simple = both(chain(20, packets=8, packet_kib=64), machine)
    assert locality.reads.l2_hit_rate == 1.0
    assert simple.reads.l2_hit_rate < 0.05  # only while the chain fills and empties


def test_with_more_queries_than_nodes_locality_is_faster_and_touches_no_far_memory() -> None:
    locality, simple = both(SHORT)
    gain = 1 - locality.makespan_ns / simple.makespan_ns
    assert 0.05 < gain < 0.25
    assert locality.reads.l2_hit_rate > 1.5 * simple.reads.l2_hit_rate
    assert locality.reads.remote_memory == 0 < simple.reads.remote_memory
    assert locality.statistics.semaphore_operations < simple.statistics.semaphore_operations / 10


def test_a_lone_short_query_stays_on_one_node_and_is_slower_than_under_the_simple_scheduler() -> None:
    locality, simple = both(replace(SHORT, concurrent=1))
    assert locality.statistics.shares == 0
    assert sum(busy > 0 for busy in locality.utilisation) == 6
    assert locality.makespan_ns > simple.makespan_ns


def test_balancing_shares_a_lone_long_query_among_nodes() -> None:
    machine = Machine(balance_ns=1_000_000)
    shared = simulate(LocalityConfig("locality", machine, replace(SHORT, concurrent=1)))
    alone = simulate(LocalityConfig("locality", Machine(), replace(SHORT, concurrent=1)))
    assert shared.statistics.shares == 3
    assert shared.makespan_ns < alone.makespan_ns


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_best_packet_size_is_somewhat_below_half_of_the_l2(seed: int) -> None:
    sizes = (32, 64, 96, 112, 128, 192, 256)
    load = QueryLoad(concurrent=4, operators=40, input_kib=4096)
    results = packet_size_sweep(LocalityConfig("locality", load=load, seed=seed), sizes)
    # Per KiB, because the last packet counts as full and so the sizes do not handle quite the same amount.
    times = [
        result.makespan_ns / (result.config.load.packets * size) for result, size in zip(results, sizes, strict=True)
    ]
    assert sizes[times.index(min(times))] in (96, 112)
    assert times[sizes.index(128)] < 1.05 * min(times)
    assert min(times[0], times[-1]) > 1.05 * min(times)
