"""``--log-json``: a line of JSON for every update and every message, with stable keys."""

from __future__ import annotations

import json

import pytest

from headgate.cli.json_log import JsonLog
from headgate.core import Update


def test_every_update_and_message_is_a_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    log = JsonLog()
    committed = Update("air", track=1, began=100.0)
    committed.rows, committed.rejected = 5, 2
    committed.commits(0.5)
    failed = Update("air", "backfill", began=101.0)
    failed.fails(ValueError("b\x1b[31m<b>\ud800"), 0.1)
    log.note(committed)
    log.note(failed)
    log.message("keeping the tables fresh\nand so on")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all(line.isascii() and line.isprintable() for line in lines)
    first, second, third = map(json.loads, lines)
    keys = ["at", "kind", "table", "layer", "track", "outcome", "began", "seconds", "rows", "rejected", "error"]
    assert list(first) == list(second) == keys
    assert (first["kind"], first["table"], first["outcome"], first["rows"], first["error"]) == (
        *("update", "air", "committed"),
        *(5, None),
    )
    assert second["outcome"] == "failed" and "b\x1b[31m<b>\ud800" in second["error"]
    assert (third["kind"], third["text"]) == ("message", "keeping the tables fresh\nand so on")
