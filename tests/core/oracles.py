"""What tests of the core share beside ``headgate.testing``: random graphs, and placing by the letter of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from hypothesis import settings
from hypothesis import strategies as st

from headgate.core import FEATURES, Dispatch, FeatureMatrix, Graph, Lane, Placement, Policy, Workers
from headgate.core.placements import Anywhere
from headgate.testing import Largest, Smallest, TwoKeys, not_local

#: shares of the examples of the profile, for properties that take long to check once
fewer_examples = settings(max_examples=max(1, settings().max_examples // 2))
few_examples = settings(max_examples=max(1, settings().max_examples // 5))

# --- graphs -------------------------------------------------------------------------------------------------


@st.composite
def dags(draw: st.DrawFn, most: int = 9) -> Graph:
    """Directed acyclic graphs whose declaration order is no topological order."""
    names = draw(st.permutations([chr(ord("a") + i) for i in range(draw(st.integers(1, most)))]))
    order = draw(st.permutations(names))
    pairs = [(order[i], order[j]) for j in range(len(order)) for i in range(j)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return Graph(names, edges)


LOCAL_AND_FULL = [
    (policy, not_local(policy)) for policy in (Largest(), Smallest("last_turn"), Smallest("workers"), TwoKeys())
]


def place_by_the_letter(
    sorted_jobs: Iterable[str], lane_of: Callable[[str], Lane], free: Iterable[int]
) -> dict[str, int]:
    """One pass over the sorted list, as printed in Golab et al., 3.2.2 and 3.2.3; {job: track}.

    A job goes to the first available home track; else, if its lane is not aggressive, to a track that it may be
    promoted to and that no released job remaining in the list has as its home; else it is delayed.
    """
    available = set(free)
    remaining = list(sorted_jobs)
    placed: dict[str, int] = {}
    while remaining:
        job = remaining.pop(0)
        lane = lane_of(job)
        wanted = {track for other in remaining for track in lane_of(other).home}
        spare = [track for track in lane.spare if lane.aggressive or track not in wanted]
        for track in (*lane.home, *spare):
            if track in available:
                available.remove(track)
                placed[job] = track
                break
    return placed


def make_loop(
    names: Iterable[str] | Graph,
    policy: Policy,
    placement: Placement | None = None,
    workers: int = 1,
    *,
    window: float = math.inf,
    history: int = 0,
) -> Dispatch:
    """A dispatch loop over all features."""
    graph = names if isinstance(names, Graph) else Graph(names)
    matrix = FeatureMatrix(graph, FEATURES.values())
    return Dispatch(matrix, policy, placement or Anywhere(), Workers.of(workers), window=window, history=history)
