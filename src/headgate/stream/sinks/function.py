"""Rows handed to a function of the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core.errors import ParameterError, user_error

Per = Literal["batch", "row"]


class ToFunction:
    """A sink that calls a function with every record batch, or with every row as a dict.

    A function that may wait for something is ``blocking``: it is called in a thread of its own.
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


def to_function(function: Callable[[Any], object], per: Per = "batch", *, blocking: bool = False) -> ToFunction:
    """Call ``function`` with every record batch, or with every row as a dict (``per="row"``), in order.

    Say ``blocking=True`` if it may wait for something: it then has a thread of its own.
    """
    return ToFunction(function, per, blocking=blocking)
