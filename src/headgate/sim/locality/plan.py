"""A random execution plan: a layered graph of operators that branches and merges. Depends on nothing but its seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from headgate.sim.locality.config import QueryLoad


@dataclass(frozen=True, slots=True)
class Plan:
    """Operators are numbered in topological order. Every run of an operator takes one packet from each input and makes
    one packet that all its consumers read."""

    inputs: tuple[tuple[int, ...], ...]
    """Per operator; empty for a source."""
    consumers: tuple[tuple[int, ...], ...]
    """Per operator; empty for a sink."""
    compute_ns_per_kib: tuple[int, ...]

    @property
    def sources(self) -> tuple[int, ...]:
        return tuple(operator for operator, inputs in enumerate(self.inputs) if not inputs)


def random_plan(load: QueryLoad, seed: int) -> Plan:
    """Layers of random width. Each operator feeds the next layer: a wider one makes branches, a narrower one merges."""
    random = Random(seed)
    inputs: list[list[int]] = []
    above: list[int] = []
    while len(inputs) < load.operators:
        width = min(_whole(random, 1, load.widest_layer), load.operators - len(inputs))
        layer = list(range(len(inputs), len(inputs) + width))
        inputs += _layer_inputs(random, layer, above, load.skip_chance)
        above = layer
    consumers: list[list[int]] = [[] for _ in inputs]
    for operator, feeding in enumerate(inputs):
        for producer in feeding:
            consumers[producer].append(operator)
    mean = load.compute_ns_per_kib
    return Plan(
        inputs=tuple(map(tuple, inputs)),
        consumers=tuple(map(tuple, consumers)),
        compute_ns_per_kib=tuple(round(mean * (0.5 + random.random())) for _ in inputs),
    )


def _layer_inputs(random: Random, layer: list[int], above: list[int], skip_chance: float) -> list[list[int]]:
    feeding: list[set[int]] = [set() for _ in layer]
    if above:
        for place in range(max(len(layer), len(above))):
            feeding[place % len(layer)].add(above[place % len(above)])
        for chosen in feeding:
            if random.random() < skip_chance:
                chosen.add(_whole(random, 0, layer[0] - 1))
    return [sorted(chosen) for chosen in feeding]


def _whole(random: Random, low: int, high: int) -> int:
    # Of the generator's methods only random() is promised to give the same numbers in every version of Python.
    return low + int(random.random() * (high - low + 1))
