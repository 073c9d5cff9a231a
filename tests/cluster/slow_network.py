"""A TCP proxy that loses answers, loses requests, and delivers requests late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

HOST = "127.0.0.1"
CHUNK_BYTES = 65536


class SlowNetwork:
    """A proxy in front of a server on this machine. Its attributes may change at any time.

    ``accepted``: how many connections there were.
    """

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self.accepted = 0
        self.loses_answers = False
        """Cut a connection when the server answers; the server has done what it was asked."""
        self.loses_requests = False
        """Cut a connection when the client sends something; the server never sees it."""
        self.delivers = asyncio.Event()
        """While it is not set, what clients send waits here, also that of clients that have gone."""
        self.delivers.set()
        self.delay_s = 0.0
        """How much longer each request takes."""
        self._server_port = server_port
        self._links: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[SlowNetwork]:
        listener = await asyncio.start_server(self._accept, HOST, 0)
        self.port = listener.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            listener.close()
            for link in self._links:
                link.cancel()
            await asyncio.gather(*self._links, return_exceptions=True)

    def _accept(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.accepted += 1
        link = asyncio.create_task(self._link(client, to_client))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _link(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        writers = [to_client]
        try:
            server, to_server = await asyncio.open_connection(HOST, self._server_port)
            writers.append(to_server)
            with suppress(ConnectionError):
                async with asyncio.TaskGroup() as directions:
                    answers = directions.create_task(self._answers(server, to_client))
                    directions.create_task(self._requests(client, to_server, answers))
        finally:
            for writer in writers:
                writer.transport.abort()

    async def _requests(
        self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter, answers: asyncio.Task[None]
    ) -> None:
        with suppress(ConnectionError):
            while data := await client.read(CHUNK_BYTES):
                if self.loses_requests:
                    break
                await self.delivers.wait()
                await asyncio.sleep(self.delay_s)
                to_server.write(data)
                await to_server.drain()
        answers.cancel()

    async def _answers(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await server.read(CHUNK_BYTES):
                if self.loses_answers:
                    break
                to_client.write(data)
                await to_client.drain()
        to_client.transport.abort()
