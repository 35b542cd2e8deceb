"""What a function of a project reads, found in its code, because without Spark it cannot be called.

Found are ``spark.table``, ``spark.read``, ``spark.readStream`` and ``spark.sql``, also in functions and methods of the
project that it calls or hands on, with the arguments that they get there. What cannot be known is a problem, with its
line. What is missed all the same is refused when the function is called: see ``session``.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from headgate.core import DeclarationError
from headgate.warehouse.declare.spec import Place
from headgate.warehouse.pipelines.code_values import UNKNOWN, CodeValues, MadeObject, Step
from headgate.warehouse.pipelines.definitions import FILE_FORMATS, FileRead, Reads, TableRead
from headgate.warehouse.pipelines.queries import plain_text
from headgate.warehouse.pipelines.reader_calls import STEPS, ReaderCalls
from headgate.warehouse.pipelines.session import StandInSession

#: methods of the session and its readers that read
_LAST_CALLS = ("table", "load", "sql", "changes", *FILE_FORMATS, "jdbc", "xml", "excel")
_READERS = ("read", "readStream")
_SESSIONS = ("active", "getActiveSession", "getOrCreate")
#: packages whose functions ``read_...`` read files, and methods of paths that do
_FILE_PACKAGES = ("pandas", "polars", "pyarrow", "numpy")
_PATH_METHODS = ("read_text", "read_bytes")
#: functions that call each other are followed so far
_DEEPEST = 50


def reads_of(function: Callable[..., Any], folder: Path) -> Reads:
    """What ``function`` reads; of the functions that it calls, those in files below ``folder`` count as well."""
    reader = _FunctionReader(folder)
    reader.follow(function, [], {})
    return Reads(tuple(dict.fromkeys(reader.tables)), tuple(reader.files), tuple(dict.fromkeys(reader.problems)))


class _FunctionReader:
    def __init__(self, folder: Path) -> None:
        self.tables: list[TableRead] = []
        self.files: list[FileRead] = []
        self.problems: list[tuple[Place, str]] = []
        self._folder = folder
        self._seen: set[tuple[FunctionType, str]] = set()
        self._depth = 0

    def follow(self, called: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Read the code of what is called with these arguments, if it is of the project."""
        if isinstance(called, partial):
            self.follow(called.func, [*called.args, *given], {**called.keywords, **named})
        elif isinstance(called, MethodType):
            self.follow(called.__func__, [called.__self__, *given], named)
        elif isinstance(called, type):
            self.follow(inspect.getattr_static(called, "__init__", None), [MadeObject(called), *given], named)
        elif isinstance(called, FunctionType):
            self._function(called, _bound(called, given, named))
        elif not isinstance(called, str | int | float) and isinstance(
            call := inspect.getattr_static(type(called), "__call__", None), FunctionType
        ):
            self._function(call, _bound(call, [called, *given], named))

    def _function(self, function: FunctionType, given: Mapping[str, Any]) -> None:
        key = function, repr(sorted(given.items(), key=lambda each: each[0]))
        is_ours = Path(function.__code__.co_filename).is_relative_to(self._folder)
        if not is_ours or key in self._seen or self._depth > _DEEPEST:
            return
        self._seen.add(key)
        self._depth += 1
        self._code(CodeValues(function, given))
        self._depth -= 1

    def _code(self, values: CodeValues) -> None:
        if values.tree is None:
            return
        calls = [node for node in ast.walk(values.tree) if isinstance(node, ast.Call)]
        seen = {id(call.func) for call in calls}
        for call in calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr in _LAST_CALLS:
                chain, root = values.chain(call.func.value)
                if _is_session(root, chain, values):
                    self._read(call, call.func, chain, values)
                    continue
            seen |= self._call(call, values)
        for node in ast.walk(values.tree):
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in seen:
                called = values.called(node)
                if isinstance(called, FunctionType | MethodType | partial):
                    self.follow(called, [], {})

    # --- calls ------------------------------------------------------------------------------------------------

    def _call(self, call: ast.Call, values: CodeValues) -> set[int]:
        """Follow a call; returns the nodes that are looked at with it."""
        self._check_files(call, values)
        handed = call.args[0] if call.args else None
        called = values.called(call.func)
        if handed is not None and called is partial:
            for version in values.versions(call):
                given, named = version.arguments(call, 1)
                self.follow(version.called(handed), given, named)
            return {id(handed)}
        if handed is not None and isinstance(call.func, ast.Attribute) and call.func.attr == "transform":
            for version in values.versions(call):
                given, named = version.arguments(call, 1)
                self.follow(version.called(handed), [UNKNOWN, *given], named)
            return {id(handed)}
        if called is not UNKNOWN:
            for version in values.versions(call):
                self.follow(version.called(call.func), *version.arguments(call))
        return set()

    def _check_files(self, call: ast.Call, values: CodeValues) -> None:
        called = values.called(call.func)
        module, name = str(getattr(called, "__module__", "")), str(getattr(called, "__name__", ""))
        reads = module.partition(".")[0] in _FILE_PACKAGES and name.startswith(("read_", "load"))
        is_path = isinstance(call.func, ast.Attribute) and call.func.attr in _PATH_METHODS
        if called is open or reads or is_path:
            text = "what is read here without Spark cannot be watched for changes: read it by spark.read"
            self.problems.append((Place(values.file, call.lineno), text))

    # --- reads ------------------------------------------------------------------------------------------------

    def _read(self, call: ast.Call, last: ast.Attribute, chain: list[Step], values: CodeValues) -> None:
        """One call of ``last`` on what the steps of ``chain`` make of a session."""
        reader = next((name for name, _ in chain if name in _READERS), None)
        if reader is None and last.attr not in ("table", "sql"):
            return
        place = Place(values.file, last.value.end_lineno or call.lineno)
        what = "query" if last.attr == "sql" else "table" if last.attr == "table" else "files"
        steps = [step for step in chain if step[1] is not None and step[0] in STEPS]
        for version in values.versions(call, *(step for _, step in steps if step is not None)):
            try:
                if last.attr == "sql":
                    found = plain_text(_first(call, version, "sqlQuery"), place).reads
                    self.tables += found.tables
                    self.problems += found.problems
                elif last.attr == "table":
                    name = _first(call, version, "tableName")
                    self.tables.append(TableRead(name, place, reader == "readStream"))
                else:
                    self.files.append(_files(call, last.attr, steps, reader == "readStream", version, place))
            except (LookupError, TypeError) as error:
                text = f"which {what} {'are' if what == 'files' else 'is'} read here is not known before it is called"
                self.problems.append((place, f"{text}, because of {error}: write it as a text or a constant"))
            except DeclarationError as error:
                self.problems.append((place, str(error)))


