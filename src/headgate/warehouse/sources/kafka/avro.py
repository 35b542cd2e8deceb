"""Values in Avro, each with the number of its schema in a schema registry before it.

A value is a zero byte, the number of the schema it was written with in four bytes, and the Avro encoding. Schemas are
got from the registry once, when the first record with their number comes. Records become JSON here, which Spark takes
apart as it does for the format ``json``: so types are checked, and what does not fit is rejected, by the same rules.
"""

from __future__ import annotations

import base64
import io
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from datetime import time as time_of_day
from typing import TYPE_CHECKING, Any

from headgate.core import DeclarationError
from headgate.warehouse.sources.errors import ServerUnreachable, SourceError
from headgate.warehouse.sources.kafka.columns import PROBLEM, VALUE, RecordColumns
from headgate.warehouse.sources.kafka.formats import JsonValues
from headgate.warehouse.sources.kafka.options import library
from headgate.warehouse.sources.schema import Column
from headgate.warehouse.sources.sql import ddl

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame

#: the bytes before the Avro encoding
_HEADER = 5
#: seconds to wait for an answer of the registry
_LONGEST_ANSWER = 10.0
#: what a registry answers if it has no schema of a number
_NO_SCHEMA = 40403
_LONGEST_REASON = 200
_PLACE = re.compile(r" from <[^>]* at 0x[0-9a-f]+>")


@dataclass(frozen=True)
class SchemaRegistry:
    """Gets schemas by their numbers. ``url`` may have a user and a password in it, which are never printed."""

    url: str = field(repr=False)
    #: {number: schema, or a text that says why there is none}
    _known: dict[int, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def check(self, where: str) -> None:
        parts = urllib.parse.urlsplit(self.url) if isinstance(self.url, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise DeclarationError(
                f"{where}: the format 'avro' needs the address of a schema registry, as in "
                "registry='http://registry:8081'"
            )

    @property
    def address(self) -> str:
        """The URL without user and password."""
        parts = urllib.parse.urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return urllib.parse.urlunsplit(parts._replace(netloc=host)).rstrip("/")

    def ask_again(self) -> None:
        """Ask for the schemas that were not there when they are needed again: once for each packet is enough."""
        for number in [number for number, found in self._known.items() if isinstance(found, str)]:
            del self._known[number]

    def schema(self, number: int) -> Any:
        """A schema, parsed, or a ``str`` that says why there is none."""
        if number not in self._known:
            try:
                self._known[number] = self._parsed(number)
            except ServerUnreachable:
                raise
            except Exception as error:  # its records cannot be decoded, but others can
                reason = f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
                self._known[number] = f"its schema {number} cannot be used ({reason})"
        return self._known[number]

    def _parsed(self, number: int) -> Any:
        answer = self._answer(f"/schemas/ids/{number}")
        if answer is None:
            return f"the schema registry has no schema {number}"
        if (kind := answer.get("schemaType", "AVRO")) != "AVRO":
            return f"its schema {number} is of the kind {kind}, not Avro"
        named: dict[str, Any] = {}
        self._add_references(answer, named)
        schema = library("fastavro").parse_schema(json.loads(answer["schema"]), named_schemas=named)
        return f"its schema {number} is {schema!r}, not a record" if isinstance(schema, str) else schema

    def _add_references(self, answer: Mapping[str, Any], named: dict[str, Any]) -> None:
        """Parse the schemas that a schema refers to into ``named``, each after those that it refers to itself."""
        for reference in answer.get("references") or ():
            if reference["name"] in named:
                continue
            subject = urllib.parse.quote(reference["subject"], safe="")
            found = self._answer(f"/subjects/{subject}/versions/{reference['version']}")
            if found is None:
                raise SourceError(f"the schema registry at {self.address} has no schema {reference['name']!r}")
            self._add_references(found, named)
            library("fastavro").parse_schema(json.loads(found["schema"]), named_schemas=named)

    def _answer(self, path: str) -> dict[str, Any] | None:
        """What the registry answers; None if it says that it has no such schema."""
        request = urllib.request.Request(f"{self.address}{path}")
        parts = urllib.parse.urlsplit(self.url)
        if parts.username is not None:
            user, password = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
            secret = base64.b64encode(f"{user}:{password}".encode()).decode()
            request.add_header("Authorization", f"Basic {secret}")
        try:
            with urllib.request.urlopen(request, timeout=_LONGEST_ANSWER) as response:
                answer: dict[str, Any] = json.load(response)
                return answer
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404 and _error_code(error.read()) == _NO_SCHEMA:
                    return None
            problem = f"it answered {error.code} {error.reason}"
        except (OSError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
        raise ServerUnreachable(
            f"the schema registry at {self.address} does not give the schema {path}: {problem}. It is tried again"
        )


def _error_code(body: bytes) -> object:
    try:
        answer = json.loads(body)
    except ValueError:
        return None
    return answer.get("error_code") if isinstance(answer, dict) else None


@dataclass(frozen=True)
class AvroValues:
    """Records in Avro, made JSON and parsed by Spark from there. Columns are found by the names of fields."""

    registry: SchemaRegistry
    rows_of: JsonValues

    def decoded(self, packet: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        read = library("fastavro").schemaless_reader  # not found, it is no fault of the values
        self.registry.ask_again()
        texts: list[bytes | None] = []
        problems: list[str | None] = []
        for value in packet.column(VALUE).to_pylist():
            found: bytes | str | None = None if value is None else self._as_json(value, read)
            if isinstance(found, str):
                texts.append(base64.b64encode(value))
                problems.append(found)
            else:
                texts.append(found)
                problems.append(None)
        columns = [
            pa.array(texts, pa.binary()) if name == VALUE else packet.column(name) for name in packet.schema.names
        ]
        return pa.record_batch([*columns, pa.array(problems, pa.string())], [*packet.schema.names, PROBLEM])

    def _as_json(self, value: bytes, read: Callable[..., Any]) -> bytes | str:
        """A value as JSON in bytes, or a ``str`` that says why it cannot be decoded."""
        if len(value) < _HEADER or value[0] != 0:
            return "not Avro with the number of a schema before it"
        schema = self.registry.schema(int.from_bytes(value[1:_HEADER], "big"))
        if isinstance(schema, str):
            return schema
        body = io.BytesIO(value)
        body.seek(_HEADER)
        try:
            record = read(body, schema, None)
            left = len(value) - body.tell()
            text = json.dumps(record, default=_text).encode()
        except Exception as error:  # whatever bytes may do to a parser
            # The place of an object in memory would be another one each time that the record is read.
            reason = _PLACE.sub("", f"{type(error).__name__}: {error}")[:_LONGEST_REASON]
            return f"not a record of its Avro schema ({reason})"
        return f"not a record of its Avro schema ({left} bytes are left over)" if left else text

    def decoded_columns(self, records: RecordColumns) -> str:
        return ddl([*records.read_columns, Column(PROBLEM, "string")])

    def rows(self, packets: DataFrame, records: RecordColumns, topic: str) -> DataFrame:
        return self.rows_of.rows(packets, records, topic, problem=PROBLEM)


def _text(value: object) -> str:
    """What JSON has no value for, written so that Spark reads the same."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time_of_day):
        return value.isoformat()
    return str(value)  # a decimal, a UUID
