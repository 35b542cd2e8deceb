"""Prints the lowest version of each package that pyproject.toml allows, as constraints for pip.

    python scripts/lowest_versions.py > lowest.txt && pip install --constraint lowest.txt --editable '.[dev]'

`make test-lowest` runs the tests with them, so that the lower bounds are true. Tools whose output is the same for
everybody, such as the formatter, are constrained as well: they have lower bounds, too.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"

#: a name, extras in brackets, and the bounds
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*([^;]*)")


def lowest_versions(project: dict[str, Any]) -> dict[str, str]:
    """The lowest version of each package by name; ValueError names a requirement without a lower bound."""
    lowest: dict[str, str] = {}
    for requirement in _requirements(project):
        match = _REQUIREMENT.match(requirement)
        assert match is not None
        name, bounds = match.groups()
        if name == project["name"]:
            continue  # an extra that consists of other extras
        versions = [_version(bound) for bound in bounds.split(",") if bound.strip().startswith((">=", "=="))]
        if not versions:
            raise ValueError(f"{requirement!r} in pyproject.toml has no lower bound: add one, such as {name}>=1.2")
        if lowest.setdefault(name, versions[0]) != versions[0]:
            raise ValueError(f"pyproject.toml has two lower bounds of {name}: {lowest[name]} and {versions[0]}")
    return lowest


def _requirements(project: dict[str, Any]) -> Iterator[str]:
    yield from project["dependencies"]
    for extra in project["optional-dependencies"].values():
        yield from extra


def _version(bound: str) -> str:
    """``4.3`` for ``==4.3.*``, which pip takes for 4.3.0."""
    return bound.strip().lstrip(">=").strip().removesuffix(".*")


def main() -> None:
    project = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]
    try:
        lowest = lowest_versions(project)
    except ValueError as error:
        sys.exit(f"lowest_versions: {error}")
    for name, version in sorted(lowest.items()):
        print(f"{name}=={version}")


if __name__ == "__main__":
    main()
