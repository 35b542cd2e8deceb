"""City sensors as RIoTBench has them, made from a seed: any row can be made again, alone or among others.

Rows come in blocks with a generator of random numbers each, so the row with a given number is the same whoever asks
for it and however many are asked for at once. Ranges, spreads, units and the number of sources follow the published
sample of one minute; places, sensors and their names are made up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import ParameterError
from headgate.stream import Ints
from workloads.riot import csv_lines, senml
from workloads.riot.schema import LINES, READINGS, SENSORS, Floats, empty, nullable

BLOCK = 4096

#: (longitude, latitude, usual temperature) of cities that have boards with sensors
_CITIES = (
    (-122.42, 37.77, 13.5),
    (-43.20, -22.91, 29.0),
    (6.15, 46.20, 6.0),
    (-71.08, 42.37, 3.0),
    (103.80, 1.30, 28.0),
    (121.45, 31.23, 10.5),
    (77.60, 12.97, 25.0),
)
#: the city of each board in turn: more of them stand where it is warm
_TURNS = np.array([0, 1, 2, 3, 4, 5, 6, 1, 4, 6])
_BOARDS = 84
_PLACES = ("library", "workshop", "stadium", "harbour", "station", "market", "museum", "school", "clinic", "depot")
_TYPES = ("solar", "heat", "analog", "digital", "electronic", "ultrasound", "radar")
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz0123456789", dtype=np.uint8)
#: what random numbers are for: each use has a stream of its own
_NAMES, _READINGS, _MALFORMED = 1, 2, 3
#: the share of sensors that it is dark around
_DARK = 0.6


@dataclass(frozen=True)
class City:
    """Describes a stream of readings; ``missing``, ``unknown`` and ``malformed`` are shares of values, rows and lines.

    Rows of unknown sources have a name that ``annotations`` does not know. Malformed lines are those that ``lines``
    and ``csv_lines`` spoil; ``readings`` has what would have stood there.
    """

    seed: int = 0
    sources: int = 2162
    rows_per_second: float = 16.5
    start: int = 1_422_748_800_000
    missing: float = 0.01
    unknown: float = 0.005
    malformed: float = 0.0

    def __post_init__(self) -> None:
        if self.seed < 0 or self.sources < 1 or self.rows_per_second <= 0:
            raise ParameterError(f"a city needs a seed from 0, sources and a rate above 0; got {self}")
        for name in ("missing", "unknown", "malformed"):
            if not 0 <= getattr(self, name) <= 1:
                raise ParameterError(f"{name} is a share from 0 to 1; got {getattr(self, name)}")

    @cached_property
    def names(self) -> pa.Array:
        """The known sources, and after them as many unknown ones as there are boards: board, then sensor number."""
        random = self._random(_NAMES, 0)
        letters = _LETTERS[random.integers(len(_LETTERS), size=(2 * _BOARDS, 23))]
        boards = ["ct" + bytes(row).decode() for row in letters]
        known = [f"{boards[number % _BOARDS]}{number // _BOARDS}" for number in range(self.sources)]
        return pa.array([*known, *(f"{board}0" for board in boards[_BOARDS:])], pa.string())

    def annotations(self) -> pa.Table:
        """Where each source stands and what it is: columns source, location, type."""
        place = np.arange(self.sources) * 7 // 3 % len(_PLACES)
        return pa.table(
            {
                "source": self.names.slice(0, self.sources),
                "location": pa.array(_PLACES).take(pa.array(place)),
                "type": pa.array(_TYPES).take(pa.array(place % len(_TYPES))),
            }
        )

    def readings(self, first: int, count: int) -> pa.RecordBatch:
        """Rows ``first`` to ``first + count - 1`` as columns (``READINGS``)."""
        return _assembled(self._readings_block, READINGS, first, count)

    def lines(self, first: int, count: int) -> pa.RecordBatch:
        """The same rows as ``epoch_ms,<SenML>`` (``LINES``)."""
        return _assembled(lambda block: self._lines_block(block, senml.write), LINES, first, count)

    def csv_lines(self, first: int, count: int) -> pa.RecordBatch:
        """The same rows as ``timestamp,source,longitude,...`` (``LINES``)."""
        return _assembled(lambda block: self._lines_block(block, csv_lines.write), LINES, first, count)

    def _random(self, use: int, block: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=[self.seed, use << 48 | block]))

    def _readings_block(self, block: int) -> pa.RecordBatch:
        random = self._random(_READINGS, block)
        number = np.arange(block * BLOCK, (block + 1) * BLOCK)
        source = random.integers(self.sources, size=BLOCK)
        stranger = self.sources + random.integers(_BOARDS, size=BLOCK)
        name = np.where(random.random(BLOCK) < self.unknown, stranger, source)
        board = source % _BOARDS
        city = np.array(_CITIES)[_TURNS[board % len(_TURNS)]]
        columns = [
            pa.array(number),
            pa.array(self.start + (number / self.rows_per_second).astype(np.int64) * 1000),
            self.names.take(pa.array(name)),
            pa.array(np.round(city[:, 0] + 0.0011 * board, 6)),
            pa.array(np.round(city[:, 1] + 0.0007 * board, 6)),
        ]
        for values in _sensor_values(random, city[:, 2]):
            columns.append(nullable(np.where(random.random(BLOCK) < self.missing, np.nan, values)))
        return pa.record_batch(columns, schema=READINGS)

    def _lines_block(self, block: int, write: Callable[[pa.RecordBatch], pa.Array]) -> pa.RecordBatch:
        readings = self._readings_block(block)
        lines = write(readings)
        if self.malformed:
            random = self._random(_MALFORMED, block)
            spoilt = np.flatnonzero(random.random(BLOCK) < self.malformed)
            lines = _spoil(lines, spoilt, random.integers(len(_DAMAGES), size=len(spoilt)))
        return pa.record_batch([readings.column("msgid"), lines], schema=LINES)


def _sensor_values(random: np.random.Generator, usual: Floats) -> list[Floats]:
    """The five sensors, each rarely far beyond what the range filter lets pass."""
    size = len(usual)
    temperature = np.clip(usual + random.normal(0, 3.5, size), -8.1, 40.3).round(1)
    humidity = np.clip(random.normal(49, 16, size), 12, 99.9).round(1)
    lit = random.random(size) >= _DARK
    light = np.where(lit, np.minimum(np.exp(random.normal(6.2, 1.2, size)), 9800), 0).round()
    dust = np.minimum(np.exp(random.normal(6.6, 0.98, size)), 10427.86).round(2)
    dust = np.where(random.random(size) < 0.01, -1.0, dust)
    # So that there is something to learn: air is worse where it is cool and damp, and where there is little dust.
    base = 33.0 - 0.51 * temperature + 0.155 * humidity - 0.0044 * np.minimum(dust, 4000)
    spread = np.exp(random.normal(0, 0.3, size)) * np.where(random.random(size) < 0.01, 12.0, 1.0)
    air = np.clip(base * spread, 4, 970).round()
    values = [temperature, humidity, light, dust, air]
    assert len(values) == len(SENSORS)
    # 0.0, never -0.0: that would be written differently and mean the same.
    return [column + 0.0 for column in values]


#: ways to spoil a line, each of which no reader may accept
_DAMAGES: tuple[Callable[[str], str], ...] = (
    lambda line: line[: len(line) // 2],
    lambda line: line.replace(",", " "),
    lambda line: "soon" + line[4:],
    lambda line: "",
)


def _spoil(lines: pa.Array, rows: Ints, damage: Ints) -> pa.Array:
    texts = lines.to_pylist()
    for row, kind in zip(rows.tolist(), damage.tolist(), strict=True):
        texts[row] = _DAMAGES[kind](texts[row])
    return pa.array(texts, pa.string())


def _assembled(block_of: Callable[[int], pa.RecordBatch], schema: pa.Schema, first: int, count: int) -> pa.RecordBatch:
    """``count`` rows from ``first`` on, cut out of the blocks that they lie in."""
    if first < 0 or count < 0:
        raise ParameterError(f"rows are numbered from 0; got first={first}, count={count}")
    if not count:
        return empty(schema)
    blocks = [block_of(block) for block in range(first // BLOCK, (first + count - 1) // BLOCK + 1)]
    rows = pa.concat_batches(blocks) if len(blocks) > 1 else blocks[0]
    return rows.slice(first % BLOCK, count)
