"""What can go wrong with the input of a query, apart from single rows: those are rejected and the query goes on."""

from __future__ import annotations

from headgate.core.errors import HeadgateError


class InputError(HeadgateError):
    """A source cannot give its rows: a file, a connection or a batch is not what was said of it."""
