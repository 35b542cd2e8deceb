"""Where files are kept: in a folder of this machine (``pathlib.Path``), in an object store (`ObjectPath`), or in HDFS
(`HdfsPath`).

``place`` turns what a user writes into one of them, and says how other libraries name it.
"""
