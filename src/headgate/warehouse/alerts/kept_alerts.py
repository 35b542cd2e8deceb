"""Where it is kept which alerts have fired and which are still to be delivered: a small file in the warehouse.

It is replaced as a whole. In a folder that is done at once. In an object store or in HDFS a thread of its own does it,
as a store may not answer: then the alerts go on, and the newest content is written when the store is back.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headgate.core import HeadgateError
from headgate.places.object_path import ObjectPath
from headgate.places.place import AnyPath

#: so long a request to a store may take, with its repetitions
PATIENCE = 10.0
#: seconds until a write that has failed is tried again
AGAIN_SECONDS = 5.0


class KeptAlerts:
    """The content of ``file``. ``say`` gets a line when it begins to fail, and when the end of a run is not in it."""

    def __init__(self, file: AnyPath, say: Callable[[str], None]) -> None:
        self._file: AnyPath = file if isinstance(file, Path) else file.with_patience(PATIENCE)
        self._say = say
        self._changed = threading.Condition()
        #: what is to be written to a store; None if all is
        self._next: str | None = None
        self._is_ended = False
        self._thread: threading.Thread | None = None

    def read(self) -> str:
        """The content; empty if there is none. Raises OSError if the store does not tell."""
        try:
            return self._file.read_text("utf-8")
        except FileNotFoundError:
            return ""

    def write(self, content: str) -> None:
        """Replace the content; never raises, and waits for no store."""
        if isinstance(self._file, Path):
            _replace(self._file, content)
            return
        with self._changed:
            self._next = content
            self._changed.notify_all()
            if self._thread is None and not self._is_ended:
                store = self._file
                self._thread = threading.Thread(
                    target=self._write_all, args=(store,), name="headgate-alerts-kept", daemon=True
                )
                self._thread.start()

    def stop(self, until: float) -> None:
        """Wait for what is being written, at most until this moment of ``time.monotonic``."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
        if self._thread is None:
            return
        self._thread.join(max(0.0, until - time.monotonic()))
        with self._changed:
            is_left = self._next is not None
        if is_left:
            self._say(
                f"which alerts have fired is not all in {self._file}, as the store does not answer: the next run may "
                "repeat some"
            )

    def _write_all(self, store: ObjectPath) -> None:
        trouble = ""
        while (content := self._awaited()) is not None:
            try:
                store.write_text(content)
            except (OSError, HeadgateError) as error:
                if not trouble:
                    trouble = str(error)
                    self._say(f"which alerts have fired cannot be written to {store}: {error}; it is tried again")
                if self._is_over(AGAIN_SECONDS):
                    return
                continue
            trouble = ""
            with self._changed:
                if self._next is content:
                    self._next = None

    def _awaited(self) -> str | None:
        """What is to be written next; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._next is not None or self._is_ended)
            return self._next

    def _is_over(self, seconds: float) -> bool:
        """Whether the run ends, now or within so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_ended, seconds)


def _replace(file: Path, content: str) -> None:
    """A disk that is full stops no alert, but then a restart may repeat one."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".tmp")
        part.touch(mode=0o600)  # what an alert says of a table is for those who may read it
        part.write_text(content, "utf-8")
        os.replace(part, file)
