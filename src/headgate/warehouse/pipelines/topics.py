"""A stream of Kafka as a project reads it, ``spark.readStream.format("kafka")``, as a source of Headgate.

Its columns are those that Spark gives: key, value, topic, partition, offset, timestamp and timestampType, and headers
if they are asked for. Where to begin, what to do if records are missing and which transactions count is as in Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headgate.core import DeclarationError
from headgate.warehouse.pipelines.definitions import FileRead
from headgate.warehouse.sources import Kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PREFIX = "kafka."
#: options, in lower case, that say how much to read at once, or how to name and repeat requests: Headgate decides
_UNUSED = {
    *("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "minpartitions", "maxrecordsperpartition"),
    *("fetchoffset.numretries", "fetchoffset.retryintervalms", "groupidprefix", "kafka.group.id"),
    *("kafkaconsumer.polltimeoutms", "startingoffsetsbytimestampstrategy"),
}
_USED = {"subscribe", "startingoffsets", "startingtimestamp", "failondataloss", "includeheaders"}
_LOGIN = re.compile(r"""(username|password)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;"']+))""")
#: whether a record has no value, which is a row for Spark
_IS_EMPTY = "headgate_no_value"
_PARTS = {
    "key": "key_bytes",
    "partition": "partition",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    _IS_EMPTY: "tombstone",
}
_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def topic_source(read: FileRead, more: Mapping[str, Any]) -> Kafka:
    """The source of a stream of a topic. ``more`` are settings of librdkafka that the side file has."""
    given = {key.lower(): value for key, value in read.options.items()}
    for key in given:
        if not key.startswith(_PREFIX) and key not in (_USED | _UNUSED):
            raise DeclarationError(f"the option {_written(read, key)!r} of a stream of Kafka cannot be taken over")
    if "," in read.path:
        raise DeclarationError(f"a stream of one topic can be taken over; got {read.path!r}. Read each as a flow")
    settings = {
        key.removeprefix(_PREFIX): value
        for key, value in given.items()
        if key.startswith(_PREFIX) and key not in _UNUSED
    }
    servers, isolation = settings.pop("bootstrap.servers"), settings.pop("isolation.level", "read_uncommitted")
    record = _PARTS | ({"headers": "headers"} if given.get("includeheaders") == "true" else {})
    return Kafka(
        servers,
        read.path,
        format="raw",
        schema="value binary",
        record=record,
        start=_start(given),
        missing="skip" if given.get("failondataloss") == "false" else "stop",
        isolation=isolation,  # type: ignore[arg-type]
        options=_translated(settings, read.path, more),
    )


def as_spark_gives_it(rows: DataFrame, read: FileRead) -> DataFrame:
    """The rows of a topic with the columns of Spark, in their order."""
    from pyspark.sql import functions as F

    headers = ("headers",) if "headers" in rows.columns else ()
    return rows.withColumn("topic", F.lit(read.path)).select(*_COLUMNS, *headers)


def _start(given: Mapping[str, str]) -> str | float:
    if "startingtimestamp" in given:
        return float(given["startingtimestamp"]) / 1000
    start = given.get("startingoffsets", "latest").lower()
    if start not in ("earliest", "latest"):
        text = "startingOffsets can be taken over as 'earliest' or 'latest', or as a moment by startingTimestamp"
        raise DeclarationError(f"{text}; got {given['startingoffsets']!r}")
    return start


def _translated(settings: Mapping[str, str], topic: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of Java's client as those of librdkafka, most of which have the same names."""
    made: dict[str, Any] = {}
    for key, value in settings.items():
        if key == "sasl.jaas.config":
            found = {name: first or second or third for name, first, second, third in _LOGIN.findall(value)}
            made |= {f"sasl.{name}": each for name, each in found.items()}
        elif key.startswith(("ssl.truststore.", "ssl.keystore.")) and not more:
            raise DeclarationError(
                f"the option 'kafka.{key}' is one of Java: state where the certificates lie for librdkafka, in "
                f"headgate.yml under sources, {topic}, as in options: {{ssl.ca.location: /etc/ssl/kafka-ca.pem}}"
            )
        elif not key.startswith(("ssl.truststore.", "ssl.keystore.")):
            made[key] = value
    return made | dict(more)


def _written(read: FileRead, lower: str) -> str:
    return next(key for key in read.options if key.lower() == lower)
