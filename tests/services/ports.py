"""Ports of loopback for servers that are told which to listen on."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

#: below those that the system gives to whoever asks for any: none of them is taken between the choice and the use, nor
#: while a server is away that is started again
_PORTS = range(20_000, 32_768)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now. Tests in other processes choose others, as they choose by chance, too."""
    chance = random.SystemRandom()
    found: list[int] = []
    with ExitStack() as taken:  # until all are found
        while len(found) < count:
            port = chance.choice(_PORTS)
            each = taken.enter_context(socket.socket())
            try:
                each.bind(("127.0.0.1", port))
            except OSError:  # somebody has it
                continue
            found.append(port)
    return found
