"""What names stand for in the code of a function that cannot be called yet: values as far as they are known without it.

Known are constants, variables around the function, arguments that its caller gives, and local variables that are set to
such. A variable of a loop, or one that is set several times, has several values.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import inspect
import itertools
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

#: an attribute, and its call if it is called
Step = tuple[str, ast.Call | None]
#: the value of an argument that only calling the function would tell
UNKNOWN = object()
#: values of the variables of a loop, and versions of a read, that are looked at
_MOST = 200
#: modules whose functions may be called to know a value, and methods of other values
_PURE_MODULES = ("posixpath", "ntpath", "os", "pathlib", "builtins")
_PURE_METHODS = ("format", "lower", "upper", "strip", "replace", "join", "items", "keys", "values", "get", "as_posix")
_SESSIONS = ("active", "getActiveSession")


class MadeObject:
    """Stands for an object that a function makes of a class: its methods are known, and what the class itself has."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __repr__(self) -> str:
        return f"an object of {self._kind!r}"

    def __getattr__(self, name: str) -> Any:
        found = inspect.getattr_static(self._kind, name)
        if isinstance(found, FunctionType):
            return MethodType(found, self)
        if isinstance(found, property):
            raise AttributeError(name)
        return getattr(self._kind, name)


class CodeValues:
    """The code of a function, and what its names stand for."""

    def __init__(self, function: FunctionType, given: Mapping[str, Any]) -> None:
        self.file = function.__code__.co_filename
        found = _function_at(self.file, function.__code__.co_firstlineno, function.__code__.co_name)
        self.values: dict[str, Any] = dict(function.__globals__)
        self.values |= inspect.getclosurevars(function).nonlocals
        for name, parameter in inspect.signature(function).parameters.items():
            value = given.get(name, UNKNOWN if parameter.default is parameter.empty else parameter.default)
            self._put(name, value)
        #: {local variable: what it is set to, in order}, where that is no known value
        self.variables: dict[str, list[ast.expr]] = {}
        #: names that have several values, together
        self._choices: list[tuple[tuple[str, ...], list[tuple[Any, ...]]]] = []
        self.tree: ast.AST | None = None
        if found is not None:
            self.tree = tree = _Pruner(self, found).visit(found)
            self._look_at_locals(tree)

    def value(self, node: ast.expr) -> Any:
        """What an expression gives; LookupError if that is not known."""
        try:
            code = compile(ast.Expression(node), "<argument>", "eval")
            found = eval(code, dict(self.values))
            if _has_call(node) and eval(code, dict(self.values)) != found:
                raise LookupError(repr(ast.unparse(node)))
        except Exception:
            raise LookupError(repr(ast.unparse(node))) from None
        return found

    def quiet_value(self, node: ast.expr) -> Any:
        """The same, without calling functions of the user."""
        for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
            if not self._is_pure(call.func):
                raise LookupError(repr(ast.unparse(node)))
        return self.value(node)

    def versions(self, *nodes: ast.AST) -> Iterator[CodeValues]:
        """These values, for each combination of values that the names in ``nodes`` may have."""
        names: set[str] = set()
        left: list[ast.AST] = list(nodes)
        while left:
            for each in ast.walk(left.pop()):
                if isinstance(each, ast.Name) and each.id not in names:
                    names.add(each.id)
                    left += self.variables.get(each.id, [])
        groups = [group for group in self._choices if names.intersection(group[0])]
        for chosen in itertools.islice(itertools.product(*(rows for _, rows in groups)), _MOST):
            version = object.__new__(CodeValues)
            version.__dict__.update(self.__dict__)
            version.values = dict(self.values)
            for (group, _), row in zip(groups, chosen, strict=True):
                version.values |= zip(group, row, strict=True)
            yield version

    def chain(self, node: ast.AST) -> tuple[list[Step], ast.AST]:
        """The steps of ``root.a.b(x).c``, from the left, and the root; a variable is what it was set to."""
        steps: list[Step] = []
        left = {name: len(set_to) for name, set_to in self.variables.items()}
        while isinstance(node, ast.Attribute | ast.Call | ast.Name):
            if isinstance(node, ast.Name):
                if not left.get(node.id):
                    break
                # What a variable was set to may have the variable in it, as it was before.
                left[node.id] -= 1
                node = self.variables[node.id][left[node.id]]
            elif isinstance(node, ast.Attribute):
                steps.append((node.attr, None))
                node = node.value
            elif isinstance(node.func, ast.Attribute):
                steps.append((node.func.attr, node))
                node = node.func.value
            else:
                break
        return steps[::-1], node

    def called(self, node: ast.expr, seen: frozenset[str] = frozenset()) -> Any:
        """What ``node(...)`` calls: a function, a class, or UNKNOWN. A method of a new object is one of its class."""
        if not _has_call(node):
            try:
                return self.value(node)
            except LookupError:
                pass
        if not isinstance(node, ast.Attribute):
            return UNKNOWN
        owner: ast.expr = node.value
        if isinstance(owner, ast.Name) and owner.id not in seen and (set_to := self.variables.get(owner.id)):
            seen, owner = seen | {owner.id}, set_to[-1]
        if not isinstance(owner, ast.Call):
            return UNKNOWN
        made_by = self.called(owner.func, seen)
        return getattr(MadeObject(made_by), node.attr, UNKNOWN) if isinstance(made_by, type) else UNKNOWN

    def arguments(self, call: ast.Call, after: int = 0) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call after the first ones; those that are not known are UNKNOWN."""
        given: list[Any] = []
        for each in call.args[after:]:
            if isinstance(each, ast.Starred):
                value = self._or_unknown(each.value)
                given += [UNKNOWN] if value is UNKNOWN else list(value)
            else:
                given.append(self._or_unknown(each))
        named: dict[str, Any] = {}
        for keyword in call.keywords:
            value = self._or_unknown(keyword.value)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, Mapping):
                named |= value
        return given, named

    def _or_unknown(self, node: ast.expr) -> Any:
        try:
            return self.quiet_value(node)
        except LookupError:
            return UNKNOWN

    def _is_pure(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Attribute) and function.attr in (*_PURE_METHODS, *_SESSIONS):
            return True
        if _has_call(function):
            return False
        try:
            return getattr(self.value(function), "__module__", "") in _PURE_MODULES
        except LookupError:
            return False

    def _put(self, name: str, value: Any) -> None:
        self.values.pop(name, None)
        if value is not UNKNOWN:
            self.values[name] = value

    # --- local variables --------------------------------------------------------------------------------------

    def _look_at_locals(self, tree: ast.AST) -> None:
        set_to: dict[str, list[ast.expr]] = {}
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    set_to.setdefault(name, []).append(value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    set_to.setdefault(name, []).append(value)
                case ast.For(target=target, iter=each) | ast.comprehension(target=target, iter=each):
                    self._loop(target, each)
                case ast.Import() | ast.ImportFrom():
                    self._import(node)
                case ast.FunctionDef(name=name):
                    self.values.pop(name, None)
                case ast.arg(arg=name):  # of a function inside
                    self.values.pop(name, None)
                case ast.Name(id=name, ctx=ast.Store()) if name not in set_to:
                    if not any(name in names for names, _ in self._choices):
                        self.values.pop(name, None)
        for name, expressions in set_to.items():
            self._set(name, expressions)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                module = _module(alias.name if alias.asname else alias.name.partition(".")[0])
                self._put(alias.asname or alias.name.partition(".")[0], module)
            else:
                module = UNKNOWN if node.module is None or node.level else _module(node.module)
                self._put(alias.asname or alias.name, getattr(module, alias.name, UNKNOWN))

    def _set(self, name: str, expressions: list[ast.expr]) -> None:
        known: list[Any] = []
        for expression in expressions:
            value = self._or_unknown(expression)
            if value is UNKNOWN:
                self.variables.setdefault(name, []).append(expression)
            else:
                known.append(value)
        if len(expressions) == 1 and known:
            self.values[name] = known[0]
            return
        self.values.pop(name, None)
        if known:
            self._choices.append(((name,), [(value,) for value in known]))

    def _loop(self, target: ast.expr, each: ast.expr) -> None:
        names = [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]
        for name in names:
            self.values.pop(name, None)
        try:
            values = list(itertools.islice(self.quiet_value(each), _MOST))
        except (LookupError, TypeError):
            return
        if isinstance(target, ast.Name):
            self._choices.append(((target.id,), [(value,) for value in values]))
        elif isinstance(target, ast.Tuple) and len(names) == len(target.elts):
            rows = [tuple(value) for value in values if isinstance(value, list | tuple) and len(value) == len(names)]
            self._choices.append((tuple(names), rows))


class _Pruner(ast.NodeTransformer):
    """Leaves out what a condition rules out whose value is known."""

    def __init__(self, values: CodeValues, tree: ast.AST) -> None:
        self._values = values
        #: names of the function itself, whose values are not known here
        self._own = {
            node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        self._own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}

    def _holds(self, test: ast.expr) -> bool | None:
        names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
        if _has_call(test) or names & self._own:
            return None
        try:
            return bool(self._values.value(test))
        except LookupError:
            return None

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        holds = self._holds(node.test)
        return node if holds is None else (node.body if holds else node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        self.generic_visit(node)
        holds = self._holds(node.test)
        return node if holds is None else (node.body if holds else node.orelse)


def _has_call(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Call) for each in ast.walk(node))


def _module(name: str) -> Any:
    """A module that a function imports itself; one of the project is imported for that."""
    if name in sys.modules or name in dir(builtins):
        return sys.modules.get(name, UNKNOWN)
    try:
        found = importlib.util.find_spec(name)
        is_here = found is not None and found.origin is not None and Path(found.origin).is_relative_to(Path.cwd())
        return importlib.import_module(name) if is_here else UNKNOWN
    except (ImportError, ValueError):
        return UNKNOWN


@cache
def _source(file: str, modified: int) -> bytes:
    return Path(file).read_bytes()


def _function_at(file: str, line: int, name: str) -> ast.AST | None:
    """The code of the function that begins at a line: a tree of its own, which may be changed."""
    try:
        tree = ast.parse(_source(file, Path(file).stat().st_mtime_ns))
    except (OSError, SyntaxError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == line:
                return ast.Module(body=node.body, type_ignores=[])
        elif isinstance(node, ast.Lambda) and name == "<lambda>" and node.lineno == line:
            return ast.Module(body=[ast.Expr(node.body, lineno=line, col_offset=0)], type_ignores=[])
    return None
