"""What STATS' branches take and give: measurements in, and lists of numbers out in a form they all share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.stream import Output
from workloads.riot.schema import OBSERVABLES, OBSERVATIONS

#: an observation that is there, so ``value`` is never null
MEASUREMENTS = OBSERVATIONS.remove(OBSERVATIONS.get_field_index("text"))

ANALYSES = ("sliding_regression", "second_order_moment", "distinct_count")
SLIDING_REGRESSION, SECOND_ORDER_MOMENT, DISTINCT_COUNT = range(len(ANALYSES))

#: ``analysis`` is the place in ``ANALYSES``
RESULTS = pa.schema(
    [
        *MEASUREMENTS.remove(MEASUREMENTS.get_field_index("value")),
        ("analysis", pa.int8()),
        ("result", pa.list_(pa.float64())),
    ]
)

MESSAGES = pa.schema([("msgid", pa.int64()), ("analysis", pa.string()), ("message", pa.string())])


def results(batch: pa.RecordBatch, analysis: int, values: NDArray[Any]) -> pa.RecordBatch:
    """Measurements with the results of an analysis instead of their values: ``values`` has a row for each."""
    rows = batch.num_rows
    matrix = values.reshape(rows, -1) if rows else values.reshape(0, 1)
    offsets = np.arange(rows + 1, dtype=np.int32) * matrix.shape[1]
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(matrix.ravel().astype(np.float64)))
    columns = [batch.column(name) for name in RESULTS.names[:-2]]
    return pa.record_batch([*columns, pa.array(np.full(rows, analysis, dtype=np.int8)), lists], schema=RESULTS)


def message(batch: pa.RecordBatch) -> Output:
    """Results as texts ``source;longitude;latitude-field-number#number#...``."""
    lists = batch.column("result")
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    texts = pa.ListArray.from_arrays(pa.array(offsets), lists.flatten().cast(pa.string()))
    place = [batch.column(name).cast(pa.string()) for name in ("source", "longitude", "latitude")]
    meta = pc.binary_join_element_wise(*place, ";", null_handling="replace", null_replacement="null")
    field = pa.array(OBSERVABLES).take(batch.column("obstype"))
    whole = pc.binary_join_element_wise(meta, field, pc.binary_join(texts, "#"), "-")
    analysis = pa.array(ANALYSES).take(batch.column("analysis"))
    return Output(pa.record_batch([batch.column("msgid"), analysis, whole], schema=MESSAGES))
