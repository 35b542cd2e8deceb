"""Declaring an alert: when somebody outside is called, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from headgate.core import DeclarationError
from headgate.warehouse.declare.collecting import noting_a_mistake, users_line
from headgate.warehouse.declare.durations import Duration, seconds
from headgate.warehouse.declare.spec import Place


@dataclass(frozen=True, init=False)
class Alert:
    """Calls ``to`` when a table needs a person, once, and once when it does not any more.

    ``to`` is the URL of a webhook, which gets a POST with JSON, or a command as a list of words, such as
    ``["notify", "oncall"]``, which gets the same JSON on its standard input. It is about ``tables``, or all of them.
    ``late``: a table has missed its ``target_lag`` for longer than that. ``held``: it is held after too many failures,
    or the run has failed. ``rejected``: the share of rows, above 0 and below 1, that is too much of those of the last
    minutes. ``silent``: the source of a stream has given nothing for longer than that.
    """

    #: where it goes may be a secret, as the URLs of many webhooks are
    to: str | tuple[str, ...] = field(repr=False)
    tables: tuple[str, ...]
    late: float | None
    held: bool
    rejected: float | None
    silent: float | None
    place: Place = field(compare=False)

    @noting_a_mistake()
    def __init__(
        self,
        to: str | Sequence[str],
        tables: str | Sequence[str] = (),
        *,
        late: Duration | None = None,
        held: bool = True,
        rejected: float | None = None,
        silent: Duration | None = None,
    ) -> None:
        kept = object.__setattr__
        kept(self, "place", users_line())
        named = (tables,) if isinstance(tables, str) else tuple(tables)
        kept(self, "tables", tuple(map(str, named)))
        kept(self, "held", bool(held))
        kept(self, "to", _destination(to))
        kept(self, "late", None if late is None else seconds(late, "late of an alert"))
        kept(self, "silent", None if silent is None else seconds(silent, "silent of an alert"))
        is_number = isinstance(rejected, int | float) and not isinstance(rejected, bool)
        if rejected is not None and not (is_number and 0 < rejected < 1):
            raise DeclarationError(f"rejected of an alert takes a share above 0 and below 1; got {rejected!r}")
        kept(self, "rejected", rejected)
        if late is None and silent is None and rejected is None and not held:
            raise DeclarationError("an alert takes late=, held=, rejected= or silent=; got none of them")

    @property
    def shown(self) -> str:
        """Where it goes, without what may be secret."""
        return self.to[0] if isinstance(self.to, tuple) else f"the webhook at {urlsplit(self.to).hostname}"


def _destination(to: str | Sequence[str]) -> str | tuple[str, ...]:
    if isinstance(to, str):
        try:
            parts = urlsplit(to)
            if parts.scheme in ("http", "https") and parts.hostname and to.isascii() and to.isprintable():
                return to
        except ValueError:
            pass
    elif isinstance(to, list | tuple) and to and all(isinstance(word, str) and "\0" not in word for word in to):
        return tuple(to)
    expected = "the URL of a webhook, such as 'https://host/path', or a command, such as ['notify', 'oncall']"
    raise DeclarationError(f"an alert goes to= {expected}; got {to!r}")
