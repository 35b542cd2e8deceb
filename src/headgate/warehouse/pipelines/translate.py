"""Turn the definitions of a project into declarations of a warehouse.

- Files that are read as a stream become a stream of a ``Files`` source.
- What reads a stream, or a table that does, becomes a table: of its query, or of the union of its flows.
- What reads no stream at all becomes a dimension, computed again when the files that it reads or its query change. So
  do files that a table reads as a batch.
- Temporary views are computed inside of the queries that read them.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from headgate.core import DeclarationError
from headgate.warehouse.declare.checks import Mistake, about
from headgate.warehouse.declare.durations import Lengths
from headgate.warehouse.declare.spec import DimensionSpec, Place, StreamSpec, TableSpec
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.pipelines.capture import capture
from headgate.warehouse.pipelines.computed import Computed, code_of
from headgate.warehouse.pipelines.definitions import DELTA, CapturedFlow, Dataset, Definitions, FileRead
from headgate.warehouse.pipelines.file_names import file_names
from headgate.warehouse.pipelines.project import Project, SideOptions, read_project
from headgate.warehouse.pipelines.session import ReadFrames, reading
from headgate.warehouse.sources import Delta, Files, SourceError
from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN
from headgate.warehouse.sources.schema import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: options of Spark's streaming reads of files, in lower case: how much to read at once, which Headgate decides itself
_PACE = {
    *("maxfilespertrigger", "maxbytespertrigger", "maxfileage", "latestfirst", "filenameonly", "cleansource"),
    *("sourcearchivedir", "maxcachedfiles", "discardcachedinputratio"),
}


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
    #: the files that are declared: those that tables read, and not those that are part of a dimension
    files: dict[tuple[str, bool], FileRead] = field(default_factory=dict)

    def warehouse(self) -> Warehouse:
        self.mistakes += [Mistake(place, text) for place, text in self.found.problems]
        self._collect()
        made = Warehouse(_warehouse_name(self.project.name))
        made.place = self.project.place
        made.path = made._absolute(self.project.path or f"{made.name}.warehouse")
        needs = {name: self._needs(name, ()) for name, dataset in self.datasets.items() if not dataset.is_view}
        streaming = self._streaming(needs)
        self._name_files()
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
                plain = self._plain(read)
                dataset = self.datasets.get(plain)
                if dataset is None:
                    text = f"{flow.name!r} reads the table {read!r}, which is not one of this project; have it defined"
                    self._mistake(flow.place, f"{text} here, from its files or another way")
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

    def _streaming(self, needs: Mapping[str, _Needs]) -> set[str]:
        """The tables that a stream feeds, directly or through others."""
        fed = {name for name, needed in needs.items() if any(read.streaming for read in needed.files)}
        while True:
            more = {name for name, needed in needs.items() if name not in fed and fed.intersection(needed.tables)}
            if not more:
                return fed
            fed |= more

    # --- files ------------------------------------------------------------------------------------------------

    def _name_files(self) -> None:
        """Name all files, and put the names into the queries, so that these read what is declared."""
        reads = {read.key: read for flow in self.found.flows for read in flow.reads.files}
        wanted: dict[tuple[str, bool], str] = {}
        for key, read in sorted(reads.items()):
            side = self._side("sources", read.path)
            if "name" not in side.options:
                continue
            # A stream and a batch of the same files are two: the name is the one of the stream.
            name = str(side.options["name"])
            wanted[key] = name if read.streaming or (read.path, True) not in reads else f"{name}_now"
            if wanted[key].lower() in {*self.datasets, *(n.lower() for k, n in wanted.items() if k != key)}:
                self._mistake(side.place, f"the name {name!r} of the files {read.path!r} is taken: state another")
        self.names = file_names(reads, wanted, self.datasets)
        marks = {read.mark: self.names[read.key] for read in reads.values()}
        for flows in self.flows.values():
            for at, flow in enumerate(flows):
                query = flow.query
                for read in flow.reads.files:
                    query = query.replace(read.mark, marks[read.mark])
                flows[at] = replace(flow, query=query)

    def _find_files(self, needs: Iterable[_Needs]) -> None:
        """The files that tables read."""
        for read in (read for needed in needs for read in needed.files):
            first = self.files.setdefault(read.key, read)
            if (first.format, first.schema, first.options) != (read.format, read.schema, read.options):
                text = f"the files {read.path!r} are read another way than at {first.place}"
                self._mistake(read.place, f"{text}: read them once, in a table of their own")

    def _declare_files(self, made: Warehouse, name: str, read: FileRead) -> None:
        if not read.streaming:
            rows = self._delta(read) if read.format == DELTA else self._batch(read)
            made.add(DimensionSpec(name, rows, read.place, comment=f"the files {read.path}"))
            return
        side = self._side("sources", read.path)
        options, lengths = dict(side.options), Lengths()
        folder, pattern = _folder_and_pattern(read.path)
        schema = str(options.get("schema", read.schema))
        made_of = {key: options[key] for key in ("order", "settle", "recursive") if key in options}
        try:
            if not schema and read.format != "text":
                text = "the columns of a stream of files must be stated: by .schema(...) of the reader, or by 'schema:'"
                raise DeclarationError(f"{text} in headgate.yml, under sources, {read.path}")
            spark_options = {key: value for key, value in read.options.items() if key.lower() not in _PACE}
            if read.format == "csv" and "header" not in {key.lower() for key in spark_options}:
                spark_options["header"] = "false"  # as Spark has it
            source = Files(folder, format=read.format, schema=schema, pattern=pattern, options=spark_options, **made_of)
            times = [c.name for c in parse_schema(source.schema, read.path) if c.kind == "timestamp"]
            if "time" not in options and len(times) != 1:
                has = f"has the timestamps {', '.join(times)}" if times else "has no column of type timestamp"
                text = f"the stream of files {read.path!r} {has}: state its event time, as 'time:' in headgate.yml"
                raise DeclarationError(f"{text}, under sources, {read.path}")
        except DeclarationError as error:
            self._mistake(read.place, str(error))
            return
        stream = StreamSpec(
            name=name,
            source=source,
            time=str(options.get("time", times[0] if times else "")),
            partition=lengths.needed("partition", options.get("partition", "1 hour"), 3600.0),
            place=read.place,
            period=lengths.optional("period", options.get("period")),
            priority=options.get("priority", 1.0),
            target_lag=lengths.optional("target_lag", options.get("target_lag")),
            importance_class=options.get("importance_class", 0),
            patience=lengths.optional("patience", options.get("patience")),
            catch_up=options.get("catch_up", "oldest"),
            max_future=lengths.optional("max_future", options.get("max_future")),
            comment=f"the files {read.path}",
        )
        made.add(stream)
        self.mistakes += [Mistake(side.place, f"{read.path}: {problem}") for problem in lengths.problems]

    def _delta(self, read: FileRead) -> Delta:
        path = read.path if _is_address(read.path) else self._absolute(read.path)
        return Delta(path, schema=read.schema)

    def _batch(self, read: FileRead) -> Computed:
        path = self._absolute(read.path)
        if _is_address(read.path):
            text = (
                f"the files {read.path!r} cannot be watched for changes: what is read as a batch must be below a folder"
            )
            self._mistake(read.place, f"{text} of this machine, or be a Delta table that a table with streams reads")
        if read.format == DELTA:
            delta = self._delta(read)

            def contents(spark: SparkSession) -> DataFrame:
                found, pending = delta.contents(None)
                if found is None:
                    raise SourceError(pending.note)
                return delta.read(spark, found).drop(FILE_COLUMN, RAW_COLUMN, ERROR_COLUMN)

            # Rows may go without a change of a file that has rows.
            return Computed(contents, (path, os.path.join(path, "_delta_log")), f"{DELTA} {read.schema}")

        def rows(spark: SparkSession) -> DataFrame:
            reader = spark.read.format(read.format).options(**read.options)
            return (reader.schema(read.schema) if read.schema else reader).load(path)

        return Computed(rows, (path,), f"{read.format} {read.schema} {sorted(read.options.items())}")

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.project.file.parent, _local(path)))

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

        def table(**frames: DataFrame) -> DataFrame:
            tables = {spelt[source]: frame for source, frame in frames.items() if source in spelt}
            tables |= {source.lower(): frame for source, frame in frames.items() if source not in spelt}
            files = {path: frames[source] for path, source in by_path.items()}
            session = next(iter(frames.values())).sparkSession
            return _in_schema(_result(session, tables, files, queries), schema)

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
        names = {key: self.names[key].lower() for key in batches}
        schema = dataset.schema

        def rows(spark: SparkSession) -> DataFrame:
            frames = {key: batch.compute(spark) for key, batch in batches.items()}
            tables = {names[key]: frame for key, frame in frames.items()}
            return _in_schema(_result(spark, tables, frames, queries), schema)

        code = code_of(*(flow.query or flow.function for _, flows in queries for flow in flows), str(schema))
        source = Computed(rows, tuple(path for batch in batches.values() for path in batch.paths), code)
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

    def _mistake(self, place: Place, text: str) -> None:
        self.mistakes.append(Mistake(place, text))


def _result(
    session: SparkSession,
    tables: Mapping[str, DataFrame],
    files: Mapping[tuple[str, bool], DataFrame],
    queries: Sequence[tuple[str, list[CapturedFlow]]],
) -> DataFrame:
    """The last of ``queries``, of which each may read those before it by name."""
    known = dict(tables)
    result: Any = None
    for name, flows in queries:
        with reading(ReadFrames(session, known, files)):
            results = [session.sql(flow.query) if flow.function is None else flow.function() for flow in flows]
        result = results[0]
        for more in results[1:]:
            result = result.unionByName(more)
        if name:
            known[name] = result
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


def _local(path: str) -> str:
    """A path without ``file:``; other addresses as they are, which are refused where they are used."""
    match = re.match(r"file:(?://)?(/.*)", path)
    return unquote(match[1]) if match else path


def _is_address(path: str) -> bool:
    return "://" in _local(path)


def _folder_and_pattern(path: str) -> tuple[str, str]:
    """``in/*.json`` as the folder ``in`` and the pattern ``*.json``."""
    folder, last = os.path.split(_local(path).rstrip("/"))
    return (folder or ".", last) if re.search(r"[*?\[]", last) else (_local(path), "*")
