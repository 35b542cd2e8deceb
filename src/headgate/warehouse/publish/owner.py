"""Whose versions a place has: every warehouse that publishes has an id, which places keep with the version.

Without it, two warehouses that publish a table of the same name to one place would take each other's version for one of
an earlier life of their own table, and replace each other's rows for ever.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from headgate.places.place import AnyPath
from headgate.warehouse.publish.errors import PublishError
from headgate.warehouse.publish.protocol import PublishedVersion, TableChanges

#: the file in the folder of a warehouse that has its id
FILE_NAME = "headgate.id"


def warehouse_id(folder: AnyPath, name: str) -> str:
    """The id of the warehouse in ``folder``, which is made the first time. ``name`` is for people who read it."""
    file = folder / FILE_NAME
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        pass
    made = f"{name}-{secrets.token_hex(8)}"
    if not isinstance(file, Path):
        return made if file.create(made.encode() + b"\n") is not None else file.read_text().strip()
    # As a whole or not at all: one process has the lock of the warehouse, but it may be killed.
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{FILE_NAME}-{os.getpid()}")
    beside.write_text(f"{made}\n")
    beside.replace(file)
    return made


def refuse_others(there: PublishedVersion | None, warehouse: str, take_over: bool, table: str, place: str) -> None:
    """PublishError if ``place`` has a version that another warehouse published; one without an id is our own."""
    if take_over or there is None or not there.warehouse or not warehouse or there.warehouse == warehouse:
        return
    raise PublishError(
        f"{table!r} cannot be published to {place}: it has version {there.version} of another warehouse, "
        f"{there.warehouse!r}; this one is {warehouse!r} (the id is in {FILE_NAME} in the folder of a warehouse). "
        "Give each warehouse a place of its own; or, if this one is to go on instead of the other, stop the other one "
        "and start this one with take_over=True"
    )


def refuse_unexpected(there: PublishedVersion | None, changes: TableChanges, place: str, kind: str) -> None:
    """PublishError if ``place``, a ``kind`` of place, has another version than the one that ``changes`` are to follow.

    Also if they are the whole table: who was stopped for a while would replace what its successor has published.
    """
    if there == changes.expected:
        return
    raise PublishError(
        f"{place} was to be brought from {_number(changes.expected)} to {_number(changes.published)}, but it has "
        f"{_number(there)}: somebody else publishes to it. Give each warehouse a {kind} of its own"
    )


def _number(version: PublishedVersion | None) -> str:
    return "no version" if version is None else f"version {version.version}"
