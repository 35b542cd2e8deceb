"""Policies and placements by name: turns what a user writes into an object.

    fcfs                                            one that comes with Headgate
    qst:capacity=500                                with parameters
    multi-class:3=fcfs,default=(qst:capacity=500)   one inside another; parentheses keep their parameters apart
    mypackage.scheduling.Fairest:share=0.5          a class of the user's own, by its path

Parameters are the fields of the dataclass, and their annotations say what is accepted. ``policy_from(str(policy))``
gives an equal policy back. Naming a class by its path imports its module; nothing else here has side effects. A text
that the user has not written, such as one in a file, is read with ``imports=False``: then it can only name what comes
with Headgate.
"""

from __future__ import annotations

import importlib
import math
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeGuard, TypeVar, Union, get_args, get_origin, get_type_hints

from headgate.core.errors import (
    USER_ERRORS,
    DeclarationError,
    HeadgateError,
    ParameterError,
    UnknownNameError,
    UserCodeError,
    let_pass,
    said_by,
)
from headgate.core.placement import Placement
from headgate.core.placements import SHIPPED as SHIPPED_PLACEMENTS
from headgate.core.policies import SHIPPED as SHIPPED_POLICIES
from headgate.core.policies.auto import refuse_inside
from headgate.core.policy import Choosable, Policy, vet

POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in SHIPPED_POLICIES}
PLACEMENTS: dict[str, type[Placement]] = {placement.name: placement for placement in SHIPPED_PLACEMENTS}

_Chosen = TypeVar("_Chosen", bound=Choosable)

#: the longest text that is read, in letters; it also limits how deep policies can be inside each other
MOST_LETTERS = 1000


def policy_from(text: str, *, imports: bool = True) -> Policy:
    """The policy written as ``NAME[:parameter=value,...]``; without ``imports`` only one that comes with Headgate."""
    return _POLICY.read(text, imports)


def placement_from(text: str, *, imports: bool = True) -> Placement:
    """The placement written as ``NAME[:parameter=value,...]``; see ``policy_from``."""
    return _PLACEMENT.read(text, imports)


class Parameter(NamedTuple):
    """What can be written after the name of a policy or placement: ``default`` is None if there is none, ``described``
    says what it takes. ``CLASS`` stands for all parameters whose names are numbers of classes."""

    name: str
    default: object
    described: str


def parameters_of(owner: type[object]) -> tuple[Parameter, ...]:
    """The parameters of a class; a default that is itself chosen by name is the text that names it."""
    if not is_dataclass(owner):
        return ()
    kinds = _annotations(owner, f"the class {owner.__name__}")
    found = []
    for field in (field for field in fields(owner) if field.init):
        kind, default = kinds.get(field.name), None if field.default is MISSING else field.default
        if _numbered(kind):
            found.append(Parameter("CLASS", None, _described(_numbered(kind))))
        else:
            text = str(default) if isinstance(default, Choosable) else default
            found.append(Parameter(field.name, text, _described(kind)))
    return tuple(found)


# --- names ------------------------------------------------------------------------------------------------------


