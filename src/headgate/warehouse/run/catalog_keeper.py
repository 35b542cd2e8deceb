"""Keeps the entries of a warehouse's tables in a catalog, while the warehouse runs.

It has a thread of its own, and no update ever waits for it: a catalog that fails or does not answer is asked again
after longer and longer waits, users are told, and all tables go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from headgate.core import Update, first_line
from headgate.places.place import AnyPath
from headgate.warehouse.publish.catalog import register
from headgate.warehouse.session import another_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.warehouse.declare.spec import WarehouseSpec

#: a catalog that has not answered for so many seconds is reported; twice that at the end of a run is not waited for
ANSWER_SECONDS = 30.0
#: how long to wait after the first failure of a table, and at most
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
#: how often to look whether Spark was started again: a catalog inside of it is empty then
LOOK_EVERY = 2.0


class CatalogKeeper:
    """Makes the entries of all tables that are there, as a context; the end waits for those not tried yet.

    ``session`` gives the Spark of the run, which may change. ``remark`` is called with a table and what is wrong with
    its entry, and with an empty text when it is right again.
    """

    def __init__(self, session: Callable[[], SparkSession], remark: Callable[[str, str], None]) -> None:
        self._session = session
        self._remark = remark
        self._changed = threading.Condition()
        self._catalog = ""
        #: the folders of all tables that are declared
        self._folders: Mapping[str, AnyPath] = {}
        #: the tables that are there
        self._there: set[str] = set()
        #: {table that has no right entry yet: how often that failed, and when it is tried again}
        self._wanted: dict[str, tuple[int, float]] = {}
        self._ended = False
        #: since when the catalog has been asked; None if it is not asked now
        self._asking: float | None = None
        #: the Spark that was used last, and a session of our own on it
        self._spark: SparkSession | None = None
        self._own: SparkSession | None = None
        self._thread = threading.Thread(target=self._keep, name="headgate-catalog", daemon=True)

    def declare(self, spec: WarehouseSpec, there: Iterable[str]) -> None:
        """Keep the tables of ``spec`` from now on, of which ``there`` have been made already."""
        with self._changed:
            self._catalog = spec.catalog
            self._folders = {name: spec.folder() / "tables" / name for name in spec.names()}
            self._there = set(there)
            self._want_all()
        if spec.catalog and not self._thread.is_alive() and not self._ended:
            self._thread.start()

    def _want_all(self) -> None:
        self._wanted = dict.fromkeys(self._there if self._catalog else (), (0, 0.0))
        self._changed.notify_all()

    def note(self, update: Update) -> None:
        """An update has ended; the first one that is committed makes the table."""
        if not update.committed or update.table in self._there or update.table not in self._folders:
            return
        with self._changed:
            self._there.add(update.table)
            if self._catalog:
                self._wanted[update.table] = (0, 0.0)
                self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        while self._thread.is_alive() and not self._is_stuck():
            self._thread.join(0.1)

    def _is_stuck(self) -> bool:
        asking = self._asking
        return asking is not None and time.monotonic() - asking > 2 * ANSWER_SECONDS

    # --- on its own thread --------------------------------------------------------------------------------------

    def _keep(self) -> None:
        while True:
            table = self._next()
            if table is not None:
                self._try(table)
            elif self._ended:
                return
            elif self._spark is not None and self._spark is not self._session():
                with self._changed:
                    self._want_all()
                self._spark = None

    def _next(self) -> str | None:
        """The table to be tried now; None if there is none after a while."""
        with self._changed:
            due = self._due()
            if due is None and not self._ended:
                self._changed.wait(LOOK_EVERY)
                due = self._due()
            return due

    def _due(self) -> str | None:
        now = time.monotonic()
        if self._ended:  # what has failed before is not tried again
            return next((table for table, (failures, _) in self._wanted.items() if not failures), None)
        return next((table for table, (_, at) in self._wanted.items() if at <= now), None)

    def _try(self, table: str) -> None:
        with self._changed:
            catalog, folder = self._catalog, self._folders.get(table)
            failures, _ = self._wanted.get(table, (0, 0.0))
        problem = ""
        self._asking = time.monotonic()
        silence = threading.Timer(ANSWER_SECONDS, self._tell, (table, f"the catalog {catalog!r} does not answer"))
        silence.daemon = True
        silence.start()
        try:
            if folder is not None:
                register(self._own_session(), catalog, table, folder)
        except Exception as error:  # the catalog's, or Spark was lost
            problem = first_line(error)
        finally:
            silence.cancel()
            self._asking = None
        with self._changed:
            if table in self._wanted and catalog == self._catalog:
                if problem:
                    wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failures, 10))
                    self._wanted[table] = (failures + 1, time.monotonic() + wait)
                else:
                    del self._wanted[table]
        self._tell(table, problem)

    def _own_session(self) -> SparkSession:
        spark = self._session()
        if self._own is None or spark is not self._spark:
            self._own = another_session(spark)
            self._spark = spark
            # What is done for a catalog must not keep updates waiting.
            self._own.sparkContext.setLocalProperty("spark.scheduler.pool", "maintenance")
        return self._own

    def _tell(self, table: str, problem: str) -> None:
        with suppress(Exception):  # the run has ended
            self._remark(table, problem)
