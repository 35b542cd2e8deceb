"""A chain of calls on a reader of Spark, such as ``spark.read.schema(...).json(...)``, as the read that it stands for.

The same calls are met twice: in the code of a function, before anything runs, and when the function is called. Both
are noted here, so that they can be compared.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.core import DeclarationError
from headgate.warehouse.declare.spec import Place
from headgate.warehouse.pipelines.definitions import DELTA, FILE_FORMATS, KAFKA, FileRead

#: methods of readers that say how to read
STEPS = ("format", "schema", "option", "options", "name")
#: options of a stream of a Delta table that can be taken over
_DELTA_OPTIONS = {"skipchangecommits", "ignorechanges", "ignoredeletes", "startingversion"}
#: options of a stream that say how much to read at once, which Headgate decides itself
PACE = {
    *("maxfilespertrigger", "maxbytespertrigger", "maxfileage", "latestfirst", "filenameonly", "cleansource"),
    *("sourcearchivedir", "maxcachedfiles", "discardcachedinputratio"),
}


@dataclass(slots=True)
class ReaderCalls:
    """What was said to a reader so far."""

    streaming: bool
    format: str = ""
    schema: str = ""
    options: dict[str, str] = field(default_factory=dict)

    def step(self, name: str, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        """One of ``STEPS``, with its arguments."""
        bound = _bound(self.streaming, name, given, named)
        match name:
            case "format":
                self.format = str(bound["source"]).lower()
            case "schema":
                self.schema = ddl(bound["schema"])
            case "option":
                self._set({str(bound["key"]): bound["value"]})
            case "options":
                self._set(bound.get("options", {}))

    def read(self, method: str, given: Sequence[Any], named: Mapping[str, Any], place: Place) -> FileRead:
        """What the last call of the chain reads.

        DeclarationError says why that cannot be taken over; TypeError is for what is no path, as a data frame of lines.
        """
        if method == "changes":
            raise DeclarationError("the changes of a table cannot be taken over: Headgate finds out itself what is new")
        bound = _bound(self.streaming, method, given, named)
        path = bound.pop("path", bound.pop("paths", None))
        if (form := bound.pop("format", None)) is not None:
            self.format = str(form).lower()
        if (schema := bound.pop("schema", None)) is not None:
            self.schema = ddl(schema)
        self._set(bound.pop("options", {}))
        if method == "load":
            form = self.format or "parquet"  # as Spark has it
        else:
            form = method
            self._set({key: value for key, value in bound.items() if value is not None and method in FILE_FORMATS})
        if problem := _refused(form, self.streaming, self.options, path is not None):
            raise DeclarationError(problem)
        if form == KAFKA:
            path = next(value for key, value in self.options.items() if key.lower() == "subscribe")
        return FileRead(_one(path), form, self.streaming, place, self.schema, dict(self.options))

    def _set(self, options: Mapping[str, Any]) -> None:
        for key, value in options.items():
            # Spark does not tell options apart by case.
            self.options = {k: v for k, v in self.options.items() if k.lower() != key.lower()}
            if value is not None:
                self.options[key] = option_text(value)


def _bound(streaming: bool, method: str, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name, as the method of Spark's reader has them; options of a ``**`` are one mapping."""
    from pyspark.sql import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

    function = getattr(DataStreamReader if streaming else DataFrameReader, method, None)
    if function is None:
        raise DeclarationError(f"a {'stream' if streaming else 'batch'} has no method {method!r}")
    try:
        bound = inspect.signature(function).bind(None, *given, **named).arguments
    except TypeError as error:
        raise DeclarationError(f"the arguments of {method} are not those of Spark: {error}") from None
    bound.pop("self")
    return dict(bound)


def _one(path: Any) -> str:
    if isinstance(path, list | tuple) and len(path) == 1:
        path = path[0]
    if isinstance(path, list | tuple):
        raise DeclarationError("several paths are read here at once: read each, and join them with union")
    if not isinstance(path, str):
        raise TypeError("a path that is no text")
    return path


def _refused(form: str, streaming: bool, options: Mapping[str, str], has_path: bool) -> str:
    """Why a read cannot be taken over; empty if it can be."""
    formats = ", ".join(FILE_FORMATS)
    given = {key.lower() for key in options}
    if streaming and form == KAFKA:
        return _refused_topic(given)
    if streaming and form not in (*FILE_FORMATS, DELTA):
        return (
            f"a stream of the format {form!r} cannot be taken over; it can be from files of the formats {formats}, "
            "from Delta tables, and from topics of Kafka"
        )
    if form not in (*FILE_FORMATS, DELTA):
        return (
            f"what is read here, of the format {form!r}, cannot be watched for changes, so that it would stay as it is "
            f"now; taken over are files of the formats {formats}, and Delta tables by path. Have the rows written to "
            "such files, or declare a pipeline file"
        )
    if form == DELTA and (odd := sorted(given - (_DELTA_OPTIONS | PACE if streaming else set()))):
        written = next(key for key in options if key.lower() == odd[0])
        return (
            f"the option {written!r} of a read of a Delta table cannot be taken over: the table is read as it is "
            "now, and again when it changes"
        )
    if "path" in given and not has_path:
        return "the path of files is taken over from load(...), not from an option"
    return ""


def _refused_topic(options: set[str]) -> str:
    if "kafka.bootstrap.servers" not in options:
        return "a stream of Kafka needs the option 'kafka.bootstrap.servers'"
    if "subscribe" not in options:
        return "a stream of Kafka is taken over with the option 'subscribe' and one topic"
    return ""


def option_text(value: Any) -> str:
    """The value of an option as Spark has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def ddl(schema: Any) -> str:
    """A schema as text: as it is, or of a StructType."""
    if isinstance(schema, str):
        return schema
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)
