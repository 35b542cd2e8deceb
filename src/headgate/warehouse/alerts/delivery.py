"""Calling a webhook or a command, on a thread of its own for each of them: one that hangs delays nobody else.

What cannot be delivered is tried again, with longer and longer waits, and given up at last.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException, HTTPMessage
from typing import IO

from headgate.core import HeadgateError

#: how long one call may take, in seconds
CALL_SECONDS = 10.0
#: how many messages wait for one destination; more are dropped
MOST_WAITING = 1000
#: seconds to wait after the first failure, doubled after each further one, and at most
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
#: so many calls fail before a message is given up: after about ten minutes
MOST_CALLS = 15

Message = Mapping[str, object]


class AlertError(HeadgateError):
    """An alert could not be delivered."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A POST that is sent elsewhere would become a GET without its content."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def call(to: str | tuple[str, ...], message: Message, limit: float = CALL_SECONDS) -> None:
    """Deliver a message; raises AlertError if that does not succeed within about ``limit`` seconds."""
    content = json.dumps(message).encode()
    if isinstance(to, str):
        _post(to, content, limit)
    else:
        _run(to, content, limit)


def _post(url: str, content: bytes, limit: float) -> None:
    headers = {"content-type": "application/json", "user-agent": "headgate"}
    request = urllib.request.Request(url, data=content, headers=headers, method="POST")
    try:
        with _OPENER.open(request, timeout=limit):
            return
    except (OSError, HTTPException, ValueError) as error:
        raise AlertError(str(error).replace(url, "...")) from None


def _run(command: tuple[str, ...], content: bytes, limit: float) -> None:
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the terminal of the run is not meant for it
        )
    except OSError as error:
        raise AlertError(f"cannot be started: {error.strerror}") from None
    try:
        _, said = process.communicate(content, timeout=limit)
    except subprocess.TimeoutExpired:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        raise AlertError(f"took longer than {limit:g} s") from None
    finally:
        for pipe in (process.stdin, process.stderr):
            if pipe is not None:
                pipe.close()
    if process.returncode:
        last = said.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise AlertError(f"ended with status {process.returncode}{': ' + last[0] if last else ''}")


class Courier:
    """Delivers the messages for one destination, in their order. ``done`` is called with each that has ended.

    ``say`` gets a line when a destination begins to fail, and when a message is given up. ``wait`` waits so many
    seconds, or until it is told that the run ends, and returns whether it was.
    """

    def __init__(
        self,
        to: str | tuple[str, ...],
        shown: str,
        done: Callable[[Message], None],
        say: Callable[[str], None],
        limit: float = CALL_SECONDS,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self._to = to
        self._shown = shown
        self._done = done
        self._say = say
        self._limit = limit
        self._waiting: queue.Queue[Message | None] = queue.Queue(MOST_WAITING)
        self._ended = threading.Event()
        self._wait = wait or self._ended.wait
        self._thread = threading.Thread(target=self._deliver_all, name="headgate-alerts-out", daemon=True)
        self._thread.start()

    def put(self, message: Message) -> bool:
        """Have it delivered; returns at once, False if too many wait already."""
        try:
            self._waiting.put_nowait(message)
        except queue.Full:
            return False
        return True

    def stop(self, seconds: float) -> None:
        """Deliver what waits if it takes at most ``seconds``; what is left stays undelivered."""
        stop_all([self], seconds)

    def take_no_more(self) -> None:
        """End when what waits is delivered; returns at once."""
        with suppress(queue.Full):
            self._waiting.put_nowait(None)

    def try_no_more(self) -> None:
        """End when the call that goes on, if there is one, has ended; returns at once."""
        self._ended.set()

    def join(self, seconds: float) -> None:
        """Wait for the end at most so long."""
        self._thread.join(max(0.0, seconds))

    def _deliver_all(self) -> None:
        while (message := self._waiting.get()) is not None and not self._ended.is_set():
            try:
                self._deliver(message)
            except Exception as error:  # the messages after it have nobody else to deliver them
                self._say(f"an alert to {self._shown} could not be noted as done: {type(error).__name__}: {error}")

    def _deliver(self, message: Message) -> None:
        wait = FIRST_WAIT
        for calls in range(1, MOST_CALLS + 1):
            try:
                call(self._to, message, self._limit)
                break
            except Exception as error:
                if calls == 1:
                    self._say(f"an alert cannot be delivered to {self._shown}: {error}; it is tried again")
                if calls == MOST_CALLS:
                    self._say(f"an alert was not delivered to {self._shown}, and is given up: {message['text']}")
                    break
            if self._wait(wait):
                return  # it is delivered by the next run
            wait = min(2 * wait, LONGEST_WAIT)
        self._done(message)


def stop_all(couriers: Sequence[Courier], seconds: float) -> None:
    """Let all deliver what waits, at the same time, if it takes at most ``seconds``; what is left stays undelivered."""
    began = time.monotonic()
    for courier in couriers:
        courier.take_no_more()
    for courier in couriers:
        courier.join(began + seconds / 2 - time.monotonic())
    for courier in couriers:
        courier.try_no_more()
    for courier in couriers:
        courier.join(began + seconds - time.monotonic())
