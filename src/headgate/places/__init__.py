"""Where files are kept: in a folder of this machine (``pathlib.Path``), or in an object store (`ObjectPath`).

``place`` turns what a user writes into one of the two, and says how other libraries name it.
"""
