"""What the engine asks of a sink, and the sinks inside the program: a list, and a function of the user's.

Batches come in order, from one thread at a time but not always the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, runtime_checkable

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import ParameterError, user_error

Per = Literal["batch", "row"]


class Writer(Protocol):
    """One run into a sink."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the next rows; batches are never empty."""

    def close(self) -> None:
        """The query has ended, well or not. May be called more than once."""


@runtime_checkable
class Sink(Protocol):
    """Where rows go. A sink with an attribute ``blocking`` that is true gets a thread of its own."""

    def open(self) -> Writer:
        """Begin a run."""


class Collect:
    """A sink that keeps the batches of its last run. ``schema`` is for the table of a run without rows."""

    def __init__(self, schema: pa.Schema | None = None) -> None:
        self._schema = schema
        self.batches: list[pa.RecordBatch] = []

    def __repr__(self) -> str:
        return f"Collect({sum(batch.num_rows for batch in self.batches)} rows)"

    def open(self) -> ListWriter:
        self.batches = []
        return ListWriter(self.batches)

    def table(self) -> pa.Table:
        """All rows in their order."""
        if not self.batches and self._schema is None:
            return pa.table({})
        return pa.Table.from_batches(self.batches, schema=self._schema)

    def rows(self) -> list[dict[str, Any]]:
        """All rows in their order, as dicts."""
        rows: list[dict[str, Any]] = self.table().to_pylist()
        return rows


class ToList:
    """A sink that appends every batch to a list; a further run appends to it as well."""

    def __init__(self, target: list[pa.RecordBatch]) -> None:
        self._target = target

    def open(self) -> ListWriter:
        return ListWriter(self._target)


class ListWriter:
    def __init__(self, target: list[pa.RecordBatch]) -> None:
        self._target = target

    def write(self, batch: pa.RecordBatch) -> None:
        self._target.append(batch)

    def close(self) -> None:
        """All batches are in the list already."""


class ToFunction:
    """A sink that calls a function with every record batch, or with every row as a dict (``per="row"``), in order.

    Say ``blocking=True`` if the function may block: it is then called in a thread of its own.
    """

    def __init__(self, function: Callable[[Any], object], per: Per = "batch", *, blocking: bool = False) -> None:
        if per not in ("batch", "row"):
            raise ParameterError(f"to_function: per is 'batch' or 'row'; got {per!r}")
        if not callable(function):
            raise ParameterError(f"to_function takes a function of one argument; got {type(function).__name__}")
        self._function = function
        self._per = per
        self.blocking = blocking

    def __repr__(self) -> str:
        return f"to_function({getattr(self._function, '__name__', 'a function')}, per={self._per!r})"

    def open(self) -> FunctionWriter:
        return FunctionWriter(self._function, self._per, repr(self))


class FunctionWriter:
    def __init__(self, function: Callable[[Any], object], per: Per, name: str) -> None:
        self._function = function
        self._per = per
        self._name = name

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            for argument in [batch] if self._per == "batch" else batch.to_pylist():
                self._function(argument)
        except Exception as error:
            raise user_error(f"the function of {self._name} failed", error) from error

    def close(self) -> None:
        """The function has seen everything."""


#: the names under which users know these sinks
to_list = ToList
to_function = ToFunction
