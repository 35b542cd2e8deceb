"""Whether a query, or the part of it below its aggregate, is linear in a source that grows.

Linear: the rows that new rows of the source add are the query over just the new rows. Then they can be appended, or
merged into the groups of an aggregate. That holds for steps that look at one row at a time, for unions, and for joins
with dimensions that keep or drop each row of the source by itself.
"""

from __future__ import annotations

from headgate.core import HeadgateError
from headgate.warehouse.declare.plan_tree import PlanTree, join_kind, source_of, sources_in_subqueries

_ROW_BY_ROW = {
    *("Project", "Filter", "SubqueryAlias", "View", "Generate", "Expand", "Sort", "ResolvedHint"),
    *("Repartition", "RepartitionByExpression", "RebalancePartitions"),
}
#: {how rows are joined: the side of the growing source}
_JOINS = {
    **{"Inner": ("left", "right"), "Cross": ("left", "right")},
    **{"LeftOuter": ("left",), "LeftSemi": ("left",), "LeftAnti": ("left",), "RightOuter": ("right",)},
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
    if not _mentions(step, growing):
        return False
    if source_of(step) is not None:
        return True
    if growing in sources_in_subqueries(step):
        raise _NotLinearError("it has a subquery that looks at all rows")
    if step.name == "Union":
        if not all(_grows(child, growing) for child in step.children):
            raise _NotLinearError("it unites rows that grow with rows that do not")
        return True
    if step.name == "Join":
        sides = [
            side for side, child in zip(("left", "right"), step.children, strict=True) if _mentions(child, growing)
        ]
        if len(sides) > 1:
            raise _NotLinearError("it joins rows with others of the same source")
        if sides[0] not in _JOINS.get(join_kind(step), ()):
            raise _NotLinearError("an outer join keeps rows of the dimension")
        return _grows(step.children[("left", "right").index(sides[0])], growing)
    if step.name not in _ROW_BY_ROW:
        raise _NotLinearError(f"{step.name} looks at many rows at once")
    return _grows(step.children[0], growing)


def _mentions(step: PlanTree, source: str) -> bool:
    return any(source_of(each) == source or source in sources_in_subqueries(each) for each in step.walk())
