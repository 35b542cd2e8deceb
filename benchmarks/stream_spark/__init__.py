"""What the benchmarks of queries inside tables share: rows as they land, a warehouse with one query in it, and peers.

Every part that starts Spark is a process of its own (see `process`), so that benchmarks do not find each other's
sessions, settings and warm classes.
"""
