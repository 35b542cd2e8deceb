"""Features in, order out: views of nodes whose features are written down in a test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from headgate.core import FEATURES, FeatureView, Graph, Policy, rank


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
    an engine of your own measures, is 0 where it is left out.
    """
    graph = Graph(nodes, edges, queries or {})
    more = dict.fromkeys((feature for values in nodes.values() for feature in values if feature not in FEATURES), 0.0)
    defaults = {name: feature.default for name, feature in FEATURES.items()} | more
    columns = {
        feature: np.array([float(values.get(feature, default)) for values in nodes.values()])
        for feature, default in defaults.items()
    }
    return FeatureView(columns, graph, now, turn, seed, memory)


def ranking(policy: Policy, view: FeatureView) -> list[str]:
    """The names of all nodes in view, best first."""
    return [view.graph.names[i] for i in rank(policy, view)]
