"""Policies for work of different importance: layers and classes in strict order, or taking turns by weight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.core.errors import ParameterError
from headgate.core.flow import output_rate
from headgate.core.graph import Floats, Ints
from headgate.core.inheritance import Inheritance
from headgate.core.matrix import FeatureView, in_view
from headgate.core.policies.arrival import FirstCome
from headgate.core.policies.auto import refuse_inside
from headgate.core.policies.rates import HighestRate
from headgate.core.policy import (
    Policy,
    WrappingPolicy,
    as_table,
    nested,
    of_highest_rank,
    portions_of,
    priorities_of,
    vet,
)

#: layers, highest first: what somebody has asked for now, updates, repairs of the past, upkeep
URGENT, LIVE, BACKFILL, MAINTENANCE = 1.0, 0.0, -1.0, -2.0

_FIRST_COME = FirstCome()
_HIGHEST_RATE = HighestRate()


@dataclass(frozen=True)
class MultiClass(Policy):
    """Queries of a higher class always go first; inside a class, a policy of the class's own decides.
    So urgent queries can have the least maximum latency and the rest the least mean latency at once.

    Rule: ``(class, priorities of the class's policy)``. ``policies`` names the policies of classes, ``default`` that of
    all others. If no class is named, the highest there is has ``fcfs``, as in the paper.
    Features: class, and those of the policies.
    Fails: a low class waits for ever while the higher ones have work.
    Paper: Haren, section 7.4.
    """

    name = "multi-class"
    summary = "the highest class; inside a class, that class's own policy"
    paper = "Haren 7.4"
    needs = ("class",)
    starves = True

    policies: tuple[tuple[int, Policy], ...] = ()
    default: Policy = _HIGHEST_RATE

    def __post_init__(self) -> None:
        _check_unlike(self.name, (number for number, _ in self.policies))
        _check_policies(self.name, (*self.policies, ("default", self.default)))

    @property
    def cuts(self) -> bool:
        return any(policy.cuts for policy in _inside(self))

    @property
    def inheritance(self) -> Inheritance | None:
        return _agreed(policy.inheritance for policy in _inside(self))

    def requires(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.needs, *(name for policy in _inside(self) for name in policy.requires()))))

    def priorities(self, view: FeatureView) -> Floats:
        groups = [group for group in _by_class(self, view) if group[1].any()]
        return _stacked(view["class"], [(members, priorities_of(policy, inner)) for policy, members, inner in groups])

    def portion(self, view: FeatureView) -> Floats:
        groups = _by_class(self, view.only(None))
        return in_view(view, np.sum([np.where(mine, portions_of(one, seen), 0.0) for one, mine, seen in groups], 0))

    def remember(self, view: FeatureView, node: int) -> tuple[object, ...]:
        return tuple(
            policy.remember(inner, node) if members[node] else inner.memory
            for policy, members, inner in _by_class(self, view)
        )

    def joining(self, view: FeatureView, offered: Ints, others: Ints) -> Ints:
        return _joining(self, view, of_highest_rank(view["class"], offered, others), others)

    def notes(self, view: FeatureView, node: int) -> tuple[str, ...]:
        return next(policy.notes(inner, node) for policy, members, inner in _by_class(self, view) if members[node])

    def __str__(self) -> str:
        default = [] if self.default == _HIGHEST_RATE else [f"default={nested(self.default)}"]
        return _written(self.name, [*(f"{number}={nested(policy)}" for number, policy in self.policies), *default])


@dataclass(frozen=True)
class WeightedClasses(Policy):
    """Classes take turns in proportion to their weights; inside the class whose turn it is, the highest rate wins.
    High classes are fast, and low ones still get their share.

    Rule: ``(-lead, class, GS / GC)``, GS and GC as in ``hr``. The memory is each class's lead: how far its share is
    used in advance. A turn of class c takes its lead from all leads, down to no less than 0, and then
    makes it ``1 / weight``; so a class that was idle starts level with the others and cannot hoard turns.
    ``weights`` are by class; a class c that has none weighs ``max(c, 1)``.
    Features: class, cost, selectivity.
    Fails: turns are counted, not seconds, so a class of heavy nodes gets more than its share of time; inside a class
    a node with a low rate can wait for ever.
    Paper: Haren, section 8 (CQC).
    """

    name = "cqc"
    summary = "classes in turn by weight; inside a class, the highest output rate"
    paper = "Haren 8"
    needs = ("class", "cost", "selectivity")
    starves = True

    weights: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        _check_unlike(self.name, (number for number, _ in self.weights))
        for number, weight in self.weights:
            if not weight > 0:
                raise ParameterError(f"policy 'cqc': the weight of class {number} must be greater than 0; got {weight}")

    def weight(self, number: float) -> float:
        """Turns that class ``number`` gets, relative to the other classes."""
        stated: dict[float, float] = dict(self.weights)
        return stated.get(number, max(number, 1.0))

    def priorities(self, view: FeatureView) -> Floats:
        classes = view["class"]
        lead = np.zeros(len(view))
        for number, ahead in _leads(view):
            lead[classes == number] = ahead
        return np.column_stack((-lead, classes, output_rate(view.graph, view["cost"], view["selectivity"])))

    def remember(self, view: FeatureView, node: int) -> tuple[tuple[float, float], ...]:
        chosen = float(view["class"][node])
        leads = dict(_leads(view))
        passed = leads.pop(chosen, 0.0)
        others = {number: lead - passed for number, lead in leads.items() if lead > passed}
        return tuple(sorted({**others, chosen: 1.0 / self.weight(chosen)}.items()))

    def __str__(self) -> str:
        return _written(self.name, [f"{number}={weight}" for number, weight in self.weights])


def _leads(view: FeatureView) -> tuple[tuple[float, float], ...]:
    """The memory of ``cqc``: (class, lead) of the classes that have a lead."""
    return view.memory if isinstance(view.memory, tuple) else ()


def _inside(policy: MultiClass) -> list[Policy]:
    return [*([inner for _, inner in policy.policies] or [_FIRST_COME]), policy.default]


def _agreed(asked: Iterable[Inheritance | None]) -> Inheritance | None:
    """What all policies ask for that ask for anything: there is one way for all tables."""
    different = {each for each in asked if each is not None}
    return different.pop() if len(different) == 1 else None


def _by_class(policy: MultiClass, view: FeatureView) -> Iterator[tuple[Policy, NDArray[np.bool_], FeatureView]]:
    """Each inner policy with the nodes that it ranks and the view to show it; the default comes last."""
    classes = view["class"]
    stated = policy.policies or ((classes.max(initial=-np.inf), _FIRST_COME),)
    memories = view.memory if isinstance(view.memory, tuple) else (None,) * (len(stated) + 1)
    others = np.ones(len(view), dtype=bool)
    for (number, inner), memory in zip(stated, memories, strict=False):
        members = classes == number
        others &= ~members
        yield inner, members, _shown(view, inner, memory)
    yield policy.default, others, _shown(view, policy.default, memories[-1])


def _joining(policy: MultiClass, view: FeatureView, offered: Ints, others: Ints) -> Ints:
    """Of ``offered``, all of the highest class that waits, those that the policies of their classes let join."""
    parts = (
        inner.joining(shown, offered[members[offered]], others[members[others]])
        for inner, members, shown in _by_class(policy, view)
    )
    return np.concatenate([*parts])


def _stacked(classes: Floats, parts: list[tuple[NDArray[np.bool_], Floats]]) -> Floats:
    """The class, then for each part's members the priorities of that part, filled up with 0 to equal width."""
    tables = [(members, as_table(priorities)) for members, priorities in parts]
    stacked = np.zeros((len(classes), 1 + max((table.shape[1] for _, table in tables), default=0)))
    stacked[:, 0] = classes
    for members, table in tables:
        stacked[members, 1 : 1 + table.shape[1]] = table[members]
    return stacked


def _shown(view: FeatureView, policy: Policy, memory: object) -> FeatureView:
    """The view that a policy inside another one gets: the same, but with its own memory."""
    columns = {feature: view[feature] for feature in policy.requires()}
    return FeatureView(columns, view.graph, view.now, view.turn, view.seed, memory)


def _check_unlike(policy: str, classes: Iterable[int]) -> None:
    seen: set[int] = set()
    for number in classes:
        if number in seen:
            raise ParameterError(f"policy {policy!r}: class {number} is given twice; give each class once")
        seen.add(number)


def _check_policies(name: str, stated: Iterable[tuple[object, object]]) -> None:
    for parameter, policy in stated:
        if not isinstance(policy, Policy):
            raise ParameterError(f"policy {name!r}: {parameter} must be a policy; got {policy!r}")
        refuse_inside(f"policy {name!r}: {parameter}", policy)
        vet(policy)  # here, so that a mistake is told by the name that the user knows


def _written(name: str, words: list[str]) -> str:
    return f"{name}:{','.join(words)}" if words else name


@dataclass(frozen=True)
class Layered(WrappingPolicy):
    """Whoever is in the higher layer goes first; inside a layer, ``inner`` decides. So a backfill never delays live
    updates, and maintenance delays neither. All of them are nodes like any other, which the guard keeps from starving.

    Rule: ``(layer, *inner)``. Features: layer, and those of ``inner``. Fails: as long as a higher layer never runs
    dry, a lower one gets only what the guard gives it.
    """

    inner: Policy

    name = "layered"
    summary = "the highest layer; inside it, another policy"
    paper = "none"
    needs = ("layer",)
    starves = True

    def __post_init__(self) -> None:
        vet(self.inner)  # here, so that a mistake is told by the name that the user knows

    @property
    def wrapped(self) -> Policy:
        return self.inner

    def requires(self) -> tuple[str, ...]:
        return (*self.needs, *self.inner.requires())

    def priorities(self, view: FeatureView) -> Floats:
        return np.column_stack((view["layer"], as_table(priorities_of(self.inner, view))))

    def joining(self, view: FeatureView, offered: Ints, others: Ints) -> Ints:
        return self.inner.joining(view, of_highest_rank(view["layer"], offered, others), others)

    def __str__(self) -> str:
        return str(self.inner)
