"""Send commands to a warehouse that another process runs.

Every command is one connection to the socket that the lock file names, so there is no connection that can go stale.
If the process cannot do what it is asked, a DeclarationError is raised for a wrong request and a RefusedError
otherwise. If no process answers, it is a ControlError.
"""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from headgate.core import DeclarationError, HeadgateError
from headgate.places.place import AnyPath
from headgate.warehouse.run.lock import Holder, holder

#: seconds to wait for an answer; it takes milliseconds unless the process is short of processor time
PATIENCE = 30.0
#: seconds to wait until a process that is starting takes commands; Spark starts in a few seconds if it is alone
START_PATIENCE = 60.0
#: seconds between two checks whether a process has ended, or has started
_LOOK_AGAIN = 0.1


class ControlError(HeadgateError):
    """A process runs the warehouse, but it does not answer."""


class NotRunningError(ControlError):
    """No process runs the warehouse."""


class StillRunningError(HeadgateError):
    """The process that runs the warehouse was asked to stop, and has not within its time."""


class RefusedError(HeadgateError):
    """The process that runs the warehouse refused a command, or failed at it. ``kind`` is the class of its error."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


class RunningWarehouse:
    """The warehouse in a directory, as run by the process that holds its lock when a method is called.

    ``patience`` is how many seconds to wait for an answer, ``start_patience`` for a process that is still starting.
    """

    def __init__(self, directory: AnyPath, patience: float = PATIENCE, start_patience: float = 0.0) -> None:
        self._directory = directory
        self._patience = patience
        self._start_patience = start_patience

    def statistics(self) -> tuple[Mapping[str, Any], ...]:
        """The statistics of every table now: the fields of ``NodeStatistics`` of each."""
        return tuple(self._ask("statistics"))

    def notices(self) -> tuple[Mapping[str, Any], ...]:
        """The latest that users should know: when (``at``), of which table or null, and the text."""
        return tuple(self._ask("notices"))

    def glance(self) -> Mapping[str, Any]:
        """How everything stands now: the fields of ``Glance``, and the tables as they are declared."""
        return dict(self._ask("glance"))

    def explain(self, name: str) -> str:
        """Why a table is or is not being updated now."""
        return str(self._ask("explain", name=name))

    def check_settings(
        self,
        policy: str | None = None,
        placement: str | None = None,
        tracks: int | None = None,
        names: Sequence[str] = (),
    ) -> None:
        """Raise the error with which the process would refuse one of these, or a name of a table; nothing changes."""
        self._ask("check_settings", policy=policy, placement=placement, tracks=tracks, names=[*names])

    def replace_policy(self, policy: str) -> str:
        """Use another policy, written as on the command line; returns it with all its parameters."""
        return str(self._ask("replace_policy", policy=policy))

    def replace_placement(self, placement: str) -> str:
        """Use another placement, written as on the command line; returns it with all its parameters."""
        return str(self._ask("replace_placement", placement=placement))

    def set_inheritance(self, inheritance: str) -> None:
        """Let sources inherit priorities in another way, such as ``sum``; ``default`` leaves it to the pipeline, and
        then to the policy."""
        self._ask("set_inheritance", inheritance=inheritance)

    def set_together(self, together: str) -> None:
        """Let tables share jobs in another way, such as ``auto``; ``default`` leaves it to the pipeline."""
        self._ask("set_together", together=together)

    def set_tracks(self, count: int) -> None:
        """Change the number of updates that may run at once."""
        self._ask("set_tracks", count=count)

    def set_budget(self, budget: float | None) -> None:
        """Change how long one update should take at most, in seconds; None for no limit."""
        self._ask("set_budget", budget=budget)

    def set_priority(self, name: str, priority: float) -> None:
        self._ask("set_priority", name=name, priority=priority)

    def pause(self, name: str) -> None:
        """Begin no more updates of a table until it is resumed."""
        self._ask("pause", name=name)

    def resume(self, name: str) -> None:
        """Update a table again that was paused or is held."""
        self._ask("resume", name=name)

    def refresh(self, name: str) -> None:
        """Update a table, and the tables it is built on, before all others."""
        self._ask("refresh", name=name)

    def backfill(self, name: str, first: int, last: int, chunk: float | None = None) -> None:
        """Recompute a range of event time, in microseconds, behind live updates; ``chunk`` seconds per update."""
        self._ask("backfill", name=name, first=first, last=last, chunk=chunk)

    def stop_soon(self) -> int | None:
        """Ask the run to stop; returns the id of its process, None if it is unknown."""
        process = self._holder().process
        self._ask("stop_soon")
        return process

    def wait_until_released(self, process: int | None, limit: float = math.inf) -> bool:
        """Wait until ``process`` no longer runs the warehouse; False if it still does after ``limit`` seconds."""
        end = time.monotonic() + limit
        while (now := holder(self._directory)) is not None and now.process in (process, None):
            if time.monotonic() >= end:
                return False
            time.sleep(_LOOK_AGAIN)
        return True

    def _holder(self) -> Holder:
        found = holder(self._directory)
        if found is None:
            where = "" if self._directory.is_dir() else ", which is not even a directory"
            raise NotRunningError(
                f"no process runs a warehouse in {self._directory}{where}; start one with `headgate run FILE`"
            )
        return found

    def _started(self) -> Holder:
        end = time.monotonic() + self._start_patience
        while (found := self._holder()).control is None and time.monotonic() < end:
            time.sleep(_LOOK_AGAIN)
        return found

    def _ask(self, command: str, **arguments: object) -> Any:
        found = self._started()
        process = "an unknown process" if found.process is None else f"process {found.process}"
        who = f"{process} runs {self._directory}"
        if found.host not in ("", socket.gethostname()):
            raise ControlError(f"{who} on {found.host}: commands are taken on that machine only")
        if found.control is None:
            raise ControlError(f"{who} but takes no commands: it is starting or ending; try again in a few seconds")
        request = json.dumps({"command": command, "arguments": arguments}).encode() + b"\n"
        try:
            line = self._exchange(found.control, request)
        except PermissionError:
            raise ControlError(f"{who} for another user, whose commands alone it takes") from None
        except BlockingIOError:
            raise ControlError(f"{who} but too many others are waiting to give it commands; try again") from None
        except TimeoutError:
            raise ControlError(f"{who} but has not answered within {self._patience:g} s; it may be stuck") from None
        except OSError as error:
            reason = error.strerror or error
            raise ControlError(f"{who} but does not listen at {found.control}: {reason}; is it ending?") from None
        return _content(line, who)

    def _exchange(self, path: str, request: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(self._patience)
            connection.connect(path)
            connection.sendall(request)
            with connection.makefile("rb") as answers:
                return answers.readline()


def _content(line: bytes, who: str) -> Any:
    """The content of an answer, or the error that it reports."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    match message:
        case {"answer": answer}:
            return answer
        case {"error": {"message": str(text), "asked_wrongly": True}}:
            raise DeclarationError(text)
        case {"error": {"kind": str(kind), "message": str(text)}}:
            raise RefusedError(kind, text)
    problem = "it ended before it answered" if not line else f"its answer cannot be understood: {line[:200]!r}"
    raise ControlError(f"{who}, but {problem}")
