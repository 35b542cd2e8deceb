"""Lands the files of the two streams and changes the dimension, on a thread of its own, from a seed.

Files are written under a hidden name and renamed into place. Most rows are of now, some are up to an hour late, a few
lines are not rows at all. The landed files themselves are the record: `oracle` reads nothing else.
"""

from __future__ import annotations

import json
import random
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

ORDERS_EVERY, CLICKS_EVERY, ITEMS_EVERY = 0.5, 1.0, 9.0
ITEMS, CUSTOMERS = 40, 60
#: files that the oracle must not expect rows of begin with this
BAD = "bad-"


class Feeder:
    """Lands files from `start` to `stop`. Only its thread writes into the folders, except for the files of faults."""

    def __init__(self, landing: Path, seed: int) -> None:
        self.landing = landing
        self.files = 0
        self._chance = random.Random(seed)
        self._ids = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        for name in ("orders", "clicks", "items"):
            (landing / name).mkdir(parents=True)
        self._land_items()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Land a last file of each stream, and no more."""
        self._stopping.set()
        self._thread.join()
        self._land_orders()
        self._land_clicks()

    def _run(self) -> None:
        due = {self._land_orders: 0.0, self._land_clicks: 0.0, self._land_items: time.monotonic() + ITEMS_EVERY}
        every = {self._land_orders: ORDERS_EVERY, self._land_clicks: CLICKS_EVERY, self._land_items: ITEMS_EVERY}
        while not self._stopping.wait(0.05):
            for land, moment in due.items():
                if time.monotonic() >= moment:
                    land()
                    due[land] = time.monotonic() + every[land] * self._chance.uniform(0.5, 1.5)

    def _land_orders(self) -> None:
        lines = []
        for _ in range(self._chance.randint(5, 40)):
            row = {"ts": self._time(), "id": self._next_id(), "customer": self._chance.randrange(CUSTOMERS)}
            row |= {"item": self._chance.randrange(ITEMS), "amount": self._chance.randrange(1000)}
            lines.append(json.dumps(row) if self._chance.random() > 0.01 else f"no row {row['id']}")
        land(self.landing / "orders" / f"{self._number()}.json", "\n".join(lines) + "\n")

    def _land_clicks(self) -> None:
        rows = [
            f"{self._time()},{self._next_id()},{self._chance.randrange(CUSTOMERS)}"
            for _ in range(self._chance.randint(5, 30))
        ]
        land(self.landing / "clicks" / f"{self._number()}.csv", "\n".join(["ts,id,customer", *rows]) + "\n")

    def _land_items(self) -> None:
        """Replaces one of the two files of the dimension, or both at the beginning. A few items are in neither."""
        for half in (0, 1) if self.files == 0 else (self._chance.randrange(2),):
            rows = [
                f"{item},c{self._chance.randrange(5)}"
                for item in range(half, ITEMS, 2)
                if item not in (7, 8) or self._chance.random() < 0.5
            ]
            land(self.landing / "items" / f"{half}.csv", "\n".join(["item,category", *rows]) + "\n")
        self.files += 1

    def _number(self) -> str:
        self.files += 1
        return f"{self.files:08d}"

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids

    def _time(self) -> str:
        late = self._chance.random() < 0.03
        before = self._chance.uniform(60.0, 3600.0) if late else self._chance.uniform(0.0, 2.0)
        return (datetime.now(UTC) - timedelta(seconds=before)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def land(path: Path, text: str | bytes) -> None:
    """A file that appears whole."""
    hidden = path.with_name(f".{path.name}")
    hidden.write_bytes(text if isinstance(text, bytes) else text.encode())
    hidden.replace(path)
