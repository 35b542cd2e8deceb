"""Watches the executors of a cluster while a warehouse runs: they come and go.

The number of tracks follows the number of cores. Executors that come later are looked at as the first ones were
(``executors``). They cannot be refused, so users are told of one that does not share the folders; that its rows are
missing is noticed before a commit.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from headgate.core import HeadgateError
from headgate.warehouse.run.executors import check_executors, core_count, executor_ids
from headgate.warehouse.run.runtime import Runtime
from headgate.warehouse.shipping import is_local

#: seconds between two looks
LOOK_EVERY = 2.0


class ExecutorWatch:
    """Looks at the executors every few seconds, on a thread of its own: asking Spark may take long."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        context = runtime.spark.sparkContext
        self._is_needed = not is_local(context.master)
        self._known = executor_ids(context) if self._is_needed else frozenset[str]()
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
        new, self._known = now - self._known, now
        if not new:
            return
        try:
            check_executors(context, self._runtime.warehouse.spec, self._runtime.tell)
        except HeadgateError as error:
            self._runtime.tell(str(error))
