"""The layers hold: every import in the package points inward, and `import headgate` stays light."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

#: {layer: the layers it may import}. A layer is a package or module directly below headgate; "headgate"
#: itself stands for the root __init__, which is on top and which only the command line and the monitor import.
INWARD = {
    "core": {"core"},
    "sim": {"sim", "core"},
    "apart": {"places", "core"},
    "autopilot": {"autopilot", "apart", "sim", "core"},
    "places": {"places", "core"},
    "stream": {"stream", "places", "core"},
    "warehouse": {"warehouse", "stream", "places", "apart", "core"},
    "errors": {"testing", "warehouse", "apart", "stream", "places", "sim", "core"},
    "testing": {"testing", "core"},
    "headgate": {"errors", "warehouse", "stream", "sim", "core"},
    "monitor": {"monitor", "headgate", "warehouse", "apart", "sim", "places", "core"},
    "cli": {"cli", "monitor", "headgate", "errors", "warehouse", "stream", "places", "sim", "core"},
    "__main__": {"cli"},
}

#: {layer: third-party packages it may import}; layers not named here are free to choose.
THIRD_PARTY = {"core": {"numpy"}, "sim": {"numpy"}}

#: Time, randomness and the outside world are passed in to the core, so it has no use for these.
FORBIDDEN_IN_CORE = {
    *("time", "datetime", "sched", "random", "secrets"),
    *("threading", "_thread", "asyncio", "concurrent", "multiprocessing", "subprocess", "queue", "signal"),
    *("socket", "select", "selectors", "http", "urllib"),
    *("logging", "io", "os", "pathlib", "shutil", "tempfile"),
}


def layer_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "headgate"


def absolute(module: str, is_package: bool, level: int, target: str) -> str:
    """The full name of what ``from <level dots><target> import`` means inside ``module``."""
    if level == 0:
        return target
    parents = module.split(".")
    keep = len(parents) - level + is_package
    return ".".join([*parents[:keep], *([target] if target else [])])


def dynamic_import(node: ast.Call) -> str | None:
    """The module named in ``import_module("...")`` or ``__import__("...")``."""
    match node:
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return name
    return None


def imported(module: str, source: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """(line, full name) of everything imported, also inside functions and under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            target = absolute(module, is_package, node.level, node.module or "")
            # `from headgate import sim` reaches into a layer; `from headgate import Graph` only into the root
            layers = [alias.name for alias in node.names if target == "headgate" and alias.name in INWARD]
            yield from ((node.lineno, f"headgate.{layer}") for layer in layers)
            if len(layers) < len(node.names):
                yield node.lineno, target
        elif isinstance(node, ast.Call) and (name := dynamic_import(node)):
            yield node.lineno, name


def refusal(layer: str, target: str) -> str | None:
    """Why ``layer`` may not import ``target``, or None if it may."""
    package = target.partition(".")[0]
    if package == "headgate":
        if layer_of(target) not in INWARD[layer]:
            return f"{layer} may import only {', '.join(sorted(INWARD[layer]))} of headgate"
    elif package in sys.stdlib_module_names:
        if layer == "core" and package in FORBIDDEN_IN_CORE:
            return "core gets time, randomness and the outside world passed in"
    elif layer in THIRD_PARTY and package not in THIRD_PARTY[layer]:
        return f"{layer} may use the standard library and {', '.join(THIRD_PARTY[layer])} only"
    return None


def violations(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """One sentence per import in ``source``, the text of ``module``, that breaks the rules above."""
    layer = layer_of(module)
    if layer not in INWARD:
        return [f"{module}: layer {layer!r} is unknown; say in INWARD what it may import"]
    return [
        f"{module} line {line} imports {target}: {reason}"
        for line, target in imported(module, source, is_package)
        if (reason := refusal(layer, target))
    ]


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = sorted((SOURCE / "headgate").rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_inward(path: Path) -> None:
    is_package = path.name == "__init__.py"
    assert violations(module_name(path), path.read_text("utf-8"), is_package=is_package) == []


def test_the_walk_reaches_the_inner_and_the_outer_layers() -> None:
    assert {"headgate", "core", "sim", "cli"} <= {layer_of(module_name(path)) for path in MODULES}


def test_every_layer_of_the_table_is_there() -> None:
    assert set(INWARD) == {layer_of(module_name(path)) for path in MODULES}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        pytest.param("headgate.core.graph", "import numpy as np\nfrom math import inf", id="core uses numpy"),
        pytest.param("headgate.core.graph", "from headgate.core.errors import GraphError", id="core uses core"),
        pytest.param("headgate.core.policies.chain", "from ..graph import Graph", id="core uses core, relative"),
        pytest.param("headgate.sim.clock", "import heapq\nfrom headgate.core import Graph", id="sim uses core"),
        pytest.param("headgate.sim.clock", "from headgate import core", id="sim uses core through the root"),
        pytest.param("headgate.stream.packet", "import threading, pyarrow", id="stream uses threads and Arrow"),
        pytest.param("headgate.warehouse.table", "from headgate.stream import on_spark", id="warehouse uses stream"),
        pytest.param("headgate.errors", "from headgate.warehouse import RunError", id="errors names errors"),
        pytest.param("headgate.testing.checks", "from headgate.core import Policy", id="testing uses core"),
        pytest.param("headgate.cli", "import typer, headgate, headgate.sim.run", id="cli uses everything"),
        pytest.param("headgate", "from headgate.sim import simulate", id="root exports sim"),
        pytest.param("headgate.core.graph", "timely = 'import time'", id="a word in a string is no import"),
    ],
)
def test_checker_accepts(module: str, source: str) -> None:
    assert violations(module, source) == []


