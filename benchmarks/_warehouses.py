"""Job sets of tables beyond those of Golab et al.: tables as on Spark, and warehouses drawn by chance.

Comparisons use an equal virtual horizon, whole cycles of slow and normal periods long: with an equal number of events,
a policy that makes fewer updates is measured for longer.
"""

from __future__ import annotations

import random
from dataclasses import replace

from benchmarks._golab import scaled
from headgate.sim import Slowdown, Table, TableScenario

#: periods of four streams, as in ``benchmarks.spark.workload``; priorities of the five tables over each
_STREAMS = {"air": 2.0, "traffic": 5.0, "weather": 10.0, "meters": 30.0}
#: set-up and time per second of data of a load and of the five queries over each stream. They were chosen, in the order
#: of magnitude of small updates on Spark, and not measured
_LOAD = (0.15, 0.004)
_QUERIES = {"alerts": (0.15, 0.002), "by_minute": (0.25, 0.006), "by_10s": (0.25, 0.006), "devices": (0.3, 0.01)}
_QUERIES |= {"top": (0.3, 0.008)}
_PRIORITIES = {
    "air": (1, 5, 30, 1, 7),
    "traffic": (38, 2, 9, 48, 2),
    "weather": (11, 62, 3, 14, 78),
    "meters": (3, 18, 100, 4, 23),
}
#: of warehouses drawn by chance
RANDOM_LOADS = (0.6, 0.8, 0.95, 1.1, 1.3, 1.6)


def faster(scenario: TableScenario, load: float) -> TableScenario:
    """The same with data that comes so much more often that the offered load is ``load`` of the tracks.

    On Spark the set-up of an update stays what it is: a load is higher because files come more often.
    """
    data = sum(table.time_per_unit for table in scenario.tables)
    speed = (load * scenario.tracks - data) / (scenario.utilisation() - data)
    return replace(scenario, tables=tuple(replace(table, period=table.period / speed) for table in scenario.tables))


def spark_like(load: float, tracks: int) -> TableScenario:
    """24 tables whose updates are mostly set-up. Data comes so much faster that the load is ``load``."""
    made = []
    for stream, period in _STREAMS.items():
        made.append(Table(stream, period=period, setup_time=_LOAD[0], time_per_unit=_LOAD[1]))
        for priority, (query, (setup, unit)) in zip(_PRIORITIES[stream], _QUERIES.items(), strict=True):
            name = f"{stream}_{query}"
            made.append(Table(name, (stream,), priority=priority, setup_time=setup, time_per_unit=unit))
    return faster(TableScenario(tuple(made), tracks=tracks, guard=False, name=f"spark-like, {tracks} tracks"), load)


def random_warehouse(number: int, held_out: bool = False, throughout: bool = False) -> TableScenario:
    """A warehouse of 8 to 39 tables on 1 to 8 tracks, drawn by chance: half with chains, a third with slow periods.

    ``throughout`` is whether slow periods act on running updates. The load is the same by the mean execution time.
    """
    chance = random.Random(f"{'held out' if held_out else 'warehouse'}/{number}")
    count, tracks = chance.randint(8, 39), chance.randint(1, 8)
    chained, slow = chance.random() < 0.5, chance.random() < 1 / 3
    tables: list[Table] = []
    for i in range(count):
        period = 10 ** chance.uniform(1.0, 2.5)
        share = chance.uniform(0.03, 0.97)
        whole = period * 10 ** chance.uniform(-1.5, 0.0)
        costs = {"setup_time": share * whole, "time_per_unit": (1 - share) * whole / period}
        priority = round(10 ** chance.uniform(0.0, 2.0), 1)
        if chained and tables and chance.random() < 0.6:
            sources = (chance.choice(tables).name,)
            tables.append(Table(f"t{i}", sources, priority=priority, **costs))
        else:
            tables.append(Table(f"t{i}", period=period, priority=priority, **costs))
    shortest = min(table.period for table in tables if table.period)
    stretch = 100 * shortest
    slowdown = Slowdown(factor=3.0, normal=stretch, slow=stretch, throughout=throughout) if slow else None
    scenario = TableScenario(tuple(tables), tracks=tracks, slowdown=slowdown, guard=False, name=f"random {number}")
    return scaled(scenario, random_load(number))


def random_load(number: int) -> float:
    """The load of the warehouse with this number."""
    return RANDOM_LOADS[number % len(RANDOM_LOADS)]


def mistaken(scenario: TableScenario, share: float, seed: int) -> TableScenario:
    """The same scenario with every cost wrong by up to ``share`` of it, each by chance of its own."""
    chance = random.Random(f"mistaken/{scenario.name}/{seed}")

    def wrong(cost: float) -> float:
        return cost * chance.uniform(1 - share, 1 + share)

    tables = (
        replace(table, setup_time=wrong(table.setup_time), time_per_unit=wrong(table.time_per_unit))
        for table in scenario.tables
    )
    return replace(scenario, tables=tuple(tables))


def lasting(scenario: TableScenario, events: int) -> TableScenario:
    """The scenario for as long as it has about ``events`` events if every arrival is loaded by itself."""
    rate = sum(1 / period for period in scenario.periods().tolist())
    horizon = events / (2 * rate)
    if scenario.slowdown is not None:
        cycle = scenario.slowdown.normal + scenario.slowdown.slow
        horizon = max(1, round(horizon / cycle)) * cycle
    return replace(scenario, horizon=horizon, events=1_000_000_000)