class _NotANameError(UnknownNameError):
    """What was given as a name cannot be one."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self.known = name, ()
        DeclarationError.__init__(self, why)


@dataclass(frozen=True)
class _NamedClasses(Generic[_Chosen]):
    """The classes of one kind (policy, placement) that users choose by name."""

    noun: str
    known: Mapping[str, type[_Chosen]]
    base: type[_Chosen]

    def read(self, text: str, imports: bool) -> _Chosen:
        if len(text) > MOST_LETTERS:
            raise ParameterError(
                f"a {self.noun} is written in at most {MOST_LETTERS} letters; got {len(text)}, from {text[:60]!r} on"
            )
        name, _, parameters = (part.strip() for part in text.partition(":"))
        open_ones = text.count("(") - text.count(")")
        if open_ones and ("(" in name or ")" in name):
            what = "closed" if open_ones > 0 else "opened"
            raise _NotANameError(name, f"in the {self.noun} {text!r}, a parenthesis is not {what}")
        chosen = self._class_called(name, imports)
        values = _values(chosen, parameters, f"{self.noun} {name!r}", imports)
        try:
            made = chosen(**values)
        except HeadgateError:
            raise
        except USER_ERRORS as error:
            let_pass(error)
            said = said_by(error)
            raise UserCodeError(f"{self.noun} {name!r} failed while it was made from {text!r}: {said}") from error
        vet(made)
        return made

    def _class_called(self, name: str, imports: bool) -> type[_Chosen]:
        if "." not in name:
            if name not in self.known:
                hint = f"A {self.noun} of your own is named by its path: package.module.Class."
                raise UnknownNameError(self.noun, name, self.known, hint=hint)
            return self.known[name]
        if not all(part.isidentifier() for part in name.split(".")):
            hint = f"A {self.noun} of your own is named by its path: package.module.Class."
            raise UnknownNameError(self.noun, name, self.known, hint=hint)
        if not imports:
            raise UnknownNameError(self.noun, name, self.known, hint="No module is imported to look for it.")
        module_name, _, attribute = name.rpartition(".")
        module = _imported(module_name, f"{self.noun} {name!r}")
        theirs = {key: value for key, value in vars(module).items() if self._is_one(value)}
        if attribute not in theirs:
            hint = f"It must be a class derived from {self.base.__module__}.{self.base.__name__}."
            raise UnknownNameError(f"{self.noun} in the module {module_name!r}", attribute, theirs, hint=hint)
        if missing := sorted(getattr(theirs[attribute], "__abstractmethods__", ())):
            listed = " and ".join(f"`{method}`" for method in missing)
            raise DeclarationError(f"{self.noun} {name!r}: it is abstract; name a class that has {listed}")
        return theirs[attribute]

    def _is_one(self, value: object) -> TypeGuard[type[_Chosen]]:
        return isinstance(value, type) and issubclass(value, self.base)


_POLICY: _NamedClasses[Policy] = _NamedClasses("policy", POLICIES, Policy)  # type: ignore[type-abstract]
_PLACEMENT: _NamedClasses[Placement] = _NamedClasses("placement", PLACEMENTS, Placement)  # type: ignore[type-abstract]


def _imported(module_name: str, wanted: str) -> types.ModuleType:
    try:
        return importlib.import_module(module_name)
    except USER_ERRORS as error:
        let_pass(error)
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise DeclarationError(
                f"there is no module {error.name!r}, so the {wanted} cannot be found: "
                "check the spelling, and that the module's folder is on PYTHONPATH"
            ) from error
        raise UserCodeError(f"the module of the {wanted} failed while it was imported: {said_by(error)}") from error


# --- parameters -------------------------------------------------------------------------------------------------


def _values(owner: type[object], text: str, label: str, imports: bool) -> dict[str, object]:
    """The arguments to make ``owner`` with, written ``parameter=value,...``.

    A field of type ``tuple[tuple[int, X], ...]`` collects the parameters whose names are numbers.
    """
    declared = [field for field in fields(owner) if field.init] if is_dataclass(owner) else []
    kinds = _annotations(owner, label) if text and declared else {}
    accepted = {field.name: kinds.get(field.name) for field in declared}
    numbered = next((name for name, kind in accepted.items() if _numbered(kind)), None)
    values: dict[str, object] = {}
    pairs: list[tuple[int, object]] = []
    for parameter, written in _words(text, label):
        if parameter in values:
            raise ParameterError(f"{label}: the parameter {parameter!r} is given twice; give it once")
        if numbered and re.fullmatch(r"-?\d+", parameter):
            pairs.append((int(parameter), _value(_numbered(accepted[numbered]), written, parameter, label, imports)))
        elif parameter in accepted and parameter != numbered:
            values[parameter] = _value(accepted[parameter], written, parameter, label, imports)
        else:
            raise ParameterError(f"{label} has no parameter {parameter!r}; it takes {_listing(accepted)}")
    if numbered and pairs:
        values[numbered] = tuple(pairs)
    for field in declared:
        if field.default is MISSING and field.default_factory is MISSING and field.name not in values:
            raise ParameterError(f"{label} needs the parameter {field.name!r}: write {field.name}=VALUE after a colon")
    return values


def _annotations(owner: type[object], label: str) -> dict[str, Any]:
    try:
        return get_type_hints(owner)
    except Exception as error:
        raise UserCodeError(f"{label}: the annotations of its fields cannot be resolved: {error}") from error


def _words(text: str, label: str) -> Iterator[tuple[str, str]]:
    """The parameters with their values as written, without the parentheses around a value."""
    for word in _split(text):
        parameter, equals, value = (part.strip() for part in word.partition("="))
        if not (parameter and equals and value):
            raise ParameterError(f"{label}: parameters are written parameter=value,...; got {word!r}")
        yield parameter, value[1:-1] if value.startswith("(") and value.endswith(")") else value


def _value(kind: Any, text: str, parameter: str, label: str, imports: bool) -> object:
    try:
        value = _read(kind, text, imports)
    except ValueError:
        raise ParameterError(f"{label}: the parameter {parameter!r} takes {_described(kind)}; got {text!r}") from None
    refuse_inside(f"{label}: {parameter}", value)
    return value


def _listing(accepted: Mapping[str, Any]) -> str:
    listed = (
        f"CLASS=VALUE ({_described(_numbered(kind))})" if _numbered(kind) else f"{name} ({_described(kind)})"
        for name, kind in accepted.items()
    )
    return ", ".join(listed) or "no parameters"


def _split(text: str) -> Iterator[str]:
    """The words between commas; a comma inside parentheses parts nothing."""
    start = depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    if text:
        yield text[start:]


# --- values -----------------------------------------------------------------------------------------------------


def _read(kind: Any, text: str, imports: bool) -> object:
    """``text`` as a value of type ``kind``; ValueError if it is not one."""
    if kind in _CHOSEN:
        return _CHOSEN[kind].read(text, imports)
    if kind in _READERS:
        return _READERS[kind][1](text)
    choices = {str(choice): choice for choice in get_args(kind)} if get_origin(kind) is Literal else {}
    if text in choices:
        return choices[text]
    if _optional(kind):
        return None if text.lower() == "none" else _read(_optional(kind), text, imports)
    raise ValueError(text)


def _described(kind: Any) -> str:
    if kind in _CHOSEN:
        return f"a {_CHOSEN[kind].noun}"
    if kind in _READERS:
        return _READERS[kind][0]
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if _optional(kind):
        return f"{_described(_optional(kind))}, or none"
    return "a value that cannot be written as text: make the object in Python"


def _numbered(kind: Any) -> Any:
    """X of ``tuple[tuple[int, X], ...]``, None of any other type."""
    match get_args(kind):
        case (pair, end) if end is Ellipsis and get_origin(pair) is tuple and get_args(pair)[0] is int:
            return get_args(pair)[1]
    return None


def _optional(kind: Any) -> Any:
    """X of ``X | None``, None of any other type."""
    if get_origin(kind) in (Union, types.UnionType) and len(get_args(kind)) == 2:
        return next((other for other in get_args(kind) if other is not type(None)), None)
    return None


def _number(text: str) -> float:
    if math.isnan(float(text)):
        raise ValueError(text)
    return float(text)


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false", "on", "off"):
        raise ValueError(text)
    return text.lower() in ("true", "on")


#: by type: what messages call a value, and how it is read
_READERS: dict[Any, tuple[str, Callable[[str], object]]] = {
    int: ("a whole number", int),
    float: ("a number", _number),
    bool: ("true or false", _truth),
    str: ("text", str),
}
#: by type: what is itself chosen by name
_CHOSEN: dict[Any, _NamedClasses[Any]] = {Policy: _POLICY, Placement: _PLACEMENT}
