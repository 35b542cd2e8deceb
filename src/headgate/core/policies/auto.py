"""The policy ``auto``: another policy, which a running warehouse replaces when replays say that one would do better."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.errors import HeadgateError, ParameterError
from headgate.core.placement import MOST_TRACKS
from headgate.core.policies.tables import MaxBenefit
from headgate.core.policy import Policy, WrappingPolicy

_MAX_BENEFIT = MaxBenefit()


@dataclass(frozen=True)
class Autopilot(WrappingPolicy):
    """Another policy, ``now``, until replays of the last minutes have shown that one is better.
    A running warehouse and the simulator of tables look; elsewhere it stays as it is.

    Rule: that of ``now``. Every ``window`` seconds, the last ones are replayed under other settings, and those are
    taken over that had at least the share ``gain`` less weighted staleness over several windows, with what is in doubt
    taken off: see ``headgate.core.autopilot``.
    ``placements``: the placement may be changed, too. ``tracks``: how many tracks it may use; 0 for those there are.
    Features: those of ``now``.
    Fails: what the replay does not model it does not see; and as ``now`` does: with max-benefit, a table with a low
    ratio can wait for ever.
    Paper: none.
    """

    name = "auto"
    summary = "max-benefit, until replays of the last minutes show that another policy or placement is better"
    paper = "our own"
    needs = MaxBenefit.needs
    starves = True

    now: Policy = _MAX_BENEFIT
    window: float = 300.0
    gain: float = 0.03
    placements: bool = True
    tracks: int = 0

    def __post_init__(self) -> None:
        _check(self)

    @property
    def wrapped(self) -> Policy:
        return self.now

    @property
    def cuts(self) -> bool:
        """True, because a policy that cuts may be chosen later."""
        return True


def refuse_inside(parameter: str, policy: object) -> None:
    """Raise an error if what is given to ``parameter`` of another policy is ``auto``: whoever acts as the autopilot
    would not find it there, and it would stay with its first policy without a word."""
    if isinstance(policy, Autopilot):
        raise ParameterError(
            f"{parameter} must be another policy than auto, which changes the policy of all nodes and cannot be inside "
            f"another one; got {policy}. Name the policy that is meant, such as {policy.now}"
        )


def _check(policy: Autopilot) -> None:
    if not isinstance(policy.now, Policy):
        raise ParameterError(f"policy 'auto': now must be another policy; got {policy.now}")
    refuse_inside("policy 'auto': now", policy.now)
    if not _is_known_by_name(policy.now):
        raise ParameterError(
            f"policy 'auto': now must be a policy that comes with Headgate, as replays know it by its name only; "
            f"got {policy.now}. Name a policy of your own by itself, without auto"
        )
    if not policy.window > 0:
        raise ParameterError(f"policy 'auto': window is a number of seconds above 0; got {policy.window}")
    if not 0 < policy.gain < 1:
        raise ParameterError(f"policy 'auto': gain is a share between 0 and 1, such as 0.03; got {policy.gain}")
    if not 0 <= policy.tracks <= MOST_TRACKS:
        raise ParameterError(f"policy 'auto': tracks is a number from 0 to {MOST_TRACKS}; got {policy.tracks}")


def _is_known_by_name(policy: Policy) -> bool:
    """Whether the text of a policy gives it back to a process that imports nobody's modules."""
    from headgate.core.registry import policy_from  # which knows this class

    try:
        return policy_from(str(policy), imports=False) == policy
    except HeadgateError:
        return False
