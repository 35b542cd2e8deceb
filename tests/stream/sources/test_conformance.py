"""What every finite source promises, whatever it reads from: the same rows however they are asked for."""

from __future__ import annotations

import csv
import io
import json
import math
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.stream import (
    Batched,
    Bursts,
    Constant,
    Files,
    Lines,
    Paced,
    Replay,
    Socket,
    Source,
    from_batches,
    from_rows,
)
from tests.stream.sources.reading import LATE, Everything, nobody, read_all

SCHEMA = pa.schema([("n", pa.int64()), ("name", pa.string()), ("value", pa.float64())])
ROWS: list[dict[str, Any]] = [{"n": n, "name": f'"{n}", ü', "value": n / 8} for n in range(300)]
#: the numbers of the good rows before which there is a malformed one
BROKEN = (0, 1, 150, 300)
BATCH = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)
CUT = [BATCH.slice(0, 1), BATCH.slice(1, 0), BATCH.slice(1, 200), BATCH.slice(201)]


def with_broken(good: list[Any], broken: Any) -> list[Any]:
    """The good ones, with a broken one before each of those numbered in BROKEN."""
    mixed: list[Any] = []
    for number in range(len(good) + 1):
        mixed += [broken] * BROKEN.count(number) + good[number : number + 1]
    return mixed


def csv_lines() -> list[str]:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([row["n"], row["name"], row["value"]] for row in ROWS)
    return text.getvalue().splitlines()


JSON_TEXT = "\n".join(with_broken([json.dumps(row) for row in ROWS], '{"n": "none"}'))
CSV_TEXT = "\n".join(["n,name,value", *with_broken(csv_lines(), "1,2")])


def json_file(folder: Path) -> Source:
    (folder / "rows.json").write_text(JSON_TEXT, "utf-8")
    return Files(folder / "rows.json", schema=SCHEMA)


def csv_file(folder: Path) -> Source:
    (folder / "rows.csv").write_text(CSV_TEXT, "utf-8")
    return Files(folder, "csv", SCHEMA)


def parsed_file(folder: Path) -> Source:
    (folder / "rows.log").write_text(JSON_TEXT, "utf-8")
    return Lines(folder / "rows.log", json.loads, SCHEMA)


def parquet_files(folder: Path) -> Source:
    pq.write_table(pa.Table.from_batches([BATCH.slice(0, 90)]), folder / "a.parquet", row_group_size=40)
    pq.write_table(pa.Table.from_batches([BATCH.slice(90)]), folder / "b.parquet")
    return Files(folder / "*.parquet")


def arrow_files(folder: Path) -> Source:
    with pa.ipc.new_file(folder / "a.arrow", SCHEMA) as file:
        file.write_batch(BATCH.slice(0, 100))
    with pa.ipc.new_stream(folder / "b.arrow", SCHEMA) as stream:
        stream.write_batch(BATCH.slice(100))
    return Files(folder, "arrow")


class Sender:
    """A program that sends the same text to whoever connects."""

    def __init__(self, text: str) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._text = text.encode()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
                with connection:
                    connection.sendall(self._text)
            except ConnectionError:
                continue  # the reader was closed before it had everything
            except OSError:
                return

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()


@pytest.fixture(scope="module")
def sender() -> Iterator[Sender]:
    sender = Sender(JSON_TEXT)
    yield sender
    sender.close()


SOURCES: dict[str, Callable[[Path, Sender], Source]] = {
    "a list of batches": lambda folder, sender: from_batches(CUT),
    "a table": lambda folder, sender: from_batches(pa.Table.from_batches(CUT)),
    "a function that makes batches": lambda folder, sender: from_batches(lambda: iter(CUT)),
    "rows, some malformed": lambda folder, sender: from_rows(with_broken(ROWS, {"n": "none"}), SCHEMA),
    "tuples": lambda folder, sender: from_rows([tuple(row.values()) for row in ROWS], SCHEMA),
    "Arrow files": lambda folder, sender: arrow_files(folder),
    "Parquet files": lambda folder, sender: parquet_files(folder),
    "JSON, some malformed": lambda folder, sender: json_file(folder),
    "CSV, some malformed": lambda folder, sender: csv_file(folder),
    "parsed lines, some malformed": lambda folder, sender: parsed_file(folder),
    "constant rate": lambda folder, sender: Paced(pa.Table.from_batches(CUT), Constant(100), rows=300),
    "bursts of a list": lambda folder, sender: Paced(CUT, Bursts(1, 2, 100, base=3)),
    "batches of a function": lambda folder, sender: Paced(dict(enumerate(CUT)).get, Batched(100)),
    "replay of a table": lambda folder, sender: Paced(pa.Table.from_batches(CUT), Replay("value", speed=2)),
    "paced JSON, some malformed": lambda folder, sender: Paced(json_file(folder), 100),
    "a connection, some malformed": lambda folder, sender: Socket("127.0.0.1", sender.port, SCHEMA, buffer_rows=50),
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, tmp_path: Path, sender: Sender) -> Source:
    return SOURCES[request.param](tmp_path, sender)


def check(everything: Everything, source: Source) -> None:
    assert everything.rows == ROWS
    assert [position for position, _, _ in everything.rejected] in ([], list(BROKEN))
    assert all(chunk.batch.schema == source.schema for chunk in everything.chunks)


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_gives_the_same_rows_however_many_are_asked_for_at_once(source: Source, most: int) -> None:
    everything = read_all(source, most)
    check(everything, source)
    assert all(chunk.batch.num_rows <= most for chunk in everything.chunks)


def test_gives_the_same_rows_when_it_is_opened_again(source: Source) -> None:
    first, second = read_all(source), read_all(source)
    check(first, source)
    assert (second.rows, second.rejected) == (first.rows, first.rejected)


def test_has_nothing_after_its_end_and_may_be_closed_twice(source: Source) -> None:
    came = threading.Event()
    reader = source.open(came.set, 0.0)
    while not reader.ended:
        came.clear()
        if reader.read(1000, LATE) is None and not reader.ended:
            came.wait()
    assert reader.read(10, LATE) is None
    assert reader.ready_at(LATE) == math.inf
    assert reader.waiting(LATE) == 0
    reader.close()
    reader.close()


def test_may_be_closed_before_its_end(source: Source) -> None:
    reader = source.open(nobody, 0.0)
    reader.read(1, LATE)
    reader.close()
    assert reader.ended
    assert reader.read(1, LATE) is None
