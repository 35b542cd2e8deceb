"""The sources of a table, read from what the user wrote: the parameters of a function, the tables of a query.

The query is read as text, without Spark. This is not a full parser: it knows strings, comments, parentheses, WITH and
where a table name may be. That is enough for the graph of tables. Spark finds all other mistakes when the tables are
analysed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

from headgate.core import DeclarationError


@dataclass(frozen=True, slots=True)
class TableSources:
    """The tables that a function or a query reads, in order, and what is wrong with it."""

    sources: tuple[str, ...]
    problems: tuple[str, ...] = ()
    #: where a query names them, in order, also again and again
    relations: tuple[SqlRelation, ...] = ()


@dataclass(frozen=True, slots=True)
class SqlRelation:
    """A table that a query names, from ``start`` up to ``end`` in its text."""

    name: str
    line: int
    start: int
    end: int


def read_function(function: object) -> TableSources:
    """A function's parameters are its sources."""
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return TableSources((), (f"a table is a function of its sources; got {function!r}",))
    if not parameters:
        return TableSources((), ("the function has no parameters; they name the tables that it is computed from",))
    odd = [p for p in parameters if p.kind is not p.POSITIONAL_OR_KEYWORD or p.default is not p.empty]
    problems = tuple(
        f"the parameter '{p.replace(annotation=p.empty)}' names no table; "
        "a function takes one plain parameter for each source, without default, '*' or '/'"
        for p in odd
    )
    return TableSources(tuple(p.name for p in parameters if all(p is not other for other in odd)), problems)


def read_query(query: object) -> TableSources:
    """The tables named after FROM and JOIN, without those that the query itself defines with WITH."""
    if not isinstance(query, str):
        return TableSources((), (f"the query takes a text; got {query!r}",))
    try:
        tokens = list(sql_tokens(query))
    except _UnclosedError as error:
        return TableSources((), (str(error),))
    if problems := tuple(_statement_problems(tokens)):
        return TableSources((), problems)
    relations = _QueryReader(tokens).relations()
    # In lower case, and as first written.
    found = {relation.name.lower(): relation.name for relation in reversed(relations)}
    sources = tuple(dict.fromkeys(found[relation.name.lower()] for relation in relations))
    return TableSources(sources, () if sources else ("the query reads no table",), relations)


class _UnclosedError(DeclarationError):
    """Something in a query begins and never ends."""


@dataclass(frozen=True, slots=True)
class SqlToken:
    """A word, a name in backquotes, a mark or a string: from ``start`` up to ``end`` in the text of a query."""

    text: str
    line: int
    start: int = 0
    end: int = 0

    @property
    def word(self) -> str:
        """In capitals, if it may be a keyword; empty for names in backquotes, numbers and marks."""
        return self.text.upper() if self.text.isidentifier() else ""

    @property
    def name(self) -> str:
        """Without backquotes, if it may name a table; otherwise empty."""
        if self.text.startswith("`"):
            return self.text[1:-1].replace("``", "`")
        return self.text if self.text[:1].isalnum() or self.text[:1] == "_" else ""


_END = SqlToken("", 0)

