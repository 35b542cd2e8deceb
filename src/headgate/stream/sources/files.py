"""Files: Arrow, Parquet, comma-separated values and JSON lines, read one after the other in the order of their names.

Which files there are is looked at when a run begins. Whatever their size, only a small part is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core.errors import DeclarationError, UnknownNameError
from headgate.stream.sources import columnar_files, text_files
from headgate.stream.sources.block import Block
from headgate.stream.sources.fit import Row
from headgate.stream.sources.pulled import Pulled
from headgate.stream.sources.source import Wake

_WILDCARDS = frozenset("*?[")
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


class _Format(NamedTuple):
    endings: tuple[str, ...]
    schema: Callable[[Path], pa.Schema]
    blocks: Callable[[Path, pa.Schema], Iterator[Block]]


_FORMATS = {
    "arrow": _Format((".arrow", ".arrows", ".feather"), columnar_files.arrow_schema, columnar_files.arrow_blocks),
    "parquet": _Format((".parquet",), columnar_files.parquet_schema, columnar_files.parquet_blocks),
    "csv": _Format((".csv",), text_files.csv_schema, text_files.csv_blocks),
    "json": _Format((".json", ".jsonl", ".ndjson"), text_files.json_schema, text_files.json_blocks),
}


class Files:
    """A source of rows in files.

    - ``path``: a file, a folder, or a pattern such as ``"logs/*.csv"``. In folders, names that begin with a dot or an
      underscore are passed over: that is how unfinished files are called.
    - ``format``: ``"arrow"``, ``"parquet"``, ``"csv"`` (with a first line that names the columns) or ``"json"`` (one
      object a line). Without it, the ending of the first file says it. Text may be compressed.
    - ``schema``: the columns to read. Without it, they are those of the first file; of text, its first lines suggest
      them, which is good for trying things out.

    A line of text that does not fit the schema is rejected with its file and line number.
    """

    def __init__(self, path: str | Path, format: str | None = None, schema: pa.Schema | None = None) -> None:
        if format is not None and format not in _FORMATS:
            raise UnknownNameError("file format", format, _FORMATS)
        self._path = Path(path)
        self._given_format = format
        self._given_schema = schema

    def __repr__(self) -> str:
        return f"Files({str(self._path)!r}, format={self._given_format!r})"

    @cached_property
    def schema(self) -> pa.Schema:
        if self._given_schema is not None:
            return self._given_schema
        first = self._files()[0]
        return self._format(first).schema(first)

    def open(self, wake: Wake, now: float) -> Pulled:
        return Pulled(self.schema, self._blocks(self._files()))

    def _blocks(self, files: list[Path]) -> Iterator[Block]:
        read = self._format(files[0]).blocks
        for file in files:
            yield from read(file, self.schema)

    def _files(self) -> list[Path]:
        endings = _FORMATS[self._given_format].endings if self._given_format else None
        return found_files(self._path, endings)

    def _format(self, file: Path) -> _Format:
        if self._given_format is not None:
            return _FORMATS[self._given_format]
        plain = file.with_suffix("") if file.suffix in _COMPRESSED else file
        for known in _FORMATS.values():
            if plain.suffix in known.endings:
                return known
        endings = ", ".join(ending for known in _FORMATS.values() for ending in known.endings)
        raise DeclarationError(
            f"the format of {file} cannot be told from its name. Expected one of the endings {endings}; "
            f"got {plain.suffix!r}. Say it with format=, one of {', '.join(_FORMATS)}."
        )


class Lines:
    """A source of text files of any format: ``parse`` makes a row of each line.

    A line for which it raises, or whose row does not fit the schema, is rejected with its file and line number.
    """

    def __init__(self, path: str | Path, parse: Callable[[str], Row], schema: pa.Schema) -> None:
        self._path = Path(path)
        self._parse = parse
        self._schema = schema

    def __repr__(self) -> str:
        return f"Lines({str(self._path)!r})"

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def open(self, wake: Wake, now: float) -> Pulled:
        return Pulled(self._schema, self._blocks(found_files(self._path, None)))

    def _blocks(self, files: list[Path]) -> Iterator[Block]:
        for file in files:
            yield from text_files.parsed_blocks(file, self._schema, self._parse)


def found_files(path: Path, endings: tuple[str, ...] | None) -> list[Path]:
    """The files that a path means, at least one, in the order of their names. ``endings`` go for folders."""
    if path.is_dir():
        found = [file for file in path.iterdir() if _is_finished(file) and _ends_with(file, endings)]
        wanted = f"files ending in {' or '.join(endings)}" if endings else "files"
    elif _WILDCARDS & set(str(path)) and not path.exists():
        found = [file for file in _matching(path) if _is_finished(file)]
        wanted = "files of such names"
    else:
        found = [path] if path.is_file() else []
        wanted = "a file, a folder or a pattern such as 'logs/*.csv'"
    if not found:
        raise DeclarationError(
            f"there is nothing to read at {path} (looked at {path.absolute()}). Expected {wanted}; found none. "
            f"Check the path, and that the files are there before the query starts."
        )
    return sorted(found)


def _matching(pattern: Path) -> Iterator[Path]:
    anchor = Path(pattern.anchor)
    return anchor.glob(str(pattern.relative_to(anchor)) if pattern.anchor else str(pattern))


def _is_finished(file: Path) -> bool:
    return file.is_file() and not file.name.startswith((".", "_"))


def _ends_with(file: Path, endings: tuple[str, ...] | None) -> bool:
    if endings is None:
        return True
    plain = file.with_suffix("") if file.suffix in _COMPRESSED else file
    return plain.suffix in endings
