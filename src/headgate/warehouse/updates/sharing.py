"""Queries of several tables over the same rows, computed together: one Spark job and one engine for all of them.

The tables of a group that are updated together are looked through for queries that read the same rows in the same
order. Each such set is computed in one pass; every table still commits its own rows and states, so one that fails, or
is behind the others, does not concern them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headgate.stream.spark.passes import Request, rows_for, rows_of_all, teller
from headgate.stream.spark.update import Update
from headgate.warehouse.updates.nodes import Job
from headgate.warehouse.updates.reads import Reads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: a query of an update, by its name there
Wanted = tuple[Update, str, Request]


def share_passes(jobs: Iterable[Job], spark: SparkSession, reads: Reads) -> None:
    """Have ``reads`` know what the jobs' queries have in common, before any of the jobs is run."""
    updates = [update for job in jobs if (update := job.hosted(spark, reads)) is not None]
    wanted: list[Wanted] = [(update, name, request) for update in updates for name, request in update.requests.items()]
    for together in alike(wanted):
        if len(together) > 1:
            told = teller(together[0][2].frame)
            rows = reads.kept(rows_of_all([request for _, _, request in together], told))
            for number, (update, name, _) in enumerate(together):
                update.shared[name] = (rows_for(number, rows), told)
    reads.hosted = {update.table: update for update in updates}


def alike(wanted: Iterable[Wanted]) -> list[list[Wanted]]:
    """The queries that one pass can serve, set by set."""
    sets: list[list[Wanted]] = []
    for each in wanted:
        for known in sets:
            if known[0][2].goes_with(each[2]):
                known.append(each)
                break
        else:
            sets.append([each])
    return sets
