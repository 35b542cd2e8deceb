"""What every source promises: each chunk that arrives is loaded exactly once, whatever happens in between.

A *lab* is a source in a world that the test controls. A new kind of source joins by adding a lab to ``LABS``. The
properties are checked twice: on chunks, with many random histories, and on rows read by Spark, with a few.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from headgate.warehouse.sources import DataSource, Delta, Files, Generator, Kafka, Limit, Offset, Postgres, Range
from headgate.warehouse.sources.delta.offsets import DeltaRange
from headgate.warehouse.sources.files.source import FileRange
from headgate.warehouse.sources.generator import GeneratorRange
from headgate.warehouse.sources.kafka.offsets import KafkaRange
from headgate.warehouse.sources.postgres.offsets import PostgresRange
from tests.services.postgres import Session

if TYPE_CHECKING:
    from tests.services.kafka import KafkaBroker


class Lab(Protocol):
    #: how often each chunk is to be loaded: once
    arrived: Counter[str]

    def source(self) -> DataSource:
        """A new object for the same source, as after a restart."""

    def something_arrives(self, chance: random.Random) -> None: ...

    def time_passes(self) -> None: ...

    def loaded_data_is_removed(self, chance: random.Random, names: list[str]) -> None: ...

    def chunks_of(self, found: Range) -> list[str]: ...

    def rows(self) -> Counter[tuple[bool, str]]:
        """Whether it is good, and a text that tells it from others, of every row that has arrived."""

    def row(self, row: Any) -> tuple[bool, str]:
        """The same of a row that was read."""


class FilesLab:
    """A directory into which files come under any names, with any modification times, some by renaming."""

    def __init__(self, folder: Path, *, recursive: bool) -> None:
        self.folder = folder
        self.recursive = recursive
        self.arrived = Counter[str]()
        self.ahead = 0.0
        self._rows = Counter[tuple[bool, str]]()
        self._changes = 0

    def source(self) -> Files:
        return Files(
            self.folder,
            schema="id string, value double",
            settle="1 second",
            recursive=self.recursive,
            clock=lambda: time.time() + self.ahead,
        )

    def something_arrives(self, chance: random.Random) -> None:
        below = chance.choice(["", "a/", "b/c/"]) if self.recursive else ""
        name = f"{below}{chance.choice('amz')}{len(self.arrived)}{chance.choice(['', ' ü', ':+%20', '[1]'])}.json"
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.tmp") if chance.random() < 0.5 else path
        unfinished.write_text("".join(self._lines(name, chance)))
        modified = chance.choice([1, 10**9, time.time(), time.time() + 10**6])
        os.utime(unfinished, (modified, modified))
        unfinished.rename(path)
        self.arrived[name] += 1
        self._the_directory_changed()

    def _lines(self, name: str, chance: random.Random) -> Iterator[str]:
        for number in range(chance.choice([0, 1, 5])):
            if chance.random() < 0.3:
                text = f'{{"id": "{name}#{number}", "value": "none"}}'
            else:
                text = f'{{"id": "{name}#{number}", "value": {number}}}'
            self._rows[("none" not in text, f"{name}#{number}")] += 1
            yield f"{text}\n"

    def _the_directory_changed(self) -> None:
        # each change at an older, later second: as if there were time enough between them to trust the directory
        self._changes += 1
        for folder, _, _ in os.walk(self.folder):
            os.utime(folder, (self._changes, self._changes))

    def time_passes(self) -> None:
        self.ahead += 0.7

    def loaded_data_is_removed(self, chance: random.Random, names: list[str]) -> None:
        for name in chance.sample(sorted(names), chance.randint(0, len(names))):
            (self.folder / name).unlink(missing_ok=True)
        self._the_directory_changed()

    def chunks_of(self, found: Range) -> list[str]:
        assert isinstance(found, FileRange)
        return list(found.files)

    def rows(self) -> Counter[tuple[bool, str]]:
        return self._rows

    def row(self, row: Any) -> tuple[bool, str]:
        assert json.loads(row._raw)["id"] == row.id
        assert row.id.startswith(f"{row._file}#")
        return row._error is None, row.id


class DeltaLab:
    """A Delta table to which another program appends, now and then with maintenance or a change that is ignored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.arrived = Counter[str]()
        self._rows = Counter[tuple[bool, str]]()
        self._next = 0

    def source(self) -> Delta:
        return Delta(self.folder, schema="id string, value double, part string", changes="ignore")

    def something_arrives(self, chance: random.Random) -> None:
        before = self._live()
        parts = chance.sample(["a", "b c", "d=e"], chance.randint(1, 3))
        names = [f"row {self._next + i}" for i in range(len(parts))]
        self._next += len(parts)
        rows = pa.table({"id": names, "value": [1.0] * len(parts), "part": parts})
        write_deltalake(str(self.folder), rows, mode="append", partition_by=["part"])
        self.arrived.update(self._live() - before)
        self._rows.update((True, name) for name in names)
        other = chance.random()
        if other < 0.2:
            DeltaTable(str(self.folder)).optimize.compact()
        elif other < 0.4:
            DeltaTable(str(self.folder)).update({"value": "2.0"}, predicate=f"id = '{names[0]}'")

    def _live(self) -> set[str]:
        if not (self.folder / "_delta_log").exists():
            return set()
        return {unquote(path) for path in pa.table(DeltaTable(str(self.folder)).get_add_actions())["path"].to_pylist()}

    def time_passes(self) -> None:
        """Nothing that a Delta table waits for."""

    def loaded_data_is_removed(self, chance: random.Random, names: list[str]) -> None:
        """Delta tables keep files that were removed."""

    def chunks_of(self, found: Range) -> list[str]:
        assert isinstance(found, DeltaRange)
        return [file.path for file in self.source()._follower.files_of(found) or ()]

    def rows(self) -> Counter[tuple[bool, str]]:
        return self._rows

    def row(self, row: Any) -> tuple[bool, str]:
        assert json.loads(row._raw)["part"] == row.part is not None
        return row._error is None, row.id


