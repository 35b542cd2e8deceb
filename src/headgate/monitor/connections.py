"""Connections to the page that ask for nothing: each takes a file of the process that also commits the tables.

So there is a most of them, and one whose request does not come in time is closed, whoever it is from: a token is asked
for only when there is a request.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

#: how many connections there may be, viewers included
MOST_CONNECTIONS = 256
#: a request, with its body, comes within so many seconds, or twice as many if others came before it
REQUEST_SECONDS = 10.0


class ImpatientProtocol(H11Protocol):
    """HTTP/1.1 that closes connections which owe a request for too long."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
            return
        self._look_again(True)

    def _look_again(self, owed: bool) -> None:
        cycle = self.cycle
        self.loop.call_later(REQUEST_SECONDS, lambda: self._look(owed, cycle))

    def _look(self, owed: bool, cycle: object) -> None:
        """``owed`` is whether a request was due at the last look, and ``cycle`` was the last request then."""
        if self.transport.is_closing():
            return
        owes = self.conn.their_state.__name__ in ("IDLE", "SEND_BODY")  # the words of h11
        if owed and owes and self.cycle is cycle:
            self.transport.abort()
        else:
            self._look_again(owes)