_LEXEME = re.compile(
    r"""(?P<nothing> \s+ | --(?:\\\n|[^\n])* )
      | (?P<comment> /\* )
      | (?P<string> [rR](?:'[^']*'|"[^"]*") | '[^'\\]*(?:\\.[^'\\]*)*' | "[^"\\]*(?:\\.[^"\\]*)*" )
      | (?P<token> `(?:[^`]|``)*` | \w+ | [^'"`] )
      | (?P<unclosed> . )""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


def sql_tokens(query: str) -> Iterator[SqlToken]:
    """Words, names in backquotes and single marks; a string of any content is the token ``''``."""
    at = 0
    while match := _LEXEME.match(query, at):
        line = query.count("\n", 0, at) + 1
        start, at = at, match.end()
        if match.lastgroup == "token":
            yield SqlToken(match[0], line, start, at)
        elif match.lastgroup == "string":
            yield SqlToken("''", line, start, at)
        elif match.lastgroup == "comment":
            at = _end_of_comment(query, at, line)
        elif match.lastgroup == "unclosed":
            raise _UnclosedError(f"the quote {match[0]} on line {line} of the query is never closed")


def _end_of_comment(query: str, at: int, line: int) -> int:
    depth = 1  # comments nest
    for edge in _COMMENT_EDGE.finditer(query, at):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise _UnclosedError(f"the comment on line {line} of the query is never closed")


#: more than anybody writes, and less than the stack of an interpreter holds
_DEEPEST = 200


def _statement_problems(tokens: list[SqlToken]) -> Iterator[str]:
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    first = next((token for token in tokens if token.text != "("), None)
    if first is None:
        yield "the query is empty"
    elif first.word not in ("SELECT", "WITH"):
        yield f"the query takes a SELECT, or a WITH and a SELECT; it begins with {first.text!r}"
    if any(token.text == ";" for token in tokens):
        yield "the query takes one statement; it has a ';' with more behind it"
    open_on: list[int] = []
    for token in tokens:
        if token.text == "(":
            open_on.append(token.line)
            if len(open_on) > _DEEPEST:
                yield f"the query has more than {_DEEPEST} parentheses inside each other; split it into several tables"
                return
        elif token.text == ")" and not open_on:
            yield f"the query has a ')' on line {token.line} that closes nothing"
        elif token.text == ")":
            open_on.pop()
    if open_on:
        yield f"the query has a '(' on line {open_on[-1]} that is never closed"


#: the clauses that can follow FROM: from there on, a comma is not followed by a table
_AFTER_FROM = {
    *("WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "WINDOW"),
    *("UNION", "EXCEPT", "MINUS", "INTERSECT", "VALUES"),
}


class _QueryReader:
    """Walks the tokens of one query once, from left to right."""

    def __init__(self, tokens: list[SqlToken]) -> None:
        self._tokens = [*tokens, _END]
        self._at = 0
        self._found: list[SqlRelation] = []

    def relations(self) -> tuple[SqlRelation, ...]:
        self._level(frozenset(), relation=False)
        return tuple(self._found)

    def _next(self) -> SqlToken:
        return self._tokens[self._at]

    def _take(self) -> SqlToken:
        token = self._next()
        self._at += token is not _END
        return token

    def _level(self, defined: frozenset[str], *, relation: bool) -> None:
        """Read up to the ``)`` that ends this level, or to the end. ``defined`` are the names that WITH has defined.

        ``relation``: a table name can be here. ``awaited``: a table name can be the next token. ``listing``: it can be
        after a comma. ``query``: FROM is a clause, and not a word of ``extract(day from ts)``.
        """
        awaited = listing = query = relation
        if self._next().word == "WITH":
            defined = self._with(defined)
        before = ""
        while (token := self._take()) is not _END and token.text != ")":
            word = "" if before == "." else token.word
            if token.text == "(":
                self._level(defined, relation=awaited)
                awaited = False
            elif word == "SELECT":
                query, awaited, listing = True, False, False
            elif word == "FROM" and query and before != "DISTINCT":
                awaited = listing = True
            elif word in _AFTER_FROM or (word == "VIEW" and before == "LATERAL"):
                awaited = listing = False
            elif word == "JOIN":
                awaited = True
            elif token.text == ",":
                awaited = listing
            elif awaited and word not in ("LATERAL", "TABLE"):
                self._relation(token, defined)
                awaited = False
            before = token.text.upper()

    def _with(self, defined: frozenset[str]) -> frozenset[str]:
        """Read ``with a as (...), b (x, y) as (...)``; returns all names that are defined after it.

        A name is defined only after its body: ``with a as (select * from a)`` reads the table a.
        """
        self._take()
        recursive = self._next().word == "RECURSIVE"
        if recursive:
            self._take()
        separator = ","
        while separator == "," and (name := self._take().name.lower()):
            if self._next().text == "(":
                self._take()
                self._level(defined, relation=False)
            while self._next().text not in ("(", _END.text):
                self._take()
            self._take()
            self._level(defined | {name} if recursive else defined, relation=True)
            defined |= {name}
            separator = self._next().text
            if separator == ",":
                self._take()
        return defined

    def _relation(self, token: SqlToken, defined: frozenset[str]) -> None:
        parts, last = [token.name], token
        while self._next().text == "." and self._tokens[self._at + 1].name:
            self._take()
            last = self._take()
            parts.append(last.name)
        name = ".".join(parts)
        if parts[0] and self._next().text != "(" and name.lower() not in defined:
            self._found.append(SqlRelation(name, token.line, token.start, last.end))
