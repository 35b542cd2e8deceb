"""Turn the definitions of a project into declarations of a warehouse.

- What is read as a stream, files, a topic or a table of another program, becomes a stream.
- What reads a stream, or a table that does, becomes a table: of its query, or of the union of its flows.
- What reads no stream at all becomes a dimension, computed again when the files that it reads or its query change. So
  do files that a table reads as a batch.
- Temporary views are computed inside of the queries that read them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.core import DeclarationError
from headgate.warehouse.declare.checks import Mistake, about
from headgate.warehouse.declare.durations import Lengths
from headgate.warehouse.declare.spec import DimensionSpec, Place, TableSpec
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.pipelines.capture import capture
from headgate.warehouse.pipelines.computed import Computed, code_of
from headgate.warehouse.pipelines.definitions import (
    DELTA,
    FILE_FORMATS,
    KAFKA,
    CapturedFlow,
    Dataset,
    Definitions,
    FileRead,
    TableRead,
)
from headgate.warehouse.pipelines.file_names import file_names, own_names
from headgate.warehouse.pipelines.project import Project, SideOptions, read_project
from headgate.warehouse.pipelines.read_sources import batch_of, newest, stream_of, told_of
from headgate.warehouse.pipelines.reader_calls import option_text
from headgate.warehouse.pipelines.session import ReadFrames, named_views, reading
from headgate.warehouse.pipelines.topics import as_spark_gives_it

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load_project(file: Path) -> Warehouse:
    """The warehouse of the Spark Declarative Pipelines project whose spec is ``file``."""
    project = read_project(file)
    return _Translation(project, capture(project)).warehouse()


@dataclass(frozen=True, slots=True)
class _Needs:
    """What the query of a dataset comes down to, after the views that it reads."""

    tables: tuple[str, ...]
    files: tuple[FileRead, ...]
    #: the views, those that others read first
    views: tuple[str, ...]


@dataclass(slots=True)
class _Translation:
    project: Project
    found: Definitions
    mistakes: list[Mistake] = field(default_factory=list)
    datasets: dict[str, Dataset] = field(default_factory=dict)
    flows: dict[str, list[CapturedFlow]] = field(default_factory=dict)
    #: {path and way: the name of the files}, of all that the project reads
    names: dict[tuple[str, bool], str] = field(default_factory=dict)
    #: {table from elsewhere and way: its files}
    external: dict[tuple[str, bool], tuple[str, bool]] = field(default_factory=dict)
    #: the files that are declared: those that tables read, and not those that are part of a dimension
    files: dict[tuple[str, bool], FileRead] = field(default_factory=dict)

    def warehouse(self) -> Warehouse:
        self.mistakes += [Mistake(place, text) for place, text in self.found.problems]
        self._collect()
        made = Warehouse(_warehouse_name(self.project.name))
        made.place = self.project.place
        stated = self.project.warehouse
        made.storage, made.lock = dict(stated.get("storage", {})), stated.get("lock", "")
        made.catalog = stated.get("catalog", "")
        made.path = made._absolute(stated.get("path") or f"{made.name}.warehouse")
        needs = {name: self._needs(name, ()) for name, dataset in self.datasets.items() if not dataset.is_view}
        streaming = self._streaming(needs)
        self._name_files(needs.values())
        self._find_files(needs[name] for name in sorted(streaming))
        for key in sorted(self.files):
            self._declare_files(made, self.names[key], self.files[key])
        for name, needed in needs.items():
            if name in streaming:
                self._declare_table(made, name, needed)
            else:
                self._declare_dimension(made, name, needed, needs)
        self._check_side_file()
        made.note_mistakes(self.mistakes)
        made.warnings += [*self.project.warnings, *(Mistake(place, text) for place, text in self.found.warnings)]
        return made

    # --- what there is ----------------------------------------------------------------------------------------

    def _collect(self) -> None:
        for dataset in self.found.datasets:
            name = self._plain(dataset.name)
            if name in self.datasets:
                self._mistake(dataset.place, f"{dataset.name!r} is defined twice")
            self.datasets.setdefault(name, dataset)
        for flow in self.found.flows:
            target = self._plain(flow.target)
            if target not in self.datasets:
                self._mistake(flow.place, f"the flow {flow.name!r} fills {flow.target!r}, which is defined nowhere")
            self.flows.setdefault(target, []).append(flow)
            self.mistakes += [Mistake(place, f"{flow.name!r}: {text}") for place, text in flow.reads.problems]
        for name, dataset in self.datasets.items():
            if name not in self.flows:
                self._mistake(dataset.place, f"{dataset.name!r} has no query and no flow, so that it stays empty")

    def _plain(self, name: str) -> str:
        """A name in lower case, without the catalog and the database of the project."""
        *qualifiers, last = name.replace("`", "").split(".")
        own = [part for part in (self.project.catalog, self.project.database) if part]
        if qualifiers and [q.lower() for q in qualifiers] != [o.lower() for o in own[-len(qualifiers) :]]:
            return name.lower()
        return last.lower()

    def _needs(self, name: str, above: tuple[str, ...]) -> _Needs:
        tables: list[str] = []
        files: list[FileRead] = []
        views: list[str] = []
        for flow in self.flows.get(name, ()):
            files += flow.reads.files
            for read in flow.reads.tables:
                plain = self._plain(read.name)
                dataset = self.datasets.get(plain)
                if dataset is None:
                    files += self._external(flow, read)
                elif dataset.is_view and plain in (*above, name):
                    self._mistake(dataset.place, f"the view {dataset.name!r} reads itself")
                elif dataset.is_view:
                    inner = self._needs(plain, (*above, name))
                    tables += inner.tables
                    files += inner.files
                    views += [*inner.views, plain]
                else:
                    tables.append(plain)
        return _Needs(tuple(dict.fromkeys(tables)), tuple(files), tuple(dict.fromkeys(views)))

    def _external(self, flow: CapturedFlow, read: TableRead) -> list[FileRead]:
        """A table that the project does not define, as the side file says where it lies."""
        side = self._side_of_table(read.name)
        if side is None:
            text = f"{flow.name!r} reads the table {read.name!r}, which is not one of this project; define it here, or"
            example = f"external: {{{read.name}: {{path: data/{read.name.rpartition('.')[2]}, format: delta}}}}"
            self._mistake(read.place, f"{text} say in headgate.yml where it lies: {example}")
            return []
        options = side.options
        form = str(options.get("format", DELTA)).lower()
        if form not in (DELTA, *FILE_FORMATS):
            known = ", ".join((DELTA, *FILE_FORMATS))
            self._mistake(side.place, f"{read.name}: format takes one of {known}; got {form!r}")
            return []
        stated = {str(key): option_text(value) for key, value in (options.get("options") or {}).items()}
        schema = str(options.get("schema", ""))
        name = self._plain(read.name)
        return [FileRead(options["path"], form, read.streaming, read.place, schema, stated, table=name)]

    def _side_of_table(self, name: str) -> SideOptions | None:
        for written, side in self.project.external.items():
            if self._plain(written) == self._plain(name):
                return side
        return None

    def _streaming(self, needs: Mapping[str, _Needs]) -> set[str]:
        """The tables that a stream feeds, directly or through others."""
        fed = {name for name, needed in needs.items() if any(read.streaming for read in needed.files)}
        while True:
            more = {name for name, needed in needs.items() if name not in fed and fed.intersection(needed.tables)}
            if not more:
                return fed
            fed |= more

    # --- files ------------------------------------------------------------------------------------------------

    def _name_files(self, needs: Iterable[_Needs]) -> None:
        """Name all files, and put the names into the queries, so that these read what is declared."""
        read_here = (read for flow in self.found.flows for read in flow.reads.files)
        reads = {read.key: read for read in (*read_here, *(read for needed in needs for read in needed.files))}
        wanted = own_names(reads.values(), self.datasets)
        for key, read in sorted(reads.items()):
            side = self._side_of(read)
            if "name" not in side.options:
                continue
            # A stream and a batch of the same files are two: the name is the one of the stream.
            name = str(side.options["name"])
            wanted[key] = name if read.streaming or (read.path, True) not in reads else f"{name}_now"
            if wanted[key].lower() in {*self.datasets, *(n.lower() for k, n in wanted.items() if k != key)}:
                self._mistake(side.place, f"the name {name!r} of {told_of(read)} is taken: state another")
        self.names = file_names(reads, wanted, self.datasets)
        self.external = {(read.table, read.streaming): key for key, read in reads.items() if read.table}
        for flows in self.flows.values():
            for at, flow in enumerate(flows):
                if flow.sql is not None:
                    query = flow.sql.with_names(lambda name, streaming: self._view(name, streaming) or name)
                    for read in flow.reads.files:
                        query = query.replace(read.mark, self.names[read.key])
                    flows[at] = replace(flow, query=query)

    def _view(self, name: str, streaming: bool) -> str | None:
        """The name of the view of a table as it is written, in lower case; None if there is none."""
        plain = self._plain(name)
        if plain in self.datasets:
            return plain
        key = self.external.get((plain, streaming))
        return None if key is None else self.names[key].lower()

    def _find_files(self, needs: Iterable[_Needs]) -> None:
        """The files that tables read."""
        for read in (read for needed in needs for read in needed.files):
            first = self.files.setdefault(read.key, read)
            if first.way != read.way:
                text = f"{told_of(read)} is read another way than at {first.place}"
                self._mistake(read.place, f"{text}: read them once, in a table of their own")

    def _declare_files(self, made: Warehouse, name: str, read: FileRead) -> None:
        side, lengths, folder = self._side_of(read), Lengths(), self.project.file.parent
        try:
            if read.streaming:
                made.add(stream_of(read, name, side.options, lengths, folder))
            else:
                rows = newest(read, folder) if read.format == DELTA else batch_of(read, folder)
                made.add(DimensionSpec(name, rows, read.place, comment=told_of(read)))
        except DeclarationError as error:
            self._mistake(read.place, str(error))
        self.mistakes += [Mistake(side.place, f"{read.path}: {problem}") for problem in lengths.problems]

    def _batch(self, read: FileRead) -> Computed:
        try:
            return batch_of(read, self.project.file.parent)
        except DeclarationError as error:
            self._mistake(read.place, str(error))
            return Computed(lambda spark: spark.range(0))

    # --- tables -----------------------------------------------------------------------------------------------

    def _declare_table(self, made: Warehouse, name: str, needed: _Needs) -> None:
        dataset, side, lengths = self.datasets[name], self._side("tables", name), Lengths()
        options = side.options
        by_path = {read.key: self.names[read.key] for read in needed.files}
        key = options.get("key", ())
        table = TableSpec(
            name=self._plain_as_written(dataset.name),
            sources=tuple(dict.fromkeys([*map(self._spelt, needed.tables), *by_path.values()])),
            time=options.get("time"),
            partition=lengths.needed("partition", options.get("partition", "1 hour"), 3600.0),
            place=dataset.place,
            function=self._function(name, needed, by_path),
            priority=options.get("priority", 1.0),
            target_lag=lengths.optional("target_lag", options.get("target_lag")),
            importance_class=options.get("importance_class", 0),
            patience=lengths.optional("patience", options.get("patience")),
            lookback=lengths.needed("lookback", options.get("lookback", 0.0), 0.0),
            mode=options.get("mode", "auto"),
            key=(key,) if isinstance(key, str) else tuple(key),
            catch_up=options.get("catch_up", "oldest"),
            group=options.get("group"),
            comment=dataset.comment,
        )
        made.add(table)
        self.mistakes += [about(table, problem) for problem in lengths.problems]

    def _function(self, name: str, needed: _Needs, by_path: Mapping[tuple[str, bool], str]) -> Callable[..., DataFrame]:
        """A function as ``Warehouse.table`` takes it: of the data frames of its sources."""
        queries = self._queries(name, needed)
        spelt = {self._spelt(table): table for table in needed.tables}
        schema = self.datasets[name].schema
        files = {read.key: (read, by_path[read.key].lower()) for read in needed.files}
        topics = {by_path[read.key]: read for read in needed.files if read.format == KAFKA}

        def table(**frames: DataFrame) -> DataFrame:
            views = {
                spelt.get(source, source.lower()): as_spark_gives_it(frame, topics[source])
                if source in topics
                else frame
                for source, frame in frames.items()
            }
            session = next(iter(frames.values())).sparkSession
            return _in_schema(_result(ReadFrames(session, views, files, self._view), queries), schema)

        parameters = [*spelt, *dict.fromkeys(by_path.values())]
        plain = inspect.Parameter.POSITIONAL_OR_KEYWORD
        table.__name__ = name
        # What the fingerprint of the table is made of: the functions of the user, and not this one.
        written: list[Any] = [flow.function for _, flows in queries for flow in flows]
        table.func = partial(print, *written)  # type: ignore[attr-defined]
        table.__signature__ = inspect.Signature([inspect.Parameter(p, plain) for p in parameters])  # type: ignore[attr-defined]
        return table

    def _queries(self, name: str, needed: _Needs) -> list[tuple[str, list[CapturedFlow]]]:
        """The flows of the views that a dataset reads, by name, and last its own."""
        return [*((view, self.flows.get(view, [])) for view in needed.views), ("", self.flows.get(name, []))]

    def _declare_dimension(self, made: Warehouse, name: str, needed: _Needs, needs: Mapping[str, _Needs]) -> None:
        """A dataset that no stream feeds: computed by Spark together with all that it reads."""
        dataset = self.datasets[name]
        queries, files = self._all_queries(name, needs, ())
        batches = {read.key: self._batch(read) for read in files}
        named = {read.key: (read, self.names[read.key].lower()) for read in files}
        schema = dataset.schema

        def rows(spark: SparkSession) -> DataFrame:
            views = {named[key][1]: batch.compute(spark) for key, batch in batches.items()}
            return _in_schema(_result(ReadFrames(spark, views, named, self._view), queries), schema)

        code = code_of(*(flow.query or flow.function for _, flows in queries for flow in flows), str(schema))
        paths = tuple(path for batch in batches.values() for path in batch.paths)
        source = Computed(rows, paths, code, tuple(each for batch in batches.values() for each in batch.tables))
        priority = self._side("tables", name).options.get("priority", 1.0)
        made.add(DimensionSpec(self._plain_as_written(dataset.name), source, dataset.place, priority, dataset.comment))

    def _all_queries(
        self, name: str, needs: Mapping[str, _Needs], above: tuple[str, ...]
    ) -> tuple[list[tuple[str, list[CapturedFlow]]], list[FileRead]]:
        if name in above:
            self._mistake(self.datasets[name].place, f"{name!r} is computed from itself")
            return [], []
        needed = needs[name]
        queries: list[tuple[str, list[CapturedFlow]]] = []
        files = list(needed.files)
        for table in needed.tables:
            inner, inner_files = self._all_queries(table, needs, (*above, name))
            queries += [(each or table, flows) for each, flows in inner]
            files += inner_files
        return [*queries, *self._queries(name, needed)], files

    # --- names and mistakes -----------------------------------------------------------------------------------

    def _spelt(self, name: str) -> str:
        return self._plain_as_written(self.datasets[name].name)

    @staticmethod
    def _plain_as_written(name: str) -> str:
        return name.replace("`", "").rpartition(".")[2]

    def _side(self, part: str, name: str) -> SideOptions:
        noted = self.project.tables if part == "tables" else self.project.sources
        for written, options in noted.items():
            if (written.lower() if part == "tables" else written) == name:
                return options
        return SideOptions(self.project.place)

    def _side_of(self, read: FileRead) -> SideOptions:
        found = self._side_of_table(read.table) if read.table else self._side("sources", read.path)
        return found or SideOptions(self.project.place)

    def _check_side_file(self) -> None:
        tables = {name for name, dataset in self.datasets.items() if not dataset.is_view}
        for name, side in self.project.tables.items():
            if name.lower() not in tables:
                what = "is a view, which is not kept" if name.lower() in self.datasets else "is not one of the project"
                self._mistake(side.place, f"the table {name!r} {what}; its tables are {', '.join(sorted(tables))}")
        paths = {path for path, streaming in self.files if streaming}
        for path, side in self.project.sources.items():
            if path not in paths:
                known = ", ".join(sorted(paths)) or "none"
                self._mistake(side.place, f"no stream reads the files {path!r}; those that streams read are {known}")
        tables_read = {self._plain(r.name) for flow in self.found.flows for r in flow.reads.tables}
        for name, side in self.project.external.items():
            if self._plain(name) not in tables_read:
                self._mistake(side.place, f"no query reads the table {name!r}, which is said to lie elsewhere")
            elif self._plain(name) in self.datasets:
                self._mistake(side.place, f"the table {name!r} is one of the project, and does not lie elsewhere")

    def _mistake(self, place: Place, text: str) -> None:
        self.mistakes.append(Mistake(place, text))


def _result(frames: ReadFrames, queries: Sequence[tuple[str, list[CapturedFlow]]]) -> DataFrame:
    """The last of ``queries``, of which each may read those before it by name."""
    views = dict(frames.views)
    result: Any = None
    for name, flows in queries:
        known = replace(frames, views=views)
        results: list[Any] = []
        for flow in flows:
            if flow.function is None:
                with named_views(known):
                    results.append(known.session.sql(flow.query))
            else:
                with reading(known):
                    results.append(flow.function())
        result = results[0]
        for more in results[1:]:
            result = result.unionByName(more)
        if name:
            views[name] = result
    return result  # type: ignore[no-any-return]


def _in_schema(result: DataFrame, schema: Any) -> DataFrame:
    """``result`` with the columns that were declared, if any were."""
    if schema is None:
        return result
    from pyspark.sql.types import StructType

    wanted = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    return result.to(wanted)  # type: ignore[arg-type]


def _warehouse_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)
