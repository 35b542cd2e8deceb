"""A query as a project writes it, made one that Headgate can run: which tables and files it reads, and how.

``STREAM`` is left out, because Headgate itself knows what is new, and ``read_files(...)`` is replaced by a mark, until
the files have a name. Lines stay where they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headgate.core import DeclarationError
from headgate.warehouse.declare.spec import Place
from headgate.warehouse.declare.sql_text import SqlRelation, SqlToken, read_query, sql_tokens
from headgate.warehouse.pipelines.definitions import FileRead, Reads, TableRead

_ARGUMENT = re.compile(r"(?:(\w+)\s*=>\s*)?'((?:[^'\\]|\\.)*)'\s*(?:,|$)", re.DOTALL)
#: functions of other products that give a table
_FOREIGN_FUNCTIONS = ("READ_KAFKA", "CLOUD_FILES", "READ_KINESIS", "READ_PUBSUB", "READ_PULSAR")


@dataclass(frozen=True, slots=True)
class PlainQuery:
    """A query without STREAM, with marks in place of files."""

    text: str
    #: the tables that it names, each with whether it is read as a stream
    relations: tuple[tuple[SqlRelation, bool], ...]
    reads: Reads

    def with_names(self, name_of: Callable[[str, bool], str]) -> str:
        """The query with other names of tables, which ``name_of`` gives for one as written and how it is read."""
        text, at = "", 0
        for relation, streaming in self.relations:
            text += f"{self.text[at : relation.start]}`{name_of(relation.name, streaming)}`"
            at = relation.end
        return text + self.text[at:]


def plain_query(text: str, tokens: Sequence[SqlToken], place: Place) -> PlainQuery:
    """The query that ``tokens`` of ``text`` are; ``place`` is where ``text`` begins."""
    return _Cutting(text, tokens, place).query()


def plain_text(query: str, place: Place) -> PlainQuery:
    """The same for a whole text, as of ``spark.sql``."""
    try:
        tokens = list(sql_tokens(query))
    except DeclarationError as error:
        return PlainQuery(query, (), Reads(problems=((place, str(error)),)))
    # All of a text in Python is at the line of the call.
    cutting = _Cutting(query, [SqlToken(t.text, 1, t.start, t.end) for t in tokens], place, in_python=True)
    return cutting.query()


@dataclass(slots=True)
class _Cutting:
    whole: str
    tokens: Sequence[SqlToken]
    place: Place
    in_python: bool = False
    files: list[FileRead] = field(default_factory=list)
    problems: list[tuple[Place, str]] = field(default_factory=list)

    def query(self) -> PlainQuery:
        if not self.tokens:
            return PlainQuery("", (), Reads(problems=((self.place, "the query is empty"),)))
        text, streams = self._cut()
        found = read_query(text)
        # A query without tables is one of constants, which is fine here.
        self.problems += [(self._at(self.tokens[0].line), t) for t in found.problems if t != "the query reads no table"]
        marks = {read.mark for read in self.files}
        relations = tuple((each, each.start in streams) for each in found.relations if each.name not in marks)
        first = self.tokens[0].line
        tables = tuple(
            TableRead(each.name, self._at(1 if self.in_python else first + each.line - 1), streaming)
            for each, streaming in relations
        )
        # Those that WITH defines are no tables of the project, and neither are they relations here.
        return PlainQuery(text, relations, Reads(tables, tuple(self.files), tuple(self.problems)))

    def _cut(self) -> tuple[str, set[int]]:
        """The text, and where the names of tables begin in it that are read as streams."""
        text, at, tokens = "", self.tokens[0].start, self.tokens
        streams: set[int] = set()
        closing: set[int] = set()
        streaming = False
        number = -1
        while number + 1 < len(tokens):
            number += 1
            token = tokens[number]
            following = tokens[number + 1].text if number + 1 < len(tokens) else ""
            if number in closing:
                text, at = text + self.whole[at : token.start], token.end
            elif self._is_stream(number, following):
                text, at = text + self.whole[at : token.start], token.end
                streaming = True
                if following == "(":
                    closing.add(_closing(tokens, number + 1))
                    number += 1
                    text, at = f"{text} ", tokens[number].end
            elif token.word == "READ_FILES" and following == "(":
                end = _closing(tokens, number + 1)
                read = self._read_files(
                    self.whole[tokens[number + 1].end : tokens[end].start], self._at(token.line), streaming
                )
                if isinstance(read, FileRead):
                    self.files.append(read)
                    lines = "\n" * self.whole.count("\n", token.start, tokens[end].end)
                    text += f"{self.whole[at : token.start]}`{read.mark}`{lines}"
                    at = tokens[end].end
                    number = end
                streaming = False
            elif token.word in _FOREIGN_FUNCTIONS and following == "(":
                self.problems.append(
                    (
                        self._at(token.line),
                        f"{token.text}(...) cannot be taken over: it is no function of Spark. Read the stream in "
                        "Python, by spark.readStream.format('kafka'), or files by read_files(...)",
                    )
                )
            elif streaming and token.name:
                text, at = text + self.whole[at : token.start], token.start
                streams.add(len(text))
                streaming = False
        return text + self.whole[at : tokens[-1].end], streams

    def _is_stream(self, number: int, following: str) -> bool:
        before = self.tokens[number - 1] if number else SqlToken("", 0)
        is_place = before.word in ("FROM", "JOIN") or before.text in (",", "(")
        return self.tokens[number].word == "STREAM" and is_place and following not in ("", ".", ")", ",")

    def _read_files(self, arguments: str, place: Place, streaming: bool) -> FileRead | None:
        given = {(name or "path").lower(): value for name, value in _ARGUMENT.findall(arguments.strip())}
        if self.in_python:
            self.problems.append((place, "read_files is taken over in SQL files; here use spark.read or readStream"))
        elif "path" not in given or "format" not in given:
            text = "read_files is taken over with a path and a format as texts: read_files('in', format => 'json')"
            self.problems.append((place, text))
        else:
            path, form, schema = given.pop("path"), given.pop("format"), given.pop("schema", "")
            return FileRead(path, form, streaming, place, schema, given)
        return None

    def _at(self, line: int) -> Place:
        return Place(self.place.file, self.place.line + line - 1)


def _closing(tokens: Sequence[SqlToken], at: int) -> int:
    depth = 0
    for place in range(at, len(tokens)):
        depth += (tokens[place].text == "(") - (tokens[place].text == ")")
        if depth == 0:
            return place
    return len(tokens) - 1