def _files(
    call: ast.Call, method: str, steps: Sequence[Step], streaming: bool, values: CodeValues, place: Place
) -> FileRead:
    calls = ReaderCalls(streaming)
    for name, step in steps:
        assert step is not None
        calls.step(name, *_arguments(step, values))
    return calls.read(method, *_arguments(call, values), place)


def _arguments(call: ast.Call, values: CodeValues) -> tuple[list[Any], dict[str, Any]]:
    given: list[Any] = []
    for each in call.args:
        if isinstance(each, ast.Starred):
            given += values.value(each.value)
        else:
            given.append(values.value(each))
    named: dict[str, Any] = {}
    for keyword in call.keywords:
        named |= values.value(keyword.value) if keyword.arg is None else {keyword.arg: values.value(keyword.value)}
    return given, named


def _first(call: ast.Call, values: CodeValues, name: str) -> str:
    """The first argument of a call, or the one of this name: a text."""
    given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == name), None)
    if given is None:
        raise LookupError(f"no argument {name}")
    value = values.value(given)
    if not isinstance(value, str):
        raise TypeError(f"{value!r}, which is no text")
    return value


def _bound(function: FunctionType, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return dict(inspect.signature(function).bind_partial(*given, **named).arguments)
    except TypeError:
        return dict.fromkeys(inspect.signature(function).parameters, UNKNOWN)


def _is_session(root: ast.AST, chain: list[Step], values: CodeValues) -> bool:
    if any(name in _SESSIONS or (name == "spark" and call is None) for name, call in chain):
        return True
    return isinstance(root, ast.Name) and (root.id == "spark" or isinstance(values.values.get(root.id), StandInSession))
