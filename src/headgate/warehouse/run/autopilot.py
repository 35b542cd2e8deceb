"""A run under the policy ``auto``: hears of everything, has the last minutes replayed beside it, and follows the rule.

The replays are made by a process of its own (``headgate.autopilot``), which tells one window after the other. The rule
(``headgate.core.autopilot``) says what to do with them, and ``Runtime.switch`` does it. While the policy of the run is
another one, nothing is done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headgate.core import HeadgateError, Update, placement_from, policy_from
from headgate.core.autopilot import AutopilotMemory, AutopilotRule, RunSettings, Verdict, autopilot_in, window_from
from headgate.core.policies import Autopilot
from headgate.core.trace import Change, Redeclared, RunNotice, TraceHeader, TraceTable
from headgate.core.trace.lines import change_line, redeclared_line, update_line
from headgate.core.trace.recent import TELLING, changed_header
from headgate.warehouse.run.autopilot_process import AutopilotProcess

if TYPE_CHECKING:
    from headgate.warehouse.run.runtime import Runtime

#: starts the process: with how the run stands, whom to tell what it says, and whom to tell that it has failed
StartProcess = Callable[[TraceHeader, Callable[[Mapping[str, Any]], None], Callable[[str], None]], AutopilotProcess]


class AutopilotWatch:
    """The autopilot of one run: told of everything as a ``RunWatcher``, on the scheduler thread.

    ``now`` is the clock of the run.
    """

    def __init__(self, now: Callable[[], float], start_process: StartProcess = AutopilotProcess) -> None:
        self._now = now
        self._start_process = start_process
        self._header: TraceHeader | None = None
        #: {table: the priority that it was declared with}; that in the header may have been set by a user
        self._declared: dict[str, float] = {}
        #: {table: how far it has come}
        self._freshness: dict[str, int] = {}
        self._run: Runtime | None = None
        self._process: AutopilotProcess | None = None
        self._memory = AutopilotMemory()
        #: what was heard is judged by one thread at a time
        self._judging = threading.Lock()
        #: the process is begun, ended or found to have failed by one thread at a time
        self._beginning = threading.Lock()

    # --- what happens in the run ----------------------------------------------------------------------------

    def begin(self, header: TraceHeader) -> None:
        self._header = header
        self._declared = {table.name: table.priority for table in header.tables}

    def start(self, run: Runtime) -> None:
        self._run = run
        self._look_at_policy()

    def stop(self) -> None:
        process, self._process, self._run = self._process, None, None
        if process is not None:
            process.end()
            process.wait()

    def updated(self, update: Update) -> None:
        if update.freshness is not None:
            self._freshness[update.table] = update.freshness
        self._tell(update_line(replace(update, operators=())))

    def changed(self, at: float, what: Mapping[str, object]) -> None:
        assert self._header is not None
        self._header = changed_header(self._header, what)
        self._tell(change_line(Change(at, what)))
        if "why" not in what and what.keys() & TELLING:  # the autopilot says why, and nobody else
            self._begin_anew()
        if "policy" in what:
            self._look_at_policy()

    def noticed(self, notice: RunNotice) -> None:
        """Nothing that matters here."""

    def redeclared(self, tables: Iterable[TraceTable]) -> None:
        assert self._header is not None
        opened, before = tuple(tables), self._declared
        self._declared = {table.name: table.priority for table in opened}
        # As in the scheduler: a priority that a user has set stays, unless the declared one changes.
        stay = {each.name: each.priority for each in self._header.tables if each.name in before}
        kept = (
            replace(each, priority=stay[each.name])
            if each.name in stay and before[each.name] == each.priority
            else each
            for each in opened
        )
        self._header = replace(self._header, tables=tuple(kept))
        self._tell(redeclared_line(Redeclared(self._now(), self._header.tables)))
        self._begin_anew()

    def _tell(self, line: str) -> None:
        if (process := self._process) is not None:  # another thread may learn meanwhile that it has failed
            process.tell(line)

    def _begin_anew(self) -> None:
        """What was seen so far, and is said of it, was another run. What has disappointed stays barred."""
        with self._judging:
            self._memory = AutopilotMemory(barred=self._memory.barred)
        with self._beginning:
            if self._process is not None:  # that it has failed is still so
                self._say("")

    def _look_at_policy(self) -> None:
        """Begin, or end, as the policy of the run says."""
        with self._beginning:
            if self._autopilot() is None:
                process, self._process = self._process, None
                if process is not None:
                    process.end()
                self._say("")
            elif self._process is None and self._run is not None:
                with self._judging:
                    self._memory = AutopilotMemory()
                self._say("")  # or what an earlier one has said stays until the first window is over
                self._process = self._start_process(self._as_it_stands(), self.heard, self.failed)

    def _as_it_stands(self) -> TraceHeader:
        assert self._header is not None
        tables = tuple(
            replace(table, freshness=self._freshness.get(table.name, table.freshness), declared=None)
            for table in self._header.tables
        )
        return replace(self._header, started=self._now(), tables=tables)

    def _autopilot(self) -> Autopilot | None:
        """The autopilot, if it is the policy of the run now."""
        return None if self._header is None else autopilot_in(self._header.policy)

    # --- what the process says ------------------------------------------------------------------------------

    def heard(self, said: Mapping[str, Any]) -> None:
        """Judge a window that was replayed, and follow the verdict."""
        autopilot, run, header = self._autopilot(), self._run, self._header
        if autopilot is None or run is None or header is None:
            return
        used = f"; its process takes {said['share']:.2%} of a core" if "share" in said else ""
        if "window" not in said:
            why = "too little happened in the last window"
            if "trouble" in said:
                why = f"the last window cannot be replayed: {said['trouble']}"
            self._say(f"stays with {autopilot.now}: {why}{used}")
            return
        window = window_from(said["window"])
        if window.now != RunSettings.under(autopilot, header):
            return  # somebody has changed something meanwhile
        with self._judging:
            self._memory, verdict = AutopilotRule(gain=autopilot.gain).judge(self._memory, window)
        followed = not verdict.changes or self._follow(run, autopilot, header, verdict)
        if followed and self._autopilot() is not None:
            self._say(f"{verdict.why}{used}")

    def _follow(self, run: Runtime, autopilot: Autopilot, header: TraceHeader, verdict: Verdict) -> bool:
        """Whether it was still to be done."""
        chosen = verdict.settings

        def still() -> bool:
            new = self._header
            return self._run is run and new is not None and _stated(new) == _stated(header)

        return run.switch(
            policy=replace(autopilot, now=policy_from(chosen.policy)),
            placement=placement_from(chosen.placement) if chosen.placement != header.placement else None,
            tracks=chosen.tracks if chosen.tracks != header.tracks else None,
            why=f"autopilot: {verdict.why}",
            still=still,
        )

    def failed(self, why: str) -> None:
        """The process has ended by itself: the run goes on as it is."""
        with self._beginning:  # it may fail before whoever starts it knows it
            run, self._process = self._run, None
        text = (
            f"the autopilot has failed: {why}; the run goes on with the settings it has. Set policy 'auto' to try again"
        )
        self._say(text)
        if run is not None and run.is_running:
            with suppress(HeadgateError):  # the run has failed
                run.tell(text)

    def _say(self, text: str) -> None:
        """What an explanation of a table says of the autopilot."""
        if self._run is not None:
            self._run.autopilot = text


def _stated(header: TraceHeader) -> tuple[str, str, int]:
    return header.policy, header.placement, header.tracks
