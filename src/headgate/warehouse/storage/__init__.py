"""Tables on disk: Parquet files, and the Delta log that names the files of each version.

``store`` is the entry: one `TableStore` is one table. ``files`` and ``errors`` hold what it returns and raises.
Importing this package alone imports neither Arrow nor Delta.
"""

#: the column by which every table with event time is partitioned; readers see it, users need not name it
PARTITION_COLUMN = "_partition"
#: columns with this prefix are in the data files but not in the table: the log does not name them, so readers that go
#: by the log do not see them
HIDDEN_PREFIX = "__headgate_"
