"""When to change the settings of a run, and why: the rule of the autopilot (policy ``auto``).

Somebody replays one stretch of a run after the other, each a *window*, under the settings in force and under others,
all from the same beginning to the same end. This is told here window by window, and answered with a ``Verdict``.

* Nothing is changed while hardly anybody has to wait: then no settings can gain much.
* Other settings are taken over if they were better by a share of the weighted staleness over several windows, and over
  enough arrivals and updates. Windows in which nobody waits do not count.
* How much they were better is in doubt: one window is not as the next, and replays are not as what was measured. Both
  are taken to be chance, of which the more windows there are, the less is left. Two standard errors are taken off the
  gain. That is a rough measure: many settings are compared again and again.
* A window whose replay is far off from what was measured does not count.
* A window with many times as much staleness as most, such as that of a start, weighs no more than some of them.
* After a change, what is measured is compared with what the settings before would have given: their replay, corrected
  by how far replays were off before the change. If it is worse in several windows in a row, the settings before are
  taken back, and the others are left alone for a while, and for longer each time.

Everything here is pure: no clock, no state but ``AutopilotMemory``, which is passed in and returned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from headgate.core.errors import ParameterError
from headgate.core.lengths import plural, readable
from headgate.core.policies.auto import Autopilot
from headgate.core.policy import Policy
from headgate.core.registry import policy_from
from headgate.core.trace import TraceHeader

#: what is tried instead of the settings in force, written as policies write themselves; portions are the policy's
POLICIES_TRIED = ("max-benefit", "priced-benefit", "priced-benefit:portions=False")
PLACEMENTS_TRIED = ("proportional", "by-length", "anywhere")


def autopilot_in(text: str, imports: bool = True) -> Autopilot | None:
    """The autopilot that a policy is, as written; None if it is another policy. ``imports`` as for ``policy_from``."""
    if text.partition(":")[0].strip() != Autopilot.name:
        return None
    policy = policy_from(text, imports=imports)
    return policy if isinstance(policy, Autopilot) else None


def refuse_replay(policy: Policy) -> None:
    """Raise an error if the policy is ``auto``: a replay would keep its first settings."""
    if isinstance(policy, Autopilot):
        raise ParameterError(
            "policy 'auto' cannot be replayed: a replay does not change its settings as the autopilot would. Name a "
            f"policy for all of it, such as {policy.now}"
        )


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What the autopilot may change. Policy and placement are as one would write them."""

    policy: str
    placement: str
    tracks: int

    @classmethod
    def under(cls, autopilot: Autopilot, header: TraceHeader) -> RunSettings:
        """Those that a run has while ``autopilot`` is its policy."""
        return cls(str(autopilot.now), header.placement, header.tracks)

    def __str__(self) -> str:
        return f"{self.policy} with {self.placement}"

    def told_beside(self, other: RunSettings) -> str:
        """As text, with the number of tracks if that is what differs."""
        tracks = f" on {self.tracks} {plural('track', self.tracks)}" if self.tracks != other.tracks else ""
        return f"{self}{tracks}"


