"""What a policy is: the features of all nodes in, a priority vector per node out.

A policy only ranks, and may say how much of what waits one run takes. It has no clock, does no I/O and keeps no state:
what it must remember from one decision to the next is passed in (``view.memory``) and returned (``remember``). The
loops decide whether and where a node can run, and that no node waits for ever.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, fields, is_dataclass
from itertools import islice
from typing import Any, ClassVar, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from headgate.core.errors import USER_ERRORS, UserCodeError, let_pass, raise_users
from headgate.core.graph import Floats, Ints
from headgate.core.inheritance import Inheritance
from headgate.core.matrix import FeatureView, in_view

#: the longest text that a policy or placement may give of itself, in letters: traces and everything shown have it
MOST_SAID = 10_000
#: the most names of features, or lines for ``explain``, that one may list: a list that never ends would fill the memory
MOST_LISTED = 1000

_OBJECTS = np.dtype(object)
_TEXTS = f"a tuple of at most {MOST_LISTED} texts"

_Said = TypeVar("_Said")


class Choosable:
    """What policies and placements have in common: users choose them by name, with parameters.

    Subclasses are frozen dataclasses of their parameters.
    """

    name: ClassVar[str]
    """Short name, as on the command line; left out, the name of the class."""
    summary: ClassVar[str] = ""
    """What it does, in one line."""
    paper: ClassVar[str] = ""
    """Where the rule comes from."""
    needs: ClassVar[tuple[str, ...]] = ()
    """The features that it reads."""

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = cls.__name__

    def __str__(self) -> str:
        """The name with the parameters that differ from their defaults, as a user would write it."""
        stated: tuple[Field[Any], ...] = fields(self) if is_dataclass(self) else ()
        changed = [f"{f.name}={nested(getattr(self, f.name))}" for f in stated if getattr(self, f.name) != f.default]
        return f"{self.name}:{','.join(changed)}" if changed else self.name


def nested(value: object) -> str:
    """The value of a parameter as a user would write it; a policy with parameters of its own in parentheses."""
    text = str(value)
    return f"({text})" if isinstance(value, Choosable) and ":" in text else text


class Policy(Choosable, ABC):
    """Ranks nodes. Subclasses are frozen dataclasses whose fields are the policy's parameters.

    ``priorities`` returns one row per node in view, larger rows first, rows compared from left to right; one number
    per node may be returned as a flat array. Between equal rows the loop decides: see ``ties``.

    A policy is ``local`` if a node's priority depends on the features of that node alone and not on the time, the
    turn or the memory. The loop then ranks again only the nodes that changed, which is what makes ten thousand
    nodes cost as little per decision as a hundred.
    """

    local: ClassVar[bool] = False
    starves: ClassVar[bool] = False
    """True if a runnable node can wait for ever under this policy alone; then only the loop's guard saves it."""

    @abstractmethod
    def priorities(self, view: FeatureView) -> Floats:
        """The priority of every node in ``view``: an array of shape (n,) or (n, D)."""

    def portion(self, view: FeatureView) -> Floats:
        """How much of what is pending one run of each node in ``view`` may take: seconds of data of a table, tuples of
        an operator. Infinity, which is the default, leaves it to the engine; of less than it can take, an engine takes
        the least that it can. Asked when a node was chosen, also by the guard, and then shown that node only: it
        depends on the features of each node, the time and the memory, and not on other nodes."""
        return np.full(len(view), np.inf)

    @property
    def cuts(self) -> bool:
        """Whether a run may take less than everything because of ``portion``; if not, that is never asked. By default
        whether the class has a ``portion`` of its own."""
        return type(self).portion is not Policy.portion

    @property
    def inheritance(self) -> Inheritance | None:
        """How sources inherit priorities under this policy if the user does not say it; None if any way will do."""
        return None

    def remember(self, view: FeatureView, node: int) -> object:
        """The memory to be shown from the next decision on, now that ``node`` was chosen."""
        return view.memory

    def joining(self, view: FeatureView, offered: Ints, others: Ints) -> Ints:
        """Of ``offered``, which wait and could share the job of a node that was chosen, those that may; ``others`` are
        all that wait. By default all may, and those do that save more than they cost. A policy with an order that no
        saving makes up for leaves out whoever would come before its turn."""
        return offered

    def notes(self, view: FeatureView, node: int) -> tuple[str, ...]:
        """What ``explain`` adds about a node that waits: lines that say what the rule went by."""
        return ()

    def requires(self) -> tuple[str, ...]:
        """The features this instance reads; more than ``needs`` where parameters bring in other policies."""
        return self.needs


