"""The files of a Spark Declarative Pipelines project: its spec, its definitions, and the side file for Headgate.

The spec, ``spark-pipeline.yml``, and the definitions are used as they are. What Spark has no words for stands in the
side file, beside the spec: priorities, target lags, event times.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headgate.core import DeclarationError
from headgate.warehouse.declare.checks import DeclarationErrors, Mistake, shown_file
from headgate.warehouse.declare.spec import Place

SIDE_FILE = "headgate.yml"
SUFFIXES = (".yml", ".yaml")

_SPEC_FIELDS = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
_SIDE_FIELDS = ("path", "storage", "lock", "catalog", "tables", "sources", "external")
_LENGTHS = ("partition", "target_lag", "patience")
#: what the side file may say of a table, and of the files that a streaming read loads
TABLE_OPTIONS = (*_LENGTHS, "time", "priority", "importance_class", "lookback", "mode", "key", "catch_up", "group")
SOURCE_OPTIONS = (
    *(*_LENGTHS, "time", "priority", "importance_class", "catch_up", "period", "max_future"),
    *("name", "schema", "order", "settle", "recursive"),
)
#: and of a table that the project does not define
EXTERNAL_OPTIONS = (*SOURCE_OPTIONS, "path", "format", "options")
_ENTRIES = {"tables": TABLE_OPTIONS, "sources": (*SOURCE_OPTIONS, "options"), "external": EXTERNAL_OPTIONS}


@dataclass(frozen=True, slots=True)
class SideOptions:
    """What the side file says of one table or source, and where."""

    place: Place
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Project:
    """A project as its files describe it. ``definitions`` are its Python and SQL files, in the order of their names."""

    file: Path
    name: str
    database: str | None
    catalog: str | None
    definitions: tuple[Path, ...]
    tables: Mapping[str, SideOptions]
    sources: Mapping[str, SideOptions]
    external: Mapping[str, SideOptions]
    #: how the warehouse is made: ``path``, ``storage``, ``lock`` and ``catalog``, as far as the side file says
    warehouse: Mapping[str, Any]
    #: what of the spec is not used, and where
    warnings: tuple[Mistake, ...] = ()

    @property
    def place(self) -> Place:
        return Place(str(self.file), 1)


def read_project(file: Path) -> Project:
    """The project whose spec is ``file``; DeclarationErrors lists what is wrong with the spec and the side file."""
    spec, spec_lines = _yaml(file)
    mistakes = [Mistake(Place(str(file), 1), text) for text in _spec_problems(spec)]
    if mistakes:
        raise DeclarationErrors(mistakes)
    side_file = file.parent / SIDE_FILE
    side, lines = _yaml(side_file) if side_file.exists() else ({}, {})
    mistakes += _side_mistakes(side, lines, side_file)
    if mistakes:
        raise DeclarationErrors(mistakes)
    noted = {
        part: {
            str(name): SideOptions(Place(str(side_file), lines[part, str(name)]), options or {})
            for name, options in (side.get(part) or {}).items()
        }
        for part in _ENTRIES
    }
    return Project(
        file=file,
        name=str(spec["name"]),
        database=spec.get("database", spec.get("schema")),
        catalog=spec.get("catalog"),
        definitions=tuple(_definitions(file, spec)),
        tables=noted["tables"],
        sources=noted["sources"],
        external=noted["external"],
        warehouse={key: side[key] for key in ("path", "storage", "lock", "catalog") if side.get(key)},
        warnings=tuple(_not_used(spec, spec_lines, file)),
    )


def as_options(settings: Mapping[str, Any]) -> str:
    """Settings of Spark as a command takes them; without their values, which may be secrets."""
    return " ".join(f"--conf {key}=..." for key in settings)


def _not_used(spec: Mapping[str, Any], lines: Mapping[tuple[str, str], int], file: Path) -> Iterator[Mistake]:
    settings = spec.get("configuration")
    if isinstance(settings, dict) and settings:
        text = f"configuration is not used: state it when you run it, by {as_options(settings)}"
        yield Mistake(Place(str(file), lines["configuration", ""]), text)


#: {folder of a project: the modules in it that its files have imported}
IMPORTED: dict[Path, tuple[Path, ...]] = {}


def project_files(file: Path) -> list[Path]:
    """All files that a project is declared in, as far as they can be read, with the modules that they import."""
    try:
        return [file, file.parent / SIDE_FILE, *read_project(file).definitions, *IMPORTED.get(file.parent, ())]
    except (DeclarationError, OSError):
        return [file, file.parent / SIDE_FILE]


def text_of(file: Path) -> str:
    """The text of a file of the project, which must be UTF-8; its mistakes have the line that is not."""
    written = file.read_bytes()
    try:
        return written.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = written.count(b"\n", 0, error.start) + 1
        text = f"the file must be UTF-8; got the byte 0x{written[error.start]:02x}, which is not. Save it as UTF-8"
        raise DeclarationErrors([Mistake(Place(str(file), line), text)]) from None


def _yaml(file: Path) -> tuple[dict[str, Any], dict[tuple[str, str], int]]:
    """The mapping in a YAML file, and the lines of the keys inside of its mappings."""
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        text = f"reading {shown_file(file)} needs PyYAML: pip install 'headgate[pipelines]'"
        raise DeclarationError(text) from None
    try:
        text = text_of(file)
        value, tree = yaml.safe_load(text), yaml.compose(text)
    except OSError as error:
        raise DeclarationError(f"cannot read {shown_file(file)}: {error.strerror}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = Place(str(file), 1 if mark is None else mark.line + 1)
        raise DeclarationErrors([Mistake(place, f"this is not YAML: {getattr(error, 'problem', error)}")]) from None
    if value is None:  # nothing but comments
        return {}, {}
    if not isinstance(value, dict):
        raise DeclarationErrors([Mistake(Place(str(file), 1), f"it takes fields such as 'name: city'; got {value!r}")])
    lines: dict[tuple[str, str], int] = {}
    for key, inner in tree.value:
        lines[str(key.value), ""] = key.start_mark.line + 1
        if isinstance(inner, yaml.MappingNode):
            for name, _ in inner.value:
                lines[str(key.value), str(name.value)] = name.start_mark.line + 1
    return value, lines


def _spec_problems(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        f"the field {name!r} is not one of a pipeline: {_near(name, _SPEC_FIELDS)}"
        for name in spec
        if name not in _SPEC_FIELDS
    )
    if not isinstance(spec.get("name"), str):
        yield "it needs a name, such as 'name: city'"
    libraries = spec.get("libraries") or []
    for entry in libraries if isinstance(libraries, list) else [libraries]:
        glob = entry.get("glob") if isinstance(entry, dict) else None
        pattern = glob.get("include") if isinstance(glob, dict) else None
        if not isinstance(pattern, str) or not pattern or not isinstance(libraries, list):
            yield f"libraries takes a list of entries such as 'glob: {{include: transformations/**}}'; got {entry!r}"
        elif Path(pattern).is_absolute():
            yield (
                f"include takes a pattern below the folder of the project, such as 'transformations/**'; got "
                f"{pattern!r}, which is an absolute path. Put the files below that folder, or name them relative to it"
            )


def _side_mistakes(side: Mapping[str, Any], lines: Mapping[tuple[str, str], int], file: Path) -> Iterator[Mistake]:
    allowed = _ENTRIES
    for part, entries in side.items():
        if part not in _SIDE_FIELDS:
            yield Mistake(Place(str(file), lines[part, ""]), f"the field {part!r}: {_near(part, _SIDE_FIELDS)}")
        elif part not in allowed:
            kind, such = (dict, "options such as 'region: eu'") if part == "storage" else (str, "a text")
            if entries is not None and not isinstance(entries, kind):
                yield Mistake(Place(str(file), lines[part, ""]), f"{part} takes {such}; got {entries!r}")
        elif not isinstance(entries or {}, dict):
            yield Mistake(
                Place(str(file), lines[part, ""]), f"{part} takes a name and options for each; got {entries!r}"
            )
        else:
            for name, options in (entries or {}).items():
                place = Place(str(file), lines[part, str(name)])
                if not isinstance(options or {}, dict):
                    yield Mistake(place, f"{name} takes options such as 'priority: 10'; got {options!r}")
                    continue
                unknown = [option for option in options or {} if option not in allowed[part]]
                yield from (
                    Mistake(place, f"{name}: option {each!r}: {_near(each, allowed[part])}") for each in unknown
                )
                if part == "external" and not isinstance((options or {}).get("path"), str):
                    yield Mistake(place, f"{name} needs where the table lies, as in {{path: data/trips}}")
                if not isinstance((options or {}).get("options") or {}, dict):
                    yield Mistake(place, f"{name}: options takes names and values; got {options['options']!r}")


def _near(name: object, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"


def _definitions(file: Path, spec: Mapping[str, Any]) -> Iterator[Path]:
    seen: set[Path] = set()
    for entry in spec.get("libraries") or []:
        pattern = entry["glob"]["include"]
        # As Spark does: below a folder that is named with /**, everything is a definition.
        for found in sorted(file.parent.glob(f"{pattern}/*" if pattern.endswith("/**") else pattern)):
            if found.suffix in (".py", ".sql") and "__pycache__" not in found.parts and found not in seen:
                seen.add(found)
                yield found
