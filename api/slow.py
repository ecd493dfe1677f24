"""Connections whose request does not arrive: one that takes too long to send its headers is closed."""

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_S: Final = 20.0
"""From the first byte of a request to the end of its headers, and from connecting to the first byte."""


class PatientProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, with a limit on how long headers may take."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take a piece; whole headers end the waiting, the first bytes of others begin it."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._be_served()
        elif self._waiting is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more comes."""
        self._be_served()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(HEADERS_S, self._give_up)

    def _be_served(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()
