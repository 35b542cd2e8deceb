"""A failing table backs off, is held, and comes back."""

from __future__ import annotations

import errno
import math

import pytest

from headgate.core.errors import UserCodeError
from headgate.core.update import LONGEST_LINE, LONGEST_TRACEBACK, Update
from headgate.warehouse.schedule.retries import LONGEST_WAIT, MOST_FAILURES, Retries
from headgate.warehouse.sources import SourceChanged, SourceUnreadable
from headgate.warehouse.storage.errors import SchemaError, StorageError
from headgate.warehouse.transient import is_transient


def fail(retries: Retries, at: float) -> None:
    retries.failed(Update("t", error="ValueError: no", traceback="Traceback ..."), at)


def test_each_failure_in_a_row_waits_twice_as_long_as_the_one_before() -> None:
    retries = Retries()
    waits = []
    for _ in range(MOST_FAILURES - 1):
        fail(retries, 100.0)
        waits.append(retries.next_try() - 100.0)
    assert waits == [1.0, 2.0, 4.0, 8.0]
    assert max(waits) <= LONGEST_WAIT


def test_a_table_that_goes_on_failing_is_held_and_never_tried_again_by_itself() -> None:
    retries = Retries()
    for at in range(MOST_FAILURES):
        fail(retries, float(at))
    assert retries.held
    assert not retries.due(1e12)
    assert retries.next_try() == math.inf


def test_a_success_or_a_command_makes_a_clean_slate() -> None:
    retries = Retries()
    for at in range(MOST_FAILURES):
        fail(retries, float(at))
    retries.reset()
    assert retries.due(0.0)
    assert retries.last is not None  # what went wrong can still be read


def test_what_may_pass_by_itself_is_never_held_and_tried_at_least_once_a_minute() -> None:
    retries = Retries()
    for at in range(100):
        retries.failed(Update("t", error="no space left", transient=True), float(at))
    assert not retries.held
    assert retries.next_try() == 99.0 + LONGEST_WAIT


def test_errors_that_pass_in_between_do_not_excuse_those_that_do_not() -> None:
    retries = Retries()
    for at in range(MOST_FAILURES):
        retries.failed(Update("t", error="no space left", transient=True), float(at))
        fail(retries, float(at))
    assert retries.held


class Py4JNetworkError(Exception):
    """Has the name of the error that `py4j` raises when the Java process is gone."""


def caused_by(cause: BaseException) -> Exception:
    error = ValueError("the table could not be written")
    error.__cause__ = cause
    return error


class SpeechlessError(Exception):
    """Its text cannot be made, as with an error class whose fields were not set."""

    def __str__(self) -> str:
        raise AttributeError("details")


class MisprintedError(SyntaxError):
    """Its traceback cannot be made."""

    def __init__(self) -> None:
        super().__init__("no", ("file.py", 1, "not a number", "text"))


ERRORS = {
    "a full disk": (OSError(errno.ENOSPC, "No space left on device"), True),
    "a full disk behind another error": (caused_by(OSError(errno.ENOSPC, "No space left on device")), True),
    "a full disk, as Spark says it": (RuntimeError("java.io.IOException: No space left on device"), True),
    "a broken disk": (OSError(errno.EIO, "Input/output error"), True),
    "a lost connection": (ConnectionRefusedError(), True),
    "a lost Spark": (Py4JNetworkError("Answer from Java side is empty"), True),
    "a stopped Spark": (RuntimeError("Cannot call methods on a stopped SparkContext."), True),
    "another writer": (StorageError("version 3 was written by another process"), True),
    "columns that do not fit": (SchemaError("the column a was lost"), False),
    "a folder of the warehouse that may not be written to for a while": (PermissionError(errno.EACCES, "t"), True),
    "a folder of the warehouse that is not there for a while": (NotADirectoryError(errno.ENOTDIR, "t"), True),
    "a permission, as Spark says it": (RuntimeError("java.io.FileNotFoundException: /x (Permission denied)"), True),
    "a file that a user's function does not find": (caused_by(FileNotFoundError(errno.ENOENT, "rates.csv")), False),
    "a mistake in a user's function": (ZeroDivisionError("division by zero"), False),
    "what the user's own code declares": (UserCodeError("table 't' failed"), False),
    "an error that cannot say what it is": (SpeechlessError(), False),
    "an error that failed to say what it is": (caused_by(SpeechlessError()), False),
}


@pytest.mark.parametrize("what", ERRORS)
def test_only_errors_that_do_not_pass_by_themselves_need_a_user(what: str) -> None:
    error, transient = ERRORS[what]
    assert is_transient(error) is transient


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SpeechlessError(), "SpeechlessError, whose own text cannot be made: AttributeError"),
        (MisprintedError(), "no (file.py, line 1)"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_an_update_can_fail_by_any_error(error: Exception, said: str) -> None:
    update = Update("t")
    update.fails(error)
    assert (update.status, update.error) == ("failed", said)
    assert type(error).__name__ in update.traceback


def test_of_what_an_error_says_at_length_the_beginning_and_the_end_are_kept() -> None:
    update = Update("t")
    update.fails(ValueError("first" + 10_000_000 * "x" + "last"))
    assert update.error is not None and len(update.error) < 2 * LONGEST_LINE
    assert len(update.traceback) < 2 * LONGEST_TRACEBACK
    assert update.error.startswith("first") and update.error.endswith("last")
    assert update.traceback.startswith("ValueError: first") and update.traceback.endswith("last\n")


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (SourceChanged("/landing/a", "changed", "Try again"), True),
        (SourceUnreadable("/landing/a cannot be read"), True),
        (RuntimeError("Spark gives a reason that nobody has seen before"), True),
        (SchemaError("the column a was lost"), False),
        (caused_by(SchemaError("the column a was lost")), False),
    ],
    ids=str,
)
def test_where_no_user_code_runs_only_columns_that_do_not_fit_need_a_user(error: Exception, transient: bool) -> None:
    assert is_transient(error, in_user_code=False) is transient
