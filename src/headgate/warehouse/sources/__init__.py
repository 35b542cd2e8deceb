"""Where streams come from: a directory of files, or a generator; ``protocol`` says what any other has to do.

Making a source imports neither Spark nor Arrow; reading from it does.
"""

from headgate.warehouse.sources.errors import SourceChanged, SourceError, SourceUnreadable
from headgate.warehouse.sources.files import Files
from headgate.warehouse.sources.generator import Generator
from headgate.warehouse.sources.protocol import Limit, Notice, Offset, Pending, Range, Source

__all__ = [
    "Files",
    "Generator",
    "Limit",
    "Notice",
    "Offset",
    "Pending",
    "Range",
    "Source",
    "SourceChanged",
    "SourceError",
    "SourceUnreadable",
]
