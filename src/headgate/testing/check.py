"""Tests of a policy: views of nodes whose features a test writes down, and ``check_policy``.

``check_policy`` tries a policy on random graphs, features and schedules, and says what is wrong with it.

Five checks, each repeated many times:

1. The priorities define an order of the nodes.
2. The portions are amounts above 0.
3. Both depend only on the view that is passed in.
4. If the policy says that it is local, it is.
5. The dispatch loop starts the same nodes as the slow oracle, and no node waits beyond its patience.
"""

from __future__ import annotations

import copy
import difflib
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass

import numpy as np

from headgate.core import (
    FEATURES,
    LOOP_FEATURES,
    Dispatch,
    Feature,
    FeatureMatrix,
    FeatureView,
    Floats,
    Graph,
    HeadgateError,
    Ints,
    ParameterError,
    Policy,
    UnknownNameError,
    Workers,
    rank,
    vet,
)
from headgate.core.placements import Anywhere
from headgate.testing.oracle import CheckError, ComparedDispatch
from headgate.testing.toys import RandomLanes

#: what is drawn for a feature of a node that can run; with values that make trouble: no cost, nothing passes
VALUES: Mapping[str, Sequence[float]] = {
    "priority": (1.0, 1.0, 5.0, 100.0),
    "class": (0.0, 1.0, 2.0),
    "layer": (0.0, 0.0, -1.0),
    "period": (0.0, 1.0, 60.0),
    "cost": (0.0, 1e-6, 0.1, 2.0),
    "selectivity": (0.0, 0.3, 1.0, 4.0),
    "setup_time": (0.0, 0.5, 3.0),
    "time_per_unit": (0.0, 0.01, 0.5),
    "pending": (1.0, 2.0, 30.0, 5000.0),
    "output_pending": (0.0, 5.0, 5000.0),
    "freshness_delta": (0.0, 1.0, 60.0),
    "execution_time": (0.0, 0.5, 30.0),
    "head_time": (0.0, 2.5, 40.0),
    "release_time": (0.0, 2.5, 40.0),
    "next_release": (10.0, 70.0, math.inf),
    "workers": (0.0, 0.0, 1.0),
    "max_workers": (1.0, 1.0, 2.0, 8.0),
    "last_turn": (-1.0, 0.0, 3.0),
    "window_time": (0.0, 0.01, 2.0),
}
#: of a feature that an engine of the user's own measures
ANY_VALUES = (0.0, 1.0, 2.0, 50.0)
#: names at least this similar are taken for the same name, misspelt
_MISSPELT = 0.8
#: later than everything that has happened
NOW = 60.0


