"""What can go wrong with the output of a query."""

from __future__ import annotations

from headgate.core.errors import HeadgateError


class OutputError(HeadgateError):
    """A sink cannot take rows: the disk is full, the folder may not be written to, the broker is gone."""
