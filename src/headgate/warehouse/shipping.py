"""What the executors of a cluster need to run Python for us: this package, and the modules of the user.

With ``local[...]`` Python workers find modules where this process finds them. Executors on other machines have an
interpreter with the packages that Headgate depends on, and nothing else: Headgate itself is sent as an archive, and the
user's modules inside the functions that use them. Those that functions import only when they are called are looked for
there by name, so they are sent as an archive, too.
"""

from __future__ import annotations

import ast
import atexit
import hashlib
import os
import py_compile
import shutil
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

#: where the archive is kept, unless HEADGATE_CACHE names another folder
_CACHE = "~/.cache/headgate"
_PACKAGE = Path(__file__).parents[1]
_INSTALLED = tuple(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib"))


def is_local(master: str | None) -> bool:
    """Whether a Spark master computes in its driver's process: then there are no other machines."""
    return master is not None and (master == "local" or master.startswith("local["))


def is_installed(path: str) -> bool:
    """Whether a file or folder belongs to the interpreter or its installed packages."""
    return path.startswith(_INSTALLED)


def ship_package(context: SparkContext) -> None:
    """Send this package to the executors of a cluster, also to those that come later."""
    if is_local(context.master) or not _PACKAGE.is_dir():
        return
    before = list(sys.path)
    context.addPyFile(str(package_archive()))
    sys.path[:] = before  # it adds the archive to the path of this process, too, which has the package already


def package_archive() -> Path:
    """This package as a zip archive: made once, and kept in a cache folder for later runs."""
    sources = sorted(path for path in _PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc")
    # Compiled modules are for one version of Python. Another one compiles the source text, which is there, too.
    digest = hashlib.sha256(sys.version.encode())
    for path in sources:
        status = path.stat()
        digest.update(f"{path.relative_to(_PACKAGE)} {status.st_size} {status.st_mtime_ns}\n".encode())
    name = f"headgate-{digest.hexdigest()[:16]}.zip"
    folder = Path(os.environ.get("HEADGATE_CACHE") or _CACHE).expanduser()
    if not (folder / name).exists():
        folder = _writable(folder)
        _write_archive(folder / name, sources)
    return folder / name


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="headgate-"))


def _write_archive(archive: Path, sources: list[Path]) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        written, compiled = Path(folder) / archive.name, Path(folder) / "module.pyc"
        with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as target:
            for path in sources:
                name = path.relative_to(_PACKAGE.parent).as_posix()
                target.write(path, name)
                if path.suffix == ".py":
                    # Without it every Python worker would compile all modules that it imports, again and again.
                    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
                    py_compile.compile(str(path), str(compiled), name, invalidation_mode=mode)
                    target.write(compiled, f"{name}c")
        os.replace(written, archive)


def ship_modules(folder: Path) -> None:
    """Send the imported modules in ``folder`` along with the functions that use them: executors do not have them.

    Spark sends functions of other modules by name. These it sends as they are, and so all that they refer to.
    """
    from pyspark import cloudpickle

    for module in _modules_in(folder):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _modules_in(folder: Path) -> list[ModuleType]:
    """The imported modules of the user in ``folder``."""
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or name == "__main__" or name.partition(".")[0] == "headgate" or is_installed(file):
            continue
        if Path(file).is_relative_to(folder):
            found.append(module)
    return found


def ship_late_imports(context: SparkContext, pipeline: Path) -> None:
    """Send the modules beside a pipeline file that functions import when they are called to the executors of a cluster.

    A Python worker that has imported one keeps it, so a changed module counts from the next start on.
    """
    if is_local(context.master):
        return
    archive = late_imports_archive(pipeline)
    if archive is not None:
        before = list(sys.path)
        context.addPyFile(str(archive))
        sys.path[:] = before


def late_imports_archive(pipeline: Path) -> Path | None:
    """An archive of the modules beside a pipeline file that it or its modules import in functions; None without any."""
    files = late_imports(pipeline)
    if not files:
        return None
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(pipeline.parent)}\n".encode() + path.read_bytes())
    archive = Path(tempfile.mkdtemp(prefix="headgate-")) / f"modules-{digest.hexdigest()[:16]}.zip"
    atexit.register(shutil.rmtree, archive.parent, ignore_errors=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for path in files:
            target.write(path, path.relative_to(pipeline.parent).as_posix())
    return archive


def late_imports(pipeline: Path) -> list[Path]:
    """The files of modules beside a pipeline file that functions import, and of those that these import in turn."""
    folder = pipeline.parent
    known = {pipeline, *(Path(str(module.__file__)) for module in _modules_in(folder))}
    wanted = [name for file in known for name in _imports(file, in_functions=True)]
    found: set[Path] = set()
    while wanted:
        name = wanted.pop()
        for path in _files_of(folder, name):
            if path not in found:
                found.add(path)
                wanted += _imports(path)
    return sorted(found)


def _imports(file: Path, *, in_functions: bool = False) -> list[str]:
    """The first parts of the names that a file imports: all, or those inside of its functions."""
    try:
        tree: ast.AST = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    roots = [node for node in ast.walk(tree) if isinstance(node, functions)] if in_functions else [tree]
    names = []
    for node in (inner for root in roots for inner in ast.walk(root)):
        if isinstance(node, ast.Import):
            names += [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module.partition(".")[0])
    return names


def _files_of(folder: Path, name: str) -> list[Path]:
    """The files of a module or a package in ``folder``; none if it is somewhere else."""
    if name == "headgate":
        return []
    module = folder / f"{name}.py"
    return [module] if module.is_file() else sorted((folder / name).rglob("*.py"))
