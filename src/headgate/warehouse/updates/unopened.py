"""A table that could not be opened. The others go on; this one is tried again until it can be opened."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from headgate.core import HeadgateError, Update, first_line
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.node import Node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.stream.spark.update import HostedUpdate
    from headgate.warehouse.updates.spark_files import FileReader


class CannotOpenError(HeadgateError):
    """A table cannot be opened, so it is not updated."""


class UnopenedTable(Node):
    """Stands for a table that could not be opened. Planning tries to open it, and says why that fails."""

    def __init__(self, table: str, sources: tuple[str, ...], store: TableStore, open_node: Callable[[], Node]) -> None:
        self.table = table
        self.sources = sources
        self.store = store
        self._open_node = open_node
        #: the warehouse has to be opened again to go on with this table
        self.can_be_opened = False

    def plan(self) -> Update | None:
        try:
            self._open_node()
        except CannotOpenError as error:  # a source of it
            raise CannotOpenError(f"it is not updated: {error}") from error
        except Exception as error:
            raise CannotOpenError(
                f"it cannot be opened, so it is not updated: {first_line(error)}. Mend that, or remove "
                f"{self.store.directory}, if it can be computed again; then it is opened by itself"
            ) from error
        self.can_be_opened = True
        return None

    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        return False

    def run(
        self,
        update: Update,
        spark: SparkSession,
        files: FileReader | None = None,
        hosted: HostedUpdate | None = None,
    ) -> None:
        raise CannotOpenError(f"table {self.table!r} is not open")