class PostgresLab:
    """A table of PostgreSQL, one row to a chunk, to which several transactions add rows in any order."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._sessions = [Session(uri) for _ in range(2)]
        self._table = f"rows_{uuid.uuid4().hex[:12]}"
        name = f"'row ' || currval('{self._table}_id_seq')"
        columns = f"id bigserial PRIMARY KEY, name text DEFAULT {name}, value int"
        self._sessions[0].execute(f"CREATE TABLE {self._table} ({columns})")
        self._open: Session | None = None
        self.arrived = Counter[str]()

    def close(self) -> None:
        for session in self._sessions:
            session.close()

    def source(self) -> Postgres:
        columns = "id bigint, name string, value double"
        return Postgres(self._uri, self._table, key="id", schema=columns, chunk_rows=1, in_background=False)

    def something_arrives(self, chance: random.Random) -> None:
        slow, quick = self._sessions
        if self._open is None and chance.random() < 0.5:
            slow.execute("BEGIN", f"INSERT INTO {self._table} (value) VALUES (1)")
            self._open = slow
        quick.execute(f"INSERT INTO {self._table} (value) VALUES (2), (3)")
        if self._open is not None and chance.random() < 0.5:
            self.time_passes()
        self.arrived = Counter(name for (name,) in quick.rows(f"SELECT name FROM {self._table}"))

    def time_passes(self) -> None:
        if self._open is not None:
            self._open.execute("COMMIT")
            self._open = None
            self.arrived = Counter(name for (name,) in self._sessions[1].rows(f"SELECT name FROM {self._table}"))

    def loaded_data_is_removed(self, chance: random.Random, names: list[str]) -> None:
        """Rows that were loaded may go; what was loaded of them is known here by their names."""

    def chunks_of(self, found: Range) -> list[str]:
        assert isinstance(found, PostgresRange)
        after = -1 if found.after is None else found.after
        query = f"SELECT name FROM {self._table} WHERE id > {after} AND id <= {found.upto}"
        return [name for (name,) in self._sessions[1].rows(query)]

    def rows(self) -> Counter[tuple[bool, str]]:
        return Counter((True, name) for name in self.arrived)

    def row(self, row: Any) -> tuple[bool, str]:
        assert json.loads(row._raw)["id"] == row.id
        return row._error is None, row.name


class GeneratorLab:
    """A generator whose clock the test moves."""

    def __init__(self, folder: Path) -> None:
        self.now = 1_000_000.0
        self.arrived = Counter({"chunk 0": 1})

    def source(self) -> Generator:
        shares = {"late": 0.2, "malformed": 0.3}
        return Generator(rows_per_chunk=3, every="2 seconds", start=1_000_000, clock=lambda: self.now, **shares)

    def something_arrives(self, chance: random.Random) -> None:
        for _ in range(chance.randint(1, 3)):
            self.now += 2
            self.arrived[f"chunk {len(self.arrived)}"] += 1

    def time_passes(self) -> None:
        """Nothing that a generator waits for."""

    def loaded_data_is_removed(self, chance: random.Random, names: list[str]) -> None:
        """There is nothing to remove."""

    def chunks_of(self, found: Range) -> list[str]:
        assert isinstance(found, GeneratorRange)
        return [f"chunk {number}" for number in range(found.first, found.last + 1)]

    def rows(self) -> Counter[tuple[bool, str]]:
        source = self.source()
        began = 1_000_000_000_000
        rows = Counter[tuple[bool, str]]()
        for number in range(len(self.arrived)):
            table = source._recipe.chunk(number, began + number * 2_000_000).to_pydict()
            for moment, broken in zip(table["ts"], table["_headgate_broken"], strict=True):
                rows[(not broken, f"{moment:%M:%S.%f}")] += 1
        return rows

    def row(self, row: Any) -> tuple[bool, str]:
        if row._error is None:
            return True, f"{row.ts:%M:%S.%f}"
        return False, row._raw[len('{"ts":"1970-01-12T13:') :][: len("46:40.000000")]


class KafkaLab:
    """A topic of a real broker. Every record is a chunk."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self.topic = broker.topic(partitions=2)
        self.arrived = Counter[str]()
        self._producer = broker.producer()
        self._rows = Counter[tuple[bool, str]]()
        self._sources: list[Kafka] = []

    def source(self) -> Kafka:
        source = Kafka(self.broker.servers, self.topic, schema="id string, value double", records_per_chunk=1)
        source.refresh()
        self._sources.append(source)
        return source

    def something_arrives(self, chance: random.Random) -> None:
        places: list[tuple[int, int]] = []
        for _ in range(chance.randint(1, 5)):
            number = self._rows.total()
            good = chance.random() < 0.7
            value = number if good else '"none"'
            text = f'{{"id": "{number}", "value": {value}}}'
            self._rows[(good, str(number))] += 1
            self._producer.produce(
                self.topic,
                text,
                partition=chance.choice([0, 1]),
                on_delivery=lambda _, record: places.append((record.partition(), record.offset())),
            )
        assert self._producer.flush(30) == 0
        self.arrived.update(f"{partition}@{offset}" for partition, offset in places)
        for source in self._sources[-1:]:
            source.refresh()

    def time_passes(self) -> None:
        """Nothing that a topic waits for."""

    def loaded_data_is_removed(self, chance: random.Random, names: list[str]) -> None:
        """Records are removed from the beginning of partitions only: see the tests of the source."""

    def chunks_of(self, found: Range) -> list[str]:
        assert isinstance(found, KafkaRange)
        return [f"{run.partition}@{offset}" for run in found.runs for offset in range(run.first, run.end)]

    def rows(self) -> Counter[tuple[bool, str]]:
        return self._rows

    def row(self, row: Any) -> tuple[bool, str]:
        assert json.loads(row._raw)["id"] == row.id
        assert row._file.startswith(f"{self.topic}/")
        return row._error is None, row.id


