"""What `explain` says a table waits for: a table of situations, each with the words that must and must not be there."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from headgate.core.explain import DispatchExplanation, Ranked
from headgate.core.placement import Lane
from headgate.warehouse.schedule.explaining import Standing, TableExplanation, explained
from headgate.warehouse.updates.repairs import Repairs

MINUTE = 60_000_000
REPAIRS = Repairs(0, 120 * MINUTE - 1, 600.0)
#: readings -> minutes -> hours, and cars beside them
STREAM = Standing("readings", freshness=10 * MINUTE, idle=12.0)
MINUTES = Standing("minutes", ("readings",), freshness=10 * MINUTE)
HOURS = Standing("hours", ("minutes",), freshness=10 * MINUTE)
CARS = Standing("cars", freshness=5 * MINUTE, idle=600.0)
BOTH = Standing("both", ("minutes", "cars"), freshness=5 * MINUTE)
FAILED = {"failures": 2, "error": "no such column", "next_try": 3.0}


def told(name: str, **fields: object) -> DispatchExplanation:
    """What the loop says: idle, unless ``fields`` say otherwise."""
    idle = DispatchExplanation(name, 100.0, "max-benefit", (), None, (), math.inf, (), Lane((0, 1)), {})
    return replace(idle, **fields)  # type: ignore[arg-type]


def explain(of: Standing, *others: Standing, **fields: object) -> TableExplanation:
    standings = {each.name: each for each in (STREAM, MINUTES, HOURS, CARS, BOTH)}
    standings.update({each.name: each for each in (*others, of)})
    return explained(told(of.name, **fields), standings)


@pytest.mark.parametrize(
    ("of", "others", "expected"),
    [
        pytest.param(
            STREAM,
            [],
            ["readings: waits for its source, which has nothing new since its last update 12 s ago"],
            id="an idle source",
        ),
        pytest.param(
            replace(STREAM, note="/landing is gone"),
            [],
            ["readings: its source cannot be read: /landing is gone"],
            id="a source that cannot be read",
        ),
        pytest.param(
            replace(STREAM, remark="a.json is set aside until it changes: it is damaged"),
            [],
            [
                "readings: waits for its source, which has nothing new since its last update 12 s ago",
                "  its source says: a.json is set aside until it changes: it is damaged",
            ],
            id="a source with a bad file",
        ),
        pytest.param(
            replace(STREAM, paused=True),
            [],
            ["readings: paused, until it is resumed (headgate resume)"],
            id="paused",
        ),
        pytest.param(
            replace(MINUTES, failures=5, held=True, error="no such column"),
            [],
            ["minutes: held after 5 failures in a row, until it is resumed; the last one: no such column"],
            id="held",
        ),
        pytest.param(
            replace(MINUTES, **FAILED),
            [],
            ["minutes: failed 2 times in a row, tried again in 3 s; the last failure: no such column"],
            id="failing",
        ),
        pytest.param(
            MINUTES,
            [],
            [
                "minutes: up to date with its sources",
                "  readings waits for its source, which has nothing new since its last update 12 s ago",
            ],
            id="up to date, because of an idle source",
        ),
        pytest.param(
            HOURS,
            [replace(MINUTES, paused=True)],
            ["hours: up to date with its sources", "  minutes: paused, until it is resumed (headgate resume)"],
            id="a paused table above",
        ),
        pytest.param(
            HOURS,
            [replace(STREAM, **FAILED)],
            [
                "hours: up to date with its sources",
                "  readings: failed 2 times in a row, tried again in 3 s; the last failure: no such column",
            ],
            id="a failing stream two steps above",
        ),
        pytest.param(
            HOURS,
            [replace(MINUTES, ready=True)],
            ["hours: up to date with its sources", "  minutes has something pending and waits for a track"],
            id="a table above waits for a track",
        ),
        pytest.param(
            HOURS,
            [replace(MINUTES, updating=True)],
            ["hours: up to date with its sources", "  minutes is being updated"],
            id="a table above is being updated",
        ),
        pytest.param(
            MINUTES,
            [replace(STREAM, has_data=False, idle=None)],
            [
                "minutes: waits for the first data of readings",
                "  readings waits for its source, which has given nothing yet",
            ],
            id="no data yet",
        ),
        pytest.param(
            replace(STREAM, has_data=False, idle=None),
            [],
            ["readings: waits for its source, which has given nothing yet"],
            id="a stream that was never loaded",
        ),
        pytest.param(
            replace(MINUTES, has_data=False),
            [],
            [
                "minutes: not computed yet: its sources had nothing for it",
                "  readings waits for its source, which has nothing new since its last update 12 s ago",
            ],
            id="a table that was never computed",
        ),
        pytest.param(
            replace(STREAM, catalog="city.readings is not in the catalog"),
            [],
            [
                "readings: waits for its source, which has nothing new since its last update 12 s ago",
                "  it is updated all the same: city.readings is not in the catalog",
            ],
            id="an entry in a catalog that cannot be made",
        ),
        pytest.param(
            replace(HOURS, repairs=REPAIRS),
            [],
            [
                "hours: up to date with its sources",
                "  to be recomputed: 10 min of event time between 1970-01-01T00:00:00.000000Z and "
                "1970-01-01T01:59:59.999999Z; that is done while no live update waits for a track",
                "  readings waits for its source, which has nothing new since its last update 12 s ago",
            ],
            id="repairs behind live work",
        ),
        pytest.param(
            replace(HOURS, repairs=REPAIRS, recomputing=True),
            [],
            [
                "hours: its past is being recomputed",
                "  to be recomputed: 10 min of event time between 1970-01-01T00:00:00.000000Z and "
                "1970-01-01T01:59:59.999999Z; that is being done",
                "  readings waits for its source, which has nothing new since its last update 12 s ago",
            ],
            id="repairs that are being done",
        ),
        pytest.param(
            replace(HOURS, paused=True),
            [replace(MINUTES, repairs=REPAIRS)],
            [
                "hours: paused, until it is resumed (headgate resume)",
                "  its source minutes is still to be repaired, and then this table: 10 min of event time between "
                "1970-01-01T00:00:00.000000Z and 1970-01-01T01:59:59.999999Z",
            ],
            id="repairs above",
        ),
        pytest.param(
            BOTH,
            [],
            [
                "both: up to date with its sources",
                "  readings waits for its source, which has nothing new since its last update 12 s ago",
                "  cars waits for its source, which has nothing new since its last update 10 min ago",
                "  its sources are used up to 1970-01-01T00:05:00.000000Z, the freshness of cars",
            ],
            id="one of two sources holds it back",
        ),
        pytest.param(
            replace(MINUTES, updating=True, job=("hours", "minutes"), together="together with 1 of 1"),
            [],
            ["minutes: being updated", "  its update shares a job with hours", "  together with 1 of 1"],
            id="group",
        ),
    ],
)
def test_an_explanation_names_what_the_table_waits_for(
    of: Standing, others: list[Standing], expected: list[str]
) -> None:
    assert str(explain(of, *others)).splitlines() == expected
    assert "idle" not in str(explain(of, *others))


def test_a_table_that_waits_for_a_track_has_its_place_and_the_budget_of_an_update() -> None:
    waiting = replace(MINUTES, ready=True, pending=300.0, most=20.0)
    ahead = (Ranked("hours", (3.0,), 2.0),)
    lines = str(explain(waiting, place=2, priority=(1.5,), ahead=ahead)).splitlines()
    assert lines[0] == "minutes: number 2 of the runnable by max-benefit, priority (1.5)"
    assert lines[-1] == (
        "  an update takes at most 20 s of the 5 min of data that wait; the rest is left to the next ones"
    )


def test_a_table_that_is_updated_and_paused_says_both() -> None:
    lines = str(explain(replace(MINUTES, updating=True, paused=True), running_on=(1,))).splitlines()
    assert lines == [
        "minutes: running on worker 1",
        "  paused: no further update begins until it is resumed",
    ]
