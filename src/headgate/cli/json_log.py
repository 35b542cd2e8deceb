"""The log of a run as JSON, one object per line on standard output. The keys are stable."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from headgate.cli.output import say

if TYPE_CHECKING:
    from headgate.core import Update


class JsonLog:
    """A line for every update and every message: ``at``, in seconds since the epoch, ``kind``, and what it is about."""

    def note(self, update: Update) -> None:
        _write(
            "update",
            table=update.table,
            layer=update.layer,
            track=update.track,
            outcome="committed" if update.committed else "failed",
            began=update.began,
            seconds=update.seconds,
            rows=update.rows,
            rejected=update.rejected,
            error=update.error,
        )

    def message(self, line: str) -> None:
        _write("message", text=line)


def _write(kind: str, **content: object) -> None:
    say(json.dumps({"at": time.time(), "kind": kind, **content}), flush=True)
