"""The definitions in a SQL file of a project, read as text: Spark is not needed to know what a file defines.

Understood are materialized views, streaming tables, flows and temporary views.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headgate.core import DeclarationError
from headgate.warehouse.declare.spec import Place
from headgate.warehouse.declare.sql_text import SqlToken, sql_tokens
from headgate.warehouse.pipelines.definitions import CapturedFlow, Dataset, Definitions
from headgate.warehouse.pipelines.queries import plain_query

#: words before the name of what a statement creates
_FILLING = {"IF", "NOT", "EXISTS"}
_KINDS = {
    ("MATERIALIZED", "VIEW"): "table",
    ("STREAMING", "TABLE"): "table",
    ("TEMPORARY", "VIEW"): "view",
    ("TEMP", "VIEW"): "view",
    ("FLOW",): "flow",
}
_SUPPORTED = "MATERIALIZED VIEW, STREAMING TABLE, TEMPORARY VIEW and FLOW"


def read_sql(text: str, file: Path, found: Definitions) -> None:
    """Add what the SQL in ``text`` defines."""
    try:
        tokens = list(sql_tokens(text))
    except DeclarationError as error:
        found.problems.append((Place(str(file), 1), str(error)))
        return
    statement: list[SqlToken] = []
    for token in [*tokens, SqlToken(";", 0)]:
        if token.text != ";":
            statement.append(token)
        elif statement:
            _Statement(text, statement, file, found).read()
            statement = []


class _Statement:
    """One statement of a file."""

    def __init__(self, text: str, tokens: list[SqlToken], file: Path, found: Definitions) -> None:
        self._text = text
        self._tokens = tokens
        self._found = found
        self._file = str(file)
        self._place = Place(self._file, tokens[0].line)

    def read(self) -> None:
        words = [token.word for token in self._tokens[:6]]
        kind, at = self._kind(words)
        if kind is None:
            start = " ".join(token.text for token in self._tokens[:4])
            self._problem(f"the statement {start!r} ... cannot be taken over; a file may have CREATE {_SUPPORTED}")
            return
        while at < len(self._tokens) and self._tokens[at].word in _FILLING:
            at += 1
        name, at = self._name(at)
        body = self._after_as(at)
        if kind == "flow":
            self._flow(name, body)
            return
        comment = self._comment(at, body)
        self._found.datasets.append(Dataset(name, self._place, kind == "view", comment))
        if body is not None:
            self._add_flow(name, name, body)
        elif kind == "view":
            self._problem(f"the view {name!r} has no query")

    def _kind(self, words: Sequence[str]) -> tuple[str | None, int]:
        if words[:1] != ["CREATE"]:
            return None, 0
        at = 3 if list(words[1:3]) in (["OR", "REFRESH"], ["OR", "REPLACE"]) else 1
        for phrase, kind in _KINDS.items():
            if tuple(words[at : at + len(phrase)]) == phrase:
                return kind, at + len(phrase)
        return None, 0

    def _name(self, at: int) -> tuple[str, int]:
        parts = [self._tokens[at].name] if at < len(self._tokens) else [""]
        while at + 2 < len(self._tokens) and self._tokens[at + 1].text == ".":
            parts.append(self._tokens[at + 2].name)
            at += 2
        return ".".join(parts), at + 1

    def _after_as(self, at: int) -> int | None:
        """The place of the first token after the AS that begins the query; None if there is no query."""
        depth = 0
        for place in range(at, len(self._tokens)):
            token = self._tokens[place]
            depth += (token.text == "(") - (token.text == ")")
            if depth == 0 and token.word == "AS":
                return place + 1
        return None

    def _comment(self, at: int, body: int | None) -> str:
        until = len(self._tokens) if body is None else body
        for place in range(at, until - 1):
            if self._tokens[place].word == "COMMENT" and self._tokens[place + 1].text == "''":
                token = self._tokens[place + 1]
                return self._text[token.start + 1 : token.end - 1]
        return ""

    def _flow(self, name: str, body: int | None) -> None:
        words = [] if body is None else [token.word for token in self._tokens[body : body + 2]]
        if body is None or words != ["INSERT", "INTO"]:
            self._problem(f"the flow {name!r} is taken over if it is AS INSERT INTO a table BY NAME SELECT ...")
            return
        target, at = self._name(body + 2)
        if [token.word for token in self._tokens[at : at + 2]] == ["BY", "NAME"]:
            at += 2
        self._add_flow(name, target, at)

    def _add_flow(self, name: str, target: str, at: int) -> None:
        query = plain_query(self._text, self._tokens[at:], Place(self._file, 1))
        self._found.flows.append(CapturedFlow(name, target, self._place, query.reads, sql=query))

    def _problem(self, text: str) -> None:
        self._found.problems.append((self._place, text))
