"""Functions of the user as kernels: over record batches (fast), polars frames, or single rows (convenient).

A kernel knows which row an output row comes from, so that branches that meet again keep the order of a serial run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow import acero

from headgate.stream.errors import QueryDeclarationError, Reject
from headgate.stream.kernel import Function, Output, Rejected
from headgate.stream.packet import Ints, empty_batch

Over = Literal["batch", "frame", "row"]
OVER: tuple[Over, ...] = ("batch", "frame", "row")
Row = Mapping[str, Any]
#: an Arrow expression or a function
Condition = Any


def mapper(function: Callable[..., Any], over: Over, schema: pa.Schema | None) -> Function:
    """One row out for each row in."""
    if over == "row":
        return _RowMap(function, _required(schema, "map"))
    call = _over_batches(function, over)

    def kernel(batch: pa.RecordBatch) -> Output:
        result = call(batch)
        if isinstance(result, Output):
            return result
        if result.num_rows != batch.num_rows:
            raise ValueError(
                f"map must give one row for each row: got {result.num_rows} rows for {batch.num_rows}; "
                "use flat_map, which also says which row each comes from, or filter"
            )
        return Output(result)

    return kernel


def projector(columns: Sequence[str], computed: Mapping[str, pc.Expression]) -> Function:
    """Some columns as they are, and others computed."""
    if not computed:
        return lambda batch: Output(batch.select(list(columns)))
    expressions = {**{name: pc.field(name) for name in columns}, **computed}
    return lambda batch: Output(_evaluate(batch, expressions))


def selector(condition: Condition, over: Over) -> Function:
    """The rows for which a condition holds."""
    if isinstance(condition, pc.Expression):
        return lambda batch: _select(batch, _evaluate(batch, {"keep": condition}).column(0))
    if over == "row":
        return _RowFilter(condition)
    call = _over_batches(condition, over)
    return lambda batch: _select(batch, call(batch))


def flat_mapper(function: Callable[..., Any], over: Over, schema: pa.Schema | None) -> Function:
    """Any number of rows for each row. Over batches and frames, the function gives the rows and, as a second value, the
    number of the row that each of them comes from, never decreasing."""
    if over == "row":
        return _RowFlatMap(function, _required(schema, "flat_map"))
    call = _over_batches(function, over)

    def kernel(batch: pa.RecordBatch) -> Output:
        result = call(batch)
        if isinstance(result, Output):
            return result
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(
                f"flat_map over {over} needs a pair: the rows, and for each the number of the row it comes from; "
                f"got {type(result).__name__}"
            )
        rows, parents = result[0], np.asarray(result[1], dtype=np.int64)
        if len(parents) != rows.num_rows or (len(parents) and bool(np.any(np.diff(parents) < 0))):
            raise ValueError(
                f"flat_map gave {rows.num_rows} rows and {len(parents)} row numbers; "
                "there must be as many, and they must never decrease"
            )
        return Output(rows, parents)

    return kernel


# --- columns ------------------------------------------------------------------------------------------------


def check_output(kernel: Function, schema: pa.Schema) -> Function:
    """The kernel, with a check that its rows have the declared columns: later operators rely on them."""

    def checked(batch: pa.RecordBatch) -> Output:
        output = kernel(batch)
        actual = output.batch.schema
        # Whether a column may be null, and its metadata, do not matter.
        if not actual.equals(schema) and (actual.names != schema.names or actual.types != schema.types):
            raise TypeError(f"it gave columns ({columns_text(actual)}), and should give ({columns_text(schema)})")
        return output

    return checked


def infer_schema(kernel: Function, schema: pa.Schema, what: str) -> pa.Schema:
    """The columns that a kernel gives, found by calling it with a batch of ``schema`` without rows."""
    try:
        return kernel(empty_batch(schema)).batch.schema
    except Exception as error:
        raise QueryDeclarationError(
            f"{what}: the function failed on a batch without rows, by which the types of its columns are found: "
            f"{type(error).__name__}: {error}. Operators get such batches while a query runs too: make it accept them."
        ) from error


def columns_text(schema: pa.Schema) -> str:
    """Names and types of columns in one line."""
    return ", ".join(f"{field.name} {field.type}" for field in schema)


# --- over batches and frames --------------------------------------------------------------------------------


def _over_batches(function: Callable[..., Any], over: Over) -> Callable[[pa.RecordBatch], Any]:
    if over == "batch":
        return lambda batch: _one_batch(function(batch))
    polars = import_polars()

    def call(batch: pa.RecordBatch) -> Any:
        result = function(polars.from_arrow(batch))
        return (_one_batch(result[0]), result[1]) if isinstance(result, tuple) else _one_batch(result)

    return call


def _one_batch(result: Any) -> Any:
    """Tables and frames as one record batch; everything else as it is."""
    if hasattr(result, "to_arrow") and not isinstance(result, pa.Table | pa.Array):
        result = result.to_arrow()
    if isinstance(result, pa.Table):
        batches = result.combine_chunks().to_batches()
        return batches[0] if batches else empty_batch(result.schema)
    return result


def import_polars() -> Any:
    try:
        import polars
    except ImportError as error:
        raise QueryDeclarationError(
            "functions over frames need polars, which is not installed: install headgate[frames], "
            "or write the function over record batches"
        ) from error
    return polars


def _evaluate(batch: pa.RecordBatch, expressions: Mapping[str, pc.Expression]) -> pa.RecordBatch:
    """The columns that Arrow expressions make of a batch."""
    table = pa.Table.from_batches([batch])
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
            acero.Declaration("project", acero.ProjectNodeOptions(list(expressions.values()), list(expressions))),
        ]
    )
    # Without Arrow's own threads: the engine has its workers.
    batches = plan.to_table(use_threads=False).combine_chunks().to_batches()
    if batches:
        return batches[0]
    return empty_batch(plan.to_reader(use_threads=False).schema)


def _select(batch: pa.RecordBatch, mask: Any) -> Output:
    keep = np.asarray(pc.fill_null(mask, False) if isinstance(mask, pa.Array | pa.ChunkedArray) else mask, dtype=bool)
    if keep.shape != (batch.num_rows,):
        raise ValueError(f"a filter must give one truth value for each row: got {keep.shape} for {batch.num_rows} rows")
    parents: Ints = np.flatnonzero(keep)
    if len(parents) == batch.num_rows:
        return Output(batch)
    return Output(batch.take(pa.array(parents)), parents)


# --- over rows ----------------------------------------------------------------------------------------------


class _RowMap:
    def __init__(self, function: Callable[[Row], Row], schema: pa.Schema) -> None:
        self._function, self._schema = function, schema

    def __call__(self, batch: pa.RecordBatch) -> Output:
        rows, parents, rejected = _call_by_row(self._function, batch)
        return Output(
            pa.RecordBatch.from_pylist(rows, schema=self._schema), parents if rejected else None, rejected=rejected
        )


class _RowFilter:
    def __init__(self, condition: Callable[[Row], Any]) -> None:
        self._condition = condition

    def __call__(self, batch: pa.RecordBatch) -> Output:
        results, places, rejected = _call_by_row(self._condition, batch)
        keep = np.zeros(batch.num_rows, dtype=bool)
        keep[places] = [bool(result) for result in results]
        output = _select(batch, keep)
        return Output(output.batch, output.parents, rejected=rejected)


class _RowFlatMap:
    def __init__(self, function: Callable[[Row], Iterable[Row]], schema: pa.Schema) -> None:
        self._function, self._schema = function, schema

    def __call__(self, batch: pa.RecordBatch) -> Output:
        results, places, rejected = _call_by_row(lambda row: list(self._function(row)), batch)
        rows = [row for result in results for row in result]
        parents = np.repeat(places, np.array([len(result) for result in results], dtype=np.int64))
        return Output(pa.RecordBatch.from_pylist(rows, schema=self._schema), parents, rejected=rejected)


def _call_by_row(function: Callable[[Row], Any], batch: pa.RecordBatch) -> tuple[list[Any], Ints, tuple[Rejected, ...]]:
    """The results of a function for each row, the numbers of these rows, and the rows that it rejected."""
    results: list[Any] = []
    rejected: list[Rejected] = []
    for number, row in enumerate(batch.to_pylist()):
        try:
            results.append(function(row))
        except Reject as reason:
            rejected.append(Rejected(number, str(reason), repr(row)))
    places = np.arange(batch.num_rows, dtype=np.int64)
    if rejected:
        places = np.delete(places, [each.row for each in rejected])
    return results, places, tuple(rejected)


def _required(schema: pa.Schema | None, method: str) -> pa.Schema:
    if schema is None:
        raise QueryDeclarationError(
            f"{method} over rows cannot know the types of what the function gives: say schema=pa.schema([...])"
        )
    return schema
