"""Prints how large the package is and how its modules hang together: python scripts/house.py [CHECKOUT]

Everything is read from the source; nothing is imported. What counts:

    imports      those of the package's own modules. `from a.b import c` is an import of a.b.c if that is a module, else
                 of a.b.
    fan-out      how many modules a module imports when it is itself imported: not those inside functions or under
                 TYPE_CHECKING. The `__init__` of a package gathers names, so packages are counted apart.
    importers    who imports a module in any way, also inside functions and for types.
    class names  those at the top level of modules, private ones too.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import resolve_name
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "headgate"
SMALL = 60


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    name: str
    path: Path

    @cached_property
    def source(self) -> str:
        return self.path.read_text("utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @property
    def lines(self) -> int:
        return len(self.source.splitlines())

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def classes(self) -> list[ast.ClassDef]:
        return [node for node in self.tree.body if isinstance(node, ast.ClassDef)]

    @property
    def docstrings(self) -> list[str]:
        return [text for node in _documented(self.tree) if (text := ast.get_docstring(node))]


def _documented(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    yield node
    for inner in node.body:
        if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _documented(inner)


def modules(checkout: Path = ROOT) -> list[Module]:
    """All modules of the package, by name."""
    source = checkout / "src"
    found = []
    for path in sorted((source / PACKAGE).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found.append(Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


def class_names(package: Iterable[Module]) -> dict[str, list[str]]:
    """{name of a class: the modules that have one of that name}"""
    places = defaultdict(list)
    for module in package:
        for node in module.classes:
            places[node.name].append(module.name)
    return dict(places)


@dataclass(frozen=True)
class Import:
    """``at_import`` is whether it happens as soon as the importing module is imported."""

    target: str
    at_import: bool


def imports(module: Module, known: set[str]) -> set[Import]:
    """The modules among ``known`` that a module imports."""
    found = set()
    for node, at_import in _import_statements(module.tree.body, at_import=True):
        for target in _targets(node, module, known):
            if target != module.name:
                found.add(Import(target, at_import))
    return found


def _import_statements(nodes: Iterable[ast.AST], at_import: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, at_import
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _import_statements(node.body, at_import=False)
            yield from _import_statements(node.orelse, at_import)
        else:
            later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _import_statements(ast.iter_child_nodes(node), at_import and not later)


def _targets(node: ast.Import | ast.ImportFrom, module: Module, known: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        package = module.name if module.is_package else module.name.rpartition(".")[0]
        base = resolve_name("." * node.level + (node.module or ""), package)
        names = [full if (full := f"{base}.{alias.name}") in known else base for alias in node.names]
    yield from (name for name in names if name in known)


@dataclass(frozen=True)
class House:
    """What there is to say of a package."""

    modules: Sequence[Module]

    @cached_property
    def imports(self) -> dict[str, set[Import]]:
        known = {module.name for module in self.modules}
        return {module.name: imports(module, known) for module in self.modules}

    @cached_property
    def repeated(self) -> dict[str, list[str]]:
        return {name: places for name, places in sorted(class_names(self.modules).items()) if len(places) > 1}

    def fan_out(self, packages: bool) -> list[tuple[int, str]]:
        """(modules imported, module), the most first."""
        counts = [
            (len({each.target for each in self.imports[module.name] if each.at_import}), module.name)
            for module in self.modules
            if module.is_package is packages
        ]
        return sorted(counts, key=lambda pair: (-pair[0], pair[1]))

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {module.name: set() for module in self.modules}
        for name, targets in self.imports.items():
            for each in targets:
                found[each.target].add(name)
        return found

    @property
    def with_one_importer(self) -> list[Module]:
        return [m for m in self.modules if not m.is_package and len(self.importers[m.name]) == 1]


def tests(checkout: Path) -> tuple[int, int, int]:
    """(test functions, lines, files)"""
    sources = [path.read_text("utf-8") for path in sorted((checkout / "tests").rglob("*.py"))]
    functions = [
        node
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    return len(functions), sum(len(source.splitlines()) for source in sources), len(sources)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0].partition(":")[0])
    parser.add_argument("checkout", nargs="?", type=Path, default=ROOT, help="where src/ is (default: this checkout)")
    parser.add_argument("--list", action="store_true", help="name all small modules and all with one importer")
    options = parser.parse_args()
    house = House(modules(options.checkout))
    _show(house, every=options.list)
    functions, lines, files = tests(options.checkout)
    print(f"tests                  {functions:6} functions, {lines} lines in {files} files")


def _show(house: House, every: bool) -> None:
    small = [module for module in house.modules if module.lines < SMALL]
    lonely = house.with_one_importer
    print(f"lines                  {sum(module.lines for module in house.modules):6}")
    print(f"files                  {len(house.modules):6}")
    print(f"files under {SMALL} lines   {len(small):6}")
    if every:
        _list([f"{each.lines:3} {each.name}" for each in small])
    print(f"class names used twice {len(house.repeated):6}")
    _list([f"{name}: {', '.join(places)}" for name, places in house.repeated.items()])
    for what, packages in (("of a module", False), ("of a package", True)):
        (most, _), *_ = ranked = house.fan_out(packages)
        print(f"fan-out {what:14} {most:6}")
        _list([f"{count:3} {name}" for count, name in ranked[:5]])
    print(f"with one importer      {len(lonely):6}")
    if every:
        _list([f"{each.lines:3} {each.name} <- {', '.join(house.importers[each.name])}" for each in lonely])


def _list(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"    {line}")


if __name__ == "__main__":
    main()
