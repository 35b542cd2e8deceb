"""The numbers of a run for Prometheus, under ``/metrics``.

They are those of the last visit to the scheduler: to read them disturbs nobody. Names and labels are stable; docs and
the dashboard in ``deploy`` rely on them, and a test compares. Of the states of a table only the present one is there,
with the value 1: with thousands of tables, the others would be most of the answer.
"""

from __future__ import annotations

import platform
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from headgate.core import Update
from headgate.core.trace import TraceHeader, TraceTable
from headgate.monitor.record import shown_state, staleness_of
from headgate.warehouse.schedule.glance import Glance
from headgate.warehouse.schedule.ledger import NodeStatistics

#: seconds: from an update that only commits to one that recomputes everything
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)

_TABLE = ("warehouse", "table", "kind", "class")
_Value = Callable[[NodeStatistics], float | None]

#: {name: (help, the value of one table, None if it has none)}
_GAUGES: dict[str, tuple[str, _Value]] = {
    "headgate_table_staleness_seconds": (
        "Now minus the event time up to which the table is complete.",
        lambda row: None if row.staleness is None else max(0.0, row.staleness),
    ),
    "headgate_table_lag_seconds": (
        "How long the oldest data that is not yet in the table has been waiting; 0 if none waits.",
        lambda row: row.lag,
    ),
    "headgate_table_target_lag_seconds": ("The lag that is still on time, as declared.", lambda row: row.target_lag),
    "headgate_table_target_met_ratio": (
        "Share of the time of this run in which the lag was within its target.",
        lambda row: row.target_met,
    ),
    "headgate_table_priority": ("The weight of the table's staleness now.", lambda row: row.priority),
    "headgate_table_rows": ("Rows in the table now.", lambda row: row.rows),
}


