"""Load a pipeline file: the user's Python file that declares one warehouse, or the spec of somebody else's pipeline.

The file is executed as a module; its folder is on ``sys.path`` while it runs. Its one Warehouse is found among the
module's variables. The declarations are not checked here; ``Warehouse.spec`` does that.
"""

from __future__ import annotations

import difflib
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

from headgate.core import DeclarationError, UserCodeError
from headgate.warehouse.declare.checks import DeclarationErrors, Mistake, shown, shown_file
from headgate.warehouse.declare.collecting import collecting_mistakes
from headgate.warehouse.declare.spec import Place
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.sources.errors import SourceError

_SKELETON = "a pipeline file has a line such as: wh = headgate.Warehouse('city')"
_BEFORE_SPARK = (
    "The file is read before Spark is started: make columns and windows (F.col, F.lit, Window) inside the function of "
    "a table, and give a udf outside of one its type as an object: F.udf(StringType()) instead of F.udf('string')"
)


def load(path: str | os.PathLike[str]) -> Warehouse:
    """The warehouse declared in the file at ``path``.

    Raises a DeclarationError if the file is not there, is not Python or has not exactly one warehouse, a SourceError if
    it asks a source that cannot be reached, and a UserCodeError with the user's traceback if the file itself fails.
    """
    file = Path(os.path.abspath(path))
    if is_project(file):
        from headgate.warehouse.pipelines.translate import load_project

        return load_project(file)
    code = _compiled(file)
    module = ModuleType(f"headgate_pipeline_{file.stem}")
    module.__file__ = str(file)
    with _importing_beside(file, module), collecting_mistakes() as mistakes:
        _execute(code, module, file, mistakes)
    if mistakes and not any(isinstance(value, Warehouse) for value in vars(module).values()):
        raise DeclarationErrors(mistakes)
    warehouse = _only_warehouse(module, file)
    warehouse.note_mistakes(mistakes)
    return warehouse


def is_project(path: Path) -> bool:
    """Whether a file is the spec of a Spark Declarative Pipelines project."""
    return path.suffix in (".yml", ".yaml")


def files_of(path: Path) -> list[Path]:
    """The files that the declarations of a pipeline file are in."""
    if not is_project(path):
        return [path]
    from headgate.warehouse.pipelines.project import project_files

    return project_files(path)


def _compiled(file: Path) -> CodeType:
    try:
        # Otherwise the __future__ imports of this module would hold in the user's as well.
        return compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
    except OSError as error:
        text = f"cannot read the pipeline file {shown_file(file)}: {error.strerror}{_nearest(file)}"
        raise DeclarationError(text) from None
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        text = f"this is not Python: {getattr(error, 'msg', error)}; {_SKELETON}"
        raise DeclarationErrors([Mistake(Place(str(file), line), text)]) from None


def _nearest(file: Path) -> str:
    beside = [other.name for other in file.parent.glob("*.py")] if file.parent.is_dir() else []
    close = difflib.get_close_matches(file.name, beside, n=1)
    return f"; did you mean {close[0]}?" if close else ""


@contextmanager
def _importing_beside(file: Path, module: ModuleType) -> Iterator[None]:
    """While the file is executed, the module and the files in its folder can be imported.

    Afterwards the module must not be importable: Spark sends functions of importable modules by name only, and its
    worker processes could not import this one.
    """
    sys.path.insert(0, str(file.parent))
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        sys.modules.pop(module.__name__, None)
        if str(file.parent) in sys.path:
            sys.path.remove(str(file.parent))


def _execute(code: CodeType, module: ModuleType, file: Path, mistakes: list[Mistake]) -> None:
    """``mistakes`` are those that were noted so far; they are reported with whatever ends the file."""
    try:
        exec(code, module.__dict__)
    except DeclarationErrors as error:
        raise DeclarationErrors([*mistakes, *error.mistakes]) from error
    except DeclarationError as error:
        # Raised at once: give it the line that the other mistakes have.
        last = Mistake(_last_line_in(file, error.__traceback__), str(error))
        raise DeclarationErrors([*mistakes, last]) from error
    except SourceError as error:
        # Nothing is wrong with the file, so a traceback of it would lead astray.
        last = Mistake(_last_line_in(file, error.__traceback__), str(error))
        if mistakes:
            raise DeclarationErrors([*mistakes, last]) from error
        raise SourceError(f"{shown(last.place)}: {error}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # such as SystemExit
        users_part = error.__traceback__.tb_next if error.__traceback__ else None
        told = "".join(traceback.format_exception(type(error), error, users_part)).rstrip()
        if _asked_for_spark(error):
            told += f"\n{_BEFORE_SPARK}"
        raise UserCodeError(f"the pipeline file {shown_file(file)} failed:\n{told}") from error


def _asked_for_spark(error: BaseException) -> bool:
    """Whether PySpark failed because no Spark runs yet; often it is a bare ``assert`` that says nothing."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    in_pyspark = bool(frames) and str(frames[-1].f_globals.get("__name__")).startswith("pyspark.")
    return in_pyspark and ("SESSION_OR_CONTEXT_NOT_EXISTS" in str(error) or isinstance(error, AssertionError))


def _last_line_in(file: Path, trace: TracebackType | None) -> Place:
    lines = [line for frame, line in traceback.walk_tb(trace) if frame.f_code.co_filename == str(file)]
    return Place(str(file), lines[-1] if lines else 1)


def _only_warehouse(module: ModuleType, file: Path) -> Warehouse:
    found = list({id(value): value for value in vars(module).values() if isinstance(value, Warehouse)}.values())
    if not found:
        text = f"there is no warehouse among the variables of {shown_file(file)}; {_SKELETON}"
        raise DeclarationError(text)
    if len(found) > 1:
        first, *others = sorted(found, key=lambda warehouse: (warehouse.place.file, warehouse.place.line))
        raise DeclarationErrors(
            Mistake(
                other.place,
                f"warehouse {other.name!r} comes after warehouse {first.name!r} at {shown(first.place)}, "
                "and a pipeline file has one: move it to a file of its own",
            )
            for other in others
        )
    return found[0]
