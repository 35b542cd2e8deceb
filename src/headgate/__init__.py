"""Headgate keeps many streaming tables and queries fresh when there is not enough machine for all of them at once.

The layers, from the inside out; imports point inward only, and a test keeps it so:

    core       graph, features, policies, placements, the loops' decision logic: NumPy and nothing else
    sim        virtual time: runs core against modelled nodes and workers
    warehouse  streams and tables on Spark: declaring, sources, storage, planning and making updates
    cli        the command line, on top of everything

Importing this package starts nothing and imports neither Spark nor Arrow: names are looked up when they are first
used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.core.errors import HeadgateError
    from headgate.warehouse.declare.warehouse import Warehouse
    from headgate.warehouse.sources import Files, Generator

__version__ = "0.1.0"

__all__ = ["Files", "Generator", "HeadgateError", "Warehouse", "__version__"]

_LOOKED_UP = {
    "Files": "headgate.warehouse.sources",
    "Generator": "headgate.warehouse.sources",
    "HeadgateError": "headgate.core.errors",
    "Warehouse": "headgate.warehouse.declare.warehouse",
}


def __getattr__(name: str) -> object:
    if name not in _LOOKED_UP:
        raise AttributeError(f"module 'headgate' has no attribute {name!r}")
    return getattr(import_module(_LOOKED_UP[name]), name)
