"""What a function of a project reads, found in its code, because without Spark it cannot be called.

Found are ``spark.table``, ``spark.read``, ``spark.readStream`` and ``spark.sql``, also in functions of the project that
it calls. Names and paths may be literals, constants of the module, variables around the function, and local variables
that are set to such. What cannot be found is a problem, with its line.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from headgate.core import HeadgateError
from headgate.warehouse.declare.spec import Place
from headgate.warehouse.declare.sql_text import read_query
from headgate.warehouse.pipelines.definitions import DELTA, FileRead, Reads
from headgate.warehouse.pipelines.session import StandInSession

#: formats of files that both Spark and Headgate read, by the method of the reader that is called last
_FORMATS = ("json", "csv", "parquet", "orc", "text")
#: methods of the reader that read from elsewhere
_FOREIGN = ("jdbc", "xml", "excel")
_LAST_CALLS = ("table", "load", "sql", *_FORMATS, *_FOREIGN)
#: an attribute, and its call if it is called
Step = tuple[str, ast.Call | None]
_SESSIONS = ("active", "getActiveSession", "getOrCreate")


class _UnknownValueError(HeadgateError):
    """A value that only calling the function would tell."""


def reads_of(function: Callable[..., Any], folder: Path) -> Reads:
    """What ``function`` reads; of the functions that it calls, those in files below ``folder`` count as well."""
    reader = _FunctionReader(folder)
    reader.read(function)
    return Reads(tuple(dict.fromkeys(reader.tables)), tuple(reader.files), tuple(reader.problems))


class _FunctionReader:
    def __init__(self, folder: Path) -> None:
        self.tables: list[str] = []
        self.files: list[FileRead] = []
        self.problems: list[tuple[Place, str]] = []
        self._folder = folder
        self._seen: set[Callable[..., Any]] = set()

    def read(self, function: Callable[..., Any]) -> None:
        if not isinstance(function, FunctionType) or function in self._seen:
            return
        self._seen.add(function)
        file = function.__code__.co_filename
        tree = _function_at(file, function.__code__.co_firstlineno)
        if tree is None:
            return
        values = _values_around(function)
        steps = _add_local_values(tree, values)
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call):
                continue
            if isinstance(call.func, ast.Name):
                called = values.get(call.func.id)
                if isinstance(called, FunctionType) and Path(called.__code__.co_filename).is_relative_to(self._folder):
                    self.read(called)
            elif isinstance(call.func, ast.Attribute) and call.func.attr in _LAST_CALLS:
                place = Place(file, call.func.value.end_lineno or call.lineno)
                self._call(call, call.func, _chain(call.func.value, steps), values, place)

    def _call(
        self,
        call: ast.Call,
        last: ast.Attribute,
        before: tuple[list[Step], ast.AST],
        values: Mapping[str, Any],
        place: Place,
    ) -> None:
        """One call of ``last`` on what the steps ``before`` make of their root."""
        chain, root = before
        reader = next((name for name, _ in chain if name in ("read", "readStream")), None)
        if not _is_session(root, chain, values) or (reader is None and last.attr not in ("table", "sql")):
            return
        try:
            if last.attr == "sql":
                self._sql(_first(call, values, "sqlQuery"), place)
            elif last.attr == "table":
                self.tables.append(_first(call, values, "tableName"))
            else:
                self._files(call, last.attr, [step for step in chain if step[1] is not None], reader, values, place)
        except _UnknownValueError as error:
            what = "query" if last.attr == "sql" else "table" if last.attr == "table" else "files"
            text = f"which {what} is read here is not known before it is called, because of {error}"
            self.problems.append((place, f"{text}: write it as a text or a constant"))

    def _sql(self, query: str, place: Place) -> None:
        read = read_query(query)
        self.tables += read.sources
        self.problems += [(place, text) for text in read.problems if text != "the query reads no table"]

    def _files(
        self,
        call: ast.Call,
        method: str,
        chain: list[Step],
        reader: str | None,
        values: Mapping[str, Any],
        place: Place,
    ) -> None:
        options: dict[str, str] = {}
        # What load reads without a format is Parquet.
        form, schema = ("parquet" if method == "load" else method), ""
        for name, step in chain:
            assert step is not None
            if name == "format":
                form = str(_first(step, values, "source")).lower()
            elif name == "schema":
                schema = _ddl(_first(step, values, "schema"))
            elif name == "option":
                options[str(_value(step.args[0], values))] = _text(_value(step.args[1], values))
            elif name == "options":
                options |= {str(k.arg): _text(_value(k.value, values)) for k in step.keywords if k.arg}
        for keyword in call.keywords:
            if keyword.arg == "schema":
                schema = _ddl(_value(keyword.value, values))
            elif keyword.arg == "format":
                form = str(_value(keyword.value, values)).lower()
            elif keyword.arg not in (None, "path"):
                options[str(keyword.arg)] = _text(_value(keyword.value, values))
        streaming = reader == "readStream"
        if problem := _refused(form, streaming, options, bool(call.args)):
            self.problems.append((place, problem))
            return
        path = _first(call, values, "path")
        if not isinstance(path, str):
            raise _UnknownValueError("a path that is no text")
        self.files.append(FileRead(path, form, streaming, place, schema, options))


def _refused(form: str, streaming: bool, options: Mapping[str, str], has_path: bool) -> str:
    """Why a read cannot be taken over; empty if it can be."""
    formats = ", ".join(_FORMATS)
    if streaming and form not in _FORMATS:
        return f"a stream of the format {form!r} cannot be taken over; it can be from files of the formats {formats}"
    if form not in (*_FORMATS, DELTA):
        return (
            f"what is read here, of the format {form!r}, cannot be watched for changes, so that it would stay as it is "
            f"now; taken over are files of the formats {formats}, and Delta tables by path. Have the rows written to "
            "such files, or declare a pipeline file"
        )
    if form == DELTA and options:
        return (
            f"the option {min(options)!r} of a read of a Delta table cannot be taken over: the table is read as it is "
            "now, and again when it changes"
        )
    if "path" in options and not has_path:
        return "the path of files is taken over from load(...), not from an option"
    return ""


@cache
def _parsed(file: str, modified: int) -> ast.Module:
    return ast.parse(Path(file).read_bytes())


def _function_at(file: str, line: int) -> ast.AST | None:
    try:
        tree = _parsed(file, Path(file).stat().st_mtime_ns)
    except (OSError, SyntaxError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == line:
                return ast.Module(body=node.body, type_ignores=[])
        elif isinstance(node, ast.Lambda) and node.lineno == line:
            return node.body
    return None


def _values_around(function: FunctionType) -> dict[str, Any]:
    values = dict(function.__globals__)
    values |= inspect.getclosurevars(function).nonlocals
    parameters = inspect.signature(function).parameters.values()
    return values | {p.name: p.default for p in parameters if p.default is not p.empty}


def _add_local_values(tree: ast.AST, values: dict[str, Any]) -> dict[str, ast.expr]:
    """Add local variables that are set to what is known without calling anything; returns the others, as written."""
    others: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            values.pop(name, None)
            if any(isinstance(inner, ast.Call) for inner in ast.walk(node.value)):
                others[name] = node.value
                continue
            try:
                values[name] = _value(node.value, values)
            except _UnknownValueError:
                others[name] = node.value
    return others


def _chain(node: ast.AST, variables: Mapping[str, ast.expr]) -> tuple[list[Step], ast.AST]:
    """The steps of ``root.a.b(x).c``, from the left, and the root; a variable is what it was set to."""
    steps: list[Step] = []
    seen: set[str] = set()
    while isinstance(node, ast.Attribute | ast.Call | ast.Name):
        if isinstance(node, ast.Name):
            if node.id not in variables or node.id in seen:
                break
            seen.add(node.id)
            node = variables[node.id]
        elif isinstance(node, ast.Attribute):
            steps.append((node.attr, None))
            node = node.value
        elif isinstance(node.func, ast.Attribute):
            steps.append((node.func.attr, node))
            node = node.func.value
        else:
            break
    return steps[::-1], node


def _is_session(root: ast.AST, chain: list[Step], values: Mapping[str, Any]) -> bool:
    if any(name in _SESSIONS for name, _ in chain):
        return True
    return isinstance(root, ast.Name) and (root.id == "spark" or isinstance(values.get(root.id), StandInSession))


def _first(call: ast.Call, values: Mapping[str, Any], name: str) -> Any:
    """The first argument of a call, or the one of this name."""
    given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == name), None)
    if given is None:
        raise _UnknownValueError(f"no argument {name}")
    return _value(given, values)


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    try:
        return eval(compile(ast.Expression(node), "<argument>", "eval"), dict(values))
    except Exception:
        raise _UnknownValueError(repr(ast.unparse(node))) from None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _ddl(schema: Any) -> str:
    """A schema as text: as it is, or of a StructType."""
    if isinstance(schema, str):
        return schema
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)