class WrappingPolicy(Policy):
    """A policy around another one, ``wrapped``: it answers everything as that one does. Subclasses override only what
    differs."""

    @property
    @abstractmethod
    def wrapped(self) -> Policy:
        """The policy that is asked."""

    @property
    def local(self) -> bool:  # type: ignore[override]
        return self.wrapped.local

    def priorities(self, view: FeatureView) -> Floats:
        return priorities_of(self.wrapped, view)

    def portion(self, view: FeatureView) -> Floats:
        return self.wrapped.portion(view)

    @property
    def cuts(self) -> bool:
        return self.wrapped.cuts

    @property
    def inheritance(self) -> Inheritance | None:
        return self.wrapped.inheritance

    def remember(self, view: FeatureView, node: int) -> object:
        return self.wrapped.remember(view, node)

    def joining(self, view: FeatureView, offered: Ints, others: Ints) -> Ints:
        return self.wrapped.joining(view, offered, others)

    def notes(self, view: FeatureView, node: int) -> tuple[str, ...]:
        return self.wrapped.notes(view, node)

    def requires(self) -> tuple[str, ...]:
        return self.wrapped.requires()


@dataclass(frozen=True, slots=True)
class PolicyAnswers:
    """What a policy says of itself. A policy of a user's may answer otherwise, or fail, when it is asked again: so it
    is asked once, before it takes the place of another one."""

    text: str
    requires: tuple[str, ...]
    cuts: bool
    local: bool
    inheritance: Inheritance | None
    remembers: bool
    """Whether it has a ``remember`` of its own; if not, that is never asked."""


def vet(chosen: Choosable) -> None:
    """Ask a policy, or a placement, all that it says of itself; a wrong answer is its author's mistake.

    To be called before it takes the place of another one: then a mistake is told, and nothing has changed.
    """
    if isinstance(chosen, Policy):
        answers_of(chosen)
        return
    who = f"placement {chosen.name!r}"
    _text_said(who, chosen)
    if _answer_of(who, "needs", lambda: _listed(chosen.needs)) is None:
        raise UserCodeError(f"{who}: needs must be the names of features, as {_TEXTS}: correct it")


def answers_of(policy: Policy) -> PolicyAnswers:
    """What a policy says of itself; a wrong answer is its author's mistake."""
    who = f"policy {policy.name!r}"
    text = _text_said(who, policy)
    needs = _answer_of(who, "requires", lambda: _listed(policy.requires()))
    if needs is None:
        raise UserCodeError(f"{who}: requires must return the names of features, as {_TEXTS}: correct it")
    cuts = _answer_of(who, "cuts", lambda: bool(policy.cuts))
    local = _answer_of(who, "local", lambda: bool(policy.local))
    inheritance, known = _answer_of(who, "inheritance", lambda: policy.inheritance), get_args(Inheritance)
    if inheritance is not None and not (isinstance(inheritance, str) and inheritance in known):
        got = repr(inheritance) if isinstance(inheritance, str) else type(inheritance).__name__
        raise UserCodeError(f"{who}: inheritance must be one of {', '.join(known)}, or None; got {got}: correct it")
    remembers = type(policy).remember is not Policy.remember
    return PolicyAnswers(text, needs, cuts, local, inheritance, remembers)


def text_of(chosen: Choosable) -> str:
    """A policy or placement as a user would write it; its name if it fails to say that."""
    try:
        return str(chosen)
    except USER_ERRORS as error:
        let_pass(error)
        return str(chosen.name)


def _text_said(who: str, chosen: Choosable) -> str:
    text = _answer_of(who, "__str__", lambda: str(chosen))
    if len(text) > MOST_SAID:
        got = f"{len(text)}, from {text[:60]!r} on"
        raise UserCodeError(f"{who}: __str__ must return at most {MOST_SAID} letters; got {got}: correct it")
    return text


def _answer_of(who: str, asked: str, question: Callable[[], _Said]) -> _Said:
    try:
        return question()
    except USER_ERRORS as error:
        raise_users(f"{who} cannot be used, because its {asked} failed", error)


def _listed(said: object) -> tuple[str, ...] | None:
    """Texts as a tuple; None if that is not what they are."""
    if isinstance(said, str) or not isinstance(said, Iterable):
        return None
    listed: tuple[object, ...] = (*islice(said, MOST_LISTED + 1),)
    texts = tuple(text for text in listed if isinstance(text, str))
    return None if len(texts) < len(listed) or len(listed) > MOST_LISTED else texts


