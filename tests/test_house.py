"""The house stays in order: class names are unique, errors form one tree, and what the texts say of the code holds.

``scripts/house.py`` reads the package for these tests, and prints its size for people.
"""

from __future__ import annotations

import ast
import builtins
import doctest
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from headgate import errors
from headgate.core.errors import HeadgateError
from headgate.core.registry import POLICIES
from scripts.house import Module, class_names, modules

ROOT = Path(__file__).parents[1]
MODULES = modules()
BY_NAME = {module.name: module for module in MODULES}
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: documents that speak of modules
GUIDES = [
    *DOCUMENTS,
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    *sorted(ROOT.glob("examples/*/*.md")),
]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- class names ------------------------------------------------------------------------------------------------


def test_every_class_name_exists_once() -> None:
    repeated = {name: places for name, places in sorted(class_names(MODULES).items()) if len(places) > 1}
    assert not repeated, "\n".join(f"{name} is in {' and in '.join(places)}" for name, places in repeated.items())


# --- errors -----------------------------------------------------------------------------------------------------

#: exceptions that are no HeadgateError, and why
NOT_OURS = {
    "Misfit": "a ValueError among those of Arrow; what users see of it is a rejected row",
    "Reject": "an answer of the user's function, not an error",
    "UpdateStopped": "ends a thread whose update did not end when it was cancelled; nobody sees it",
    "WorkerTracebackError": "stands for the user's own exception, of which a worker can send the text only",
}


def exceptions() -> dict[str, tuple[str, str]]:
    """{exception class of the package: (its module, the class it is derived from)}"""
    derived = {
        node.name: (module.name, ast.unparse(node.bases[0]).rpartition(".")[2])
        for module in MODULES
        for node in module.classes
        if node.bases
    }
    return {name: place for name, place in derived.items() if is_exception(derived[chain(name, derived)[-1]][1])}


def chain(name: str, derived: dict[str, tuple[str, str]]) -> list[str]:
    """A class and what it is derived from, as far as that is of the package."""
    names: list[str] = []
    while name in derived and name not in names:
        names.append(name)
        name = derived[name][1]
    return names


def is_exception(name: str) -> bool:
    kind = getattr(builtins, name, None)
    return isinstance(kind, type) and issubclass(kind, BaseException)


EXCEPTIONS = exceptions()
#: those that are errors of Headgate
ERRORS = {name for name in EXCEPTIONS if "HeadgateError" in chain(name, EXCEPTIONS)}


def drawn(tree: str) -> dict[str, str | None]:
    """{class: the class above it} of a tree drawn in a docstring."""
    above: list[str] = []
    found: dict[str, str | None] = {}
    for branch, name in re.findall(r"^((?:[│ ]   )*(?:[├└]── )?)([A-Z]\w+)(?=  |$)", tree, re.MULTILINE):
        if not branch and name != HeadgateError.__name__:
            continue
        del above[len(branch) // 4 :]
        found[name] = above[-1] if above else None
        above.append(name)
    return found


def test_every_exception_is_a_headgate_error() -> None:
    assert EXCEPTIONS.keys() - ERRORS == NOT_OURS.keys()


def misdrawn(tree: dict[str, str | None], wanted: set[str]) -> list[str]:
    """How a tree differs from what ``wanted``, some of the errors, are derived from."""
    bases = {name: EXCEPTIONS[name][1] if name != "HeadgateError" else None for name in wanted}
    return [
        *(f"{name} ({EXCEPTIONS[name][0]}) is not drawn" for name in sorted(bases.keys() - tree.keys())),
        *(f"{name} does not exist or does not belong here" for name in sorted(tree.keys() - bases.keys())),
        *(
            f"{name} is drawn under {tree[name]} and derived from {bases[name]}"
            for name in sorted(bases.keys() & tree.keys())
            if tree[name] != bases[name]
        ),
    ]


def test_the_error_tree_has_every_error_in_its_place() -> None:
    public = {name for name in ERRORS if not name.startswith("_")}
    assert misdrawn(drawn(errors.__doc__ or ""), public) == []


def test_the_errors_of_the_core_are_drawn_as_they_are() -> None:
    core = {name for name, (module, _) in EXCEPTIONS.items() if module == "headgate.core.errors"}
    assert misdrawn(drawn(BY_NAME["headgate.core.errors"].source), core) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(drawn(errors.__doc__ or "")))
def test_every_error_of_the_tree_is_looked_up_where_it_is_defined(name: str) -> None:
    error = getattr(errors, name)
    assert name in errors.__all__
    assert issubclass(error, HeadgateError)
    assert error.__module__ == errors._MODULE_OF[name] == EXCEPTIONS[name][0]


def test_only_errors_of_the_tree_are_looked_up() -> None:
    assert set(errors.__all__) == set(errors._MODULE_OF) == set(drawn(errors.__doc__ or ""))
    with pytest.raises(AttributeError, match="no attribute 'NoSuchError'"):
        errors.NoSuchError  # noqa: B018


def test_a_drawn_tree_is_read() -> None:
    lines = [
        "HeadgateError",
        "├── OneError   the first,",
        "│   └── InnerError",
        "└── TwoError",
        "    └── LastError  Ends",
    ]
    above = {
        "OneError": "HeadgateError",
        "InnerError": "OneError",
        "TwoError": "HeadgateError",
        "LastError": "TwoError",
    }
    assert drawn("\n".join(["Errors:", "", *lines, "", "Text"])) == {"HeadgateError": None, **above}


