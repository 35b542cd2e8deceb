"""A run of a warehouse in this process: the lock, Spark, the runtime, the trace, the control socket.

The command line and ``Warehouse.start`` both use it. Everything that is opened is closed again, whatever happens.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from headgate.core import HeadgateError, said_by, together_from
from headgate.core.trace import RunBound, TraceHeader, TraceTable
from headgate.places.place import AnyPath, hadoop_settings
from headgate.warehouse.alerts.alert_watch import AlertWatch, alerts_file
from headgate.warehouse.declare.analysis import Analysis, analyse
from headgate.warehouse.declare.durations import Duration, seconds
from headgate.warehouse.declare.pipeline_file import files_of, load
from headgate.warehouse.declare.spec import base_folder
from headgate.warehouse.report.drawing import counts
from headgate.warehouse.report.figures import RunFigures, figures_of
from headgate.warehouse.report.notebook import run_html, show_live
from headgate.warehouse.run.autopilot import AutopilotWatch
from headgate.warehouse.run.catalog_keeper import CatalogKeeper
from headgate.warehouse.run.control import ControlServer
from headgate.warehouse.run.executor_watch import ExecutorWatch
from headgate.warehouse.run.executors import (
    all_keep_states,
    check_executors,
    cluster_cores,
    refuse_unshared,
    wait_for_executors,
)
from headgate.warehouse.run.lease import LEASE_SECONDS, WarehouseLease, has_lease
from headgate.warehouse.run.listeners import RunListeners, RunWatcher
from headgate.warehouse.run.lock import WarehouseInUseError, WarehouseLock
from headgate.warehouse.run.observers import Observer
from headgate.warehouse.run.runtime import MOST_FOLLOWED, Runtime
from headgate.warehouse.run.spark_life import forget_spark, is_alive, stop_session
from headgate.warehouse.run.trace import TraceWriter, local_runs, read_trace, runs_folder, traced_tables
from headgate.warehouse.run.trace_copy import COPY_SECONDS, TraceCopy
from headgate.warehouse.schedule.ledger import NodeStatistics
from headgate.warehouse.schedule.run_options import DEFAULT, RunOptions
from headgate.warehouse.session import another_session, open_session, own_session, refuse_connect, running_session
from headgate.warehouse.shipping import ship_late_imports, ship_modules
from headgate.warehouse.updates.node import known
from headgate.warehouse.updates.object_copies import check_access
from headgate.warehouse.updates.open_warehouse import OnChange, OpenWarehouse, changed_tables, open_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.warehouse.declare.spec import WarehouseSpec

#: seconds between two checks of a pipeline file for changes
WATCH_SECONDS = 1.0
#: how long a run that ends waits for the pipeline file, whose code may never return
WATCH_END_SECONDS = 1.0
#: of a file: when it and its entry were changed, in nanoseconds, its size, and its number
Stamp = tuple[tuple[int, ...], ...]


class SparkAwayError(HeadgateError):
    """Something could not be done because Spark was lost; it is done when Spark is there again."""


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Where Spark runs, and its settings.

    If a ``session`` is passed, its Spark is used instead and left open at the end. Updates have sessions of their own
    on it, with Headgate's settings and those of ``conf`` that can be changed while Spark runs: the settings of the
    session neither change what is computed nor are they changed. The same holds if a Spark runs in this process
    already. ``shared``: all machines of a cluster see the folders of the warehouse (or the warehouse says so itself).
    """

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    session: SparkSession | None = None
    shared: bool = False


