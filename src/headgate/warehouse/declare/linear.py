"""Whether a query, or the part of it below its aggregate, is linear in a source that grows.

Linear: the rows that new rows of the source add are the query over just the new rows. Then they can be appended, or
merged into the groups of an aggregate. That holds for steps that look at one row at a time, for unions, and for joins
with dimensions that keep or drop each row of the source by itself.
"""

from __future__ import annotations

from headgate.core import HeadgateError
from headgate.warehouse.declare.plan_tree import (
    PASSING,
    PlanTree,
    join_kind,
    source_of,
    sources_in_subqueries,
    words_for,
)

_ROW_BY_ROW = PASSING | {"Project", "Filter", "Generate", "Expand"}
#: {how rows are joined: the sides that may grow}
_JOINS = {
    "Inner": (0, 1),
    "Cross": (0, 1),
    "LeftOuter": (0,),
    "LeftSemi": (0,),
    "LeftAnti": (0,),
    "RightOuter": (1,),
}


class _NotLinearError(HeadgateError):
    """The query is not linear in the source; the text says why."""


def why_not_linear(plan: PlanTree, growing: str) -> str | None:
    """Why ``plan`` is not linear in the source ``growing``; None if it is."""
    try:
        return None if _grows(plan, growing) else f"it does not read {growing!r}"
    except _NotLinearError as reason:
        return str(reason)


def _grows(step: PlanTree, growing: str) -> bool:
    """Whether the rows of a step grow with the source; False if they do not depend on it."""
    source = source_of(step)
    if source is not None:
        return source == growing
    if growing in sources_in_subqueries(step):
        raise _NotLinearError("it has a subquery that looks at all rows")
    grown = [_grows(child, growing) for child in step.children]
    if not any(grown):
        return False
    if step.name == "Union":
        if not all(grown):
            raise _NotLinearError("it unites rows that grow with rows that do not")
    elif step.name == "Join":
        if all(grown):
            raise _NotLinearError("it joins rows with others of the same source")
        if grown.index(True) not in _JOINS.get(join_kind(step), ()):
            raise _NotLinearError("an outer join keeps rows of the dimension")
    elif step.name not in _ROW_BY_ROW:
        raise _NotLinearError(f"{words_for(step)} looks at many rows at once")
    return True
