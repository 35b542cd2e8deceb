"""The public surface of the stream package: one place to import from, one tree of errors."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from headgate import stream
from headgate.core.errors import HeadgateError
from headgate.stream import errors

ROOT = Path(__file__).parents[2]
CODE_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def imports_below_the_package(code: str) -> list[str]:
    modules = [
        name
        for node in ast.walk(ast.parse(code))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    ]
    return [module for module in modules if module.startswith("headgate.stream.")]


def test_every_exported_name_is_there_once() -> None:
    assert len(set(stream.__all__)) == len(stream.__all__)
    assert [name for name in stream.__all__ if not hasattr(stream, name)] == []


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.py")), ids=lambda path: path.name)
def test_examples_import_from_the_package_only(path: Path) -> None:
    assert imports_below_the_package(path.read_text("utf-8")) == []


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_documents_import_from_the_package_only(path: Path) -> None:
    blocks = CODE_BLOCK.findall(path.read_text("utf-8"))
    assert [module for block in blocks for module in imports_below_the_package(block)] == []


def test_imports_below_the_package_are_found() -> None:
    code = "import headgate.stream.engine\nfrom headgate.stream.query import Query\nfrom headgate.stream import run"
    assert imports_below_the_package(code) == ["headgate.stream.engine", "headgate.stream.query"]


def test_the_error_tree_in_the_docstring_names_every_error() -> None:
    here = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and name.endswith("Error")}
    assert all(issubclass(kind, HeadgateError) for kind in here.values())
    assert set(re.findall(r"\w+Error\b", errors.__doc__ or "")) == set(here)


def test_no_other_module_of_the_engine_defines_an_error() -> None:
    package = Path(inspect.getfile(stream)).parent
    elsewhere = [
        f"{path.relative_to(package)}: {node.name}"
        for path in sorted(package.rglob("*.py"))
        if path.parent.name != "spark" and path.name != "errors.py"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error")
    ]
    assert elsewhere == []
