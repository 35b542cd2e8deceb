"""What goes wrong while a query runs, in words for the person who wrote it."""

from __future__ import annotations

from headgate.core.errors import DeclarationError, HeadgateError, UserCodeError


class QueryError(UserCodeError):
    """An operator of a query raised; ``__cause__`` is the exception with its own traceback.

    The query has stopped, other queries go on.
    """

    def __init__(self, query: str, operator: str, serial: int | None, cause: BaseException) -> None:
        self.query = query
        self.operator = operator
        self.serial = serial
        where = "" if serial is None else f" at packet {serial}"
        super().__init__(
            f"query {query!r} stopped: operator {operator!r} failed{where}: {type(cause).__name__}: {cause}"
        )
        self.__cause__ = cause


class QueryDeclarationError(DeclarationError):
    """A query cannot be run as it is written."""


class EngineStoppedError(HeadgateError):
    """The engine was asked for something after it had been stopped."""


class Reject(Exception):  # noqa: N818 - an answer rather than an error
    """Raised by a function over rows: this row is not for this query; it goes to ``rejected`` with the reason given."""
