"""Headgate keeps many streaming tables and queries fresh when there is not enough machine for all of them at once.

The layers, from the inside out. Imports point inward only, and a test keeps it so:

    core       what decides: graph, features, policies, placements, loops; the standard library and NumPy only
    sim        virtual time: the core with modelled nodes and workers (uses core)
    stream     continuous queries over Arrow packets, on threads or inside Spark (uses core)
    warehouse  streams and tables on Spark: declared, planned, updated, reported on (uses stream and core)
    cli        the command line, on top of everything

Beside them: ``errors``, all that is raised on purpose, and ``testing``, for tests of a policy of your own.

Importing this package starts nothing and imports neither Spark nor Arrow: names are looked up when they are first
used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.core import HeadgateError
    from headgate.warehouse.declare.alert import Alert
    from headgate.warehouse.declare.warehouse import Warehouse
    from headgate.warehouse.publish.kafka import KafkaSink
    from headgate.warehouse.publish.postgres import PostgresSink
    from headgate.warehouse.sources import Delta, Files, Generator, Kafka, MqttMessages, Postgres, PostgresChanges

__version__ = "0.1.0"

__all__ = [
    "Alert",
    "Delta",
    "Files",
    "Generator",
    "HeadgateError",
    "Kafka",
    "KafkaSink",
    "MqttMessages",
    "Postgres",
    "PostgresChanges",
    "PostgresSink",
    "Warehouse",
    "__version__",
]

_LOOKED_UP = {
    "Alert": "headgate.warehouse.declare.alert",
    "Delta": "headgate.warehouse.sources",
    "Files": "headgate.warehouse.sources",
    "Generator": "headgate.warehouse.sources",
    "HeadgateError": "headgate.core.errors",
    "Kafka": "headgate.warehouse.sources",
    "KafkaSink": "headgate.warehouse.publish.kafka",
    "MqttMessages": "headgate.warehouse.sources",
    "Postgres": "headgate.warehouse.sources",
    "PostgresChanges": "headgate.warehouse.sources",
    "PostgresSink": "headgate.warehouse.publish.postgres",
    "Warehouse": "headgate.warehouse.declare.warehouse",
}


def __getattr__(name: str) -> object:
    if name not in _LOOKED_UP:
        raise AttributeError(f"module 'headgate' has no attribute {name!r}")
    return getattr(import_module(_LOOKED_UP[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