def settings_to_try(
    autopilot: Autopilot, now: RunSettings, home: RunSettings, before: RunSettings | None = None
) -> tuple[RunSettings, ...]:
    """Those that differ from ``now`` in one thing, so that there are few of them; ``home``, those with which the run
    began or which a user's last change of policy, placement or tracks has left; and those ``before`` the last change of
    the autopilot, with which it is compared.

    Nothing is tried that the autopilot, as it is stated now, may not change.
    """
    if not autopilot.placements:
        home = replace(home, placement=now.placement)
    if home.tracks > autopilot.tracks:
        home = replace(home, tracks=now.tracks)
    policies = [replace(now, policy=policy) for policy in (*POLICIES_TRIED, home.policy)]
    placements = [replace(now, placement=placement) for placement in (*PLACEMENTS_TRIED, home.placement)]
    most = max(home.tracks, autopilot.tracks)
    counts = (min(2 * now.tracks, most), max(now.tracks // 2, home.tracks))
    tracks = [replace(now, tracks=count) for count in counts if home.tracks <= count <= most]
    tried = dict.fromkeys((*policies, *(placements if autopilot.placements else ()), *tracks, home, before or home))
    return tuple(each for each in tried if each != now)


@dataclass(frozen=True, slots=True)
class ReplayedWindow:
    """One stretch of a run: ``seconds`` long, with so many arrivals and updates, all of it under the settings ``now``.

    Weighted staleness as it was ``measured``; as ``replayed`` under some settings, ``now`` among them; and as it would
    have been ``without_waiting``.
    """

    seconds: float
    events: int
    now: RunSettings
    measured: float
    without_waiting: float
    replayed: Mapping[RunSettings, float]

    @property
    def to_gain(self) -> float:
        """The share of the weighted staleness that comes from waiting: hardly anybody could gain more."""
        here = self.replayed[self.now]
        return max(0.0, 1.0 - self.without_waiting / here) if here > 0 else 0.0

    def gain(self, other: RunSettings) -> float:
        """The share of the weighted staleness that other settings would have saved."""
        return 1.0 - self.replayed[other] / self.replayed[self.now]


Answer = Literal["idle", "stay", "switch", "switch back"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done, and why, in a sentence."""

    answer: Answer
    settings: RunSettings
    why: str

    @property
    def changes(self) -> bool:
        return self.answer in ("switch", "switch back")


@dataclass(frozen=True, slots=True)
class Probation:
    """The settings before the last change, what was measured then as a multiple of what was replayed, for how many
    windows the change is still watched, and in how many in a row it was worse."""

    before: RunSettings
    off: float
    left: int
    worse: int = 0


#: with few windows, the standard error is itself in doubt. It is made larger by this over the degrees of freedom, so
#: that two of them are about what Student's t asks for at 95 %
FEW = 1.6
#: a window weighs at most so many times as much as the median one
MOST_WEIGHT = 4.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What ``other`` settings would have saved over some ``windows``, as a share of the weighted staleness; and by how
    much that may be wrong, as a standard error that is larger if there are few windows.

    It comes from how much they saved in each window, and from how far the replay was off from what was measured.
    """

    other: RunSettings
    windows: tuple[ReplayedWindow, ...]
    saved: float
    doubt: float

    @classmethod
    def of(cls, other: RunSettings, seen: Sequence[ReplayedWindow]) -> Evidence:
        """From those in which they were replayed, of which there must be one."""
        windows = tuple(each for each in seen if other in each.replayed)
        areas = [each.replayed[each.now] * each.seconds for each in windows]
        most = MOST_WEIGHT * sorted(areas)[(len(areas) - 1) // 2]
        here = [min(area, most) for area in areas]
        whole = sum(here)
        gains = [each.gain(other) for each in windows]
        saved = sum(gain * area for gain, area in zip(gains, here, strict=True)) / whole
        free = max(1, len(windows) - 1)
        apart = (math.sqrt(len(windows) / free) * (gain - saved) * area for gain, area in zip(gains, here, strict=True))
        wrong = ((each.measured / each.replayed[each.now] - 1) * area for each, area in zip(windows, here, strict=True))
        return cls(other, windows, saved, (1 + FEW / free) * math.hypot(*apart, *wrong) / whole)

    @property
    def events(self) -> int:
        return sum(each.events for each in self.windows)

    def __str__(self) -> str:
        return f"{self.saved:.1%} of the weighted staleness in {_stretch(self.windows)}"


@dataclass(frozen=True, slots=True)
class AutopilotMemory:
    """What the rule remembers from window to window.

    ``seen`` are the last windows under the settings ``now`` that count. ``barred`` are settings that have
    disappointed: for how many windows more they are left alone, and for how many the last time.
    """

    now: RunSettings | None = None
    seen: tuple[ReplayedWindow, ...] = ()
    probation: Probation | None = None
    barred: Mapping[RunSettings, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AutopilotRule:
    """The rule and its numbers.

    Other settings must be better by the share ``gain``, with ``sure`` standard errors taken off, over at least so many
    ``windows``, which have ``events`` arrivals and updates altogether; the last ``remembered`` windows count. A window
    whose replay is off from what was measured by more than ``trusted`` times does not. A change is watched for
    ``watched`` windows in which somebody waits, and taken back if ``windows`` in a row are worse; settings that have
    disappointed are left alone for ``barred`` windows, then for twice as many.
    """

    gain: float = 0.03
    windows: int = 3
    events: int = 1_000
    sure: float = 2.0
    remembered: int = 24
    trusted: float = 2.0
    watched: int = 12
    barred: int = 24

    def judge(self, memory: AutopilotMemory, window: ReplayedWindow) -> tuple[AutopilotMemory, Verdict]:
        """What to do after one more window."""
        barred = {each: (left - 1, last) for each, (left, last) in memory.barred.items()}
        if memory.now != window.now:  # the first one, or somebody else has changed something
            memory = AutopilotMemory(window.now)
        memory = replace(memory, barred=barred)
        if window.to_gain < self.gain:
            why = f"stays with {window.now}: hardly anybody waits, at most {window.to_gain:.1%} could be gained"
            return memory, Verdict("idle", window.now, why)
        memory = replace(memory, probation=self._watched(memory.probation, window))
        if memory.probation is not None and memory.probation.worse >= self.windows:
            return self._back(memory, memory.probation, window)
        off = window.measured / window.replayed[window.now]
        if not 1 / self.trusted <= off <= self.trusted:
            told = f"what was measured is {off:.2g} times what the replay says, so the last window does not count"
            return memory, Verdict("stay", window.now, f"stays with {window.now}: {told}")
        memory = replace(memory, seen=(*memory.seen, window)[-self.remembered :])
        return self._forward(memory, window)

    # --- to other settings --------------------------------------------------------------------------------------

    def _forward(self, memory: AutopilotMemory, window: ReplayedWindow) -> tuple[AutopilotMemory, Verdict]:
        now = window.now
        allowed = [other for other in window.replayed if other != now and memory.barred.get(other, (0, 0))[0] <= 0]
        found = [Evidence.of(other, memory.seen) for other in allowed]
        saved = max((each.saved for each in found), default=0.0)
        if saved < self.gain:
            why = f"stays with {now}: other settings that may be taken would have saved at most {max(0.0, saved):.1%}"
            return memory, Verdict("stay", now, why)
        best = max(found, key=lambda each: (self._lacking(each) is None, each.saved))
        doubt = min(self.sure * best.doubt, 1.0)
        saved_so = f"{best}, give or take {doubt:.1%}"
        told = f"{best.other.told_beside(now)} would have saved {saved_so}"
        lacking = self._lacking(best)
        if lacking is not None:
            return memory, Verdict("stay", now, f"stays with {now}: {told}; {lacking}")
        why = (
            f"{now.told_beside(best.other)} is replaced by {best.other.told_beside(now)}, which would have saved"
            f" {saved_so}"
        )
        after = AutopilotMemory(best.other, (), Probation(now, _off(best.windows), self.watched), memory.barred)
        return after, Verdict("switch", best.other, why)

    def _lacking(self, evidence: Evidence) -> str | None:
        """What more is asked for; None if nothing is."""
        if len(evidence.windows) < self.windows:
            return f"{self.windows} windows are asked for"
        if evidence.events < self.events:
            return f"{self.events:,} arrivals and updates are asked for"
        if evidence.saved - self.sure * evidence.doubt < self.gain:
            return f"with that taken off, {self.gain:.1%} must be left"
        return None

    # --- and back -----------------------------------------------------------------------------------------------

    def _watched(self, probation: Probation | None, window: ReplayedWindow) -> Probation | None:
        """The last change after one more window in which somebody waits; None if it need not be watched any more, or
        cannot be, because the settings before it are not replayed: a user has stated others since."""
        if probation is None or probation.before not in window.replayed:
            return None
        expected = probation.off * window.replayed[probation.before]
        worse = probation.worse + 1 if window.measured > (1 + self.gain) * expected else 0
        if probation.left <= 1 and worse == 0:
            return None
        return replace(probation, left=probation.left - 1, worse=worse)

    def _back(
        self, memory: AutopilotMemory, probation: Probation, window: ReplayedWindow
    ) -> tuple[AutopilotMemory, Verdict]:
        before, now = probation.before, window.now
        _, last = memory.barred.get(now, (0, 0))
        rest = 2 * last or self.barred
        expected = probation.off * window.replayed[before]
        more = window.measured / expected - 1
        why = (
            f"back from {now.told_beside(before)} to {before.told_beside(now)}: in {self.windows} windows in a row the "
            f"weighted staleness was higher than it would have been without the change, in the last one by {more:.1%}"
        )
        after = AutopilotMemory(before, (), None, {**memory.barred, now: (rest, rest)})
        return after, Verdict("switch back", before, why)


def _off(seen: tuple[ReplayedWindow, ...]) -> float:
    """What was measured over all of these windows, as a multiple of what was replayed."""
    replayed = sum(each.replayed[each.now] * each.seconds for each in seen)
    return sum(each.measured * each.seconds for each in seen) / replayed


def _stretch(seen: tuple[ReplayedWindow, ...]) -> str:
    length, events = sum(each.seconds for each in seen), sum(each.events for each in seen)
    windows = f"{len(seen)} {plural('window', len(seen))} in which somebody waited"
    return f"{windows} ({readable(length)}, {events:,} arrivals and updates)"


# --- between processes ----------------------------------------------------------------------------------------------


def window_to_json(window: ReplayedWindow) -> dict[str, object]:
    """A window as plain values, for ``window_from``."""
    return {
        "seconds": window.seconds,
        "events": window.events,
        "now": [window.now.policy, window.now.placement, window.now.tracks],
        "measured": window.measured,
        "without_waiting": window.without_waiting,
        "replayed": [[each.policy, each.placement, each.tracks, value] for each, value in window.replayed.items()],
    }


def window_from(told: Mapping[str, Any]) -> ReplayedWindow:
    return ReplayedWindow(
        seconds=told["seconds"],
        events=told["events"],
        now=RunSettings(*told["now"]),
        measured=told["measured"],
        without_waiting=told["without_waiting"],
        replayed={
            RunSettings(policy, placement, tracks): value for policy, placement, tracks, value in told["replayed"]
        },
    )
