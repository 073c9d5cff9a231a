"""Hears of announcements, by a session of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from .postgres_session import Session


class Listener:
    """Its session is opened in the background, because that may take longer than a wait lasts.

    If each wait opened one and gave it up, a server that is slow would be asked for ever more sessions.
    """

    def __init__(self, open_session: Callable[[], Awaitable[Session]]) -> None:
        self._open_session = open_session
        self._session: Session | None = None
        self._opening: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()

    async def wait(self, timeout_s: float) -> None:
        """Until the next announcement, and until a session has been opened or could not be; at most ``timeout_s``.

        Behind a pooler there are no announcements. Raises what opening a session raises.
        """
        if self._opening is None and (self._session is None or self._session.is_closed):
            self._opening = asyncio.create_task(self._open())
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._heard.wait()
        self._heard.clear()
        if self._opening is not None and self._opening.done():
            opening, self._opening = self._opening, None
            opening.result()

    async def _open(self) -> None:
        """What was announced before it listens may have been missed, so the wait ends."""
        try:
            self._session = await self._open_session()
            await self._session.listen(self._heard.set)
        finally:
            self._heard.set()

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._opening
        if self._session is not None:
            self._session.drop()
