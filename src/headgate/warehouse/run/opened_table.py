"""One table of a running warehouse for those who look into it: where it is stored, and how it is declared."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass

from headgate.warehouse.declare.spec import NodeSpec, TableSpec
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.open_warehouse import OpenWarehouse


@dataclass(frozen=True, slots=True)
class TableCode:
    """How a table is declared: in ``language`` "sql" or "python", or "" if it is loaded; ``place`` is in which line."""

    language: str
    text: str
    place: str
    mode: str = ""


@dataclass(frozen=True, slots=True)
class OpenedTable:
    """A table, and the one with its rejected rows; ``code`` is None where the declaration is not at hand."""

    store: TableStore
    rejected: TableStore | None = None
    code: TableCode | None = None


def opened_table(warehouse: OpenWarehouse, name: str) -> OpenedTable:
    """The table called ``name``; raises KeyError if there is none."""
    node = warehouse.nodes[name]
    spec = next(each for each in warehouse.spec.nodes() if each.name == name)
    return OpenedTable(node.store, node.rejected, table_code(spec, str(warehouse.modes.get(name, ""))))


def table_code(spec: NodeSpec, mode: str = "") -> TableCode:
    place = str(spec.place)
    if not isinstance(spec, TableSpec):
        # Only its kind: how a source is reached may be secret.
        return TableCode("", f"loaded from {type(spec.source).__name__}", place, mode)
    if spec.query is not None:
        return TableCode("sql", textwrap.dedent(spec.query).strip(), place, mode)
    try:
        text = textwrap.dedent(inspect.getsource(spec.function)) if spec.function is not None else ""
    except (OSError, TypeError):  # made by other code, or its file is gone
        text = ""
    return TableCode("python", text.strip(), place, mode)
