"""One table on disk: a Delta table whose every change is one atomic log entry that also carries the state.

Files are written first, into a directory of the update's own (``data/u<update>-<token>``), by this process or by
Spark; then one commit names them. So whatever happens in between leaves, at worst, files that no entry names
(``sweep`` deletes them), and opening the table again gives the state of the last commit.

Knows nothing of schedules, sources and queries. It is the only writer of its directory.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake.exceptions import DeltaError

from headgate.warehouse.storage import maintenance, parquet, schemas
from headgate.warehouse.storage.errors import AlreadyCommittedError, HistoryLostError, StorageError
from headgate.warehouse.storage.files import (
    Changes,
    DataFile,
    Everything,
    NewFile,
    Snapshot,
    State,
    StoreStatistics,
)
from headgate.warehouse.storage.history import LogEntry, named_directories, net_changes, read_entry
from headgate.warehouse.storage.index import FileIndex
from headgate.warehouse.storage.log import Commit, DeltaLog
from headgate.warehouse.storage.partitions import partition_start

DATA_DIRECTORY = "data"
#: how long versions can be read and changes told, unless the table is opened with another length
HISTORY_SECONDS = 86_400
_REMEMBERED_ENTRIES = 256

_log = logging.getLogger(__name__)
