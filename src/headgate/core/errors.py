"""The root of all errors, and those of the core; ``headgate.errors`` has the whole tree.

HeadgateError
├── DeclarationError           what was asked for cannot be done as written; exit status 2 on the command line
│   ├── GraphError             two nodes of one name, an edge to nowhere, a cycle
│   ├── UnknownNameError       a policy, placement or feature that does not exist, with the nearest names
│   ├── ParameterError         a policy or placement was given a parameter it does not take, or a bad value
│   ├── MissingFeatureError    a policy reads a feature that this engine does not have
│   └── ScenarioError          a scenario file with an unknown key or an impossible value
├── UserCodeError              a policy or function written by the user failed; carries the user's own exception
├── SchedulerMisuseError       an engine broke the protocol of a loop
└── InvariantError             a rule that Headgate keeps by itself was broken: our bug, please report it
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NoReturn


class HeadgateError(Exception):
    """The base of all errors that Headgate raises on purpose."""


class DeclarationError(HeadgateError):
    """What was asked for cannot be done as written; nothing has been started."""


class GraphError(DeclarationError):
    """The nodes and edges given do not form a directed acyclic graph with unique names."""


class ParameterError(DeclarationError):
    """A policy or placement was given a parameter that it does not take, or a value outside its range."""


class MissingFeatureError(DeclarationError):
    """A policy or placement reads a feature that the engine does not provide."""

    def __init__(self, reader: str, feature: str, provided: Iterable[str]) -> None:
        self.reader = reader
        self.feature = feature
        self.provided = tuple(sorted(provided))
        super().__init__(
            f"{reader} needs the feature {feature!r}, which this engine does not provide; "
            f"it provides: {', '.join(self.provided)}. Choose another policy, or have the engine measure {feature!r}."
        )


class UnknownNameError(DeclarationError):
    """Something was asked for by a name that does not exist."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, hint: str = "") -> None:
        self.name = name
        self.known = tuple(sorted(known))
        close = difflib.get_close_matches(name, self.known, n=3)
        meant = f"Did you mean {' or '.join(repr(c) for c in close)}? " if close else ""
        others = f". {meant}Known: {', '.join(self.known)}." if self.known else ", nor any other."
        text = f"there is no {kind} called {name!r}{others}"
        super().__init__(f"{text} {hint}".rstrip())


class ScenarioError(DeclarationError):
    """A scenario file says something that cannot be simulated."""


class UserCodeError(HeadgateError):
    """Code written by the user failed; ``__cause__`` is the user's own exception with its traceback."""


def said_by(error: BaseException) -> str:
    """The text of an error. That of a user may fail even to give one, and must not take others with it."""
    try:
        return str(error)
    except BaseException as second:
        return f"{type(error).__name__}, whose own text cannot be made: {type(second).__name__}"


#: what a policy of a user's may raise: nothing of it may end the run. First ``let_pass`` what is meant to.
USER_ERRORS = (BaseException,)


def let_pass(error: BaseException) -> None:
    """Raise again what nobody may keep: Ctrl-C, and that by which Headgate itself ends a thread."""
    ours = not isinstance(error, Exception) and type(error).__module__.startswith("headgate.")
    if ours or isinstance(error, KeyboardInterrupt):
        raise error


def raise_users(what: str, error: BaseException) -> NoReturn:
    """Raise what code of a user's has raised as one of our errors, with the user's as its cause."""
    let_pass(error)
    if isinstance(error, HeadgateError):
        raise error
    raise user_error(what, error) from error


def user_error(what: str, error: BaseException) -> HeadgateError:
    """``error`` as one of ours: itself if it is, otherwise a UserCodeError to be raised from it."""
    if isinstance(error, HeadgateError):
        return error
    return UserCodeError(f"{what}: {type(error).__name__}: {said_by(error)}")


class SchedulerMisuseError(HeadgateError):
    """An engine broke the protocol of a loop: unknown id, wrong worker, wrong order of calls. The loop is unchanged."""


class InvariantError(HeadgateError):
    """A rule that Headgate keeps by itself was broken. This is a bug in Headgate: please report it."""
