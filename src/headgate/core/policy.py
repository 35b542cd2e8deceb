"""What a policy is: the features of all nodes in, a priority vector per node out.

A policy only ranks. It has no clock, does no I/O and keeps no state: what it must remember from one decision to the
next is passed in (``view.memory``) and returned (``remember``). The loops decide whether and where a node can run, and
that no node waits for ever.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import Field, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from headgate.core.errors import UserCodeError
from headgate.core.graph import Floats, Ints
from headgate.core.matrix import FeatureView


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
        if not hasattr(cls, "name"):
            cls.name = cls.__name__

    def __str__(self) -> str:
        """The name with the parameters that differ from their defaults, as a user would write it."""
        stated: tuple[Field[Any], ...] = fields(self) if is_dataclass(self) else ()
        changed = [f"{f.name}={getattr(self, f.name)}" for f in stated if getattr(self, f.name) != f.default]
        return f"{self.name}:{','.join(changed)}" if changed else self.name


class Policy(Choosable, ABC):
    """Ranks nodes. Subclasses are frozen dataclasses whose fields are the policy's parameters.

    ``priorities`` returns one row per node in view, larger rows first, rows compared from left to right; one number
    per node may be returned as a flat array. Between equal rows the loop takes the name that sorts first.

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

    def remember(self, view: FeatureView, node: int) -> object:
        """The memory to be shown from the next decision on, now that ``node`` was chosen."""
        return view.memory

    def requires(self) -> tuple[str, ...]:
        """The features this instance reads; more than ``needs`` where parameters bring in other policies."""
        return self.needs


def priorities_of(policy: Policy, view: FeatureView) -> Floats:
    """What ``policy`` answers, one number or row for each node in view; anything else is the policy's mistake."""
    answer = policy.priorities(view)
    shape = getattr(answer, "shape", None)
    if shape is None or len(shape) not in (1, 2) or shape[0] != len(view):
        got = type(answer).__name__ if shape is None else f"an array of shape {shape}"
        raise UserCodeError(
            f"policy {policy.name!r} must return an array with one number or one row for each of {len(view)} nodes; "
            f"got {got}: correct the policy or replace it"
        )
    return answer


def as_table(priorities: Floats) -> Floats:
    """Priorities as an (n, D) table, whichever of the two shapes the policy returned."""
    return priorities[:, np.newaxis] if priorities.ndim == 1 else priorities


def best_first(priorities: Floats, *ties: NDArray[Any]) -> Ints:
    """The rows of a table of priorities, best first; between equal rows by the last of ``ties``, then those before."""
    # lexsort takes its last key first, so the columns go in reversed, after what breaks ties
    return np.lexsort((*ties, *(-priorities[:, d] for d in range(priorities.shape[1] - 1, -1, -1))))


def rank(policy: Policy, view: FeatureView) -> Ints:
    """All nodes in view, best first; between equals the name that sorts first."""
    table = as_table(priorities_of(policy, view))
    tie = view.graph.tie if view.rows is None else view.graph.tie[view.rows]
    order = best_first(table, tie)
    return order if view.rows is None else view.rows[order]
