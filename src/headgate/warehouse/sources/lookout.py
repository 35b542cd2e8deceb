"""What a look at a server last found: asking never waits, because a thread of its own looks.

A scheduler polls its sources many times a second on one thread, and must not stand still because a server is slow or
away. So a source that looks at a server does it here. The thread begins with the first question and ends by itself when
nobody has asked for a while. If a look fails, the next one comes later and later, up to ``LONGEST_PAUSE``; until one
succeeds, the answer is what was found before and what is wrong now.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Seen = TypeVar("Seen")

#: seconds after which a thread ends that nobody asks any more
UNASKED = 10.0
#: the longest time between two looks at a server that does not answer
LONGEST_PAUSE = 15.0
#: a look that takes longer than this is a problem of its own
SLOW_LOOK = 10.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sight(Generic[Seen]):
    """What the last look that succeeded has found (None: none has yet), and what is wrong now (empty: nothing).

    ``at`` is when that look began, in wall-clock seconds since the epoch; 0 if none has succeeded.
    """

    seen: Seen | None
    problem: str = ""
    at: float = 0.0


class Lookout(Generic[Asked, Seen]):
    """Looks again and again, for the newest question.

    ``look`` is called by one thread at a time. ``explained`` makes of its error a text for users. With ``inline`` there
    is no thread: a look is made when it is asked for, which is right for what is as quick as a local file.

    ``_guard`` guards all fields below it and is held for memory operations only.
    """

    def __init__(
        self,
        look: Callable[[Asked], Seen],
        explained: Callable[[Exception], str],
        *,
        every: float = 0.1,
        name: str = "lookout",
        inline: bool = False,
    ) -> None:
        self._look = look
        self._explained = explained
        self._every = every
        self._name = name
        self._inline = inline
        self._guard = threading.Lock()
        self._sight: Sight[Seen] = Sight(None)
        self._asked: Asked | None = None
        self._asked_at = 0.0
        self._began: float | None = None
        self._thread: threading.Thread | None = None

    def ask(self, asked: Asked) -> Sight[Seen]:
        """What was found last. Looks go on for ``asked``, until something else is asked for."""
        if self._inline:
            return self._looked(asked)
        now = time.monotonic()
        with self._guard:
            self._asked, self._asked_at = asked, now
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name=self._name, daemon=True)
                self._thread.start()
            sight, began = self._sight, self._began
        if began is not None and now - began > SLOW_LOOK and not sight.problem:
            return Sight(sight.seen, f"no answer for {now - began:.0f} s", sight.at)
        return sight

    @property
    def last(self) -> Seen | None:
        """What was found last; None if no look has succeeded yet."""
        return self._sight.seen

    def _looked(self, asked: Asked) -> Sight[Seen]:
        began = time.time()
        try:
            sight = Sight(self._look(asked), at=began)
        except Exception as error:
            _log.debug("%s: a look failed", self._name, exc_info=True)
            sight = Sight(self._sight.seen, self._explained(error), self._sight.at)
        with self._guard:
            self._sight, self._began = sight, None
        return sight

    def _watch(self) -> None:
        pause = self._every
        while True:
            with self._guard:
                if time.monotonic() - self._asked_at > UNASKED:
                    self._thread = None
                    return
                asked, self._began = self._asked, time.monotonic()
            assert asked is not None
            failed = bool(self._looked(asked).problem)
            pause = min(max(2 * pause, 0.5), LONGEST_PAUSE) if failed else self._every
            time.sleep(pause)
