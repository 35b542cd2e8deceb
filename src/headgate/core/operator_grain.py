"""What engines at the operator grain have in common: which features they must have for the policies they run."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from headgate.core.dispatch import LOOP_FEATURES
from headgate.core.errors import MissingFeatureError
from headgate.core.features import Feature, features_named
from headgate.core.placement import Placement
from headgate.core.placements import ByNode, LeastLoaded
from headgate.core.policy import Policy


def operator_features(
    policies: Iterable[Policy], placements: Iterable[Placement], provided: Collection[str]
) -> tuple[Feature, ...]:
    """The features that these policies and placements and the loops read, and no other: reading costs."""
    wanted = list(LOOP_FEATURES)
    for policy in policies:
        wanted += _checked(policy.requires(), f"policy {policy.name!r}", provided)
    for placement in placements:
        wanted += _checked(placement.needs, f"placement {placement.name!r}", provided)
        # these two weigh nodes by whatever features there are, and this is what they weigh operators by
        if isinstance(placement, LeastLoaded | ByNode):
            wanted += ["cost", "pending"]
    return features_named(wanted)


def _checked(names: Iterable[str], reader: str, provided: Collection[str]) -> list[str]:
    wanted = list(names)
    for name in wanted:
        if name not in provided:
            raise MissingFeatureError(reader, name, provided)
    return wanted
