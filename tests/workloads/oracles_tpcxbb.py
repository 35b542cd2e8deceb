"""The queries derived from TPCx-BB, a row at a time with dictionaries: slow, and plain enough to be believed.

For each query there is a function from all rows of the input to all rows that each operator gives out, flushed ones
last. Rankings come from full sorts, lines from fractions: not from what the operators do.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

from workloads.tpcxbb import q1, q2, q3, q4, q15
from workloads.tpcxbb.dims import PAGE_TYPES, Dims

Row = tuple[object, ...]
#: {operator: what it gives out}
Stages = dict[str, list[Row]]


def pair(a: int, b: int) -> int:
    return a * 2**32 + b


def _in(value: int, chosen: Iterable[int] | None) -> bool:
    return chosen is None or value in chosen


# --- Q1 ---------------------------------------------------------------------------------------------------------------


def q1_stages(rows: Iterable[tuple[int, ...]], parameters: q1.Q1Parameters, dims: Dims) -> Stages:
    category = dims.category.tolist()
    lines = [
        (0 if parameters.window is None else ts // parameters.window, ts, ticket, item)
        for ts, ticket, item, store, _ in rows
        if item != -1 and _in(store, parameters.stores) and _in(category[item], parameters.categories)
    ]
    pairs = list(_q1_pairs(lines))
    counts = list(_q1_counts(pairs))
    return {"filter": lines, "pairs": pairs, "count": counts, "top": list(_q1_top(counts, parameters))}


def _q1_pairs(lines: Iterable[tuple[int, int, int, int]]) -> Iterator[tuple[int, int]]:
    tickets: dict[int, tuple[int, set[int]]] = {}
    for window, ts, ticket, item in lines:
        tickets = {key: kept for key, kept in tickets.items() if kept[0] >= ts}
        items = tickets.setdefault(ticket, (ts, set()))[1]
        if item not in items:
            yield from ((window, pair(min(item, other), max(item, other))) for other in sorted(items))
            items.add(item)


def _q1_counts(pairs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    kept: dict[int, tuple[int, int]] = {}
    for window, key in pairs:
        seen, count = kept.get(key, (window, 0))
        kept[key] = (window, count + 1 if seen == window else 1)
        yield window, key, kept[key][1]


def _ranking(window: int, counts: dict[int, int], top: int, min_count: int) -> Iterator[Row]:
    """By a full sort of all pairs."""
    best = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:top]
    for rank, (key, count) in enumerate(best, start=1):
        if count >= min_count:
            yield window, rank, key // 2**32, key % 2**32, count


def _q1_top(counts: Iterable[tuple[int, int, int]], parameters: q1.Q1Parameters) -> Iterator[Row]:
    current, kept = None, dict[int, int]()
    for window, key, count in counts:
        if current is not None and window != current:
            yield from _ranking(current, kept, parameters.top, parameters.min_count)
            kept = {}
        current = window
        kept[key] = count
    if current is not None:
        yield from _ranking(current, kept, parameters.top, parameters.min_count)


# --- Q2 ---------------------------------------------------------------------------------------------------------------


def q2_stages(rows: Iterable[tuple[int, ...]], parameters: q2.Q2Parameters, dims: Dims) -> Stages:
    clicks = [(user, ts, item) for ts, user, item, _, _ in rows if user != -1 and item != -1]
    sessions = list(_q2_sessions(clicks, parameters.timeout))
    pairs = [(trigger, key) for trigger, items in sessions for key in _q2_pairs(items, parameters.given)]
    seen: Counter[int] = Counter()
    counts = []
    for trigger, key in pairs:
        seen[key] += 1
        counts.append((trigger, key, seen[key]))
    top = list(_q2_top(counts, parameters))
    return {"known": clicks, "sessions": sessions, "pairs": pairs, "count": counts, "top": top}


def _q2_sessions(clicks: Iterable[tuple[int, int, int]], timeout: int) -> Iterator[tuple[int, list[int]]]:
    sessions: dict[int, tuple[int, set[int]]] = {}
    for user, ts, item in clicks:
        last, items = sessions.get(user, (ts, set[int]()))
        if ts - last > timeout:
            yield ts, sorted(items)
            items = set()
        items.add(item)
        sessions[user] = (ts, items)
    for user in sorted(sessions):
        yield -1, sorted(sessions[user][1])


def _q2_pairs(items: list[int], given: int | None) -> list[int]:
    if given is not None:
        return [pair(item, given) for item in items if item != given] if given in items else []
    return [pair(a, b) for place, a in enumerate(items) for b in items[place + 1 :]]


def _q2_top(counts: Iterable[tuple[int, int, int]], parameters: q2.Q2Parameters) -> Iterator[Row]:
    current, kept = None, dict[int, int]()
    for trigger, key, count in counts:
        period = trigger // parameters.period
        if current is not None and period != current:
            yield from _ranking(current, kept, parameters.top, 1)
        current = period
        kept[key] = count
    if current is not None and current != -1:
        yield from _ranking(current, kept, parameters.top, 1)
    yield from _ranking(-1, kept, parameters.top, 1)


# --- Q3 ---------------------------------------------------------------------------------------------------------------


def q3_stages(rows: Iterable[tuple[int, ...]], parameters: q3.Q3Parameters, dims: Dims) -> Stages:
    category = dims.category.tolist()
    clicks = [
        (user, ts, item, sale != -1, category[item] in parameters.categories)
        for ts, user, item, _, sale in rows
        if user != -1 and item != -1
    ]
    rings: dict[int, deque[tuple[int, int, bool]]] = defaultdict(lambda: deque(maxlen=parameters.views))
    views = []
    for user, ts, item, is_sale, ok in clicks:
        if is_sale and _in(item, parameters.bought):
            for viewed, when, wanted in rings[user]:
                if wanted and when >= ts - parameters.horizon:
                    views.append((item, viewed))
        rings[user].append((item, ts, ok))
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    answers: list[Row] = []
    for purchased, viewed in views:
        counts[purchased][viewed] += 1
        answers.append((purchased, viewed, counts[purchased][viewed], 0))
    for purchased in sorted(counts):
        best = sorted(counts[purchased].items(), key=lambda entry: (-entry[1], entry[0]))[: parameters.top]
        answers.extend((purchased, viewed, count, rank) for rank, (viewed, count) in enumerate(best, start=1))
    return {"known": clicks, "views": views, "count": answers}


# --- Q4 ---------------------------------------------------------------------------------------------------------------


def q4_stages(rows: Iterable[tuple[int, ...]], parameters: q4.Q4Parameters, dims: Dims) -> Stages:
    types = dims.page_type.tolist()
    clicks = [(user, ts, types[page]) for ts, user, _, page, sale in rows if user != -1 and page != -1 and sale == -1]
    sessions = list(_q4_sessions(clicks, parameters.timeout))
    abandoned = [(pages,) for _, pages, last_dynamic, last_order in sessions if last_dynamic > last_order]
    total, averages = 0, []
    for count, (pages,) in enumerate(abandoned, start=1):
        total += pages
        averages.append((count, total))
    return {"looking": clicks, "sessions": sessions, "abandoned": abandoned, "average": averages}


def _q4_sessions(clicks: Iterable[tuple[int, int, int]], timeout: int) -> Iterator[tuple[int, int, int, int]]:
    last: dict[int, int] = {}
    pages: dict[int, list[str]] = {}

    def session(user: int) -> tuple[int, int, int, int]:
        seen = pages[user]
        positions = {name: number for number, name in enumerate(seen, start=1)}
        return user, len(seen), positions.get("dynamic", -1), positions.get("order", -1)

    for user, ts, code in clicks:
        if user in last and ts - last[user] > timeout:
            yield session(user)
            pages[user] = []
        last[user] = ts
        pages.setdefault(user, []).append(PAGE_TYPES[code])
    yield from (session(user) for user in sorted(pages))


# --- Q15 --------------------------------------------------------------------------------------------------------------


def q15_stages(rows: Iterable[tuple[int, ...]], parameters: q15.Q15Parameters, dims: Dims) -> Stages:
    category = dims.category.tolist()
    lines = [
        (ts, item, cents)
        for ts, _, item, store, cents in rows
        if _in(store, parameters.stores) and parameters.first_day <= ts // 86_400 <= parameters.last_day
    ]
    amounts = [(category[item], ts // 86_400, cents) for ts, item, cents in lines if item != -1]
    return {"filter": lines, "category": amounts, "fit": list(_q15_fits(amounts))}


def _q15_fits(amounts: Iterable[tuple[int, int, int]]) -> Iterator[Row]:
    sums: dict[int, dict[int, int]] = {}
    for key, day, cents in amounts:
        days = sums.setdefault(key, {})
        if days and day not in days:
            yield from _fit(key, days)
        days[day] = days.get(day, 0) + cents
    for key in sorted(sums):
        yield from _fit(key, sums[key])


def _fit(key: int, days: dict[int, int]) -> Iterator[Row]:
    """The line through the means, in fractions: not the formula of the stream's operator."""
    if len(days) < 2:
        return
    middle_x = Fraction(sum(days), len(days))
    middle_y = Fraction(sum(days.values()), len(days))
    rise = sum((day - middle_x) * (cents - middle_y) for day, cents in days.items())
    slope = rise / sum((day - middle_x) ** 2 for day in days)
    yield key, max(days), len(days), float(slope), float(middle_y - slope * middle_x)


STAGES: dict[str, Callable[..., Stages]] = {
    q1.NAME: q1_stages,
    q2.NAME: q2_stages,
    q3.NAME: q3_stages,
    q4.NAME: q4_stages,
    q15.NAME: q15_stages,
}