@contextmanager
def files_lab() -> Iterator[Lab]:
    with tempfile.TemporaryDirectory() as folder:
        yield FilesLab(Path(folder), recursive=False)


@contextmanager
def nested_files_lab() -> Iterator[Lab]:
    with tempfile.TemporaryDirectory() as folder:
        yield FilesLab(Path(folder), recursive=True)


@contextmanager
def delta_lab() -> Iterator[Lab]:
    with tempfile.TemporaryDirectory() as folder:
        yield DeltaLab(Path(folder) / "table")


@contextmanager
def generator_lab() -> Iterator[Lab]:
    yield GeneratorLab(Path())


@contextmanager
def postgres_lab() -> Iterator[Lab]:
    lab = PostgresLab(DATABASES[0])
    try:
        yield lab
    finally:
        lab.close()


#: a database of the PostgreSQL server of this process, as soon as a test needs it
DATABASES: list[str] = []


@pytest.fixture(autouse=True)
def database(request: pytest.FixtureRequest) -> None:
    if "postgres" in request.node.name and not DATABASES:
        DATABASES.append(request.getfixturevalue("postgres").new_database())


LABS = [
    pytest.param(files_lab, id="files"),
    pytest.param(nested_files_lab, id="files in directories"),
    pytest.param(generator_lab, id="generator"),
    pytest.param(delta_lab, id="delta"),
]
#: sources whose rows have their types already, so that none is bad
TYPED = {delta_lab, postgres_lab}
#: labs with a server, for which hundreds of histories would take too long
SERVED_LABS = [
    pytest.param("kafka", id="kafka", marks=pytest.mark.services),
    pytest.param(postgres_lab, id="postgres", marks=pytest.mark.services),
]


