"""Tables on disk: Parquet files and the Delta log that says which of them make up each version."""

from headgate.warehouse.storage.errors import AlreadyCommittedError as AlreadyCommittedError
from headgate.warehouse.storage.errors import ForeignCommitError as ForeignCommitError
from headgate.warehouse.storage.errors import HistoryLostError as HistoryLostError
from headgate.warehouse.storage.errors import SchemaError as SchemaError
from headgate.warehouse.storage.errors import StorageError as StorageError
from headgate.warehouse.storage.files import ALL as ALL
from headgate.warehouse.storage.files import Changes as Changes
from headgate.warehouse.storage.files import DataFile as DataFile
from headgate.warehouse.storage.files import NewFile as NewFile
from headgate.warehouse.storage.files import Snapshot as Snapshot
from headgate.warehouse.storage.files import StoreStatistics as StoreStatistics
from headgate.warehouse.storage.partitions import partition_label as partition_label
from headgate.warehouse.storage.partitions import partition_labels as partition_labels
from headgate.warehouse.storage.partitions import partition_start as partition_start
from headgate.warehouse.storage.store import TableStore as TableStore
