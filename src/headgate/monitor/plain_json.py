"""JSON that every reader takes: ASCII only, and null for the numbers that JSON does not have.

Names, cells and errors come from others. Whatever is in them, half a surrogate pair included, stays text.
"""

from __future__ import annotations

import json

from headgate.warehouse.run.control_commands import finite


def json_text(content: object) -> str:
    try:
        return _written(content)
    except ValueError:  # a number that is not finite, which is seldom: to look for them costs more than to write
        return _written(finite(content))


def _written(content: object) -> str:
    return json.dumps(content, separators=(",", ":"), allow_nan=False)
