"""One look at how everything stands is for all who watch, and none is of before a change."""

from __future__ import annotations

import json

import pytest

from headgate.warehouse.run.control_answers import GLANCE_SECONDS, ControlAnswers
from headgate.warehouse.schedule.glance import Glance
from tests.warehouse.control_helpers import Recorder

GLANCE = b'{"command": "glance", "arguments": {}}'


class Looked(Recorder):
    """Counts how often somebody looked."""

    looks = 0

    def glance(self) -> Glance:
        self.looks += 1
        return super().glance()


class Passing:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_those_who_ask_in_the_same_second_get_the_same_look() -> None:
    run, clock = Looked(), Passing()
    answers = ControlAnswers(run, clock)
    first = answers.to(GLANCE)
    clock.now += 0.9 * GLANCE_SECONDS
    assert answers.to(b'{"command": "glance"}') is first
    assert run.looks == 1
    clock.now += GLANCE_SECONDS
    assert answers.to(GLANCE) == first
    assert run.looks == 2


def test_after_a_command_nobody_gets_a_look_of_before() -> None:
    run = Looked()
    answers = ControlAnswers(run, Passing())
    answers.to(GLANCE)
    assert json.loads(answers.to(b'{"command": "pause", "arguments": {"name": "air"}}')) == {"answer": None}
    answers.to(GLANCE)
    assert run.looks == 2


def test_nor_if_the_command_comes_while_somebody_looks() -> None:
    class Interrupted(Looked):
        def glance(self) -> Glance:
            answers.to(b'{"command": "pause", "arguments": {"name": "air"}}')
            return super().glance()

    run = Interrupted()
    answers = ControlAnswers(run, Passing())
    answers.to(GLANCE)
    answers.to(GLANCE)
    assert run.looks == 2


@pytest.mark.parametrize("line", [b"", b"[]", b"glance", b'{"command": "glance", "arguments": {"name": 1}}', b"\xff"])
def test_what_is_no_request_is_refused_as_ever(line: bytes) -> None:
    run = Looked()
    assert "error" in json.loads(ControlAnswers(run, Passing()).to(line))
    assert run.looks == 0
