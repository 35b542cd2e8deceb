"""Watches the executors of a cluster while a warehouse runs: they come and go.

The number of tracks follows the number of cores. Executors that come later are looked at as the first ones were
(``executors``). They cannot be refused, so users are told of one that does not share the folders; that its rows are
missing is noticed before a commit.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from headgate.core import HeadgateError
from headgate.warehouse.run.executors import check_executors, core_count, executor_ids
from headgate.warehouse.run.runtime import Runtime
from headgate.warehouse.shipping import is_local

#: seconds between two looks
LOOK_EVERY = 2.0
#: seconds until executors are looked at again if not all of them could be, or one was found blind
TRY_AGAIN_AFTER = 60.0


class ExecutorWatch:
    """Looks at the executors every few seconds, on a thread of its own: asking Spark may take long."""

    def __init__(self, runtime: Runtime, known: frozenset[str]) -> None:
        """``known`` are the executors that were looked at already."""
        self._runtime = runtime
        self._is_needed = not is_local(runtime.spark.sparkContext.master)
        self._known = known
        self._not_before = -math.inf
        self._told = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headgate-executor-watch", daemon=True)

    def __enter__(self) -> Self:
        if self._is_needed:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(LOOK_EVERY)  # it may wait for a job that Spark cannot finish

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_EVERY):
            with suppress(Exception):  # a Spark that is lost, which the updates notice
                self.look()

    def look(self) -> None:
        """Follow what has changed since the last look."""
        context = self._runtime.spark.sparkContext
        now = executor_ids(context)
        self._runtime.follow_cores(core_count(context))
        self._known &= now
        if now <= self._known or time.monotonic() < self._not_before:
            return
        try:
            opened = self._runtime.warehouse
            self._known = check_executors(context, opened.spec, self._runtime.tell, with_states=opened.hosts_queries)
        except HeadgateError as error:
            if str(error) != self._told:
                self._runtime.tell(str(error))
            self._told = str(error)
        if not now <= self._known:
            self._not_before = time.monotonic() + TRY_AGAIN_AFTER
