"""A deterministic interleaver: runs threads one step at a time, in an order that a test chooses.

A step is what a thread does from one line of the traced modules to the next (or one bytecode to the next). Exactly one
thread is on its way at any moment; before each line it stands, and the *schedule* says who goes on. The schedule is a
random generator with a seed, or a script:

    run({"A": ..., "B": ...}, Script(Until("A", "flag.clear()"), Ends("B"), Ends("A")), [reorder])

The same functions under the same schedule do the same, always. No thread sleeps and no result depends on a clock.

Locks of the modules under test would stop a thread in the middle of a step, for ever: put ``CooperativeLock`` in their
place before the objects are made (``monkeypatch.setattr(module, "Lock", CooperativeLock)``). A thread that finds such a
lock held is *blocked* and not chosen until the lock is free. Callbacks of a test can be stopped in with ``point``.

Atomic here is what is one step: with steps of a line also ``value += 1``. Schedules of bytecodes see through that.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType, TracebackType
from typing import Any, NamedTuple, Protocol

#: seconds; only decides when to give up on a test that hangs
WATCHDOG = 300.0
MOST_STEPS = 200_000


class InterleavingError(AssertionError):
    """The threads cannot go on as the schedule says: a deadlock, a script that does not fit, or an endless loop."""


class _Stopped(BaseException):
    """Ends a thread after the run has failed elsewhere."""


class Player:
    """A thread of the test, and where it stands."""

    def __init__(self, name: str, function: Callable[[], object], run: _Run) -> None:
        self.name = name
        self.ended = False
        self.error: BaseException | None = None
        self.waits_for: CooperativeLock | None = None
        self.go = threading.Semaphore(0)
        self._function = function
        self._run = run
        #: the text of ``point``, or file and line; the line is looked up only when somebody asks
        self._place: str | tuple[str, int] = "its beginning"

    @property
    def blocked(self) -> bool:
        return self.waits_for is not None and self.waits_for.locked()

    @property
    def stands_before(self) -> str:
        if isinstance(self._place, str):
            return self._place
        file, line = self._place
        return self._run.files[file][line - 1].strip()

    def __repr__(self) -> str:
        state = "ended" if self.ended else "blocked" if self.blocked else "ready"
        return f"{self.name} ({state}, before {self.stands_before!r})"

    def stop_at(self, place: str | tuple[str, int]) -> None:
        self._place = place
        self._run.hand_over(self)

    def wait_for(self, lock: CooperativeLock) -> None:
        self.waits_for = lock
        self._run.hand_over(self)
        self.waits_for = None

    def play(self) -> None:
        _here.player = self
        try:
            self.go.acquire()
            if self._run.failure is None:
                sys.settrace(self._trace)
                try:
                    self._function()
                finally:
                    sys.settrace(None)
        except _Stopped:
            pass
        except BaseException as error:  # whatever it is, it is the test's, and told by run()
            error.add_note(f"in thread {self.name}")
            self.error = error
        finally:
            self.ended = True
            self._run.hand_over(self)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if frame.f_code.co_filename not in self._run.files:
            return None
        frame.f_trace_opcodes = self._run.by_opcode
        return self._trace_step

    def _trace_step(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event in {"line", "opcode"}:
            self.stop_at((frame.f_code.co_filename, frame.f_lineno))
        return self._trace_step


class _Here(threading.local):
    player: Player | None = None


_here = _Here()


def point(text: str) -> None:
    """A place of a test's own at which the calling thread stands, and at which scripts can stop it."""
    if _here.player is not None:
        _here.player.stop_at(text)


class CooperativeLock:
    """What ``threading.Lock`` is, for threads of the interleaver: whoever finds it held gives the turn away."""

    def __init__(self) -> None:
        self._held = False

    def acquire(self, blocking: bool = True) -> bool:
        while self._held:
            if not blocking:
                return False
            if _here.player is None:
                raise InterleavingError("a lock that nobody will release was waited for outside of the interleaver")
            _here.player.wait_for(self)
        self._held = True
        return True

    def release(self) -> None:
        if not self._held:
            raise RuntimeError("release of a lock that is not held")
        self._held = False

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


class Schedule(Protocol):
    """Says who does the next step."""

    def choose(self, current: Player | None, ready: Sequence[Player], players: Mapping[str, Player]) -> Player:
        """One of the ready ones. ``current`` did the last step."""


class Randomly:
    """Goes on with the thread that is running with probability ``stay``, else with any one."""

    def __init__(self, seed: int, stay: float = 0.6) -> None:
        self._seed = seed
        self._stay = stay
        self._random = random.Random(seed)

    def choose(self, current: Player | None, ready: Sequence[Player], players: Mapping[str, Player]) -> Player:
        if current in ready and self._random.random() < self._stay:
            assert current is not None
            return current
        return self._random.choice(ready)

    def __repr__(self) -> str:
        return f"Randomly(seed={self._seed}, stay={self._stay})"


