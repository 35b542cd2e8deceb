"""What `headgate.warehouse` promises is there, and is the same for type checkers as when it is run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import headgate.warehouse

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", headgate.warehouse.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(headgate.warehouse, name) is not None


def test_type_checkers_see_the_same_names() -> None:
    source = Path(headgate.warehouse.__file__).read_text(encoding="utf-8")
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    seen = {(node.module, alias.asname) for node in imports for alias in node.names if alias.asname}
    assert seen == {(module, name) for name, module in headgate.warehouse._MODULE_OF.items()}


def test_an_unknown_name_is_refused_by_its_name() -> None:
    with pytest.raises(AttributeError, match=r"'headgate\.warehouse' has no attribute 'Pipeline'"):
        _ = headgate.warehouse.Pipeline


def test_storage_knows_nothing_of_the_rest_of_the_warehouse() -> None:
    inside = ("headgate.core", "headgate.warehouse.storage", "headgate.places")
    for path in (ROOT / "src/headgate/warehouse/storage").glob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        assert [name for name in modules if name.startswith("headgate") and not name.startswith(inside)] == []


def test_the_documents_use_the_public_names_of_the_warehouse_only() -> None:
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    internal = re.compile(r"headgate\.warehouse\.[a-z_]+")
    found = [(path.name, name) for path in documents for name in internal.findall(path.read_text(encoding="utf-8"))]
    assert found == []
