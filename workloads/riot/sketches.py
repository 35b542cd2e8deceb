"""STATS' other branches: how unevenly a sensor's values are spread, and how many sources there are."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import ParameterError
from headgate.stream import Ints, Output, Part, Snapshot
from workloads.riot.hashing import mix, text_hashes
from workloads.riot.keyed import FIELDS, KeySlots, SlotGroups, grown, list_column, list_matrix, rounds
from workloads.riot.results import DISTINCT_COUNT, RESULTS, SECOND_ORDER_MOMENT, results
from workloads.riot.schema import Floats, empty, floats

#: of Durand and Flajolet's estimate for many buckets
_LOGLOG = 0.79402
_HASH_BITS = 32
_ALL_ZERO = 31


class SecondOrderMoment:
    """The second moment of a sensor's values after Alon, Matias and Szegedy, from ``places`` of them with their counts.

    With n values seen and k places taken the answer is n / k * sum of (2 * count - 1), where the sum is over all places
    and an empty one counts as -1, as in the original. A new value takes a free place, or that of another one: which,
    the original draws at random; here it follows from the sensor and n.
    """

    def __init__(self, places: int = 10) -> None:
        if places < 1:
            raise ParameterError(f"a second moment needs a place for values; got places={places}")
        self._places = places
        self._keys = KeySlots()
        self._items = np.zeros((0, places))
        self._counts = np.zeros((0, places), dtype=np.int64)
        self._seen = np.zeros(0, dtype=np.int64)
        #: what decides about places, by slot; it follows from the keys, so it is not in snapshots
        self._salts = np.zeros(0, dtype=np.uint64)

    def process(self, part: Part) -> Output:
        batch = part.batch
        slots = self._keys.of_observations(batch)
        self._reserve()
        values = floats(batch.column("value"))
        moments = np.empty(len(values))
        for rows in rounds(slots):
            moments[rows] = self._take(slots[rows], values[rows])
        return Output(results(batch, SECOND_ORDER_MOMENT, moments))

    def _take(self, slots: Ints, values: Floats) -> Floats:
        """The moments after one more value in each of these different slots."""
        seen = self._seen[slots] + 1
        counts = self._counts[slots]
        hit = (self._items[slots] == values[:, None]) & (counts > 0)
        found = hit.any(axis=1)
        taken = np.count_nonzero(counts, axis=1)
        evicted = (mix(self._salts[slots] + seen.astype(np.uint64)) % np.uint64(self._places)).astype(np.int64)
        place = np.where(found, hit.argmax(axis=1), np.where(taken < self._places, taken, evicted))
        rows = np.arange(len(slots))
        counts[rows, place] = np.where(found, counts[rows, place] + 1, 1)
        self._items[slots, place] = values
        self._counts[slots] = counts
        self._seen[slots] = seen
        total = 2 * counts.sum(axis=1) - self._places
        answer: Floats = seen * total / np.count_nonzero(counts, axis=1)
        return answer

    def _reserve(self) -> None:
        size = len(self._keys) * FIELDS
        self._items, self._counts = grown(self._items, size), grown(self._counts, size)
        self._seen = grown(self._seen, size)
        if len(self._salts) < size:
            hashes = text_hashes(self._keys.column(len(self._salts) // FIELDS))
            fields = np.arange(FIELDS).astype(np.uint64)
            self._salts = np.concatenate([self._salts, mix((hashes[:, None] + fields).ravel())])

    def flush(self) -> Output:
        return Output(empty(RESULTS))

    def snapshot(self) -> Snapshot:
        size = len(self._keys) * FIELDS
        columns = {
            "seen": pa.array(self._seen[:size].copy()),
            "items": list_column(self._items[:size]),
            "counts": list_column(self._counts[:size]),
        }
        return Snapshot({"keys": pa.table({"key": self._keys.column()}), "sensors": pa.table(columns)})

    def restore(self, snapshot: Snapshot) -> None:
        self._keys.restore(snapshot.tables["keys"].column("key"))
        sensors = snapshot.tables["sensors"]
        self._seen = sensors.column("seen").to_numpy().copy()
        self._items = list_matrix(sensors.column("items"), self._places)
        self._counts = list_matrix(sensors.column("counts"), self._places)


class DistinctCount:
    """How many sources have been seen, by field: LogLog (Durand and Flajolet) with 2**bits registers.

    A source's hash is the first four bytes of its SHA-1. The low bits choose a register, which keeps the greatest
    number of zeros that the other bits end with.
    """

    def __init__(self, bits: int = 5) -> None:
        if not 1 <= bits <= 16:
            raise ParameterError(f"LogLog has 2**bits registers, with bits from 1 to 16; got {bits}")
        self._bits = bits
        self._registers = np.zeros((FIELDS, 1 << bits), dtype=np.int64)
        # By sum of the registers: the same table for everyone instead of a power for every row.
        sums = range((1 << bits) * _ALL_ZERO + 1)
        registers = 1 << bits
        self._estimates = np.array([int(_LOGLOG * registers * 2.0 ** (total / registers)) for total in sums])

    def process(self, part: Part) -> Output:
        batch = part.batch
        if not batch.num_rows:
            return Output(results(batch, DISTINCT_COUNT, np.empty(0)))
        fields = batch.column("obstype").to_numpy().astype(np.int64)
        register, zeros = self._hashed(batch.column("source"))
        before = self._registers.sum(axis=1)
        risen = self._raise(fields << self._bits | register, zeros)
        # Row by row within a field, the sum of its registers grows by what was raised.
        groups = SlotGroups(fields)
        total = np.cumsum(risen[groups.order])
        total -= (total[groups.first] - risen[groups.order[groups.first]])[groups.of_sorted]
        sums = np.empty(len(fields), dtype=np.int64)
        sums[groups.order] = total + before[groups.slots][groups.of_sorted]
        return Output(results(batch, DISTINCT_COUNT, self._estimates[sums]))

    def _hashed(self, sources: pa.Array) -> tuple[Ints, Ints]:
        """Register and number of zeros of each source."""
        encoded = sources.dictionary_encode()
        words = encoded.dictionary.to_pylist()
        digests = b"".join(hashlib.sha1(word.encode(), usedforsecurity=False).digest()[:4] for word in words)
        hashes = np.frombuffer(digests, dtype="<i4").astype(np.int64)
        high = hashes >> self._bits
        lowest = high & -high
        zeros = np.where(high == 0, _ALL_ZERO, np.frexp(lowest.astype(np.float64))[1].astype(np.int64) - 1)
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        return (hashes & ((1 << self._bits) - 1))[indices], zeros[indices]

    def _raise(self, places: Ints, zeros: Ints) -> Ints:
        """Take the rows into their registers; by how much each row has raised its own."""
        registers = self._registers.reshape(-1)
        groups = SlotGroups(places)
        before = registers[groups.slots]
        # Groups far apart, so that a running maximum never reaches from one into the next.
        lift = groups.of_sorted * (2 * _HASH_BITS)
        highest = np.maximum.accumulate(np.maximum(zeros[groups.order], before[groups.of_sorted]) + lift) - lift
        previous = np.empty_like(highest)
        previous[1:] = highest[:-1]
        previous[groups.first] = before
        risen: Ints = np.empty_like(highest)
        risen[groups.order] = highest - previous
        np.maximum.at(registers, places, zeros)
        return risen

    def flush(self) -> Output:
        return Output(empty(RESULTS))

    def snapshot(self) -> Snapshot:
        return Snapshot({"registers": pa.table({"values": list_column(self._registers)})})

    def restore(self, snapshot: Snapshot) -> None:
        self._registers = list_matrix(snapshot.tables["registers"].column("values"), 1 << self._bits)