def check_policy(policy: Policy, *, cases: int = 200, seed: int = 0, features: Iterable[Feature] = ()) -> None:
    """Raise ``CheckError``, with words for people, if ``policy`` is not what a loop can rely on.

    ``features`` are those that an engine of your own measures, in addition to ``headgate.core.FEATURES``.
    A policy may pass and still be a bad one: whether its rule does what you want, only your own tests can say.
    """
    if complaint := _no_policy(policy):
        raise CheckError(f"policy {complaint}")
    try:
        vet(policy)
    except HeadgateError as error:
        raise CheckError(str(error)) from error
    known = {**FEATURES, **{feature.name: feature for feature in features}}
    for name in policy.requires():
        if name not in known:
            raise CheckError(
                f"policy {policy.name!r} needs the feature {name!r}, which no engine has; known are "
                f"{', '.join(sorted(known))}. If your own engine measures it, say check_policy(..., features=[...])"
            )
    before: _Case | None = None
    for number in range(cases):
        case = _Case.drawn(policy, known, random.Random(f"{seed}/{number}"))
        _check_answer(case)
        _check_that_nothing_is_kept(case, before)
        _check_declaration_order(case)
        if policy.local:
            _check_local(case)
        before = case
    for number in range(max(1, cases // 10)):
        _check_schedule(policy, known, random.Random(f"{seed}/schedule/{number}"))
    for number in range(max(1, cases // 20)):
        _check_patience(policy, known, random.Random(f"{seed}/patience/{number}"))


def _no_policy(policy: object) -> str:
    """What is wrong with something that is no policy at all; empty if it is one."""
    if isinstance(policy, type) and issubclass(policy, Policy):
        return f"{policy.__name__}: this is the class; check an instance of it: check_policy({policy.__name__}())"
    if isinstance(policy, Policy):
        kind = type(policy).__name__
        advice = f"its parameters are not known; write @dataclass(frozen=True) above the class {kind}"
        return "" if is_dataclass(policy) else f"{policy.name!r}: {advice}"
    return f"{policy!r}: a policy is an instance of a subclass of headgate.core.Policy; got {type(policy).__name__}"


# --- features in, order out -----------------------------------------------------------------------------------------


def make_view(
    nodes: Mapping[str, Mapping[str, float]],
    *,
    edges: Iterable[tuple[str, str]] = (),
    queries: Mapping[str, str] | None = None,
    now: float = 0.0,
    turn: int = 0,
    seed: int = 0,
    memory: object = None,
) -> FeatureView:
    """What a policy is shown of ``nodes``, given as ``{name: {feature: value}}``.

    Features that are left out have their defaults (``headgate.core.FEATURES``). One that Headgate does not know, which
    an engine of your own measures, is 0 where it is left out. A name that is nearly that of a known feature is refused:
    it is misspelt.
    """
    graph = Graph(nodes, edges, queries or {})
    more = dict.fromkeys((feature for values in nodes.values() for feature in values if feature not in FEATURES), 0.0)
    for name in more:
        if difflib.get_close_matches(name, FEATURES, n=1, cutoff=_MISSPELT):
            raise UnknownNameError("feature", name, FEATURES)
    defaults = {name: feature.default for name, feature in FEATURES.items()} | more
    columns = {
        feature: np.array([_number(node, feature, values.get(feature, default)) for node, values in nodes.items()])
        for feature, default in defaults.items()
    }
    return FeatureView(columns, graph, now, turn, seed, memory)


def _number(node: str, feature: str, value: float) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ParameterError(f"make_view: the feature {feature!r} of {node!r} takes a number; got {value!r}") from None


def ranking(policy: Policy, view: FeatureView) -> list[str]:
    """The names of all nodes in view, best first."""
    return [view.graph.names[i] for i in rank(policy, view)]


# --- random cases ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Case:
    """A graph, and features by node and name, so that the nodes can be put in any order."""

    policy: Policy
    graph: Graph
    #: nodes that can run; what a policy says of the others is ignored
    runnable: frozenset[str]
    values: Mapping[str, Mapping[str, float]]
    chance: random.Random = field(repr=False)

    @classmethod
    def drawn(cls, policy: Policy, known: Mapping[str, Feature], chance: random.Random) -> _Case:
        names = [f"n{number}" for number in chance.sample(range(20), chance.randint(1, 7))]
        edges = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if chance.random() < 0.3]
        queries = {name: f"q{number % 2}" for number, name in enumerate(names)} if chance.random() < 0.5 else {}
        runnable = frozenset(name for name in names if chance.random() < 0.7)
        values = {
            feature: {name: _drawn(feature, chance) if name in runnable else known[feature].default for name in names}
            for feature in policy.requires()
        }
        return cls(policy, Graph(names, edges, queries), runnable, values, chance)

    def view(self, graph: Graph | None = None, *, turn: int = 5, memory: object = None) -> FeatureView:
        """What the policy is shown: the features that it says it needs, and no other, which it cannot change."""
        shown = graph or self.graph
        columns = {name: np.array([values[node] for node in shown.names]) for name, values in self.values.items()}
        for column in columns.values():
            column.flags.writeable = False
        return FeatureView(columns, shown, NOW, turn, seed=11, memory=memory)

    def ask(self, view: FeatureView) -> Floats:
        """The policy's priorities as a table."""
        answer = self._answer(self.policy.priorities, view)
        shape = getattr(answer, "shape", None)
        if shape is None or len(shape) not in (1, 2) or shape[0] != len(view):
            raise self.error(
                f"it must return an array with one number or one row for each of the {len(view)} nodes in view; "
                f"got {_kind(answer)}"
            )
        if answer.dtype != np.float64:
            raise self.error(f"its priorities must be floats, as of .astype(float); got {answer.dtype}")
        return answer[:, np.newaxis] if answer.ndim == 1 else answer

    def ask_portions(self, view: FeatureView) -> Floats:
        """The policy's portions as a table of one column."""
        answer = self._answer(self.policy.portion, view)
        if getattr(answer, "shape", None) != (len(view),):
            raise self.error(
                f"its portion must be an array with one number for each of the {len(view)} nodes in view; "
                f"got {_kind(answer)}"
            )
        return answer[:, np.newaxis]

    def _answer(self, question: Callable[[FeatureView], Floats], view: FeatureView) -> Floats:
        try:
            with np.errstate(all="ignore"):
                return question(view)
        except UnknownNameError as error:
            if error.name in FEATURES:
                raise self.error(
                    f"it reads the feature {error.name!r} and does not say so: add it to 'needs'"
                ) from error
            raise self.error(str(error)) from error
        except Exception as error:
            if "read-only" in str(error):
                raise self.error(
                    "it changes a column of features in place, and others read the same column: "
                    "make a new array instead, as in view['cost'] * 2"
                ) from error
            raise self.error(f"it raised {type(error).__name__}: {error}") from error

    def error(self, what: str) -> CheckError:
        nodes = {name: {feature: values[name] for feature, values in self.values.items()} for name in self.graph.names}
        lines = [f"policy {self.policy}: {what}", f"  edges {list(self.graph.edges)}, now = {NOW:g}; features:"]
        lines += [
            f"    {name}{'' if name in self.runnable else ' (cannot run)'}: {features}"
            for name, features in nodes.items()
        ]
        return CheckError("\n".join(lines))


def _kind(answer: object) -> str:
    shape = getattr(answer, "shape", None)
    return type(answer).__name__ if shape is None else f"an array of shape {shape}"


def _drawn(feature: str, chance: random.Random) -> float:
    return float(chance.choice(VALUES.get(feature, ANY_VALUES)))


def _same(left: Floats, right: Floats) -> bool:
    return left.shape == right.shape and bool(np.array_equal(left, right, equal_nan=True))


# --- what is checked of an answer -----------------------------------------------------------------------------------


def _check_answer(case: _Case) -> None:
    table = case.ask(case.view())
    for node, row in zip(case.graph.names, table.tolist(), strict=True):
        if node in case.runnable and any(math.isnan(value) for value in row):
            raise case.error(
                f"the priority of {node}, which can run, is not a number: {row}. It would always come last; look for "
                "a division of 0 by 0, or for infinity minus infinity"
            )
    for node, (portion,) in zip(case.graph.names, case.ask_portions(case.view()).tolist(), strict=True):
        if node in case.runnable and not portion > 0:
            raise case.error(
                f"the portion of {node}, which can run, is {portion}; it must be above 0, or its update would take in "
                "nothing. Infinity stands for everything that is pending"
            )
        if portion < math.inf and not case.policy.cuts:
            raise case.error(
                f"the portion of {node} is {portion}, and would never be asked for: cuts is False. Say True, or leave "
                "it out"
            )


def _check_that_nothing_is_kept(case: _Case, before: _Case | None) -> None:
    """The same question has the same answer, whatever was asked in between, also with a memory."""
    memory: object = None
    for turn in range(3):
        view = case.view(turn=turn, memory=memory)
        shown = copy.deepcopy(memory)
        first, portions = case.ask(view), case.ask_portions(view)
        one = case.chance.randrange(len(case.graph))
        if not _same(case.ask_portions(view.only(np.array([one]))), portions[[one]]):
            raise case.error(
                f"the portion of {case.graph.names[one]} depends on the other nodes in view: it may be asked of the "
                "node that was chosen alone"
            )
        if before is not None:
            before.ask(before.view())
            before.ask_portions(before.view())
        if not _same(portions, case.ask_portions(view)):
            raise case.error(f"asked twice for portions it gave two answers, {portions.ravel().tolist()} first")
        if not _same(first, case.ask(view)):
            raise case.error(
                f"asked the same thing twice it gave two answers, {first.tolist()} first: it must depend on the view "
                "alone. What it must remember goes through remember() and view.memory; chance comes from "
                "headgate.core.uniform(view.seed, view.turn, view.graph.fingerprint)"
            )
        try:
            kept = case.policy.remember(view, case.chance.randrange(len(case.graph)))
        except Exception as error:
            raise case.error(f"remember() raised {type(error).__name__}: {error}") from error
        if memory != shown:
            raise case.error(f"remember() changed the memory in place, from {shown}: return a new value instead")
        memory = kept


def _check_declaration_order(case: _Case) -> None:
    names = case.chance.sample(case.graph.names, len(case.graph))
    queries = {name: case.graph.query_names[case.graph.query[i]] for i, name in enumerate(case.graph.names)}
    shuffled = Graph(names, case.graph.edges, queries)
    as_declared = Graph(case.graph.names, case.graph.edges, queries)
    here, there = case.ask(case.view(as_declared)), case.ask(case.view(shuffled))
    rows = [shuffled.index[name] for name in as_declared.names]
    # sums may be rounded differently; who goes first must not depend on more than that
    if here.shape != there.shape or not np.allclose(here, there[rows], rtol=1e-9, atol=0.0, equal_nan=True):
        raise case.error(
            f"it ranks the nodes differently when they are declared in the order {names}: "
            f"{here.tolist()} became {there[rows].tolist()}. Nodes are known by their names, not by their numbers"
        )
    here, there = case.ask_portions(case.view(as_declared)), case.ask_portions(case.view(shuffled))
    if not np.allclose(here, there[rows], rtol=1e-9, atol=0.0, equal_nan=True):
        raise case.error(
            f"its portions are others when the nodes are declared in the order {names}: {here.ravel().tolist()} "
            f"became {there[rows].ravel().tolist()}. Nodes are known by their names, not by their numbers"
        )


def _check_local(case: _Case) -> None:
    """A local policy says the same of a node whatever else is in view, and whatever the time."""
    whole, portions = case.ask(case.view()), case.ask_portions(case.view())
    chosen = sorted(case.chance.sample(range(len(case.graph)), case.chance.randint(1, len(case.graph))))
    rows: Ints = np.array(chosen, dtype=np.intp)
    others = {
        feature: np.array(
            [
                values[name] if number in chosen else _drawn(feature, case.chance)
                for number, name in enumerate(case.graph.names)
            ]
        )
        for feature, values in case.values.items()
    }
    part = FeatureView(others, case.graph, now=NOW + 8.0, turn=6, seed=12, memory=(1, 2), rows=rows)
    answer = case.ask(part)
    if not _same(answer, whole[rows]):
        names = [case.graph.names[row] for row in chosen]
        raise case.error(
            f"it says that it is local, but the priority of a node depends on more than its own features. Those of "
            f"{names} changed from {whole[rows].tolist()} to {answer.tolist()} with the features of other nodes, the "
            "time, the turn and the memory. Say local = False"
        )
    if not _same(answer := case.ask_portions(part), portions[rows]):
        raise case.error(
            f"it says that it is local, but the portion of a node depends on more than its own features: "
            f"{portions[rows].ravel().tolist()} became {answer.ravel().tolist()}. Say local = False"
        )


# --- what is checked of schedules -----------------------------------------------------------------------------------


def _check_schedule(policy: Policy, known: Mapping[str, Feature], chance: random.Random) -> None:
    """The loop starts what the oracle starts, in a random sequence of facts."""
    names = [f"n{number}" for number in range(chance.randint(2, 6))]
    edges = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if chance.random() < 0.3]
    placement = RandomLanes(chance.randrange(100), chance.randint(1, 3))
    pair = ComparedDispatch(Graph(names, edges), policy, placement, chance.randint(1, 3), known)
    pair.pass_time(NOW)
    measured = [feature for feature in policy.requires() if feature not in LOOP_FEATURES]
    for name in names:
        pair.set_limits(name, chance.choice([1, 1, 2]), chance.choice([math.inf, 2.0, 5.0]))
        for feature in measured:
            pair.write(name, feature, _drawn(feature, chance))
    try:
        with np.errstate(all="ignore"):
            for _ in range(20):
                pair.pass_time(chance.choice([0.0, 0.5, 3.0]))
                _tell_facts(pair, names, measured, chance)
                pair.decide()
                pair.check()
    except CheckError:
        raise
    except HeadgateError as error:
        raise CheckError(f"policy {policy}: {error}\n{pair.told()}") from error


def _tell_facts(pair: ComparedDispatch, names: Sequence[str], measured: Sequence[str], chance: random.Random) -> None:
    for name in chance.sample(names, chance.randint(0, len(names))):
        if measured and chance.random() < 0.5:
            feature = chance.choice(measured)
            pair.write(name, feature, _drawn(feature, chance))
        pair.set_ready(name, chance.random() < 0.8)
    for worker in sorted(pair.oracle.running):
        if chance.random() < 0.6:
            pair.finish(worker)


def _check_patience(policy: Policy, known: Mapping[str, Feature], chance: random.Random) -> None:
    """With the guard, nobody that can run waits much longer than its patience, however unfair the policy."""
    names = [f"n{number}" for number in range(chance.randint(2, 6))]
    workers, patience = chance.randint(1, 2), 5.0
    loop = Dispatch(FeatureMatrix(Graph(names), known.values()), policy, Anywhere(), Workers.of(workers))
    for feature in policy.requires():
        if feature not in LOOP_FEATURES:
            loop.matrix.fill(feature, [_drawn(feature, chance) for _ in names])
    loop.matrix.fill("patience", [patience] * len(names))
    loop.refresh_patience()
    seconds = [chance.choice([0.1, 1.0, 2.0]) for _ in names]
    # one longest run for itself, and for every other node that was overdue before it
    bound = patience + (len(names) + 1) * max(seconds)
    waiting_since = dict.fromkeys(range(len(names)), 0.0)
    for node in waiting_since:
        loop.set_ready(node, True, 0.0)
    ends: dict[int, tuple[float, int]] = {}
    now = 0.0
    while now < 10 * bound:
        with np.errstate(all="ignore"):
            starts = loop.decide(now)
        for start in starts:
            waited = now - waiting_since.pop(start.node)
            if waited > bound:
                raise CheckError(
                    f"policy {policy}: {names[start.node]} waited {waited:.3g} s with a patience of {patience:g} s; "
                    f"it should be at most {bound:.3g} s with {len(names)} nodes on {workers} workers"
                )
            ends[start.worker] = (now + seconds[start.node], start.node)
        worker = min(ends, key=lambda busy: ends[busy])
        now, node = ends.pop(worker)
        loop.finished(worker, now)
        waiting_since[node] = now
    late = {names[node]: now - since for node, since in waiting_since.items() if now - since > bound}
    if late:
        raise CheckError(f"policy {policy}: {late} are still waiting after {now:.3g} s; at most {bound:.3g} s are due")
