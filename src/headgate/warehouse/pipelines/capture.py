"""Take in the definitions of a project by executing its Python files and reading its SQL files, without Spark.

Spark's own decorators are used; they hand what they are told to a registry, and here that is ours.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import CellType, FunctionType, ModuleType
from typing import Any

from headgate.core import UserCodeError
from headgate.warehouse.declare.checks import DeclarationErrors, Mistake, shown_file
from headgate.warehouse.declare.spec import Place
from headgate.warehouse.pipelines.definitions import CapturedFlow, Dataset, Definitions, Reads
from headgate.warehouse.pipelines.project import IMPORTED, Project, as_options, text_of
from headgate.warehouse.pipelines.reads import reads_of
from headgate.warehouse.pipelines.session import StandInSession, capturing
from headgate.warehouse.pipelines.sql_file import read_sql

#: in the message of Spark's error if there is no Spark
_NO_SPARK = "SESSION_OR_CONTEXT_NOT_EXISTS"
#: the modules that files of projects have imported from their folders
_OF_PROJECTS: set[str] = set()


def capture(project: Project) -> Definitions:
    """Everything that the files of ``project`` define.

    Some things that files do outside of functions need a Spark, such as a UDF whose type is a text. Only then one is
    started, and stopped again.
    """
    try:
        return _captured(project)
    except UserCodeError as error:
        if _NO_SPARK not in str(error.__cause__):
            raise
    from headgate.warehouse.session import open_session

    session = open_session("definitions", "local[1]")
    try:
        return _captured(project)
    finally:
        session.stop()


def _captured(project: Project) -> Definitions:
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context

    found = Definitions()
    folder = project.file.parent
    registry = _registry(found)
    with _in_folder(folder), capturing(), graph_element_registration_context(registry):
        for file in project.definitions:
            if file.suffix == ".sql":
                read_sql(text_of(file), file, found)
            else:
                _execute(file, found)
        # Now all functions are there that they call.
        for at, flow in enumerate(found.flows):
            if flow.function is not None:
                found.flows[at] = replace(flow, reads=reads_of(flow.function, folder))
    return found


def _registry(found: Definitions) -> Any:
    from pyspark.pipelines.graph_element_registry import GraphElementRegistry
    from pyspark.pipelines.output import Sink, Table, TemporaryView

    class CapturingRegistry(GraphElementRegistry):
        """Notes what Spark's decorators register."""

        def register_output(self, output: Any) -> None:
            place = _place(output.source_code_location)
            if isinstance(output, Sink):
                found.problems.append(
                    (place, f"the sink {output.name!r} cannot be taken over: tables are Delta tables")
                )
                return
            schema = output.schema if isinstance(output, Table) else None
            is_view = isinstance(output, TemporaryView)
            found.datasets.append(Dataset(output.name, place, is_view, output.comment or "", schema))

        def register_flow(self, flow: Any) -> None:
            place = _place(flow.source_code_location)
            if flow.spark_conf:
                text = f"the spark_conf of {flow.name!r} is not used: all tables have the same settings, which"
                found.warnings.append((place, f"{text} {as_options(flow.spark_conf)} would change"))
            found.flows.append(CapturedFlow(flow.name, flow.target, place, Reads(), _as_it_is_now(flow.func)))

        def register_auto_cdc_flow(self, flow: Any) -> None:
            text = f"the change flow into {flow.target!r} cannot be taken over: query the newest row of each key"
            found.problems.append((_place(flow.source_code_location), text))

        def register_sql(self, sql_text: str, file_path: Path) -> None:
            read_sql(sql_text, file_path, found)

    return CapturingRegistry()


def _as_it_is_now(function: Any) -> Any:
    """``function`` with the variables around it as they are: Spark calls it when it is defined, and only then.

    So those that a loop defines differ, also if they name its variable. Names that come later are added by _execute.
    """
    if not isinstance(function, FunctionType):
        return function
    try:
        cells = tuple(CellType(cell.cell_contents) for cell in function.__closure__ or ())
    except ValueError:  # one that is not filled yet
        cells = function.__closure__ or ()
    copied = FunctionType(
        function.__code__, dict(function.__globals__), function.__name__, function.__defaults__, cells or None
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__module__, copied.__qualname__, copied.__doc__ = (
        function.__module__,
        function.__qualname__,
        function.__doc__,
    )
    return copied


def _place(location: Any) -> Place:
    return Place(os.path.abspath(location.filename), location.line_number or 1)


@contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    """Relative paths of a project start at its folder, and its files import each other from there.

    Modules of the project are imported anew each time: they may have changed. Spark's worker processes cannot import
    them, so that functions of theirs are sent as a whole.
    """
    from pyspark import cloudpickle

    before = os.getcwd()
    os.chdir(folder)
    for name in _OF_PROJECTS:
        sys.modules.pop(name, None)
    _OF_PROJECTS.clear()
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    known = set(sys.modules)
    # Compiled code is told apart by seconds only: a file may be saved twice in one.
    writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes_none
        files = []
        for name in sorted(set(sys.modules) - known):
            module = sys.modules[name]
            file = str(getattr(module, "__file__", None) or "")
            if file.startswith(f"{folder}{os.sep}"):
                _OF_PROJECTS.add(name)
                files.append(Path(file))
                cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        IMPORTED[folder] = tuple(files)
        os.chdir(before)
        if str(folder) in sys.path:
            sys.path.remove(str(folder))


def _execute(file: Path, found: Definitions) -> None:
    # Not importable afterwards: Spark sends functions of importable modules by name only to its worker processes.
    module = ModuleType(f"headgate_pipeline_{file.stem}")
    module.__file__ = str(file)
    module.__dict__["spark"] = StandInSession()
    try:
        code = compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        place = Place(str(file), getattr(error, "lineno", None) or 1)
        raise DeclarationErrors([Mistake(place, f"this is not Python: {getattr(error, 'msg', error)}")]) from None
    sys.modules[module.__name__] = module
    try:
        exec(code, module.__dict__)
        for flow in found.flows:
            if isinstance(flow.function, FunctionType) and flow.function.__code__.co_filename == str(file):
                for name, value in module.__dict__.items():
                    flow.function.__globals__.setdefault(name, value)
    except DeclarationErrors:  # they have their lines
        raise
    except (Exception, SystemExit) as error:
        users_part = error.__traceback__.tb_next if error.__traceback__ else None
        lines = traceback.format_exception(type(error), error, users_part)
        raise UserCodeError(f"the definitions in {shown_file(file)} failed:\n{''.join(lines).rstrip()}") from error
    finally:
        sys.modules.pop(module.__name__, None)
