"""Errors of places that tables are published to."""

from __future__ import annotations

from headgate.core import HeadgateError


class PublishError(HeadgateError):
    """A table cannot be published as declared; the message says what to do. The table itself goes on."""
