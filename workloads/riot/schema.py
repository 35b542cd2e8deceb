"""The columns of RIoTBench's city data (SYS): readings as they come, single observations, and annotated readings.

The original passes text from task to task. Here values are typed: an absent value is null where the original writes
``"null"``, and a field's name is its number in ``OBSERVABLES``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: the five sensors of a source, in the order of the schema
SENSORS = ("temperature", "humidity", "light", "dust", "airquality_raw")
#: what ETL makes a row of each: ``obstype`` is the place in here
OBSERVABLES = ("source", *SENSORS)
SOURCE_FIELD = 0

#: {numeric field: unit}, in the order of a reading
UNITS = {
    "longitude": "lon",
    "latitude": "lat",
    "temperature": "far",
    "humidity": "per",
    "light": "per",
    "dust": "per",
    "airquality_raw": "per",
}

#: a line of input: SenML or CSV, with the number of its message
LINES = pa.schema([("msgid", pa.int64()), ("line", pa.string())])

READINGS = pa.schema(
    [
        ("msgid", pa.int64()),
        ("timestamp", pa.int64()),
        ("source", pa.string()),
        *((name, pa.float64()) for name in UNITS),
    ]
)

ANNOTATED = pa.schema([*READINGS, ("location", pa.string()), ("type", pa.string())])

#: one observation; ``text`` is the value of the field ``source``, ``value`` that of a sensor
OBSERVATIONS = pa.schema(
    [
        ("msgid", pa.int64()),
        ("source", pa.string()),
        ("timestamp", pa.int64()),
        ("longitude", pa.float64()),
        ("latitude", pa.float64()),
        ("obstype", pa.int8()),
        ("value", pa.float64()),
        ("text", pa.string()),
    ]
)


def floats(column: pa.Array) -> Floats:
    """The column with NaN for null; no other NaN can be in it, as parsing takes finite numbers only."""
    values: Floats = column.to_numpy(zero_copy_only=False)
    return values


def nullable(values: Floats) -> pa.Array:
    """The inverse of ``floats``."""
    return pa.array(values, from_pandas=True)


def empty(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows."""
    return pa.RecordBatch.from_pylist([], schema=schema)
