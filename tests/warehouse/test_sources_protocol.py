"""Limits, stored values, and what every source has in common before it reads anything."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headgate.core.errors import DeclarationError
from headgate.warehouse.sources import DataSource, Files, Generator, Limit, Offset, Range, SourceError
from headgate.warehouse.sources.files.listing import Stamp
from headgate.warehouse.sources.files.source import FileOffset, FileRange
from headgate.warehouse.sources.generator import GeneratorOffset, GeneratorRange
from headgate.warehouse.sources.protocol import within

SCHEMA = "ts timestamp, sensor string, temp double"


@dataclass(frozen=True)
class Chunk:
    size: int
    arrived: float


@pytest.mark.parametrize(
    ("limit", "taken"),
    [
        pytest.param(Limit(), 4, id="no limit takes all"),
        pytest.param(Limit(chunks=3), 3, id="chunks"),
        pytest.param(Limit(chunks=9), 4, id="more chunks than there are"),
        pytest.param(Limit(bytes=30), 2, id="bytes up to the limit and not beyond"),
        pytest.param(Limit(bytes=29), 1, id="bytes just short of the second"),
        pytest.param(Limit(bytes=0), 1, id="one chunk is taken however large it is"),
        pytest.param(Limit(seconds=2), 3, id="seconds between arrivals"),
        pytest.param(Limit(seconds=0), 1, id="no time at all"),
        pytest.param(Limit(chunks=3, bytes=30), 2, id="the strictest counts"),
    ],
)
def test_a_limit_cuts_from_the_front(limit: Limit, taken: int) -> None:
    chunks = [Chunk(10, 1.0), Chunk(20, 2.0), Chunk(30, 3.0), Chunk(40, 9.0)]
    assert within(limit, chunks) == chunks[:taken]


def test_arrival_times_are_compared_both_ways_when_chunks_come_newest_first() -> None:
    newest_first = [Chunk(1, 9.0), Chunk(1, 8.5), Chunk(1, 3.0)]
    assert within(Limit(seconds=1), newest_first) == newest_first[:2]


def test_nothing_is_within_any_limit() -> None:
    assert within(Limit(), []) == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        pytest.param({"chunks": 0}, "a limit of chunks is at least 1; got 0", id="no chunk"),
        pytest.param({"bytes": -1}, "a limit of bytes is at least 0; got -1", id="negative bytes"),
        pytest.param({"seconds": float("nan")}, "a limit of seconds is at least 0; got nan", id="not a number"),
        pytest.param({"first": "last"}, "takes first 'oldest' or 'newest'; got 'last'", id="unknown end"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        Limit(**wrong)  # type: ignore[arg-type]


STORED = [
    pytest.param(FileOffset({}), id="no files"),
    pytest.param(FileOffset({"a.json": Stamp(3, 17), "b/ü ,.json": Stamp(0, 18)}), id="files"),
    pytest.param(FileRange({"a.json": Stamp(3, 17)}, 1.25, 2.5, ("gone.json",)), id="range of files"),
    pytest.param(GeneratorOffset(1_794_736_800_000_000, ((0, 3), (7, 9))), id="chunks with a gap"),
    pytest.param(GeneratorRange(0, 4, 6, 100, 8.0, 12.0), id="range of chunks"),
]


@pytest.mark.parametrize("value", STORED)
def test_what_is_stored_comes_back_from_json_text(value: Offset | Range) -> None:
    role = Offset if isinstance(value, Offset) else Range
    assert role.from_json(json.loads(json.dumps(value.to_json()))) == value


#: offsets and ranges as an older version wrote them into commits, and what it knew of the ranges
WRITTEN_BEFORE = json.loads((Path(__file__).parent / "sources_written_before.json").read_text())


@pytest.mark.parametrize("before", WRITTEN_BEFORE, ids=lambda before: f"{before['role']} of {before['stored']['kind']}")
def test_what_an_older_version_stored_is_read_and_written_as_before(before: dict[str, Any]) -> None:
    role: type[Offset | Range] = {"offset": Offset, "range": Range}[before["role"]]
    value = role.from_json(before["stored"])
    again = value.to_json()
    assert {name: again[name] for name in before["stored"]} == before["stored"], "fields may be added, and none changed"
    if isinstance(value, Range):
        known = {"chunks": value.chunks, "bytes": value.bytes, "oldest": value.oldest, "newest": value.newest}
        assert known == {name: before[name] for name in known}


@pytest.mark.parametrize(
    ("role", "value", "said"),
    [
        pytest.param(Offset, None, "a stored offset is a JSON object with a 'kind'; got None", id="nothing"),
        pytest.param(Range, [1], "a stored range is a JSON object", id="not an object"),
        pytest.param(Range, {"kind": "pigeon"}, "'pigeon'; the kinds known here: .*files, gen", id="unknown kind"),
        pytest.param(Offset, {"kind": "files"}, r"KeyError: 'files'\)", id="part missing"),
        pytest.param(
            Range, {"kind": "generator", "chunks": [1]}, "cannot be understood .*newer version", id="part malformed"
        ),
    ],
)
def test_a_stored_value_that_cannot_be_understood_is_named(
    role: type[Offset | Range], value: object, said: str
) -> None:
    with pytest.raises(SourceError, match=said):
        role.from_json(value)


def test_a_table_is_not_continued_from_a_source_of_another_kind(tmp_path: Path) -> None:
    files, generator = Files(tmp_path, schema=SCHEMA), Generator(start=0)
    with pytest.raises(SourceError, match="loaded from a source of the kind 'generator' and is now declared as Files"):
        files.latest(generator.start())
    with pytest.raises(SourceError, match="Declare it under a new name"):
        generator.advance(files.start(), FileRange({}, 0.0, 0.0))


def test_both_sources_are_sources(tmp_path: Path) -> None:
    sources: list[DataSource] = [Files(tmp_path, schema=SCHEMA), Generator()]
    assert all(isinstance(source, DataSource) for source in sources)
    assert [source.schema for source in sources] == [SCHEMA, SCHEMA]


@pytest.mark.slow
def test_sources_are_made_and_polled_without_importing_spark_or_arrow(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1\0\0\0\0PAR1")
    program = (
        "import sys\n"
        "from headgate.warehouse.sources import Files, Generator, Limit\n"
        f"for source in (Files({str(tmp_path)!r}, format='parquet', schema='a int', settle=0), Generator()):\n"
        "    offset = source.start()\n"
        "    assert source.latest(offset).chunks == 1\n"
        "    assert source.next_range(offset, Limit()).chunks == 1\n"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas') if name in sys.modules])\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")
