"""Updates of tables: planned, begun, computed, written and committed.

The path of one update, from data that has arrived to the live table:

1. ``Scheduler.poll`` (``schedule``) finds that a source is due and calls ``Node.plan``. A node is one layer of work on
   one table: ``StreamNode``, ``DimensionNode``, ``TableNode``, ``BackfillNode``, ``MaintenanceNode``. If data is
   pending, the node returns an ``Update`` with status *planned*.
2. The scheduler writes the features of the update for the policy and tells the dispatch loop that the node is ready.
3. ``Scheduler.decide``: the loop picks nodes and tracks. ``Node.begin`` fixes what the update reads, in
   ``Update.plan``: a ``LoadPlan`` with a ``Range`` of the source, or a ``DerivePlan`` with files of source tables. The
   status becomes *running*. Ready tables of the same group begin together.
4. ``Runtime`` (``run``) hands the updates to a thread of ``Tracks``, which calls ``Node.run``.
5. ``run`` computes the rows with Spark: ``load`` reads the source and separates rejected rows, ``derive`` calls the
   table's function; ``hosted`` keeps the states of stream queries inside it.
6. The rows are written as Parquet files (``TableStore``, or ``spark_files`` for large updates). ``TableStore.commit``
   adds one entry to the table's Delta log, which names the files and carries the ``CommitState``.
7. The track sets the status to *committed* or *failed* and puts the update into the inbox of the runtime.
8. ``Scheduler.ended`` calls ``Node.end``, updates the ledger or sets a retry, and plans the tables built on this one.
9. The runtime passes the update to its observers: the trace writes it, the live table shows it.
"""
