"""Tables on disk: Parquet files, and the Delta log that says which of them make up each version.

``store`` is the way in: one `TableStore` is one table. ``files`` and ``errors`` hold what it returns and raises.
Importing this package alone imports neither Arrow nor Delta.
"""

#: the column by which every table with event time is partitioned; readers see it, users need not name it
PARTITION_COLUMN = "_partition"
