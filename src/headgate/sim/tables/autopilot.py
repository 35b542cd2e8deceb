"""Tables on tracks under the policy ``auto``: at the end of every window the simulation replays the last one, as a
process beside a real run does, and changes its settings by the same rule."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headgate.core import Placement, placement_from, policy_from
from headgate.core.autopilot import AutopilotMemory, AutopilotRule, Verdict
from headgate.core.policies import Autopilot
from headgate.core.trace import Change
from headgate.core.trace.recent import RecentTrace
from headgate.sim.autopilot import WindowReplays
from headgate.sim.tables.recording import RecordingSimulation
from headgate.sim.tables.scenario import TableScenario
from headgate.sim.tables.simulation import Progress, TableResult


@dataclass(frozen=True, slots=True)
class AutopilotRun:
    """A run, and what was decided at the end of each window, with the moment."""

    result: TableResult
    verdicts: tuple[tuple[float, Verdict], ...]

    @property
    def switches(self) -> tuple[tuple[float, Verdict], ...]:
        return tuple((at, verdict) for at, verdict in self.verdicts if verdict.changes)


class AutopilotSimulation(RecordingSimulation):
    """One run under an autopilot. Make it, ``run`` it once; ``verdicts`` are what was decided when."""

    def __init__(
        self,
        scenario: TableScenario,
        autopilot: Autopilot,
        placement: Placement,
        seed: int = 0,
        rule: AutopilotRule | None = None,
    ) -> None:
        super().__init__(scenario, autopilot, placement, seed)
        self._autopilot = autopilot
        self._rule = rule or AutopilotRule(gain=autopilot.gain)
        self._memory = AutopilotMemory()
        self._replays = WindowReplays(RecentTrace(self.header()), simulated=scenario)
        self.note = self._replays.note
        self.verdicts: list[tuple[float, Verdict]] = []

    def run(self, progress: Progress | None = None) -> TableResult:
        self._at_beside(self._replays.due(), self._look)
        return super().run(progress)

    def _look(self, now: float) -> None:
        window = self._replays.look(now)
        if window is not None:
            self._memory, verdict = self._rule.judge(self._memory, window)
            self.verdicts.append((now, verdict))
            if verdict.changes:
                self._follow(verdict, now)
        # Before something happens, there is nothing new to see.
        self._at_beside(max(self._replays.due(), self._events.next_time()), self._look)

    def _follow(self, verdict: Verdict, now: float) -> None:
        chosen = verdict.settings
        self._autopilot = replace(self._autopilot, now=policy_from(chosen.policy))
        tracks = None if chosen.tracks == len(self.loop.workers) else chosen.tracks
        self.change_settings(self._autopilot, placement_from(chosen.placement), tracks)
        settings = {"policy": str(self._autopilot), "placement": chosen.placement, "tracks": chosen.tracks}
        self._replays.note(Change(now, {**settings, "why": verdict.why}))


def simulate_autopilot(
    scenario: TableScenario,
    autopilot: Autopilot,
    placement: Placement,
    seed: int = 0,
    progress: Progress | None = None,
    rule: AutopilotRule | None = None,
) -> AutopilotRun:
    """Run ``scenario`` once under an autopilot; the same seed gives the same run."""
    simulation = AutopilotSimulation(scenario, autopilot, placement, seed, rule)
    result = simulation.run(progress)
    return AutopilotRun(result, tuple(simulation.verdicts))