def notes_of(policy: Policy, view: FeatureView, node: int) -> tuple[str, ...]:
    """What ``policy`` adds about a node that waits; anything but lines of text is the policy's mistake."""
    notes = _listed(policy.notes(view, node))
    if notes is None:
        raise UserCodeError(
            f"policy {text_of(policy)!r}: notes must return lines for explain, as {_TEXTS}: correct the policy or "
            "replace it"
        )
    return notes


def priorities_of(policy: Policy, view: FeatureView) -> Floats:
    """What ``policy`` answers, one number or row for each node in view; anything else is the policy's mistake."""
    answer = policy.priorities(view)
    shape = getattr(answer, "shape", None)
    if shape is None or len(shape) not in (1, 2) or shape[0] != len(view) or not _has_numbers(answer):
        raise UserCodeError(
            f"policy {policy.name!r} must return an array with one number or one row for each of {len(view)} nodes; "
            f"got {_kind(answer)}: correct the policy or replace it"
        )
    return answer


def portions_of(policy: Policy, view: FeatureView) -> Floats:
    """The portion of every node in view by ``policy``; anything but an array of numbers is the policy's mistake."""
    answer = policy.portion(view)
    if getattr(answer, "shape", None) != (len(view),) or not _has_numbers(answer):
        raise UserCodeError(
            f"policy {text_of(policy)!r}: portion must return an array with one number for each of {len(view)} nodes; "
            f"got {_kind(answer)}: correct the policy or replace it"
        )
    return answer


def _has_numbers(array: Any) -> bool:
    """Whether what has a shape is an array of numbers that can be compared; one of objects or complex ones cannot."""
    kind: str = getattr(array, "dtype", _OBJECTS).kind
    return kind in "fiub"


def _kind(answer: Any) -> str:
    """What was returned instead of an array of numbers that has the right shape."""
    shape = getattr(answer, "shape", None)
    if shape is None:
        return type(answer).__name__
    return f"an array of shape {shape}" if _has_numbers(answer) else f"an array of {getattr(answer, 'dtype', _OBJECTS)}"


def portion_of(policy: Policy, view: FeatureView, node: int) -> float:
    """How much of what is pending a run of ``node`` may take by ``policy``."""
    portion = float(portions_of(policy, view.only(np.array([node], dtype=np.intp)))[0])
    if not portion > 0:
        name = view.graph.names[node]
        raise UserCodeError(
            f"policy {text_of(policy)!r}: the portion of {name!r} must be a number above 0, or infinity for "
            f"everything; got {portion}: correct the policy or replace it"
        )
    return portion


def of_highest_rank(rank: Floats, offered: Ints, others: Ints) -> Ints:
    """Of ``offered``, those whose ``rank`` is at least the highest of ``others``."""
    joining: Ints = offered[rank[offered] >= rank[others].max(initial=-np.inf)]
    return joining


def as_table(priorities: Floats) -> Floats:
    """Priorities as an (n, D) table, whichever of the two shapes the policy returned."""
    return priorities[:, np.newaxis] if priorities.ndim == 1 else priorities


def best_first(priorities: Floats, *ties: NDArray[Any]) -> Ints:
    """The rows of a table of priorities, best first; between equal rows by the last of ``ties``, then those before.

    The smallest tie goes first.
    """
    # lexsort takes its last key first, so the columns go in reversed, after what breaks ties
    columns = [-priorities[:, d] for d in range(priorities.shape[1] - 1, -1, -1)]
    order = np.lexsort(columns)
    if len(order) < 2:
        return order
    # Sorting costs most, and ties are rare; numbers that are none count as equal, too.
    differ = [(column[order[1:]] != column[order[:-1]]) & ~np.isnan(column[order[:-1]]) for column in columns]
    return order if np.logical_or.reduce(differ).all() else np.lexsort((*ties, *columns))


def ties(view: FeatureView) -> tuple[NDArray[Any], ...]:
    """What decides between nodes of equal priority, for ``best_first``: the last array first, smaller values first.

    Downstream nodes go first: they finish what was begun, and their sources would only give them more to do. Then the
    most pending, if the engine keeps that feature; then the name that sorts first. By name alone it would depend on
    what tables are called how fresh they are.
    """
    by_name, downstream = in_view(view, view.graph.tie), -in_view(view, view.graph.depth)
    return (by_name, -view["pending"], downstream) if "pending" in view else (by_name, downstream)


def rank(policy: Policy, view: FeatureView) -> Ints:
    """All nodes in view, best first; between equals as ``ties`` says."""
    table = as_table(priorities_of(policy, view))
    order = best_first(table, *ties(view))
    return order if view.rows is None else view.rows[order]