@pytest.mark.parametrize(
    ("module", "source", "named"),
    [
        pytest.param("headgate.core.graph", "import time", "time", id="core with a clock"),
        pytest.param("headgate.core.graph", "from datetime import datetime", "datetime", id="core with dates"),
        pytest.param("headgate.core.graph", "import random as rnd", "random", id="core with global randomness"),
        pytest.param("headgate.core.graph", "import concurrent.futures", "concurrent.futures", id="core with threads"),
        pytest.param("headgate.core.graph", "import pyarrow.compute", "pyarrow.compute", id="core with Arrow"),
        pytest.param("headgate.core.graph", "def f():\n  import logging", "logging", id="core, inside a function"),
        pytest.param(
            "headgate.core.graph",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  from headgate.sim import Run",
            "headgate.sim",
            id="core, for types only",
        ),
        pytest.param("headgate.core.graph", "__import__('socket')", "socket", id="core, by __import__"),
        pytest.param(
            "headgate.core.graph",
            "import importlib\nimportlib.import_module('headgate.sim')",
            "headgate.sim",
            id="core, by import_module",
        ),
        pytest.param("headgate.core.graph", "from headgate import __version__", "headgate", id="core uses the root"),
        pytest.param("headgate.core.graph", "from headgate import sim", "headgate.sim", id="core uses sim by the root"),
        pytest.param("headgate.core.policies.chain", "from ...sim import Run", "headgate.sim", id="core, relative"),
        pytest.param("headgate.sim.clock", "from headgate.stream import Packet", "headgate.stream", id="sim to stream"),
        pytest.param("headgate.sim.clock", "import matplotlib", "matplotlib", id="sim with plots"),
        pytest.param("headgate.stream.packet", "import headgate.warehouse", "headgate.warehouse", id="stream outward"),
        pytest.param("headgate.warehouse.run", "import headgate.cli", "headgate.cli", id="warehouse outward"),
        pytest.param("headgate.warehouse.run", "import headgate.sim", "headgate.sim", id="warehouse to sim"),
        pytest.param("headgate.core.graph", "import headgate.errors", "headgate.errors", id="core to all errors"),
        pytest.param("headgate.errors", "from headgate.cli import main", "headgate.cli", id="errors to cli"),
        pytest.param("headgate.testing", "import headgate.stream", "headgate.stream", id="testing to stream"),
        pytest.param("headgate", "from headgate.cli import main", "headgate.cli", id="root to cli"),
    ],
)
def test_checker_refuses(module: str, source: str, named: str) -> None:
    (complaint,) = violations(module, source)
    assert f"imports {named}:" in complaint


@pytest.mark.parametrize(
    ("package", "source", "complaints"),
    [
        pytest.param("headgate.sim", "from .clock import Clock", 0, id="one dot is the package itself"),
        pytest.param("headgate.sim", "from ..core import Graph", 0, id="two dots are its parent"),
        pytest.param("headgate.core", "from ..sim import Run", 1, id="out of core"),
        pytest.param("headgate", "from . import core, sim", 0, id="root exports layers"),
        pytest.param("headgate", "from . import core, cli", 1, id="root to cli"),
    ],
)
def test_checker_counts_dots_from_the_package(package: str, source: str, complaints: int) -> None:
    assert len(violations(package, source, is_package=True)) == complaints


def test_checker_refuses_a_layer_without_rules() -> None:
    (complaint,) = violations("headgate.utils", "import math")
    assert "'utils' is unknown" in complaint


#: Records who asks for a blocked package instead of only refusing it: `try: import x` would hide the refusal.
PROBE = """
import importlib, json, sys

class Blocker:
    asked = []
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "pyarrow", "deltalake"}:
            self.asked.append(name)
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocker())
importlib.import_module(sys.argv[1])
json.dump({"asked": Blocker.asked, "loaded": sorted(sys.modules)}, sys.stdout)
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["headgate", "headgate.errors", "headgate.cli", "headgate.warehouse"])
def test_importing_works_without_the_heavy_packages_and_asks_for_none(module: str) -> None:
    probe = subprocess.run(
        [sys.executable, "-c", PROBE, module],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert probe.returncode == 0, probe.stderr
    seen = json.loads(probe.stdout)
    assert seen["asked"] == []
    assert module in seen["loaded"]
    assert "matplotlib" not in seen["loaded"]


@pytest.mark.parametrize("module", ["headgate", "headgate.warehouse", "headgate.errors"])
def test_dir_lists_what_is_looked_up_when_it_is_first_used(module: str) -> None:
    package = importlib.import_module(module)
    assert set(package.__all__) <= set(dir(package))
