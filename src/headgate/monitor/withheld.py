"""What is said about data, left out where previews are switched off: an error may quote a value of a row."""

from __future__ import annotations

from typing import Any

WITHHELD = "withheld: previews are switched off"

#: the fields that hold the text of an error, or what a source, a query or the pipeline file has said
_FIELDS = ("error", "note", "file_problem")


def withheld(value: Any) -> Any:
    """What is told of a run, without the texts of errors, of notes and of notices."""
    if isinstance(value, dict):
        found = {key: withheld(inner) for key, inner in value.items()}
        for key in _FIELDS:
            if isinstance(found.get(key), str) and found[key]:
                found[key] = WITHHELD
        if "table" in found and "text" in found:  # a notice; those of no table quote errors as well
            found["text"] = WITHHELD
        return found
    return [withheld(inner) for inner in value] if isinstance(value, list) else value
