"""The errors of the stream engine.

HeadgateError
├── DeclarationError
│   └── QueryDeclarationError   a query cannot be run as it is written
├── UserCodeError
│   └── QueryError              an operator of a running query failed; names query, operator and packet
├── InputError                  a source cannot give its rows: a file, a connection or a batch is not as declared
├── OutputError                 a sink cannot take rows: no room, no permission, no broker
├── BrokerError                 an MQTT broker cannot be reached, does not answer, or refuses
└── EngineStoppedError          an engine was used after it had been stopped

``Reject`` is not an error: a function over rows raises it to reject a row.
"""

from __future__ import annotations

from headgate.core import DeclarationError, HeadgateError, UserCodeError


class QueryDeclarationError(DeclarationError):
    """A query cannot be run as it is written."""


class QueryError(UserCodeError):
    """An operator of a query raised; ``__cause__`` is the exception with its own traceback.

    The query has stopped; other queries go on.
    """

    def __init__(self, query: str, operator: str, serial: int | None, cause: BaseException) -> None:
        self.query = query
        self.operator = operator
        self.serial = serial
        where = "" if serial is None else f" at packet {serial}"
        super().__init__(
            f"query {query!r} stopped: operator {operator!r} failed{where}: {type(cause).__name__}: {_text(cause)}"
        )
        self.__cause__ = cause


def _text(error: BaseException) -> str:
    """The text of a user's exception, whose ``__str__`` is user code as well."""
    try:
        return str(error)
    except BaseException as another:
        return f"(no text: its __str__ raised {type(another).__name__})"


class InputError(HeadgateError):
    """A source cannot give its rows: a file, a connection or a batch is not as declared.

    Single rows that do not fit are not errors: they are rejected, and the query goes on.
    """


class OutputError(HeadgateError):
    """A sink cannot take rows: the disk is full, the folder may not be written to, the broker is gone."""


class BrokerError(HeadgateError):
    """An MQTT broker cannot be reached, does not answer, or refuses."""


class EngineStoppedError(HeadgateError):
    """The engine was used after it had been stopped."""


class Reject(Exception):  # noqa: N818 - an answer rather than an error
    """Raised by a function over rows: the row goes to ``rejected`` with the reason, and the query goes on."""
