"""Another program that writes to a table of the warehouse."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable


def delete_rows(table: Path, rng: random.Random) -> set[int]:
    """Delete the row with one number from the stream, as any user of the Delta library does it; which it was."""
    if not DeltaTable.is_deltatable(str(table)):
        return set()
    delta = DeltaTable(str(table))
    numbers = sorted(n for uri in delta.file_uris() for n in pq.read_table(uri, columns=["id"]).column("id").to_pylist())
    if not numbers:
        return set()
    number = rng.choice(numbers)
    delta.delete(f"id = {number}")
    return {number}
