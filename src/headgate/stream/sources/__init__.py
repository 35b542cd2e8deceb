"""Sources: the program itself, files, a generator with a rate, a TCP connection, MQTT.

A source is a description; the engine opens it for a run. Rows that do not fit the source's schema are rejected with the
reason, and the query goes on.
"""

from headgate.stream.errors import BrokerError, InputError
from headgate.stream.sources.batches import Batches, Rows, from_batches, from_rows
from headgate.stream.sources.files import Files, Lines
from headgate.stream.sources.mqtt import Mqtt
from headgate.stream.sources.paced import Paced
from headgate.stream.sources.patterns import Batched, Bursts, Constant, Pattern, Replay
from headgate.stream.sources.socket_lines import Socket
from headgate.stream.sources.source import Chunk, Reader, Source, Wake

__all__ = [
    "Batched",
    "Batches",
    "BrokerError",
    "Bursts",
    "Chunk",
    "Constant",
    "Files",
    "InputError",
    "Lines",
    "Mqtt",
    "Paced",
    "Pattern",
    "Reader",
    "Replay",
    "Rows",
    "Socket",
    "Source",
    "Wake",
    "from_batches",
    "from_rows",
]
