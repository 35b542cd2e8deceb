"""The libraries of the page that come with it are named in the documentation, with the versions that they have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headgate.monitor.server import PAGE

VENDORED = PAGE / "vendor"
DOCUMENT = Path(__file__).parents[2] / "docs" / "dependencies.md"
#: {file: (its name in the document, what the version stands in)}
LIBRARIES = {"uplot": ("uPlot", r"uPlot \(v([\d.]+)\)"), "dagre": ("dagre", r'var \w+="(\d+\.\d+\.\d+)";')}


def test_there_are_no_others() -> None:
    assert {path.stem for path in VENDORED.iterdir()} == set(LIBRARIES)


@pytest.mark.parametrize("library", LIBRARIES)
def test_each_is_named_with_its_version_and_licence(library: str) -> None:
    name, pattern = LIBRARIES[library]
    found = re.search(pattern, (VENDORED / f"{library}.js").read_text("utf-8"))
    assert found is not None
    row = next(line for line in DOCUMENT.read_text("utf-8").splitlines() if line.startswith(f"| [{name}]"))
    assert [cell.strip() for cell in row.split("|")][2:4] == [found[1], "MIT"]
    assert "Permission is hereby granted, free of charge" in (VENDORED / f"{library}.LICENSE").read_text("utf-8")
