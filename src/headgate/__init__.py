"""Headgate keeps many streaming tables and queries fresh when there is not enough machine for all of them at once.

The layers, from the inside out; imports point inward only, and a test keeps it so:

    core       graph, features, policies, placements, the loops' decision logic: NumPy and nothing else
    sim        virtual time: runs core against modelled nodes and workers
    cli        the command line, on top of everything

Importing this package starts nothing and imports neither Spark nor Arrow.
"""

__version__ = "0.1.0"

from headgate.core.errors import HeadgateError

__all__ = ["HeadgateError", "__version__"]
