"""How many rows a packet should have.

Bobox (section 5.2) fills half of the second-level cache, so that a packet and what an operator makes of it fit
together: larger ones are fetched from memory again by every operator, smaller ones pay more for every hand-over. Here
a hand-over costs more, since every call of Arrow or NumPy takes the interpreter some microseconds, during which no
other worker has it; so the best size is some times larger (``python -m benchmarks stream_packets``). A source that is
not full sends what it has.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]

#: if the machine does not say
USUAL_L2 = 1 << 20
#: rows; fewer cost more to hand over than to compute, more keep a worker for too long at one turn
FEWEST, MOST = 256, 131_072
#: bytes of a packet, as a multiple of the cache
CACHES = 3.0
#: bytes of a value whose size its type does not tell
VARIABLE = 24


@lru_cache(maxsize=1)
def second_level_cache() -> int:
    """Bytes of the L2 cache of one core."""
    try:
        size = os.sysconf("SC_LEVEL2_CACHE_SIZE")
    except (ValueError, OSError):
        size = 0
    return size if size > 0 else _from_sysfs() or USUAL_L2


def _from_sysfs() -> int:
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text("ascii").strip()
    except OSError:
        return 0
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else 0


def row_bytes(schema: pa.Schema) -> int:
    """About how many bytes a row of this schema takes."""
    total = 0
    for field in schema:
        try:
            total += max(field.type.bit_width // 8, 1)
        except ValueError:
            total += VARIABLE
    return max(total, 1)


def rows_per_packet(schema: pa.Schema) -> int:
    """Rows that make a packet of the best size, within reason."""
    return min(max(round(CACHES * second_level_cache() / row_bytes(schema)), FEWEST), MOST)