# --- what docstrings say ----------------------------------------------------------------------------------------

WITH_EXAMPLES = [module.name for module in MODULES if any(">>>" in text for text in module.docstrings)]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_in_docstrings_run(name: str) -> None:
    failed, tried = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried and not failed


def test_every_policy_that_a_docstring_chooses_is_registered() -> None:
    chosen = [
        (m.name, name) for m in MODULES for text in m.docstrings for name in re.findall(r'policy="([\w-]+)', text)
    ]
    assert [(module, name) for module, name in chosen if name not in POLICIES] == []


def resolves(dotted: str) -> bool:
    """Whether a dotted name is a module of the package, or something that one of its modules has."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        if module := BY_NAME.get(".".join(parts[:end])):
            return end == len(parts) or has(module, parts[end:])
    return False


def has(module: Module, path: list[str]) -> bool:
    body: list[ast.stmt] = module.tree.body
    for name in path:
        found = [node for node in walked(body) if name in names_bound(node)]
        if not found:
            return False
        body = found[0].body if isinstance(found[0], ast.ClassDef) else []
    return True


def walked(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements, and those under an ``if``: names of types are imported there."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from walked(node.body)


def names_bound(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [alias.asname or alias.name for alias in names]
        case ast.Assign(targets=targets):
            return [ast.unparse(target) for target in targets]
        case ast.AnnAssign(target=target):
            return [ast.unparse(target)]
    return []


DOTTED = re.compile(r"(?<![\w./-])headgate(?!\.(?:yml|id|lock|lease)\b)(?:\.[A-Za-z_]\w*)+(?![\w/-])")


def unknown_names(text: str) -> list[str]:
    return [name for name in DOTTED.findall(text) if not resolves(name)]


@pytest.mark.parametrize("guide", GUIDES, ids=named)
def test_every_module_that_a_document_names_exists(guide: Path) -> None:
    text = guide.read_text("utf-8")
    assert unknown_names(text) == []
    assert [path for path in re.findall(r"src/headgate/[\w/]*(?:\.py)?", text) if not (ROOT / path).exists()] == []


def test_every_module_that_a_docstring_names_exists() -> None:
    unknown = {module.name: found for module in MODULES for text in module.docstrings if (found := unknown_names(text))}
    assert unknown == {}


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        pytest.param("see headgate.core and ``headgate.core.errors``.", [], id="modules"),
        pytest.param("headgate.core.Graph, headgate.core.errors.HeadgateError", [], id="names of modules"),
        pytest.param("headgate.Warehouse", [], id="a name that is looked up"),
        pytest.param("headgate.core.policy.Policy.priorities()", [], id="a method"),
        pytest.param("headgate.utils", ["headgate.utils"], id="no such module"),
        pytest.param("headgate.core.Grap", ["headgate.core.Grap"], id="no such name"),
        pytest.param("my-headgate.toml, headgate.core/x", [], id="files"),
    ],
)
def test_names_that_do_not_exist_are_found(text: str, unknown: list[str]) -> None:
    assert unknown_names(text) == unknown


def test_the_contributors_guide_lists_layers_that_exist() -> None:
    layers = re.findall(r"^\| `(\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE)
    assert layers
    assert [layer for layer in layers if f"headgate.{layer}" not in BY_NAME] == []


# --- what documents import --------------------------------------------------------------------------------------

PUBLIC = {
    "headgate",
    *(f"headgate.{name}" for name in ("core", "sim", "stream", "warehouse", "testing", "errors")),
    *(f"headgate.core.{name}" for name in ("policies", "placements", "trace")),
}


def exported(module: str) -> set[str]:
    """The names in ``__all__``."""
    return set(import_module(module).__all__) if module in BY_NAME else set()


def private_imports(code: str) -> Iterator[str]:
    """One sentence for each import of a Python example that is not of the public surface."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names if alias.name.partition(".")[0] == "headgate"]
            yield from (f"{name} is not public" for name in found if name not in PUBLIC)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "headgate":
            for alias in node.names:
                if node.module not in PUBLIC:
                    yield f"{node.module}, which has {alias.name}, is not public"
                elif f"{node.module}.{alias.name}" not in PUBLIC and alias.name not in exported(node.module):
                    yield f"{alias.name} is not in the __all__ of {node.module}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_documents_import_from_the_public_surface_only(document: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", document.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    complaints = [complaint for block in blocks for complaint in private_imports(block)]
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize(
    ("code", "complaints"),
    [
        pytest.param("import headgate as hg, numpy", 0, id="the root"),
        pytest.param("from headgate import Warehouse, stream as hs", 0, id="a name and a layer"),
        pytest.param("from headgate.core import Graph, rank", 0, id="names of a layer"),
        pytest.param("from headgate.errors import GraphError", 0, id="an error"),
        pytest.param("from headgate.core.graph import Graph", 1, id="a module of a layer"),
        pytest.param("import headgate.core.graph", 1, id="a module of a layer, as a whole"),
        pytest.param("from headgate.core import registry", 1, id="a module that is not exported"),
        pytest.param("from headgate import cli", 1, id="the command line"),
    ],
)
def test_imports_that_are_not_public_are_found(code: str, complaints: int) -> None:
    assert len(list(private_imports(code))) == complaints
