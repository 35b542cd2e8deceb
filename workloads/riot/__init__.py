"""RIoTBench on the stream engine: extract-transform-load, statistics, prediction and training over city sensors."""

from __future__ import annotations

from workloads.riot.city import City
from workloads.riot.etl import EtlSettings, etl_query
from workloads.riot.pred import PredSettings, pred_query
from workloads.riot.stats import StatsSettings, stats_query
from workloads.riot.train import TrainSettings, train_query

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
