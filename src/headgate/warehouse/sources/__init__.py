"""Sources of streams: a directory of files, a topic of Kafka, a generator. ``protocol`` says what others must do.

Declaring a source imports neither Spark nor Arrow; reading from it does.
"""

from headgate.warehouse.sources.errors import SourceBroken, SourceChanged, SourceError, SourceUnreadable
from headgate.warehouse.sources.files import Files
from headgate.warehouse.sources.generator import Generator
from headgate.warehouse.sources.kafka import Kafka
from headgate.warehouse.sources.protocol import DataSource, Limit, Notice, Offset, Pending, Range

__all__ = [
    "DataSource",
    "Files",
    "Generator",
    "Kafka",
    "Limit",
    "Notice",
    "Offset",
    "Pending",
    "Range",
    "SourceBroken",
    "SourceChanged",
    "SourceError",
    "SourceUnreadable",
]
