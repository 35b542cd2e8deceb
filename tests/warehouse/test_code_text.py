"""Code as text: the same for the same code, however it is written; another one when it does something else."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from headgate.warehouse.declare.code_text import code_text

FIRST = """
import functools
LIMIT = 3

def helper(x):
    return x + LIMIT

def outer(step):
    def inner(x):
        return helper(x) * step
    return inner

def made(x, most=10, *, least=0):
    return [helper(y) for y in x if y in {'a', 'b', 'c'} and least < y < most]

class Model:
    def __init__(self, weight): self.weight = weight
    def __call__(self, x): return self.weight * x

by_two, part, model = outer(2), functools.partial(helper, x=1), Model(5)
"""


def text_of(source: str, name: str) -> str:
    space: dict[str, Any] = {"__name__": "users_pipeline"}
    exec(compile(textwrap.dedent(source), "/somewhere/pipeline.py", "exec"), space)
    return code_text(space[name])


@pytest.mark.parametrize("name", ["helper", "made", "by_two", "part", "model"])
@pytest.mark.parametrize(
    "rewritten",
    [
        pytest.param(lambda text: text.replace("\n", "\n\n# why\n"), id="layout"),
        pytest.param(lambda text: text.replace("(x):\n    return", "(x):\n    'What it does.'\n    return"), id="doc"),
        pytest.param(lambda text: text + "\ndef another(x):\n    return 7\n", id="another function beside it"),
    ],
)
def test_what_does_not_change_what_is_done_does_not_change_the_text(name: str, rewritten: Any) -> None:
    assert text_of(rewritten(FIRST), name) == text_of(FIRST, name)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        pytest.param("helper", "x + LIMIT", "x - LIMIT", id="an operator"),
        pytest.param("helper", "LIMIT = 3", "LIMIT = 4", id="a global constant"),
        pytest.param("made", "LIMIT = 3", "LIMIT = 4", id="a constant in a function that it calls"),
        pytest.param("made", "most=10", "most=11", id="a default"),
        pytest.param("made", "least=0", "least=1", id="a default of a keyword"),
        pytest.param("made", "'b'", "'d'", id="a constant set"),
        pytest.param("by_two", "outer(2)", "outer(3)", id="a value in the closure"),
        pytest.param("by_two", "* step", "+ step", id="the body of a closure"),
        pytest.param("part", "helper, x=1", "helper, x=2", id="an argument of a partial"),
        pytest.param("model", "Model(5)", "Model(6)", id="a field of an object"),
        pytest.param("model", "self.weight * x", "self.weight + x", id="a method"),
    ],
)
def test_what_changes_what_is_done_changes_the_text(name: str, old: str, new: str) -> None:
    assert old in FIRST
    assert text_of(FIRST.replace(old, new), name) != text_of(FIRST, name)


def test_the_text_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Not the seed of hashes, nor whether Python has compiled a module before, nor where objects lie in memory."""
    (tmp_path / "users_pipeline.py").write_text(FIRST, encoding="utf-8")
    program = (
        "import users_pipeline as m; from headgate.warehouse.declare.code_text import code_text; "
        "print(hash('x'), code_text([m.made, m.by_two, m.part, m.model]).encode().hex())"
    )
    texts = set()
    hashes = set()
    for seed in ("1", "2", "3"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}"}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        seen, text = done.stdout.split()
        hashes.add(seen)
        texts.add(text)
    assert (len(hashes), len(texts)) == (3, 1)


def test_functions_that_call_each_other_have_a_text() -> None:
    source = "def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n > 0 and even(n - 1)\n"
    assert text_of(source, "even") != text_of(source.replace("n > 0", "n > 1"), "even")


def test_of_what_is_installed_only_the_name_counts() -> None:
    import json

    assert code_text(json.dumps) == "json.dumps"
    assert code_text(code_text) == "headgate.warehouse.declare.code_text.code_text"
