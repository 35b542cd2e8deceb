"""A source of MQTT messages: received in the background into a spool on this machine, and loaded from there.

A broker forgets a message when it was acknowledged. So it is acknowledged when it is on the disk here, numbered, and
its number is part of the commit that loads it. A message that the broker sends again, because the connection broke
before it knew, is another message here: nothing tells it from one that was published twice.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from headgate.core import DeclarationError
from headgate.warehouse.declare.collecting import noting_a_mistake
from headgate.warehouse.sources.errors import SourceError
from headgate.warehouse.sources.mqtt.offsets import MqttOffset, MqttRange
from headgate.warehouse.sources.mqtt.receiver import MqttAddress, MqttReceiver, OpenSpool
from headgate.warehouse.sources.mqtt.spool import SpoolBlock
from headgate.warehouse.sources.parsed_texts import PARSED, TEXT, json_row
from headgate.warehouse.sources.protocol import (
    ERROR_COLUMN,
    FILE_COLUMN,
    RAW_COLUMN,
    Limit,
    Notice,
    Offset,
    Pending,
    Range,
    expect_kind,
    within,
)
from headgate.warehouse.sources.schema import PRIVATE_PREFIX, Column, parse_schema
from headgate.warehouse.sources.sql import ddl

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

#: a range of more than one chunk is at most this large: the driver holds its rows in memory
MOST_BYTES = 64 << 20
#: so many chunks are counted as pending
MOST_CHUNKS = 1_000
#: {part of a message that can be a column: its type}
_PARTS = {
    "topic": "string",
    "received": "timestamp",
    "retained": "boolean",
    "duplicate": "boolean",
    "number": "bigint",
}
_PAYLOAD = f"{PRIVATE_PREFIX}payload"

#: sources that are declared alike, as after the pipeline file was saved, have one receiver
_receivers: weakref.WeakValueDictionary[tuple[object, ...], MqttReceiver] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class _Formatted:
    """What is in payloads."""

    name: str
    columns: tuple[Column, ...]
    parsing: Mapping[str, str]


class MqttMessages:
    """The messages of an MQTT topic; needs the extra ``mqtt``.

    - ``broker``: as in ``"mqtt://user:password@host:1883"``, or ``mqtts://`` for TLS. A password is never printed.
    - ``authority``: for ``mqtts://``, a file with the certificates to trust, if not those of the system.
    - ``topic``: what to subscribe to, also with the wildcards ``+`` and ``#``.
    - ``client_id``: the name by which the broker knows the session, and keeps messages for it. Every stream needs one
      of its own, which must not change.
    - ``format``: what is in payloads: ``json`` (one object), or ``raw`` (one column of the type string or binary).
    - ``schema``: the columns of a payload as Spark writes them. Not needed for ``raw``: ``value string``.
    - ``message``: columns from other parts of a message, by name: ``{"at": "received", "topic": "topic"}``. The parts
      are topic, received (when it came here), retained, duplicate (the broker says that it may have sent it before) and
      number. A list of parts has columns of the same names.
    - ``spool``: a folder on a local disk, by default named after ``client_id``. Messages are in it from the moment when
      they are acknowledged until they are loaded.
    - ``parsing``: options for Spark's parser of JSON.
    """

    @noting_a_mistake()
    def __init__(
        self,
        broker: str,
        topic: str,
        *,
        client_id: str,
        authority: str | os.PathLike[str] = "",
        format: str = "json",
        schema: str = "",
        message: Mapping[str, str] | Iterable[str] = (),
        spool: str | os.PathLike[str] = "",
        parsing: Mapping[str, str] | None = None,
        messages_per_chunk: int = 1_000,
    ) -> None:
        where = f"MqttMessages({topic!r})"
        for name, text in (("topic", topic), ("client_id", client_id)):
            if not isinstance(text, str) or not text:
                raise DeclarationError(f"{where} needs a {name}")
        if "/" in client_id:
            raise DeclarationError(f"{where}: client_id has no '/'; got {client_id!r}")
        if not isinstance(messages_per_chunk, int) or messages_per_chunk < 1:
            raise DeclarationError(f"{where}: messages_per_chunk is a whole number above 0; got {messages_per_chunk!r}")
        self._address = replace(_address(broker, topic, client_id, where), authority=os.fspath(authority))
        if self._address.authority and not self._address.tls:
            raise DeclarationError(f"{where}: authority is for a broker with TLS, as in 'mqtts://user@host:8883'")
        self._format = _format(format, schema, parsing, where)
        self._parts = _message_parts(message, where)
        parse_schema(self.schema, where)  # no name twice
        self._spool = os.fspath(spool) or f"{client_id}.spool"
        self._per_chunk = messages_per_chunk
        self._receiver = self._shared_receiver()

    def __repr__(self) -> str:
        return f"MqttMessages({self._address.topic!r}, client_id={self._address.client_id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MqttMessages) and self._declared == other._declared

    def __hash__(self) -> int:
        return hash((self._address, self._spool))

    @property
    def _declared(self) -> tuple[object, ...]:
        return self._address, self._format, self._parts, self._spool, self._per_chunk

    @property
    def schema(self) -> str:
        return ddl([*self._format.columns, *(Column(name, _PARTS[part]) for name, part in self._parts.items())])

    def resolve(self, base: Path) -> MqttMessages:
        resolved = object.__new__(MqttMessages)
        resolved.__dict__ = self.__dict__ | {"_spool": os.path.join(base, self._spool)}
        if self._address.authority:
            resolved._address = replace(self._address, authority=os.path.join(base, self._address.authority))
        resolved._receiver = resolved._shared_receiver()
        return resolved

    def _shared_receiver(self) -> MqttReceiver:
        key = (self._address, self._spool)
        found = _receivers.get(key)
        if found is None:
            found = _receivers[key] = MqttReceiver(self._address, Path(self._spool))
        return found

    def stop(self) -> None:
        """Stop receiving. It goes on when the source is used again."""
        self._receiver.stop()

    # --- the stream -------------------------------------------------------------------------------------------

    def start(self) -> MqttOffset:
        return MqttOffset()

    def latest(self, offset: Offset) -> Pending:
        blocks, problem, _ = self._pending(offset)
        lost = self._receiver.take_notice()
        return Pending(
            chunks=len(blocks),
            bytes=sum(block.size for block in blocks),
            oldest=min((block.arrived for block in blocks), default=None),
            newest=max((block.newest for block in blocks), default=None),
            note=problem,
            missing=bool(problem) and not blocks,
            notices=(Notice(str(self._address), lost),) if lost else (),
        )

    def next_range(self, offset: Offset, limit: Limit) -> MqttRange | None:
        blocks, _, opened = self._pending(offset)
        if not blocks or opened is None:
            return None
        most = MOST_BYTES if limit.bytes is None else min(limit.bytes, MOST_BYTES)
        taken = within(replace(limit, bytes=most), blocks)
        return MqttRange(
            first=taken[0].first,
            end=taken[-1].end,
            spool=opened.name,
            blocks=len(taken),
            size=sum(block.size for block in taken),
            oldest=min(block.arrived for block in taken),
            newest=max(block.newest for block in taken),
        )

    def _pending(self, offset: Offset) -> tuple[list[SpoolBlock], str, OpenSpool | None]:
        opened, problem = self._receiver.ask(expect_kind(offset, MqttOffset, self))
        if opened is None:
            return [], problem, None
        return list(islice(opened.spool.blocks(opened.loaded, self._per_chunk), MOST_CHUNKS)), problem, opened

    def advance(self, offset: Offset, loaded: Range) -> MqttOffset:
        return expect_kind(offset, MqttOffset, self).after(expect_kind(loaded, MqttRange, self))

    def read(self, spark: SparkSession, wanted: Range) -> DataFrame:
        part = expect_kind(wanted, MqttRange, self)
        messages = spark.createDataFrame(self.arrow(part), f"{ddl(_READ)}, {_PAYLOAD} binary")
        return self._rows(messages)

    def arrow(self, wanted: MqttRange) -> pa.Table:
        """The messages of a range as an Arrow table."""
        import pyarrow as pa

        opened, problem = self._receiver.ask(MqttOffset({wanted.spool: wanted.first}))
        if opened is None:
            raise SourceError(problem)
        if opened.name != wanted.spool:
            raise SourceError(f"messages {wanted.first} to {wanted.end - 1} are in another spool than {self._spool}")
        messages = opened.spool.read(wanted.first, wanted.end)
        values = [
            pa.array([each.topic for each in messages], pa.string()),
            pa.array([each.received for each in messages], pa.timestamp("us", "UTC")),
            pa.array([each.retained for each in messages], pa.bool_()),
            pa.array([each.duplicate for each in messages], pa.bool_()),
            pa.array(range(wanted.first, wanted.first + len(messages)), pa.int64()),
            pa.array([each.payload for each in messages], pa.binary()),
        ]
        return pa.table(values, names=[*(column.name for column in _READ), _PAYLOAD])

    def verify(self, loaded: Range) -> None:
        """Messages in the spool never change."""

    def _rows(self, messages: DataFrame) -> DataFrame:
        text = f"CAST({_PAYLOAD} AS STRING)"
        invalid = f"WHEN NOT is_valid_utf8({text}) THEN 'not valid UTF-8'"
        if self._format.name == "raw" and self._format.columns[0].kind == "binary":
            values, raw, error = [_PAYLOAD], f"base64({_PAYLOAD})", "NULL"
        elif self._format.name == "raw":
            valid = f"make_valid_utf8({text})"
            values, raw, error = [valid], valid, f"CASE {invalid} END"
        else:
            row = json_row(self._format.columns, self._format.parsing, otherwise="not one JSON object")
            messages = messages.selectExpr(
                *(column.name for column in _READ),
                _PAYLOAD,
                f"make_valid_utf8({text}) AS {TEXT}",
                # Computed once per row: see ``files.lines``.
                f"IF(spark_partition_id() >= 0, {row.parse}, NULL) AS {PARSED}",
            )
            values, raw = list(row.values), TEXT
            error = f"CASE {invalid} WHEN {row.good} THEN NULL ELSE {row.reason} END"
        columns = zip(values, self._format.columns, strict=True)
        return messages.selectExpr(
            *(f"{value} AS {column.quoted}" for value, column in columns),
            *(f"{PRIVATE_PREFIX}{part} AS {Column(name, '').quoted}" for name, part in self._parts.items()),
            f"concat({PRIVATE_PREFIX}topic, '@', {PRIVATE_PREFIX}number) AS {FILE_COLUMN}",
            f"{raw} AS {RAW_COLUMN}",
            f"CAST({error} AS STRING) AS {ERROR_COLUMN}",
        )


_READ = tuple(Column(f"{PRIVATE_PREFIX}{part}", kind) for part, kind in _PARTS.items())


def _address(broker: str, topic: str, client_id: str, where: str) -> MqttAddress:
    # urlsplit would take a part of the password for the host
    if isinstance(broker, str) and re.match(r"(?is)mqtts?://[^/?#]*(#|[/?].*[@#])", broker):
        raise DeclarationError(
            f"{where}: the address has a '/', '?', '#' or '@' where none can be, perhaps in the password. Write it "
            "percent-encoded there: %2F for '/', %3F for '?', %23 for '#', %40 for '@'"
        )
    try:
        parts = urlsplit(broker)
        port = parts.port
    except (ValueError, AttributeError, TypeError):
        parts, port = urlsplit(""), None
    if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname:
        raise DeclarationError(f"{where} needs the address of a broker, as in 'mqtt://user@host:1883'")
    return MqttAddress(
        parts.hostname,
        port or (8883 if parts.scheme == "mqtts" else 1883),
        topic,
        client_id,
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
        parts.scheme == "mqtts",
    )


def _format(name: str, schema: str, parsing: Mapping[str, str] | None, where: str) -> _Formatted:
    if name not in ("json", "raw"):
        raise DeclarationError(f"{where}: format takes 'json' or 'raw'; got {name!r}")
    columns = parse_schema(schema or ("value string" if name == "raw" else ""), where)
    if name == "raw" and (len(columns) != 1 or columns[0].kind not in ("string", "binary")):
        raise DeclarationError(f"{where}: the format 'raw' has one column, a string or a binary: 'value string'")
    return _Formatted(name, columns, dict(parsing or {}))


def _message_parts(declared: Mapping[str, str] | Iterable[str], where: str) -> dict[str, str]:
    if isinstance(declared, str):
        raise DeclarationError(f"{where}: message takes parts by the names of columns, as in {{'at': 'received'}}")
    parts = dict(declared) if isinstance(declared, Mapping) else {name: name for name in declared}
    for part in parts.values():
        if part not in _PARTS:
            raise DeclarationError(f"{where}: a message has the parts {', '.join(_PARTS)}; got {part!r}")
    return parts
