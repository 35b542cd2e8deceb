"""Python code as text that changes when the code does, and not with line numbers, comments, files or processes.

A function is described by its instructions and constants, defaults, the values of its closure, and the functions and
constants of the user that it names, in turn. Of what is installed only the names count. Objects that cannot be looked
into count by their class: a change inside them is not seen.

The text is the same for the same code under one minor version of Python; another one compiles differently.
"""

from __future__ import annotations

import dis
import hashlib
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import PurePath
from re import Pattern
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from uuid import UUID

_PACKAGE = __name__.partition(".")[0]
#: values whose ``repr`` tells all of them
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), date, time, timedelta, tzinfo)
_PLAIN_OBJECTS = (Decimal, PurePath, Pattern, UUID, range, slice)
#: what is installed: all that is below these folders
_INSTALLED = tuple({sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")})


def code_text(value: object) -> str:
    """``value``, usually a function, as text."""
    return _Describer().of(value)


class _Describer:
    """Describes values. What is met again inside itself, such as a function that calls itself, is not repeated."""

    def __init__(self) -> None:
        #: {id: value}; the values are kept, so that no other one gets their ids
        self._met: dict[int, Any] = {}
        self._ways: tuple[tuple[Any, Callable[[Any], str]], ...] = (
            (CodeType, self._code),
            ((tuple, list), lambda value: f"{type(value).__name__}({self._joined(value)})"),
            (Set, lambda value: f"set({', '.join(sorted(map(self.of, value)))})"),
            (Mapping, self._mapping),
            (ModuleType, lambda value: f"module {value.__name__}"),
            (partial, lambda value: f"partial({self._joined((value.func, value.args, value.keywords))})"),
            (MethodType, lambda value: f"method({self._joined((value.__func__, value.__self__))})"),
            (type, self._class),
        )

    def of(self, value: Any) -> str:
        if isinstance(value, Enum):
            return f"{type(value).__qualname__}.{value.name}"
        if isinstance(value, (*_PLAIN, *_PLAIN_OBJECTS)):
            return repr(value)
        if id(value) in self._met:
            return _name(value)
        if not isinstance(value, tuple | frozenset):  # Python may or may not share equal ones
            self._met[id(value)] = value
        for kind, described in self._ways:
            if isinstance(value, kind):
                return described(value)
        wrapped = getattr(value, "func", None)
        if callable(wrapped):  # a function that Spark calls in its workers
            return f"{type(value).__name__}({self.of(wrapped)})"
        return self._function(value) if isinstance(value, FunctionType) else self._object(value)

    def _mapping(self, value: Mapping[Any, Any]) -> str:
        return f"map({', '.join(sorted(f'{self.of(key)}: {self.of(each)}' for key, each in value.items()))})"

    def _joined(self, values: Iterable[Any]) -> str:
        return ", ".join(map(self.of, values))

    def _function(self, function: FunctionType) -> str:
        if _is_installed(function.__module__, function.__code__.co_filename):
            return _name(function)
        cells = []
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                cells.append(f"{name}={self.of(cell.cell_contents)}")
            except ValueError:  # not filled yet
                cells.append(f"{name}=?")
        named = [f"{name}={self.of(value)}" for name, value in _named_globals(function)]
        defaults = [self.of(function.__defaults__), self.of(function.__kwdefaults__)]
        code = self._code(function.__code__, function.__doc__)
        return f"function({'; '.join([code, *defaults, *cells, *named])})"

    def _code(self, code: CodeType, doc: str | None = None) -> str:
        steps = [f"({', '.join(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])})"]
        for step in dis.get_instructions(code):
            if step.argval is doc and doc is not None:
                continue
            shown = self._code(step.argval) if isinstance(step.argval, CodeType) else _argument(step.argval)
            steps.append(f"{step.opname} {shown}")
        return "\n".join(steps)

    def _class(self, value: type) -> str:
        if _is_installed(value.__module__):
            return _name(value)
        parts = [
            f"{name}={self.of(part)}"
            for name, part in sorted(vars(value).items())
            if isinstance(part, (FunctionType, *_PLAIN))
            if name not in ("__module__", "__doc__", "__qualname__", "__firstlineno__")
        ]
        return f"class {value.__qualname__}({self._joined(value.__bases__)}; {'; '.join(parts)})"

    def _object(self, value: Any) -> str:
        kind = type(value)
        if is_dataclass(value):
            return f"{kind.__qualname__}({self._joined(getattr(value, field.name) for field in fields(value))})"
        package = kind.__module__.partition(".")[0]
        if package == "pyarrow" and kind.__name__.endswith(("Schema", "Type", "Field")):
            return str(value)
        if package == "numpy" and hasattr(value, "tobytes"):
            return f"{kind.__name__}({value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()})"
        if _is_installed(kind.__module__) or not hasattr(value, "__dict__"):
            return _name(kind)
        return f"{self._class(kind)}({self.of(vars(value))})"


def _argument(value: Any) -> str:
    """The argument of an instruction."""
    if isinstance(value, frozenset):
        return f"set({', '.join(sorted(map(repr, value)))})"
    return repr(value) if isinstance(value, (*_PLAIN, tuple)) else _name(type(value))


def _named_globals(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The global names in a function and the functions inside it, and attributes of the user's modules among them."""
    names = sorted(_names(function.__code__))
    for name in names:
        if name not in function.__globals__:
            continue
        value = function.__globals__[name]
        yield name, value
        if isinstance(value, ModuleType) and not _is_installed(value.__name__, getattr(value, "__file__", None)):
            yield from ((f"{name}.{inner}", getattr(value, inner)) for inner in names if hasattr(value, inner))


def _names(code: CodeType) -> set[str]:
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return {*code.co_names, *(name for each in inner for name in _names(each))}


def _is_installed(module: str | None, file: str | None = None) -> bool:
    if module is None:
        return False
    if module.partition(".")[0] == _PACKAGE:
        return True
    if file is None:
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is None:
            return module in sys.builtin_module_names
    return file.startswith(_INSTALLED) or file.startswith("<frozen")


def _name(value: Any) -> str:
    kind = value if hasattr(value, "__qualname__") else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"