class RunMetrics:
    """Told of a run by those who watch it; ``written`` gives the answer to a request. Any thread may call it."""

    def __init__(self, viewers: Callable[[], int], silent_for: Callable[[], float]) -> None:
        self._viewers = viewers
        self._silent_for = silent_for
        self._lock = threading.Lock()
        self._warehouse = ""
        self._declared: dict[str, TraceTable] = {}
        self._glance: Glance | None = None
        #: {(table, layer): updates}
        self._committed: Counter[tuple[str, str]] = Counter()
        self._failed: Counter[tuple[str, str]] = Counter()
        self._registry = CollectorRegistry(auto_describe=False)
        self._seconds = Histogram(
            "headgate_update_seconds",
            "How long updates took that have ended, by layer and outcome (committed or failed).",
            ("warehouse", "layer", "outcome"),
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._registry.register(self)

    def begin(self, header: TraceHeader) -> None:
        self._warehouse = header.warehouse
        self.redeclared(header.tables)

    def redeclared(self, tables: Iterable[TraceTable]) -> None:
        declared = {each.name: each for each in tables}
        with self._lock:
            self._declared = declared
            for counts in (self._committed, self._failed):
                for key in [key for key in counts if key[0] not in declared]:
                    del counts[key]

    def updated(self, update: Update) -> None:
        with self._lock:
            counts = self._committed if update.committed else self._failed
            counts[update.table, update.layer] += 1
        outcome = "committed" if update.committed else "failed"
        self._seconds.labels(self._warehouse, update.layer, outcome).observe(update.seconds)

    def seen(self, glance: Glance) -> None:
        self._glance = glance

    def written(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics in the format that ``accept``, the header of a request, asks for; and the type of that."""
        encode, kind = choose_encoder(accept)
        return encode(self._registry), kind

    # --- for the registry -----------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        from headgate import __version__

        build = InfoMetricFamily("headgate_build", "The version of Headgate and of Python.")
        build.add_metric([], {"version": __version__, "python": platform.python_version()})
        yield build
        yield self._of_run("headgate_viewers", "Pages and terminals that follow the run now.", self._viewers())
        silent = self._silent_for()
        yield self._of_run(
            "headgate_scheduler_silent_seconds",
            "Time since the scheduler has answered; all other values are from then.",
            silent,
        )
        glance = self._glance
        if glance is None:
            return
        yield from self._run(glance)
        with self._lock:
            committed, failed, declared = dict(self._committed), dict(self._failed), self._declared
        labels: _Labels = {
            row.name: (self._warehouse, row.name, table.kind, str(table.importance_class))
            for row in glance.tables
            if (table := declared.get(row.name)) is not None
        }
        rows = [row for row in glance.tables if row.name in labels]
        yield from _tables(rows, labels)
        yield _behind(rows, labels)
        yield _state_of(rows, labels, glance)
        yield _counted("headgate_table_updates", "Updates of this run that were committed.", committed, labels)
        yield _counted("headgate_table_update_failures", "Updates of this run that have failed.", failed, labels)

    def _run(self, glance: Glance) -> Iterator[Metric]:
        mean = staleness_of(glance.tables)
        if mean is not None:
            yield self._of_run(
                "headgate_weighted_staleness_seconds",
                "Mean staleness of all tables with rows, weighted by priority.",
                mean,
            )
        yield self._of_run("headgate_queue_length", "Updates that wait for a track.", len(glance.queue))
        yield self._of_run("headgate_tracks", "How many updates may run at the same time.", glance.tracks)
        busy = len({each.track for each in glance.running})
        yield self._of_run("headgate_tracks_busy", "Tracks on which an update runs.", busy)
        policy = InfoMetricFamily("headgate_policy", "What decides which table is updated next.", labels=["warehouse"])
        policy.add_metric([self._warehouse], {"policy": glance.policy, "placement": glance.placement})
        yield policy

    def _of_run(self, name: str, help_text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, help_text, labels=["warehouse"])
        family.add_metric([self._warehouse], value)
        return family


_Labels = dict[str, tuple[str, str, str, str]]


def _behind(rows: Iterable[NodeStatistics], labels: _Labels) -> Metric:
    said = "Records that are not loaded, of each partition of a source that has some."
    found = GaugeMetricFamily("headgate_source_waiting_records", said, labels=(*_TABLE, "part"))
    for row in rows:
        for part, count in row.behind.items():
            found.add_metric([*labels[row.name], part], count)
    return found


def _tables(rows: Iterable[NodeStatistics], labels: _Labels) -> Iterator[Metric]:
    for name, (help_text, value_of) in _GAUGES.items():
        family = GaugeMetricFamily(name, help_text, labels=_TABLE)
        for row in rows:
            if (value := value_of(row)) is not None:
                family.add_metric(labels[row.name], value)
        yield family
    rejected = CounterMetricFamily(
        "headgate_table_rejected_rows", "Rows that updates of this run have rejected.", labels=_TABLE
    )
    for row in rows:
        rejected.add_metric(labels[row.name], row.rejected)
    yield rejected


def _state_of(rows: Iterable[NodeStatistics], labels: _Labels, glance: Glance) -> Metric:
    family = GaugeMetricFamily(
        "headgate_table_state",
        "1 for the state that the table is in; other states are left out.",
        labels=(*_TABLE, "state"),
    )
    tracks = {each.table: each.track for each in glance.running if each.layer == "live"}
    queued = {each.name for each in glance.queue}
    for row in rows:
        state = shown_state(row, tracks.get(row.name), 1 if row.name in queued else None, row.name in glance.left)
        family.add_metric((*labels[row.name], state), 1)
    return family


def _counted(name: str, help_text: str, counts: dict[tuple[str, str], int], labels: _Labels) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=(*_TABLE, "layer"))
    for table, own in labels.items():
        family.add_metric((*own, "live"), counts.get((table, "live"), 0))
    for (table, layer), count in counts.items():
        if layer != "live" and table in labels:
            family.add_metric((*labels[table], layer), count)
    return family
