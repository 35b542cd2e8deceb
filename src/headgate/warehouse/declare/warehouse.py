"""Declaring a warehouse: what a user writes, turned into frozen data.

Declaring runs nothing and imports neither Spark nor Delta. It does not stop at the first mistake: ``spec`` reports all
of them at once, each with its line in the user's file. Durations that cannot be read are noted here, all other mistakes
are found by ``headgate.warehouse.declare.checks``.

Relative paths of the warehouse and of its sources start at the folder of the pipeline file, wherever the command is
run. The path of the warehouse in the spec is absolute; those of sources are resolved with ``base_folder(spec.place)``.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, overload

from headgate.core import HeadgateError, ParameterError
from headgate.places.object_path import ObjectPath
from headgate.places.place import PlaceError, is_url, path_from
from headgate.warehouse.declare.checks import (
    DeclarationErrors,
    Mistake,
    about,
    find_mistakes,
)
from headgate.warehouse.declare.collecting import users_line
from headgate.warehouse.declare.durations import Duration, Lengths, seconds
from headgate.warehouse.declare.spec import (
    CatchUp,
    DimensionSpec,
    Mode,
    NodeSpec,
    PublicationSpec,
    StreamSpec,
    TableSpec,
    WarehouseSpec,
    base_folder,
)
from headgate.warehouse.declare.sql_text import read_function, read_query

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession

    from headgate.warehouse.declare.alert import Alert
    from headgate.warehouse.publish.protocol import Publisher
    from headgate.warehouse.run.run import WarehouseRun
    from headgate.warehouse.schedule.ledger import NodeStatistics
    from headgate.warehouse.sources import DataSource
    from headgate.warehouse.updates.open_warehouse import OnChange

Function = TypeVar("Function", bound=Callable[..., Any])

_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Handle:
    """A declared stream, dimension or table. As text it is the name, so that it can be used in an f-string of SQL."""

    name: str

    def __str__(self) -> str:
        return self.name


class Warehouse:
    """Streams, dimensions and tables that are kept fresh together.

    ``path`` is the folder of its Delta tables: ``<name>.warehouse`` beside the pipeline file, unless stated. A commit
    waits until it is on disk; with ``sync=False`` it does not, and a power cut may cost the latest updates. On a
    cluster, ``shared=True`` says that all its machines see this folder, and those of sources, at the same paths.
    ``path`` may be the URL of a place in an object store, as "s3://bucket/city"; ``storage`` are options to reach it.
    If that store has no conditional writes, ``lock`` is a database that decides: "postgresql://user@host/database".
    ``alerts`` say whom to call when a table needs a person: see headgate.Alert.
    With ``catalog="city"``, tables get entries in the schema "city" of Spark's catalog, or in one of another catalog
    with "unity.city", so that ``spark.table("city.alerts")`` reads them. ``inheritance`` is what sources inherit from
    the tables built on them, and ``together`` which tables share jobs, unless a run states it: see ``start``.

    Options mean the same everywhere. ``time`` is the column of the event time; tables may have None. ``partition`` is
    the length of event time that is stored, and recomputed, as one. ``priority`` weighs staleness; ``target_lag`` is
    the lag that is still on time; a larger ``importance_class`` is more important; ``patience`` is how long an update
    may wait before it goes first (default: 20 periods). Durations are texts such as "10 seconds", or seconds.
    """

    def __init__(
        self,
        name: str,
        path: str | os.PathLike[str] | None = None,
        *,
        sync: bool = True,
        shared: bool = False,
        storage: Mapping[str, str] | None = None,
        lock: str = "",
        alerts: Sequence[Alert] = (),
        catalog: str = "",
        inheritance: str = "default",
        together: str = "default",
    ) -> None:
        self.name = name
        self.sync = sync
        self.shared = shared
        self.storage = {} if storage is None else dict(storage)
        self.lock = lock
        self.alerts = tuple(alerts) if isinstance(alerts, list | tuple) else (alerts,)
        self.catalog = catalog
        self.inheritance = inheritance
        self.together = together
        self.place = users_line()
        self._nodes: list[NodeSpec] = []
        self._mistakes: list[Mistake] = []
        #: what is declared and has no effect; commands say it when they begin
        self.warnings: list[Mistake] = []
        self._publications: list[PublicationSpec] = []
        self._run: WarehouseRun | None = None
        self.path = self._absolute(f"{name}.warehouse" if path is None else path)

    def __repr__(self) -> str:
        return f"Warehouse({self.name!r}, {len(self._nodes)} declared)"

    def _repr_html_(self) -> str:
        from headgate.warehouse.report.notebook import declared_html

        return declared_html(self.name, self.path, self._nodes)

    def stream(
        self,
        name: str,
        source: DataSource,
        *,
        time: str = "",
        period: Duration | None = None,
        partition: Duration = "1 hour",
        priority: float = 1.0,
        target_lag: Duration | None = None,
        importance_class: int = 0,
        patience: Duration | None = None,
        catch_up: CatchUp = "oldest",
        max_future: Duration | None = "1 hour",
        comment: str = "",
    ) -> Handle:
        """Declare a base table that is loaded from ``source``, about every ``period`` (learned, unless stated).

        Rows with event times more than ``max_future`` ahead of the clock, as from a device whose clock is wrong, go to
        ``<stream>__rejected``; None accepts all.
        """
        lengths = Lengths()
        stream = StreamSpec(
            name=name,
            source=source,
            time=time,
            partition=lengths.needed("partition", partition, _HOUR),
            place=users_line(),
            period=lengths.optional("period", period),
            priority=priority,
            target_lag=lengths.optional("target_lag", target_lag),
            importance_class=importance_class,
            patience=lengths.optional("patience", patience),
            catch_up=catch_up,
            max_future=lengths.optional("max_future", max_future),
            comment=comment,
        )
        return self._add(stream, lengths)

    def dimension(self, name: str, source: DataSource, *, priority: float = 1.0, comment: str = "") -> Handle:
        """Declare a table without event time, replaced as a whole when ``source`` changes."""
        dimension = DimensionSpec(name=name, source=source, place=users_line(), priority=priority, comment=comment)
        return self._add(dimension, Lengths())

    def table(
        self,
        *,
        time: str | None = "",
        partition: Duration = "1 hour",
        priority: float = 1.0,
        target_lag: Duration | None = None,
        importance_class: int = 0,
        patience: Duration | None = None,
        lookback: Duration = 0.0,
        mode: Mode = "auto",
        key: Sequence[str] = (),
        catch_up: CatchUp = "oldest",
        group: str | None = None,
        name: str | None = None,
        comment: str | None = None,
    ) -> Callable[[Function], Function]:
        """Declare a table computed by the function below, whose parameters name the sources it gets as data frames.

        ``lookback`` is how far before a partition the rows of its sources still matter to it. ``mode`` is how updates
        are computed ("append", "merge", "blocks" of time, "keys" or "whole"); by default the cheapest that is right,
        which follows from the query. A table without event time takes ``time=None``. ``key`` are the columns that tell
        its rows apart; with mode "keys" you state that only rows with the key of changed source rows change.
        ``catch_up`` is what an update takes first if it cannot take everything. Tables of one ``group`` with the same
        sources are updated one after the other by one track, which reads the sources once. The default name is that of
        the function, the default comment its docstring.
        """
        lengths = Lengths()
        options = TableSpec(
            name="",
            sources=(),
            time=time,
            partition=lengths.needed("partition", partition, _HOUR),
            place=users_line(),
            priority=priority,
            target_lag=lengths.optional("target_lag", target_lag),
            importance_class=importance_class,
            patience=lengths.optional("patience", patience),
            lookback=lengths.needed("lookback", lookback, 0.0),
            mode=mode,
            key=(key,) if isinstance(key, str) else tuple(key),
            catch_up=catch_up,
            group=group,
        )

        def declare(function: Function) -> Function:
            table = replace(
                options,
                name=getattr(function, "__name__", "") if name is None else name,
                sources=read_function(function).sources,
                function=function,
                comment=(inspect.getdoc(function) or "") if comment is None else comment,
            )
            self._add(table, lengths)
            return function

        return declare

    def sql(
        self,
        name: str,
        query: str,
        *,
        time: str | None = "",
        partition: Duration = "1 hour",
        priority: float = 1.0,
        target_lag: Duration | None = None,
        importance_class: int = 0,
        patience: Duration | None = None,
        lookback: Duration = 0.0,
        mode: Mode = "auto",
        key: Sequence[str] = (),
        catch_up: CatchUp = "oldest",
        group: str | None = None,
        comment: str = "",
    ) -> Handle:
        """Declare a table computed by ``query``, which reads other tables by name; options as for ``table``."""
        lengths = Lengths()
        table = TableSpec(
            name=name,
            sources=read_query(query).sources,
            time=time,
            partition=lengths.needed("partition", partition, _HOUR),
            place=users_line(),
            query=query,
            priority=priority,
            target_lag=lengths.optional("target_lag", target_lag),
            importance_class=importance_class,
            patience=lengths.optional("patience", patience),
            lookback=lengths.needed("lookback", lookback, 0.0),
            mode=mode,
            key=(key,) if isinstance(key, str) else tuple(key),
            catch_up=catch_up,
            group=group,
            comment=comment,
        )
        return self._add(table, lengths)

    def add(self, node: NodeSpec) -> Handle:
        """Declare what is not written in Python: a stream, a dimension or a table as data."""
        return self._add(node, Lengths())

    def publish(self, table: str | Handle, *, to: Publisher) -> None:
        """Publish every version of a stream, dimension or table to a place outside, such as headgate.PostgresSink(...).

        It runs behind the updates of all tables. If the place fails, the table goes on, and what it has missed follows.
        """
        self._publications.append(PublicationSpec(str(table), to, users_line()))

    def note_mistakes(self, mistakes: Iterable[Mistake]) -> None:
        """Add mistakes that were found elsewhere in the pipeline file, to be reported with the others."""
        self._mistakes += mistakes

    def spec(self) -> WarehouseSpec:
        """Everything declared so far; DeclarationErrors lists all the mistakes in it, if there are any."""
        spec = WarehouseSpec(
            name=self.name,
            path=self.path,
            streams=tuple(node for node in self._nodes if isinstance(node, StreamSpec)),
            dimensions=tuple(node for node in self._nodes if isinstance(node, DimensionSpec)),
            tables=tuple(self._resolved(node) for node in self._nodes if isinstance(node, TableSpec)),
            place=self.place,
            sync=self.sync,
            shared=self.shared,
            publications=tuple(self._publications),
            storage=self.storage,
            lock=self.lock,
            alerts=self.alerts,
            catalog=self.catalog,
            inheritance=self.inheritance,
            together=self.together,
        )
        if mistakes := [*self._mistakes, *find_mistakes(spec)]:
            raise DeclarationErrors(mistakes)
        return spec

    # --- running it in this process -------------------------------------------------------------------------

    def start(
        self,
        *,
        tracks: int | None = None,
        policy: str = "max-benefit",
        placement: str = "proportional",
        inheritance: str = "default",
        budget: Duration | None = "1 s",
        together: str = "default",
        time_limit: Duration | None = None,
        master: str = "local[*]",
        conf: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
        on_change: OnChange = "rebuild",
    ) -> WarehouseRun:
        """Keep the tables fresh from now on, on threads of this process, until ``stop``.

        ``tracks`` is how many updates may run at the same time: by default two, and on a cluster as many as it has
        cores. With ``policy="auto"``, policy and placement are changed when replays of the last minutes show a lasting
        gain. ``inheritance`` is what sources inherit from the tables built on them (``none``, ``sum``, ``max``,
        ``max-plus:k=2`` or ``density``), instead of what the warehouse states. ``budget`` is how long one update should
        take at most; None for no limit. ``together`` says which tables share jobs, instead of what the warehouse
        states: with "declared", as by default, those of a declared group, with "auto" those with the same sources of
        which the scheduler expects a gain, with "never" none. An update is cancelled after ``time_limit``, by default
        after 20 times its longest update, at least 2 minutes. Returns the run. It is a context manager, and its
        ``runtime`` has statistics and takes changes. If a ``spark`` session is passed, or one runs in this process, its
        Spark is used and left open, and its settings stay as they are; otherwise Spark is started at ``master``.
        ``conf`` are settings for the updates. Tables whose query has changed since their rows were computed are rebuilt
        behind live updates; with ``on_change="keep"`` old rows stay as they are, with "refuse" this raises.
        """
        from headgate.core import placement_from, policy_from
        from headgate.warehouse.run.run import SparkOptions, WarehouseRun
        from headgate.warehouse.schedule.run_options import DEFAULT_TRACKS, RunOptions

        if self._run is not None:
            raise HeadgateError(f"the warehouse {self.name!r} is running already: stop it first")
        options = RunOptions(
            tracks=DEFAULT_TRACKS if tracks is None else tracks,
            follows_cores=tracks is None,
            policy=policy_from(policy),
            placement=placement_from(placement),
            inheritance=inheritance,
            budget=math.inf if budget is None else seconds(budget, "budget"),
            together=together,
            time_limit=None if time_limit is None else seconds(time_limit, "time_limit"),
        )
        if on_change not in ("rebuild", "keep", "refuse"):
            raise ParameterError(f"on_change takes 'rebuild', 'keep' or 'refuse'; got {on_change!r}")
        where = SparkOptions(master, conf or {}, spark)
        run = WarehouseRun(self.spec(), options, where, on_end=self._forget_run, on_change=on_change)
        self._run = run.start()
        return run

    def stop(self, *, cancel: bool = False) -> None:
        """Finish the running updates, or with ``cancel`` cancel them; does nothing if it is not running."""
        if self._run is not None:
            self._run.stop(cancel=cancel)

    def statistics(self) -> tuple[NodeStatistics, ...]:
        """The statistics of every table now; only while it runs in this process."""
        if self._run is None:
            raise HeadgateError(f"the warehouse {self.name!r} is not running in this process: start it first")
        return self._run.runtime.statistics()

    @overload
    def read(self, names: str, at: datetime | None = None, *, incomplete: bool = False) -> pyarrow.Table: ...
    @overload
    def read(
        self, names: Sequence[str], at: datetime | None = None, *, incomplete: bool = False
    ) -> dict[str, pyarrow.Table]: ...
    def read(self, names: str | Sequence[str], at: datetime | None = None, *, incomplete: bool = False) -> Any:
        """The rows of a table, or of several up to one event time to which all of them are complete. Needs no Spark.

        ``at`` is the event time to read up to; by default it is the newest possible. With ``incomplete``, rows that are
        still to be recomputed are read as they are.
        """
        from headgate.warehouse.reading import read

        moment = None if at is None else round(at.timestamp() * 1_000_000)
        place = path_from(self.path, self.storage)
        tables = read(place, [names] if isinstance(names, str) else names, moment, incomplete=incomplete)
        return tables[names] if isinstance(names, str) else tables

    def _forget_run(self) -> None:
        self._run = None

    def _add(self, node: NodeSpec, lengths: Lengths) -> Handle:
        self._nodes.append(node)
        self._mistakes += [about(node, problem) for problem in lengths.problems]
        return Handle(node.name)

    def _resolved(self, table: TableSpec) -> TableSpec:
        """The table with the sources of its SQL spelt as they were declared: SQL ignores case."""
        if table.query is None:
            return table
        declared = {node.name.lower(): node.name for node in self._nodes if isinstance(node.name, str)}
        return replace(table, sources=tuple(declared.get(source.lower(), source) for source in table.sources))

    def _absolute(self, path: str | os.PathLike[str]) -> str:
        try:
            written = os.fspath(path)
        except TypeError:
            written = ""
        if not isinstance(written, str) or not written or "\0" in written:
            text = f"the path of a warehouse takes a folder, or the URL of a place in an object store; got {path!r}"
            self._mistakes.append(Mistake(self.place, text))
            return ""
        try:
            found = path_from(written, self.storage)
        except PlaceError as error:
            self._mistakes.append(Mistake(self.place, f"the path of a warehouse: {error}"))
            return ""
        if isinstance(found, ObjectPath):
            return str(found)
        written = str(found) if is_url(written) else written
        return os.path.abspath(base_folder(self.place) / written)


def missing_sources(spec: WarehouseSpec) -> list[Mistake]:
    """The sources whose directory does not exist. No mistake in itself: it may be created later."""
    from headgate.warehouse.sources.files.source import Files

    base = base_folder(spec.place)
    loaded: tuple[StreamSpec | DimensionSpec, ...] = (*spec.streams, *spec.dimensions)
    files = [(node, node.source.resolve(base)) for node in loaded if isinstance(node.source, Files)]
    return [about(node, source.missing()) for node, source in files if source.missing()]