@pytest.fixture
def make_lab(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """A lab by its parameter; servers are started only for tests that use them."""
    if request.param == "kafka":
        broker = request.getfixturevalue("kafka")
        return lambda: nullcontext(KafkaLab(broker))
    found: Callable[[], Any] = request.param
    return found


class Loader:
    """A warehouse reduced to its loop: it knows nothing but what it has committed."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.source: DataSource = lab.source()
        self.committed: list[str] = [json.dumps(self.source.start().to_json())]
        self.loaded = Counter[str]()
        self.ranges: list[Range] = []

    def offset(self) -> Offset:
        """From a full offset and the ranges since, as after a restart."""
        offset = Offset.from_json(json.loads(self.committed[0]))
        for written in self.committed[1:]:
            offset = self.source.advance(offset, Range.from_json(json.loads(written)))
        return offset

    def poll(self) -> None:
        pending = self.source.latest(self.offset())
        found = self.source.next_range(self.offset(), Limit())
        assert (pending.chunks == 0) == (found is None)
        assert pending.notices == ()
        if found is not None:
            assert pending.oldest is not None and pending.newest is not None
            assert pending.oldest <= found.oldest <= found.newest <= pending.newest
            assert 0 < found.chunks <= pending.chunks
            assert found.bytes <= pending.bytes

    def load(self, limit: Limit, *, crash: bool = False) -> bool:
        """Take a range, and commit it unless we crash before."""
        found = self.source.next_range(self.offset(), limit)
        if found is None:
            return False
        self._check_limit(found, limit)
        again = Range.from_json(json.loads(json.dumps(found.to_json())))
        assert again == found
        self.source.verify(again)
        if crash:
            self.restart()
        else:
            self.committed.append(json.dumps(found.to_json()))
            self.loaded.update(self.lab.chunks_of(again))
            self.ranges.append(again)
        return True

    def _check_limit(self, found: Range, limit: Limit) -> None:
        assert found.chunks == len(self.lab.chunks_of(found)) >= 1
        if found.chunks > 1:
            assert limit.chunks is None or found.chunks <= limit.chunks
            assert limit.bytes is None or found.bytes <= limit.bytes
            assert limit.seconds is None or found.newest - found.oldest <= limit.seconds

    def restart(self) -> None:
        self.source = self.lab.source()

    def write_full_offset(self) -> None:
        self.committed = [json.dumps(self.offset().to_json())]

    def commit_again(self) -> None:
        if len(self.committed) > 1:
            self.committed.append(self.committed[-1])

    def finish(self) -> None:
        for _ in range(2):
            self.lab.time_passes()
        while self.load(Limit()):
            pass
        assert self.source.latest(self.offset()).chunks == 0


LIMITS = st.builds(
    Limit,
    chunks=st.none() | st.integers(1, 4),
    bytes=st.none() | st.integers(0, 300),
    seconds=st.none() | st.floats(0, 5),
    first=st.sampled_from(["oldest", "newest"]),
)


def steps(lab: Lab, loader: Loader, chance: random.Random, limit: Limit) -> dict[str, Callable[[], object]]:
    return {
        "arrive": lambda: lab.something_arrives(chance),
        "wait": lab.time_passes,
        "poll": loader.poll,
        "load": lambda: loader.load(limit),
        "crash": lambda: loader.load(limit, crash=True),
        "restart": loader.restart,
        "full offset": loader.write_full_offset,
        "commit again": loader.commit_again,
        "remove": lambda: lab.loaded_data_is_removed(chance, list(loader.loaded)),
    }


NAMES = ["arrive", "wait", "poll", "load", "crash", "restart", "full offset", "commit again", "remove"]


@pytest.mark.slow
@pytest.mark.parametrize("lab_of", LABS)
@given(history=st.lists(st.tuples(st.sampled_from(NAMES), LIMITS), min_size=5, max_size=40), seed=st.integers(0, 2**32))
def test_every_chunk_is_loaded_exactly_once_in_any_history(
    lab_of: Callable[[], Any], history: list[tuple[str, Limit]], seed: int
) -> None:
    chance = random.Random(seed)
    with lab_of() as lab:
        loader = Loader(lab)
        for name, limit in history:
            steps(lab, loader, chance, limit)[name]()
        loader.finish()
        assert loader.loaded == lab.arrived


@pytest.mark.slow
@pytest.mark.parametrize("make_lab", SERVED_LABS, indirect=True)
@pytest.mark.parametrize("seed", range(10))
def test_every_chunk_of_a_server_is_loaded_exactly_once_in_some_histories(
    make_lab: Callable[[], Any], seed: int
) -> None:
    chance = random.Random(seed)
    with make_lab() as lab:
        loader = Loader(lab)
        for _ in range(60):
            limit = Limit(
                chunks=chance.choice([None, 1, 4]),
                bytes=chance.choice([None, 0, 5_000]),
                seconds=chance.choice([None, 0.0, 5.0]),
                first=chance.choice(["oldest", "newest"]),
            )
            steps(lab, loader, chance, limit)[chance.choice(NAMES)]()
        loader.finish()
        assert loader.loaded == lab.arrived


@pytest.mark.parametrize("make_lab", [*LABS, *SERVED_LABS], indirect=True)
def test_reading_again_from_the_start_finds_everything_that_is_still_there(make_lab: Callable[[], Any]) -> None:
    with make_lab() as lab:
        for _ in range(5):
            lab.something_arrives(random.Random(1))
        first, second = Loader(lab), Loader(lab)
        first.finish()
        second.finish()
        assert first.loaded == second.loaded == lab.arrived


@pytest.mark.parametrize("make_lab", [*LABS, *SERVED_LABS], indirect=True)
def test_polling_from_another_thread_does_not_disturb_loading(make_lab: Callable[[], Any]) -> None:
    with make_lab() as lab, ThreadPoolExecutor(max_workers=1) as poller:
        chance = random.Random(3)
        loader = Loader(lab)
        for _ in range(15):
            polled = [poller.submit(loader.source.latest, loader.offset()) for _ in range(5)]
            lab.something_arrives(chance)
            lab.time_passes()
            loader.load(Limit(chunks=2, first=chance.choice(["oldest", "newest"])))
            assert all(future.result().notices == () for future in polled)
        loader.finish()
        assert loader.loaded == lab.arrived


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("make_lab", [*LABS, *SERVED_LABS], indirect=True)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_row_is_read_exactly_once_and_every_bad_one_is_accounted_for(
    spark: Any, make_lab: Callable[[], Any], seed: int
) -> None:
    chance = random.Random(seed)
    with make_lab() as lab:
        loader = Loader(lab)
        for _ in range(6):
            lab.something_arrives(chance)
            lab.time_passes()
            limit = Limit(chunks=chance.choice([None, 1, 3]), first=chance.choice(["oldest", "newest"]))
            loader.load(limit, crash=chance.random() < 0.3)
        loader.finish()
        expected = lab.rows()
        read = Counter[tuple[bool, str]]()
        for found in loader.ranges:
            frame = loader.source.read(spark, found)
            # two queries with other columns, as for a table and its rejected rows: together they are all rows
            good = frame.where("_error IS NULL").collect()
            bad = frame.where("_error IS NOT NULL").drop("value").collect()
            read.update(lab.row(row) for row in [*good, *bad])
            loader.source.verify(found)
        assert read == expected
        assert any(good for good, _ in expected)
        assert make_lab in TYPED or any(not good for good, _ in expected)