class Until(NamedTuple):
    """The thread goes on, at least one step, until it stands before a line (or a point) that contains the text."""

    thread: str
    text: str


class Blocks(NamedTuple):
    """The thread goes on until it waits for a lock."""

    thread: str


class Ends(NamedTuple):
    """The thread goes on to its end."""

    thread: str


class Script:
    """Act after act; whoever has not ended after the last goes on to its end, in the order of the threads given."""

    def __init__(self, *acts: Until | Blocks | Ends) -> None:
        self._acts = acts
        self._act = 0
        #: the thread of this act has done a step in it
        self._begun = False

    def choose(self, current: Player | None, ready: Sequence[Player], players: Mapping[str, Player]) -> Player:
        if current is None:  # a run begins
            self._act, self._begun = 0, False
        for act in self._acts[self._act :]:
            player = players[act.thread]
            if not self._is_over(act, player):
                self._begun = True
                return player
            self._act, self._begun = self._act + 1, False
        return ready[0]

    def _is_over(self, act: Until | Blocks | Ends, player: Player) -> bool:
        match act:
            case Until(_, text):
                over = self._begun and not player.ended and text in player.stands_before
            case Blocks():
                over = player.blocked
            case Ends():
                over = player.ended
        if not over and (player.ended or player.blocked):
            raise InterleavingError(f"the script says {act}, but the thread cannot go on: {player}")
        return over


class _Run:
    def __init__(
        self,
        functions: Mapping[str, Callable[[], object]],
        schedule: Schedule,
        modules: Sequence[ModuleType],
        by_opcode: bool,
    ) -> None:
        self.files = {str(module.__file__): _lines(str(module.__file__)) for module in modules}
        self.by_opcode = by_opcode
        self.failure: InterleavingError | None = None
        self._players = {name: Player(name, function, self) for name, function in functions.items()}
        self._schedule = schedule
        self._steps = 0

    def go(self) -> None:
        threads = [threading.Thread(target=player.play, daemon=True) for player in self._players.values()]
        for thread in threads:
            thread.start()
        self.hand_over(None)
        for thread in threads:
            thread.join(WATCHDOG)
        if any(thread.is_alive() for thread in threads):
            raise InterleavingError(f"a thread hangs inside one step: {list(self._players.values())}")
        errors = [player.error for player in self._players.values() if player.error is not None]
        if self.failure is not None:
            raise self.failure
        if errors:
            raise errors[0]

    def hand_over(self, current: Player | None) -> None:
        """Let the thread go on whose turn it is, and return when it is the turn of ``current`` again."""
        if self.failure is None:
            unended = [player for player in self._players.values() if not player.ended]
            if not unended:
                return
            try:
                chosen = self._choose(current, unended)
            except InterleavingError as failure:
                self.failure = failure
                for player in unended:
                    player.go.release()
            else:
                if chosen is current:
                    return
                chosen.go.release()
        if current is None or current.ended:
            return
        if self.failure is None:
            current.go.acquire()
        if self.failure is not None:
            raise _Stopped

    def _choose(self, current: Player | None, unended: Sequence[Player]) -> Player:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise InterleavingError(f"more than {MOST_STEPS} steps: {unended}")
        ready = [player for player in unended if not player.blocked]
        if not ready:
            raise InterleavingError(f"deadlock: {unended}")
        return self._schedule.choose(current, ready, self._players)


_texts: dict[str, list[str]] = {}


def _lines(file: str) -> list[str]:
    if file not in _texts:
        _texts[file] = Path(file).read_text(encoding="utf-8").splitlines()
    return _texts[file]


def run(
    functions: Mapping[str, Callable[[], object]],
    schedule: Schedule,
    modules: Sequence[ModuleType],
    *,
    by_opcode: bool = False,
) -> None:
    """Run the functions, each in a thread of its name, to their ends. Raises what the first of them that failed raised.

    ``modules`` are those whose lines are steps.
    """
    _Run(functions, schedule, modules, by_opcode).go()


@contextmanager
def told_by(what: str) -> Iterator[None]:
    """A failure inside says with it: which seed it was, so that one can run it again alone."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"to see it again: {what}")
        raise


@contextmanager
def restless(interval: float = 1e-6) -> Iterator[None]:
    """The interpreter takes real threads off as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def run_threads(functions: Sequence[Callable[[], object]]) -> None:
    """Run the functions in real threads, which interrupt each other anywhere. Raises what the first to fail raised."""
    errors: list[BaseException] = []

    def kept(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:  # raised again below, in the thread of the test
            errors.append(error)

    threads = [threading.Thread(target=kept, args=(function,), daemon=True) for function in functions]
    with restless():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WATCHDOG)
    assert not any(thread.is_alive() for thread in threads), "threads hang: they wait for each other, or for ever"
    if errors:
        raise errors[0]