class WarehouseRun:
    """Runs a warehouse from ``start`` to ``stop``, or as a context.

    With ``pipeline``, the file that declares the warehouse is watched: when it is saved without mistakes, the run
    continues with the new declarations. ``on_message`` gets lines for the user about that, ``on_end`` is called last.
    ``on_change`` is what becomes of tables whose query has changed since their rows were computed. ``watcher`` shows
    the run to people. ``lease_seconds`` is
    how long after its death a run of a warehouse in an object store, or in a shared folder, is replaced.
    """

    def __init__(
        self,
        spec: WarehouseSpec,
        options: RunOptions | None = None,
        spark: SparkOptions | None = None,
        observer: Observer | None = None,
        pipeline: Path | None = None,
        on_message: Callable[[str], None] = lambda line: None,
        on_end: Callable[[], None] = lambda: None,
        on_change: OnChange = "rebuild",
        watcher: RunWatcher | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self.spec = resolved(spec)
        self._options = options or RunOptions()
        self._spark_options = spark or SparkOptions()
        self._observer = observer
        self._pipeline = pipeline
        # Taken now, before Spark starts: a change while Spark starts must be noticed.
        self._loaded = None if pipeline is None else _stamp(pipeline)
        self._say = on_message
        self._on_end = on_end
        self._on_change = on_change
        #: has the last minutes replayed if the policy is ``auto``
        self.autopilot = AutopilotWatch(time.time)
        self._watchers: tuple[RunWatcher, ...] = (self.autopilot, *(() if watcher is None else (watcher,)))
        self._lease_seconds = lease_seconds
        #: the declarations that are opened again are other ones than before
        self._is_changed = False
        #: the right to run a warehouse that several machines reach; a local one has a lock that cannot be lost
        self._lease: WarehouseLease | None = None
        self._held: WarehouseLock | WarehouseLease | None = None
        #: the executors that were looked at when the run started
        self._executors: frozenset[str] = frozenset()
        self._cleanup = ExitStack()
        #: called when everything is closed, while the warehouse is still locked
        self._last_calls: list[Callable[[], None]] = []
        self._runtime: Runtime | None = None
        #: where the trace of this run is written, on this machine; None before the start
        self.trace: Path | None = None
        #: where others find it, beside the tables: the same file, or its copy in the object store
        self.kept_trace: AnyPath | None = None

    def _on_message(self, line: str) -> None:
        with suppress(Exception):  # a log that cannot be written, as on a full disk, stops nothing
            self._say(line)

    @property
    def runtime(self) -> Runtime:
        """The running warehouse, for statistics and changes; only between ``start`` and ``stop``."""
        if self._runtime is None:
            raise HeadgateError(f"the warehouse {self.spec.name!r} is not running: start it first")
        return self._runtime

    def start(self) -> WarehouseRun:
        """Take the lock, open Spark and all tables, and start. Mistakes in queries are reported before that."""
        with ExitStack() as undo:
            ship_modules(base_folder(self.spec.place))
            lock = self._lock()
            undo.enter_context(lock)
            undo.callback(self._call_last)
            folder = self.spec.folder()
            if isinstance(lock, WarehouseLock) and isinstance(folder, Path) and has_lease(folder):
                raise WarehouseInUseError(
                    f"{self.spec.path} was shared with another machine just now: start this again"
                )
            self._held = lock
            spark, revive = self._spark(undo)
            self._on_message(f"opening {counts(self.spec)} ...")
            opened = open_warehouse(self.spec, spark, on_change=self._on_change, fence=self._lease)
            self._check_states(spark, opened)
            self._tell_rebuilds(opened)
            for table, mode in opened.modes.items():
                if mode.name == "whole":
                    self._on_message(f"table {table!r} is computed as a whole by every update: {mode.reason}")
            if self._options.follows_cores and (cores := cluster_cores(spark.sparkContext)):
                self._options = replace(self._options, tracks=min(cores, MOST_FOLLOWED))
            header = self._header(opened)
            trace = self._open_trace(header, undo)

            def remark(table: str, text: str) -> None:
                runtime.remark(table, text)
                if text and not runtime.is_running:
                    self._on_message(f"{table}: {text}")

            keeper = CatalogKeeper(lambda: runtime.spark, remark)

            users = () if self._observer is None else (self._observer,)
            told = RunListeners(trace, self._watchers, (keeper.note, *users), self._on_message)
            told.begin(header)

            def redeclared(at: float, opened: OpenWarehouse) -> None:
                told.redeclared(at, _traced(opened, at))
                keeper.declare(opened.spec, _there(opened))
                if self._is_changed:
                    self._on_message("going on with the changed declarations")
                self._is_changed = False

            runtime = Runtime(
                opened,
                spark,
                self._options,
                told.updated,
                told.changed,
                on_notice=told.noticed,
                on_redeclared=redeclared,
                reopen=self._open_again,
                revive=revive,
                on_waiting=trace.not_loaded,
            )
            if self._lease is not None:
                self._lease.on_lost = runtime.fail
                self._lease.check()
            runtime.start()
            # Ends after the last update, and before Spark.
            undo.enter_context(keeper).declare(self.spec, _there(opened))
            self._on_message("keeping the tables fresh")
            undo.callback(runtime.stop)
            self._accompany(runtime, lock, undo)
            self._runtime = runtime
            self._cleanup = undo.pop_all()
        return self

    def _accompany(self, runtime: Runtime, lock: WarehouseLock | WarehouseLease, undo: ExitStack) -> None:
        """Begin what goes on beside a run, and ends with it."""
        undo.enter_context(ControlServer(runtime, lock))
        undo.enter_context(ExecutorWatch(runtime, self._executors))
        kept = alerts_file(self.spec.folder())
        alerts = AlertWatch(lambda: self.spec, runtime.statistics, kept, self._on_message)
        undo.callback(alerts.start().stop)
        for watcher in self._watchers:
            watcher.start(runtime)
            undo.callback(watcher.stop)
        if self._pipeline is not None:
            watch = PipelineWatch(self._pipeline, self._loaded, self._reload, self._on_message, runtime.refuse_file)
            undo.callback(watch.stop)

    def _lock(self) -> WarehouseLock | WarehouseLease:
        folder = self.spec.folder()
        is_shared = self.spec.shared or self._spark_options.shared
        if isinstance(folder, Path) and not is_shared and not has_lease(folder):
            return WarehouseLock(folder)
        self._lease = WarehouseLease(folder, self._lease_seconds, on_message=self._on_message, lock=self.spec.lock)
        return self._lease

    def _tell_rebuilds(self, opened: OpenWarehouse) -> None:
        for node in opened.nodes.values():
            if node.rebuild_reason:
                why = f"table {node.table!r} is rebuilt, behind live updates: {node.rebuild_reason}"
                self._on_message(f"{why}. Until then it can be read as it was")

    def _spark(self, undo: ExitStack) -> tuple[SparkSession, Callable[[], SparkSession] | None]:
        """A session of our own, and how to start Spark again if it is lost.

        It is on the user's Spark if there is one, which is the user's to start; otherwise on one that is stopped at
        the end.
        """
        options = self._spark_options
        theirs = options.session or running_session()
        refuse_connect(theirs, options.master)
        master = options.master if theirs is None else theirs.sparkContext.master
        refuse_unshared(self.spec, master, self.spec.shared or options.shared)
        if theirs is not None:
            session = own_session(theirs, options.conf)
            self._check_cluster(session)
            return session, None
        sessions: list[SparkSession] = []

        def start() -> SparkSession:
            if sessions:
                forget_spark()
            self._on_message(f"starting Spark at {options.master} ...")
            hadoop = hadoop_settings(self.spec.folder())
            sessions.append(open_session(self.spec.name, options.master, options.conf, hadoop))
            self._check_cluster(sessions[-1])
            return sessions[-1]

        def stop() -> None:
            if sessions:
                stop_session(sessions[-1])

        undo.callback(stop)
        return start(), start

    def _check_cluster(self, spark: SparkSession) -> None:
        check_access(spark, self.spec.folder())
        wait_for_executors(spark.sparkContext)
        self._executors = check_executors(spark.sparkContext, self.spec, self._on_message)
        ship_late_imports(spark.sparkContext, _pipeline_of(self.spec))

    def _check_states(self, spark: SparkSession, opened: OpenWarehouse) -> None:
        """Raise NoObjectStoreError if there are stream queries and executors cannot keep their states."""
        if opened.hosts_queries and not all_keep_states(spark.sparkContext, self.spec.folder()):
            self._executors = frozenset()  # which are looked at again later

    def _open_again(
        self, spark: SparkSession, spec: WarehouseSpec | None = None, analyses: Mapping[str, Analysis] | None = None
    ) -> OpenWarehouse:
        """The tables opened anew: their declarations have changed, one could not be opened, or Spark is another one."""
        # What is refused was refused at the start, or when the file was saved: here that would end the run.
        on_change: OnChange = "keep" if self._on_change == "keep" else "rebuild"
        return open_warehouse(spec or self.spec, spark, on_change=on_change, analyses=analyses, fence=self._lease)

    def _header(self, opened: OpenWarehouse) -> TraceHeader:
        options = self._options
        return TraceHeader(
            warehouse=self.spec.name,
            started=time.time(),
            tracks=options.tracks,
            policy=str(options.policy),
            placement=str(options.placement),
            inheritance=self.spec.inheritance if options.inheritance == DEFAULT else options.inheritance,
            chop=None if options.chop == math.inf else options.chop,
            budget=None if options.budget == math.inf else options.budget,
            tables=_traced(opened),
            together=together_from(options.together, self.spec.together),
        )

    def _open_trace(self, header: TraceHeader, undo: ExitStack) -> TraceWriter:
        folder = self.spec.folder()
        trace = TraceWriter(local_runs(folder), header)
        if trace.trouble:
            self._on_message(trace.trouble)
        self.trace = self.kept_trace = trace.path
        runs = runs_folder(folder)
        if not isinstance(runs, Path) and not trace.trouble:
            self.kept_trace = runs / trace.path.name
            # A run that is replaced sooner, as in tests, has its trace copied more often.
            every = min(COPY_SECONDS, self._lease_seconds / 3)
            undo.callback(TraceCopy(trace.path, self.kept_trace, self._on_message, every).close)
        undo.callback(lambda: trace.close(time.time()))
        return trace

    def statistics(self) -> tuple[NodeStatistics, ...]:
        """The statistics of every table now."""
        return self.runtime.statistics()

    def report(self, bound: RunBound | str | None = None) -> RunFigures:
        """The figures of the run so far, or of all of it when it has ended; a notebook shows them as a page.

        With ``bound``, which ``headgate.sim.run_bound`` finds, they say how far the run was from the best possible.
        """
        if self.trace is None:
            raise HeadgateError(f"the warehouse {self.spec.name!r} has not been started, so there is nothing to report")
        return figures_of(read_trace(self.trace), bound)

    def _repr_html_(self) -> str:
        if self._runtime is None:
            return run_html(self.spec.name, "not started", ())
        return run_html(self.spec.name, "is running" if self._runtime.is_running else "has ended", self.statistics())

    def show(self) -> None:
        """Show the tables in a notebook, live, until the run ends or the cell is interrupted."""
        show_live(self._repr_html_, lambda: self._runtime is not None and self._runtime.is_running)

    def announce_page(self, address: str | None) -> None:
        """Let others find the page that shows this run, by the lock of the warehouse; only while it runs."""
        if self._held is not None and self._runtime is not None:
            self._held.announce_page(address)

    def wait_until_fresh(self, timeout: Duration | None = None, tables: Sequence[str] | None = None) -> None:
        """Wait until ``tables``, or all, have taken in everything that had arrived when this was called.

        Raises NotFreshError if they have not within ``timeout``, such as "1 min", or will not without your help,
        because a table is paused, held after failures, or computed from one that is.
        """
        limit = None if timeout is None else seconds(timeout, "timeout")
        self.runtime.wait_until_fresh(limit, tables)

    def stop(self, *, cancel: bool = False) -> None:
        """Finish the running updates, or with ``cancel`` cancel them, and close everything."""
        with ExitStack() as last:
            last.callback(self._on_end)
            last.callback(self._stop_sources)
            last.callback(self._cleanup.close)
            if self._runtime is not None and cancel:
                self._runtime.stop(cancel=True)

    def before_release(self, call: Callable[[], None]) -> None:
        """Call this at the end, when the trace is complete. The run is over, for others, only after it."""
        self._last_calls.append(call)

    def _call_last(self) -> None:
        with ExitStack() as calls:  # all of them, also if one raises
            while self._last_calls:
                calls.callback(self._last_calls.pop())

    def _stop_sources(self) -> None:
        """Let sources give back what they hold, such as the session of a broker: the process may live on."""
        for stream in self.spec.streams:
            stop = getattr(stream.source, "stop", None)
            if stop is not None:
                stop()

    def _reload(self, spec: WarehouseSpec) -> None:
        changed = resolved(spec)
        if changed.path != self.spec.path:
            raise HeadgateError(f"the warehouse's path is now {changed.path}: stop this run and start another")
        if changed.lock != self.spec.lock:
            raise HeadgateError("the warehouse has another lock= now: stop this run and start another")
        spark = self.runtime.spark
        ship_modules(base_folder(changed.place))
        ship_late_imports(spark.sparkContext, _pipeline_of(changed))
        try:
            # A mistake is reported here, before the running updates are waited for.
            analyses = analyse(changed, another_session(spark))
        except Exception:
            if not is_alive(spark):
                raise SparkAwayError("Spark was lost; it is tried again when Spark is there") from None
            raise
        changed_tables(self.runtime.warehouse, analyses, self._on_change)

        def reopen() -> OpenWarehouse:
            # The functions of the file are not called again, unless for another Spark: they may take long.
            same = self.runtime.spark is spark
            opened = self._open_again(self.runtime.spark, changed, analyses if same else None)
            self.spec, self._is_changed = changed, True
            self._tell_rebuilds(opened)
            return opened

        self.runtime.replace_warehouse(reopen)

    def __enter__(self) -> WarehouseRun:
        return self if self._runtime is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _pipeline_of(spec: WarehouseSpec) -> Path:
    """The file that declares a warehouse; in a notebook, one that need not be there, in the folder it runs in."""
    return base_folder(spec.place) / Path(spec.place.file).name


def _there(opened: OpenWarehouse) -> list[str]:
    """The tables that have been made already."""
    return [name for name, node in opened.nodes.items() if known(partial(getattr, node.store, "exists"))]


def _traced(opened: OpenWarehouse, declared: float | None = None) -> tuple[TraceTable, ...]:
    freshness = {name: known(partial(getattr, node, "freshness")) for name, node in opened.nodes.items()}
    return traced_tables(opened.spec, freshness, declared)


def _stamp(file: Path) -> Stamp | None:
    """Changes when the file, or another that belongs to it, is saved; None if it cannot be read."""
    if not file.exists():
        return None
    found = []
    for each in files_of(file):
        with suppress(OSError):
            status = each.stat()
            found.append((status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino))
    return tuple(found)


class PipelineWatch:
    """Checks a pipeline file every second, and passes its declarations to ``reload`` when it was saved.

    ``on_refused`` is told why the file, as it was saved last, is not used; nothing if it is.
    """

    def __init__(
        self,
        file: Path,
        loaded: Stamp | None,
        reload: Callable[[WarehouseSpec], None],
        on_message: Callable[[str], None],
        on_refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``loaded`` is the stamp that the file had when its declarations were read."""
        self._file = file
        self._reload = reload
        self._on_message = on_message
        self._on_refused = on_refused
        self._stamp = loaded
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headgate-pipeline-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(WATCH_END_SECONDS)

    def _watch(self) -> None:
        while not self._ended.wait(WATCH_SECONDS):
            stamp = _stamp(self._file)
            if stamp is None or stamp == self._stamp:
                continue
            before, self._stamp = self._stamp, stamp
            problem = ""
            try:
                self._reload(load(self._file).spec())
            except SparkAwayError as error:
                self._stamp, problem = before, f", but cannot be used now: {error}"
            except BaseException as error:  # it is the user's, and the next time the file is saved it may be another
                problem = f", but cannot be used, so nothing changes: {said_by(error)}"
            if not self._ended.is_set():
                told = f"{self._file.name} has changed{problem}"
                self._on_refused(told if problem else "")
                self._on_message(told)


def resolved(spec: WarehouseSpec) -> WarehouseSpec:
    """The spec with the relative paths of sources resolved against the pipeline file's folder."""
    base = base_folder(spec.place)
    return replace(
        spec,
        streams=tuple(replace(stream, source=stream.source.resolve(base)) for stream in spec.streams),
        dimensions=tuple(replace(d, source=d.source.resolve(base)) for d in spec.dimensions),
        publications=tuple(replace(each, to=each.to.resolve(base)) for each in spec.publications),
    )
