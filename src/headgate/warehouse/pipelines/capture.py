"""Take in the definitions of a project by executing its Python files and reading its SQL files, without Spark.

Spark's own decorators are used; they hand what they are told to a registry, and here that is ours.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from headgate.core import UserCodeError
from headgate.warehouse.declare.checks import DeclarationErrors, Mistake, shown_file
from headgate.warehouse.declare.spec import Place
from headgate.warehouse.pipelines.definitions import CapturedFlow, Dataset, Definitions
from headgate.warehouse.pipelines.project import Project, text_of
from headgate.warehouse.pipelines.reads import reads_of
from headgate.warehouse.pipelines.session import StandInSession, capturing
from headgate.warehouse.pipelines.sql_file import read_sql

#: in the message of Spark's error if there is no Spark
_NO_SPARK = "SESSION_OR_CONTEXT_NOT_EXISTS"


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
    registry = _registry(found, folder)
    with _in_folder(folder), capturing(), graph_element_registration_context(registry):
        for file in project.definitions:
            if file.suffix == ".sql":
                read_sql(text_of(file), file, found)
            else:
                _execute(file)
    return found


def _registry(found: Definitions, folder: Path) -> Any:
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
            place, reads = _place(flow.source_code_location), reads_of(flow.func, folder)
            found.flows.append(CapturedFlow(flow.name, flow.target, place, reads, flow.func))

        def register_auto_cdc_flow(self, flow: Any) -> None:
            text = f"the change flow into {flow.target!r} cannot be taken over: query the newest row of each key"
            found.problems.append((_place(flow.source_code_location), text))

        def register_sql(self, sql_text: str, file_path: Path) -> None:
            read_sql(sql_text, file_path, found)

    return CapturingRegistry()


def _place(location: Any) -> Place:
    return Place(os.path.abspath(location.filename), location.line_number or 1)


@contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    """Relative paths of a project start at its folder, and its files import each other from there."""
    before = os.getcwd()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        os.chdir(before)
        if str(folder) in sys.path:
            sys.path.remove(str(folder))


def _execute(file: Path) -> None:
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
    except (Exception, SystemExit) as error:
        users_part = error.__traceback__.tb_next if error.__traceback__ else None
        lines = traceback.format_exception(type(error), error, users_part)
        raise UserCodeError(f"the definitions in {shown_file(file)} failed:\n{''.join(lines).rstrip()}") from error
    finally:
        sys.modules.pop(module.__name__, None)
