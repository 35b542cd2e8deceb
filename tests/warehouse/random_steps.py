"""Random rows for the streams and the dimension of ``random_queries``, and random sequences of what happens to them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2026, 11, 15, 10, 0, tzinfo=UTC)
#: how much event time goes by in a step, in minutes
MINUTES_A_STEP = 40
STREAMS = ("orders", "clicks")
#: what happens to some tables in a step, by the fields of ``Step``
SHARES = ("upkeep", "behind", "backfill", "meanwhile", "dies")


@dataclass(frozen=True, slots=True)
class File:
    """A file that lands in the folder of a stream or dimension; a dimension's replaces the one of that name."""

    folder: str
    name: str
    rows: tuple[dict[str, Any], ...]

    def land(self, root: Path) -> None:
        folder = root / self.folder
        folder.mkdir(exist_ok=True)
        path = folder / f"{self.name}.json"
        path.with_suffix(".tmp").write_text("".join(f"{json.dumps(row)}\n" for row in self.rows))
        path.with_suffix(".tmp").replace(path)


@dataclass(frozen=True, slots=True)
class Step:
    """Files land and are loaded; then tables are updated, some of them, perhaps cut into pieces.

    ``restart`` is before all else; ``later`` are files that come while a table is being updated. ``chop`` is the most
    event time of an update, in seconds. The others are shares of the tables: those whose files are merged (``upkeep``),
    that are not updated now (``behind``), of which some of the past is computed again (``backfill``), whose sources
    change during an update (``meanwhile``), and whose update fails while it commits (``dies``).
    """

    number: int
    what: str
    files: tuple[File, ...] = ()
    later: tuple[File, ...] = ()
    restart: bool = False
    chop: float = float("inf")
    upkeep: float = 0.0
    behind: float = 0.0
    backfill: float = 0.0
    meanwhile: float = 0.0
    dies: float = 0.0

    def __str__(self) -> str:
        told = [self.what, *(f"{len(file.rows)} rows in {file.folder}/{file.name}" for file in self.files)]
        told += [f"later {len(file.rows)} in {file.folder}/{file.name}" for file in self.later]
        told += ["restart"] * self.restart
        told += [f"{name} {getattr(self, name)}" for name in SHARES if getattr(self, name)]
        if self.chop != float("inf"):
            told.append(f"at most {self.chop:g} s at once")
        return ", ".join(told)


@dataclass
class Rows:
    """Rows with nulls, ties in time, duplicates and negative numbers."""

    chance: random.Random
    landed: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {name: [] for name in STREAMS})

    def moment(self, first: float, last: float) -> str:
        """A time between two minutes after the start, on a quarter of a minute, so that times coincide."""
        quarter = self.chance.randint(round(4 * first), max(round(4 * first), round(4 * last) - 1))
        return (START + timedelta(seconds=15 * quarter)).isoformat()

    def maybe(self, value: Any, share: float = 0.12) -> Any:
        return None if self.chance.random() < share else value

    def row(self, stream: str, first: float, last: float) -> dict[str, Any]:
        chance = self.chance
        key = self.maybe(chance.choice("aabcde"))
        number = self.maybe(chance.choice([-3, -1, 0, 1, 1, 2, 3, 5, 8]))
        double = self.maybe(chance.choice([chance.randint(-8, 24) / 4, chance.randint(-8, 24) / 4, 0.0, -0.0]))
        if stream == "clicks":
            page = self.maybe(chance.choice(["a", "home", "cart"]))
            return {"ts": self.moment(first, last), "k": key, "v": number, "y": double, "page": page}
        return {
            "ts": self.moment(first, last),
            "k": key,
            "n": number,
            "x": double,
            "d": self.maybe(f"{chance.randint(-200, 900) / 100:.2f}"),
            "b": self.maybe(chance.random() < 0.5),
            "tags": self.maybe(chance.sample(["a", "b", "new", "z"], k=chance.randint(0, 3))),
        }

    def of(self, stream: str, count: int, first: float, last: float) -> list[dict[str, Any]]:
        """Rows between two minutes after the start; some of them twice, or again as they came before."""
        rows = [self.row(stream, first, last) for _ in range(count)]
        known = [*rows, *self.landed[stream]]
        rows += [dict(self.chance.choice(known)) for _ in rows if self.chance.random() < 0.08]
        self.landed[stream] += rows
        return rows

    def shops(self) -> list[dict[str, Any]]:
        """The dimension anew: keys come and go, and one may be there twice."""
        chance = self.chance
        keys = [*chance.sample("abcdef", k=chance.randint(2, 5)), *(["a"] if chance.random() < 0.2 else [])]
        return [
            {
                "k": key,
                "city": self.maybe(chance.choice(["Oslo", "Turin"])),
                "w": self.maybe(chance.randint(-2, 20)),
                "open": self.maybe(chance.random() < 0.6),
            }
            for key in keys
        ]


def random_steps(seed: object, count: int) -> list[Step]:
    """The first step loads everything; then whatever may happen does."""
    chance = random.Random(f"steps {seed}")
    rows = Rows(chance)
    now = float(chance.choice([20, MINUTES_A_STEP]))
    first = [File(stream, "0", tuple(rows.of(stream, 14, 0, now))) for stream in STREAMS]
    steps = [Step(0, "begin", (*first, File("shops", "shops", tuple(rows.shops()))))]
    for number in range(1, count):
        begin, now = now, now + chance.choice([3, MINUTES_A_STEP, 3 * MINUTES_A_STEP])
        steps.append(_step(chance, rows, number, begin, now))
    return steps


def _step(chance: random.Random, rows: Rows, number: int, begin: float, now: float) -> Step:
    what = chance.choice(["in order", "late", "one stream", "late in one stream", "dimension", "much", "long ago"])
    streams: Sequence[str] = [chance.choice(STREAMS)] if "one stream" in what else STREAMS
    files: list[File] = []
    for stream in streams:
        count = chance.randint(4, 9)
        match what:
            case "in order" | "one stream":
                made = rows.of(stream, count, begin, now)
            case "late" | "late in one stream":
                made = [*rows.of(stream, 2, 0, begin), *rows.of(stream, chance.choice([0, 3]), begin, now)]
            case "much":
                made = rows.of(stream, 3 * count, 0.7 * begin, now)
            case "long ago":
                made = [*rows.of(stream, 2, -1500, -600), *rows.of(stream, 2, begin, now)]
            case _:
                made = rows.of(stream, chance.choice([0, 0, 2]), begin, now)
        half = chance.choice([0, 0, len(made) // 2])
        parts = [part for part in (made[:half], made[half:]) if part]
        files += [File(stream, f"{number}-{i}", tuple(part)) for i, part in enumerate(parts)]
    if what == "dimension" or chance.random() < 0.15:
        files.append(File("shops", chance.choice(["shops", "shops", "more"]), tuple(rows.shops())))
    late = [file for file in files if chance.random() < 0.15]
    return Step(
        number,
        what,
        tuple(file for file in files if file not in late),
        tuple(late),
        restart=chance.random() < 0.3,
        chop=chance.choice([float("inf"), float("inf"), 600.0, 3600.0]),
        upkeep=chance.choice([0.0, 0.0, 0.3]),
        behind=chance.choice([0.0, 0.2, 0.5]),
        backfill=chance.choice([0.0, 0.0, 0.3]),
        meanwhile=0.3 if late else 0.0,
        dies=chance.choice([0.0, 0.0, 0.15]),
    )


def micros(minute: float) -> int:
    return round((START + timedelta(minutes=minute)).timestamp() * 1_000_000)
