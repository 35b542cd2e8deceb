"""Copies the trace of a run to the object store that its warehouse is in, while it is written, in the background.

An object store cannot append. So a trace is a folder there, named like the file, with numbered pieces. The last piece
is written again whenever lines were added to the file, until it is full; then the next one begins. A run that is killed
leaves the pieces that it had written by then. Nobody else writes them: every run has a trace of its own.

A store that does not answer delays nothing: what is missing is sent the next time, and the file stays on this machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headgate.core import HeadgateError
from headgate.places.object_path import ObjectPath
from headgate.warehouse.run.trace import KEPT, traces_in

#: seconds between two looks whether lines were added
COPY_SECONDS = 10.0
#: a piece with so many bytes is full: each look sends at most so much again
PIECE_BYTES = 1024 * 1024
#: so long a request may take, with its repetitions; the end of a run waits for little more than one of them
PATIENCE = 10.0


class TraceCopy:
    """Copies ``file`` to the folder ``target`` from its making to ``close``; also deletes all but the newest traces.

    It never raises. ``on_message`` gets a line if not all of the trace is in the store at the end.
    """

    def __init__(
        self,
        file: Path,
        target: ObjectPath,
        on_message: Callable[[str], None] = lambda line: None,
        every: float = COPY_SECONDS,
        piece_bytes: int = PIECE_BYTES,
        kept: int = KEPT,
    ) -> None:
        self._file = file
        self._target = target.with_patience(PATIENCE)
        self._on_message = on_message
        self._every = every
        self._piece_bytes = piece_bytes
        self._kept = kept
        #: how many bytes of the file are in the store
        self._copied = 0
        self._trouble = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="headgate-trace-copy", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Copy what is left, when the file is complete. Closing a second time does nothing."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join(2 * PATIENCE)
        if self._trouble or self._thread.is_alive():
            why = self._trouble or f"the store has not answered for {2 * PATIENCE:g} s"
            self._on_message(
                f"the end of the trace is not in {self._target}: {why}. On this machine all of it is in {self._file}"
            )

    def _keep(self) -> None:
        self._copy()
        with suppress(OSError, HeadgateError):  # then the next run does it
            self._delete_old()
        while not self._ended.wait(self._every):
            self._copy()
        self._copy()

    def _copy(self) -> None:
        try:
            with self._file.open("rb") as file:
                while True:
                    number = self._copied // self._piece_bytes
                    file.seek(number * self._piece_bytes)
                    content = file.read(self._piece_bytes)
                    if number * self._piece_bytes + len(content) <= self._copied:
                        break
                    (self._target / f"{number:06}").write_bytes(content)
                    self._copied = number * self._piece_bytes + len(content)
            self._trouble = ""
        except OSError as error:
            self._trouble = error.strerror or str(error)

    def _delete_old(self) -> None:
        others = [path for path in traces_in(self._target.parent) if path.name != self._target.name]
        for old in others[self._kept - 1 :]:
            old.delete_below()
            old.unlink()
