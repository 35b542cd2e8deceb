"""The dispatch loop starts what the papers say, in any sequence of facts.

Two oracles, both in ``oracles.py``. ``place_by_the_letter`` is the one pass over the sorted list that Golab et al.
print in 3.2.2 and 3.2.3. ``NaiveDispatch`` picks one job at a time, which differs from the single pass in one case:
where a job has several home tracks, the single pass can leave a track idle that it kept for that job; picking one at
a time hands it out in the end.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.core.dispatch import LOOP_FEATURES
from headgate.core.features import FEATURES
from headgate.core.graph import Graph
from headgate.core.placement import Lane
from headgate.core.placements import Anywhere
from headgate.core.policies import SHIPPED
from headgate.core.policy import Policy
from headgate.testing import (
    ComparedDispatch,
    Favourites,
    FewestTurns,
    LanesByName,
    Largest,
    LongestWaiting,
    RandomLanes,
)
from tests.core.oracles import LOCAL_AND_FULL, few_examples, make_loop, place_by_the_letter

POLICIES: list[Policy] = [
    *(policy for pair in LOCAL_AND_FULL for policy in pair),
    LongestWaiting(),
    FewestTurns(),
    Favourites("cab"),
]
SHIPPED_POLICIES = [policy() for policy in SHIPPED]
PLACEMENTS = [
    pytest.param(Anywhere(), id="anywhere"),
    pytest.param(RandomLanes(1, aggressive=False, one_home=True), id="one home track each"),
    pytest.param(RandomLanes(2, aggressive=False), id="several home tracks"),
    pytest.param(RandomLanes(3, aggressive=True), id="aggressive"),
    pytest.param(RandomLanes(4, lanes_drawn=9), id="aggressive and not"),
    pytest.param(RandomLanes(5, lanes_drawn=1), id="one lane that need not have all workers"),
]
NAMES = "ecabdf"
EDGES = [("a", "b"), ("b", "c"), ("a", "d"), ("e", "d")]
#: what an engine measures; the loop keeps the rest
MEASURED = sorted(set(FEATURES) - set(LOOP_FEATURES))


# --- whole stories ------------------------------------------------------------------------------------------


def tell_facts(pair: ComparedDispatch, chance: random.Random) -> None:
    """Some of what an engine could report at one moment."""
    pair.pass_time(chance.choice([0.0, 0.5, 1.0, 3.0]))
    names = pair.oracle.graph.names
    for _ in range(chance.randint(0, 4)):
        name = chance.choice(names)
        match chance.randrange(5):
            case 0 | 1:
                pair.set_ready(name, True)
            case 2:
                pair.set_ready(name, False)
            case 3:
                pair.write(name, chance.choice(MEASURED), float(chance.randint(1, 4)))
            case 4 if pair.oracle.running:
                pair.finish(chance.choice(sorted(pair.oracle.running)))


def change_the_rules(pair: ComparedDispatch, chance: random.Random) -> None:
    """What a user could change while the loop runs."""
    match chance.randrange(4):
        case 0:
            pair.replace_policy(chance.choice(POLICIES))
        case 1:
            pair.replace_placement(RandomLanes(chance.randrange(50), chance.randint(1, 5)))
        case 2:
            pair.set_workers(chance.randint(1, 4))
        case 3:
            here = set(pair.oracle.graph.names)
            kept = chance.sample(sorted(here), len(here) - 1)
            # a node that comes back has its default limit again, one worker, which its old runs may not exceed
            back = [name for name in NAMES if name not in here and pair.runs(name) <= 1]
            pair.regraph([*back[: chance.randint(0, 2)], *kept] or ["spare"])


def set_limits(pair: ComparedDispatch, chance: random.Random) -> None:
    for name in pair.oracle.graph.names:
        most = max(chance.choice([1, 1, 2, 3]), pair.runs(name))
        pair.set_limits(name, most, chance.choice([float("inf"), 2.0, 5.0]))


def run_story(policy: Policy, placement: Anywhere | RandomLanes, seed: int, *, changing: bool) -> None:
    chance = random.Random(f"{policy}/{placement}/{seed}")
    pair = ComparedDispatch(Graph(NAMES, EDGES), policy, placement, chance.randint(1, 4))
    set_limits(pair, chance)
    for name in NAMES:
        for feature in MEASURED:
            pair.write(name, feature, float(chance.randint(1, 4)))
    for _ in range(40):
        tell_facts(pair, chance)
        if changing and chance.random() < 0.2:
            change_the_rules(pair, chance)
        pair.check()
        if changing and chance.random() < 0.1:
            set_limits(pair, chance)
        pair.decide()
        pair.check()


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_the_loop_starts_what_the_oracle_starts(policy: Policy, placement: Anywhere | RandomLanes) -> None:
    run_story(policy, placement, seed=0, changing=False)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_the_loop_starts_what_the_oracle_starts_while_everything_changes(
    policy: Policy, placement: Anywhere | RandomLanes, seed: int
) -> None:
    run_story(policy, placement, seed, changing=True)


@pytest.mark.parametrize("placement", PLACEMENTS[::2])
@pytest.mark.parametrize("policy", SHIPPED_POLICIES, ids=str)
def test_the_loop_starts_what_the_oracle_starts_by_the_shipped_policies(
    policy: Policy, placement: Anywhere | RandomLanes
) -> None:
    run_story(policy, placement, seed=0, changing=True)


# --- shortest stories ---------------------------------------------------------------------------------------


class DispatchStory(RuleBasedStateMachine):
    """The same comparison, told fact by fact, so that a difference is cut down to the shortest story that shows it."""

    @initialize(
        policy=st.sampled_from(POLICIES),
        seed=st.integers(0, 20),
        lanes=st.integers(1, 4),
        workers=st.integers(1, 4),
        limits=st.randoms(use_true_random=False),
    )
    def begin(self, policy: Policy, seed: int, lanes: int, workers: int, limits: random.Random) -> None:
        self.pair = ComparedDispatch(Graph("bca", [("a", "b")]), policy, RandomLanes(seed, lanes), workers)
        set_limits(self.pair, limits)

    def _name(self, number: int) -> str:
        names = self.pair.oracle.graph.names
        return names[number % len(names)]

    @rule(number=st.integers(0, 2), ready=st.booleans())
    def say_ready(self, number: int, ready: bool) -> None:
        self.pair.set_ready(self._name(number), ready)

    @rule(number=st.integers(0, 2), feature=st.sampled_from(["pending", "priority"]), value=st.integers(0, 3))
    def write(self, number: int, feature: str, value: int) -> None:
        self.pair.write(self._name(number), feature, float(value))

    @precondition(lambda self: self.pair.oracle.running)
    @rule(number=st.integers(0, 3))
    def finish(self, number: int) -> None:
        busy = sorted(self.pair.oracle.running)
        self.pair.finish(busy[number % len(busy)])

    @rule(seconds=st.sampled_from([0.0, 1.0, 3.0]))
    def decide(self, seconds: float) -> None:
        self.pair.pass_time(seconds)
        self.pair.decide()

    @rule(policy=st.sampled_from([*POLICIES, *SHIPPED_POLICIES]))
    def replace_policy(self, policy: Policy) -> None:
        self.pair.replace_policy(policy)

    @rule(seed=st.integers(0, 20), lanes=st.integers(1, 4))
    def replace_placement(self, seed: int, lanes: int) -> None:
        self.pair.replace_placement(RandomLanes(seed, lanes))

    @rule(workers=st.integers(1, 4))
    def set_workers(self, workers: int) -> None:
        self.pair.set_workers(workers)

    @rule(names=st.sets(st.sampled_from("abcd"), min_size=1).flatmap(lambda s: st.permutations(sorted(s))))
    def regraph(self, names: list[str]) -> None:
        known = self.pair.oracle.graph.index
        self.pair.regraph([name for name in names if name in known or self.pair.runs(name) <= 1] or ["spare"])

    @rule(number=st.integers(0, 2), most=st.integers(1, 3), patience=st.sampled_from([float("inf"), 2.0]))
    def set_limits(self, number: int, most: int, patience: float) -> None:
        name = self._name(number)
        self.pair.set_limits(name, max(most, self.pair.runs(name)), patience)

    @invariant()
    def nothing_is_lost(self) -> None:
        self.pair.check()


@pytest.mark.slow
class TestDispatchStory(DispatchStory.TestCase):
    settings = settings(max_examples=settings().max_examples, stateful_step_count=30)


# --- one decision, by the letter of the paper ---------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """Jobs that are released, with how urgent each is, and the tracks that are busy with others."""

    urgency: Mapping[str, int]
    tracks: int
    busy: frozenset[int]

    def decided_by_the_loop(self, placement: RandomLanes) -> dict[str, int]:
        """{job: track}."""
        busy = {f"busy on {track}": Lane((track,)) for track in self.busy}
        graph = Graph([*NAMES, *busy])
        loop = make_loop(graph, Largest(), LanesByName({**dict.fromkeys(NAMES, Lane((0,))), **busy}), self.tracks)
        for name in busy:
            loop.set_ready(graph.index[name], True, 0.0)
        assert {start.worker for start in loop.decide(0.0)} == self.busy
        for name in busy:
            loop.set_ready(graph.index[name], False, 0.0)
        loop.replace_placement(placement)
        for name, urgency in self.urgency.items():
            loop.matrix.columns["pending"][graph.index[name]] = urgency
            loop.set_ready(graph.index[name], True, 1.0)
        return {graph.names[start.node]: start.worker for start in loop.decide(1.0)}

    def decided_by_the_letter(self, placement: RandomLanes) -> dict[str, int]:
        in_order = sorted(self.urgency, key=lambda name: (-self.urgency[name], name))
        free = set(range(self.tracks)) - self.busy
        return place_by_the_letter(in_order, lambda name: placement.lane(name, self.tracks), free)


@st.composite
def moments(draw: st.DrawFn) -> Moment:
    tracks = draw(st.integers(1, 4))
    urgency = draw(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), min_size=1))
    return Moment(urgency, tracks, draw(st.frozensets(st.integers(0, tracks - 1))))


@few_examples
@given(moments(), st.builds(RandomLanes, st.integers(0, 99), st.integers(2, 5), st.just(True)))
def test_aggressive_placement_is_one_pass_over_the_sorted_list(moment: Moment, placement: RandomLanes) -> None:
    assert moment.decided_by_the_loop(placement) == moment.decided_by_the_letter(placement)


@few_examples
@given(moments(), st.builds(RandomLanes, st.integers(0, 99), st.integers(2, 5), st.just(False), st.just(True)))
def test_placement_with_one_home_track_each_is_one_pass_over_the_sorted_list(
    moment: Moment, placement: RandomLanes
) -> None:
    assert moment.decided_by_the_loop(placement) == moment.decided_by_the_letter(placement)


@few_examples
@given(moments(), st.builds(RandomLanes, st.integers(0, 99), st.integers(2, 5), st.just(False)))
def test_with_several_home_tracks_no_track_is_idle_that_the_single_pass_would_use(
    moment: Moment, placement: RandomLanes
) -> None:
    ours, printed = moment.decided_by_the_loop(placement), moment.decided_by_the_letter(placement)
    assert set(ours.values()) >= set(printed.values())


def test_a_track_kept_for_a_later_job_that_goes_elsewhere_is_handed_out_after_all() -> None:
    """In the single pass ``a`` is delayed, because ``b`` could have gone to track 2; then ``b`` goes to track 1."""
    lanes = {"a": Lane((0,), spare=(2,)), "b": Lane((1, 2)), "x": Lane((0,))}
    loop = make_loop("abx", Favourites("xab"), LanesByName(lanes), 3)
    loop.set_ready(2, True, 0.0)
    loop.decide(0.0)
    loop.set_ready(2, False, 0.0)
    for node in (0, 1):
        loop.set_ready(node, True, 1.0)
    assert [(start.node, start.worker) for start in loop.decide(1.0)] == [(1, 1), (0, 2)]
    assert place_by_the_letter("ab", lanes.__getitem__, {1, 2}) == {"b": 1}
