"""RIoTBench on the stream engine: extract-transform-load, statistics, prediction and training over city sensors."""

from __future__ import annotations

from headgate.workloads.riot.city import City
from headgate.workloads.riot.etl import EtlSettings, etl_query
from headgate.workloads.riot.pred import PredSettings, pred_query
from headgate.workloads.riot.stats import StatsSettings, stats_query
from headgate.workloads.riot.train import TrainSettings, train_query

__all__ = [
    "City",
    "EtlSettings",
    "PredSettings",
    "StatsSettings",
    "TrainSettings",
    "etl_query",
    "pred_query",
    "stats_query",
    "train_query",
]
